"""Texts longer than --max-length are read in windows (--stride): learnt, evaluated and answered as whole texts."""

from harness import *

LENGTH, STRIDE = 12, 4
FILLERS = ["film", "book", "the", "is", "song", "not"]
TAGS = {"good": "B-PRAISE", "very": "B-PRAISE", "bad": "I-PRAISE"}


def texts(count, seed, words=40):
    """(label, text): a text of one to `words` words, of which one, anywhere, is the label's."""
    source, found = random.Random(seed), []
    for number in range(count):
        text = [source.choice(FILLERS) for _ in range(source.randint(1, words))]
        text[source.randrange(len(text))] = ("good", "bad")[number % 2]
        found.append((("pro", "contra")[number % 2], " ".join(text)))
    return found


class Windows(ProgramTest):
    def words(self, output="run", **options):
        if not (self.folder / "model").exists():
            self.model()
        train = write_rows(self.folder / "long.tsv", ("label", "text"), texts(160, 1))
        held_out = write_rows(self.folder / "long-eval.tsv", ("label", "text"), texts(60, 2))
        return self.finetune_words(self.folder / "model", output=output, **{
            "train": train, "eval": held_out, "max_length": LENGTH, "num_train_epochs": 6, "stride": STRIDE, "batch_size": 16, **options})

    def note(self, output="run"):
        return json.loads((self.folder / output / "model" / "config.json").read_text())["funicular"]

    def test_classes_are_found_where_a_cut_text_lacks_them(self):
        cut = self.succeeds(*self.words(output="cut", stride=None))
        done = self.succeeds(*self.words())
        self.assertRegex(done.err, r"long.tsv: \d+ of 160 texts are longer than a sequence and are read in \d+ windows")
        self.assertNotIn("cut", done.json())
        self.assertIn("cut", cut.json())
        self.assertGreater(done.json()["accuracy"], 0.9)
        self.assertLess(cut.json()["accuracy"], 0.8)
        self.assertIn(self.note()["windows"], ("mean-probabilities", "mean-logits", "maximum"))
        self.assertEqual(self.note()["columns"]["stride"], STRIDE)
        model, data = self.folder / "run", self.folder / "long-eval.tsv"
        measured = self.succeeds("evaluate", "--model", model, "--data", data, "--details", "--predictions", self.folder / "rows.jsonl",
                                 "--output", self.folder / "measured").json()
        self.assertNotIn("windows", json.loads((self.folder / "measured" / "evaluation.json").read_text())["metrics"])
        self.assertAlmostEqual(measured["accuracy"], done.json()["accuracy"], places=9)
        self.assertEqual(measured["samples"], 60)
        self.assertGreater(measured["windows"], 120)
        self.assertEqual(sum(map(sum, measured["confusion_matrix"])), 60)
        answers = [json.loads(line) for line in self.succeeds("predict", "--model", model, "--input", data).out.splitlines()]
        rows = [json.loads(line) for line in (self.folder / "rows.jsonl").read_text().splitlines()]
        self.assertEqual([answer["label"] for answer in answers], [row["predicted"] for row in rows])
        for answer, row in zip(answers, rows):
            for name, value in answer["probabilities"].items():
                self.assertAlmostEqual(value, row["probabilities"][name], places=4)
        shared = self.succeeds("launch", "-n", 2, "--", PROGRAM, "predict", "--model", model, "--input", data)
        self.assertEqual([json.loads(line) for line in shared.out.splitlines()], answers)

    def test_labels_and_numbers_are_of_whole_texts_too(self):
        write_rows(self.folder / "sets.tsv", ("label", "text"), [("praise" if label == "pro" else "blame", text) for label, text in texts(80, 1)])
        write_rows(self.folder / "numbers.tsv", ("label", "text"), [("1.5" if label == "pro" else "-0.5", text) for label, text in texts(80, 1)])
        for file, option, metric in (("sets.tsv", "--multi-label", "micro_f1"), ("numbers.tsv", "--regression", "pearson")):
            run, data = file[:4], self.folder / file
            best = self.succeeds(*self.words(output=run, train=data, eval=data, num_train_epochs=4), option).json()
            measured = self.succeeds("evaluate", "--model", self.folder / run, "--data", data).json()
            self.assertEqual(measured["samples"], 80)
            answers = [json.loads(line) for line in self.succeeds("predict", "--model", self.folder / run, "--input", data).out.splitlines()]
            self.assertEqual(len(answers), 80)
            self.assertIn("windows", self.note(run))
            if option == "--regression":
                self.assertAlmostEqual(measured[metric], best[metric], places=9)
            else:
                thresholds = self.note(run)["thresholds"]
                self.assertEqual([sorted(answer["labels"]) for answer in answers],
                                 [sorted(name for (name, value), least in zip(answer["probabilities"].items(), thresholds) if value >= least)
                                  for answer in answers])

    def test_words_have_tags_wherever_they_stand(self):
        source = random.Random(3)
        lists = [[source.choice([*FILLERS, *TAGS]) for _ in range(source.randint(1, 40))] for _ in range(60)]
        data = self.folder / "words.jsonl"
        data.write_text("".join(json.dumps({"tokens": words, "tags": [TAGS.get(word, "O") for word in words]}) + "\n" for words in lists))
        best = self.succeeds(*self.words(task="tags", train=data, eval=data, num_train_epochs=10)).json()
        self.assertGreater(best["accuracy"], 0.95)
        self.assertNotIn("cut", best)
        model = self.folder / "run"
        measured = self.succeeds("evaluate", "--model", model, "--data", data, "--predictions", self.folder / "rows.jsonl").json()
        for name in ("f1", "accuracy"):
            self.assertAlmostEqual(measured[name], best[name], places=9)
        self.assertEqual(measured["samples"], 60)
        answers = [json.loads(line) for line in self.succeeds("predict", "--model", model, "--input", data).out.splitlines()]
        rows = [json.loads(line) for line in (self.folder / "rows.jsonl").read_text().splitlines()]
        self.assertEqual([answer["words"] for answer in answers], lists)
        self.assertEqual([answer["tags"] for answer in answers], [row["predicted"] for row in rows])
        self.assertFalse(any(None in answer["tags"] for answer in answers))
        counts = [[int(best["accuracy"] * sum(map(len, lists)) + 0.5)], [sum(tag == TAGS.get(word, "O") for answer in answers
                                                                              for word, tag in zip(answer["words"], answer["tags"]))]]
        self.assertEqual(*counts)

    def test_ranks_and_a_killed_run_come_to_the_same_model(self):
        weights = {}
        for run, before in (("alone", []), ("pair", ["launch", "-n", "2", "--", PROGRAM])):
            done = self.succeeds(*before, *self.words(output=run, num_train_epochs=2))
            weights[run] = done.json()
        for name in ("accuracy", "loss"):
            self.assertAlmostEqual(weights["pair"][name], weights["alone"][name], places=5)
        words = self.words(output="stopped", num_train_epochs=2, save_steps=3)
        stopped = run_and_interrupt(self.folder / "stopped" / "metrics.jsonl", 5, signal.SIGKILL, *words, "--logging-steps", 1)
        self.assertNotEqual(stopped.code, 0)
        self.succeeds(*words, "--logging-steps", 1)
        self.assertEqual(*[(self.folder / run / "model" / "model.safetensors").read_bytes() for run in ("alone", "stopped")])
        self.refuses(self.words(output="stopped", num_train_epochs=3, stride=2), "sequence was", "windows that share 4")

    def test_what_cannot_be_read_in_windows_is_refused(self):
        self.refuses(self.words(stride=10), "--stride 10", "expected a stride from 0 to 9")
        pairs = write_rows(self.folder / "pairs.tsv", ("label", "a", "b"), [("pro", "good", "film"), ("contra", "bad", "book")])
        self.refuses([*self.words(train=pairs, eval=pairs), "--text-column", "a", "b"], "--stride reads windows of single texts",
                     "--truncation only_second")
        self.refuses(self.words(task="reranker"), "--stride works only with")
        self.refuses([*self.words(), "--early-exit", "joint"], "--early-exit", "--stride reads them in windows")
        self.succeeds(*self.words(num_train_epochs=1))
        model, data = self.folder / "run", self.folder / "long-eval.tsv"
        self.refuses(["predict", "--model", model, "--input", data, "--cascade", model, "--exit-threshold", 0.5], "--cascade", "windows")
        self.refuses(["distill", "--teacher", model, "--student", self.folder / "model", "--train", data, "--output", self.folder / "student",
                      "--stride", 3], "--stride: distill reads no windows")
        student = self.succeeds("distill", "--teacher", model, "--student", self.folder / "model", "--train", data, "--output", self.folder / "student",
                                "--max-steps", 1, "--max-length", LENGTH)
        self.assertIn("the student learns from their first 12 tokens", student.err)
        self.assertNotIn("stride", self.note("student")["columns"])
        whole = self.succeeds("predict", "--model", self.folder / "student", "--input", data, "--stride", 2)
        self.assertEqual(len(whole.out.splitlines()), 60)
        config = json.loads((model / "model" / "config.json").read_text())
        config["funicular"]["windows"] = "median"
        (model / "model" / "config.json").write_text(json.dumps(config))
        self.refuses(["predict", "--model", model, "--input", data], '"windows" expects one of mean-probabilities, mean-logits, maximum')


if __name__ == "__main__":
    unittest.main()
