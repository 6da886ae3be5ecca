"""Rows with any number of labels: from TSV, CSV and JSON lines to a model that evaluate and predict read, and transformers too."""

from harness import *

LABELS = {"good": "praise", "bad": "blame", "book": "reading", "film": "watching"}


def rows(count, seed=0):
    """(labels, text): of some words each names a label."""
    source = random.Random(seed)
    found = []
    for _ in range(count):
        words = [source.choice(["good", "bad", "book", "film", "the", "is", "very", "old"]) for _ in range(source.randint(1, 4))]
        found.append((sorted({LABELS[word] for word in words if word in LABELS}), " ".join(words)))
    return found


class MultiLabel(ProgramTest):
    def write(self, name, count, seed):
        path, found = self.folder / name, rows(count, seed)
        if path.suffix == ".jsonl":
            path.write_text("".join(json.dumps({"text": text, "label": labels}) + "\n" for labels, text in found))
        else:
            mark = "\t" if path.suffix == ".tsv" else ","
            quote = (lambda text: text) if path.suffix == ".tsv" else (lambda text: f'"{text}"')
            path.write_text(f"label{mark}text\n" + "".join(f"{quote(', '.join(labels))}{mark}{text}\n" for labels, text in found))
        return path

    def train(self, ending="tsv", output="run", *more, **options):
        model = self.folder / "model"
        if not model.exists():
            self.model()
        files = self.write("sets-train." + ending, 96, 1), self.write("sets-eval." + ending, 120, 2)
        words = self.finetune_words(model, output=output, train=files[0], eval=files[1], **{"num_train_epochs": 40, **options})
        return self.succeeds(*words, "--multi-label", *more).json()

    def config(self, output="run"):
        return json.loads((self.folder / output / "model" / "config.json").read_text())

    def test_is_learnt_from_tables_and_json_lines_alike(self):
        found = {ending: self.train(ending, ending) for ending in ("tsv", "csv", "jsonl")}
        self.assertGreater(found["tsv"]["micro_f1"], 0.9)
        self.assertGreater(found["tsv"]["average_precision"], 0.9)
        for name in ("micro_f1", "macro_f1", "average_precision", "accuracy", "loss"):
            self.assertEqual(len({metrics[name] for metrics in found.values()}), 1, name)
        config = self.config("jsonl")
        self.assertEqual(config["problem_type"], "multi_label_classification")
        self.assertEqual(list(config["id2label"].values()), sorted(LABELS.values()))
        self.assertEqual(len(config["funicular"]["thresholds"]), 4)

    def test_unknown_labels_are_not_judged(self):
        """They are neither given nor missing in the answers of folds, and no suspects."""
        path = self.folder / "known.jsonl"
        shares = [{"praise": 1, "blame": 0} if number % 2 else {"praise": 0, "blame": 1} for number in range(12)]
        del shares[3]["blame"], shares[4]["praise"]
        path.write_text("".join(json.dumps({"text": f"film {number}", "label": row}) + "\n" for number, row in enumerate(shares)))
        words = self.finetune_words(self.model(), train=path, eval=None, output="folds", max_steps=1, num_train_epochs=None)
        told = self.succeeds(*words, "--multi-label", "--soft-labels", "--folds", 2)
        answers = [json.loads(line) for line in (self.folder / "folds/predictions.jsonl").read_text().splitlines()]
        self.assertEqual({answer["row"]: answer["unknown"] for answer in answers if "unknown" in answer}, {4: ["blame"], 5: ["praise"]})
        self.assertEqual(answers[3]["labels"], ["praise"])
        self.assertIn("next: funicular label-errors", told.err)
        found = self.succeeds("label-errors", self.folder / "folds").json()
        self.assertEqual(found["rows"], 12)
        self.assertEqual(set(found["wrong"]), {"praise", "blame"})

    def test_a_run_of_version_0_1_keeps_the_metric_that_it_began_with(self):
        few = {"num_train_epochs": None, "max_steps": 4}
        self.train(**few, metric_for_best_model="micro_f1")
        words = self.finetune_words(self.folder / "model", train=self.folder / "sets-train.tsv", eval=self.folder / "sets-eval.tsv", **few)
        told = self.succeeds(*words, "--multi-label").err
        self.assertIn("is finished already, at step 4", told)
        self.assertIn("the best model is chosen by micro_f1, as the run began; a new run chooses it by average_precision", told)
        self.refuses([*words, "--multi-label", "--metric-for-best-model", "average_precision"],
                     "best_metric was micro_f1 and is average_precision")

    def test_evaluate_and_predict_give_each_label_by_its_threshold(self):
        self.train()
        model, data = self.folder / "run" / "model", self.folder / "sets-eval.tsv"
        measured = self.succeeds("evaluate", "--model", model, "--task", "custom", "--multi-label", "--data", data).json()
        self.assertEqual(set(measured), {"micro_f1", "macro_f1", "average_precision", "accuracy", "loss", "samples", "baseline"})
        expected = rows(120, 2)

        def right_rows():
            answers = self.succeeds("predict", "--model", model, stdin="".join(text + "\n" for _, text in expected)).out
            answers = [json.loads(line) for line in answers.splitlines()]
            thresholds = self.config()["funicular"]["thresholds"]
            for answer in answers:
                names = [name for name, limit in zip(answer["probabilities"], thresholds) if answer["probabilities"][name] >= limit]
                self.assertEqual(answer["labels"], names)
            return sum(answer["labels"] == labels for answer, (labels, _) in zip(answers, expected)) / len(expected)

        self.assertAlmostEqual(measured["accuracy"], right_rows(), places=9)
        config = self.config()
        config["funicular"]["thresholds"] = [0, 0.5, 1, 0.5]
        (model / "config.json").write_text(json.dumps(config))
        measured = self.succeeds("evaluate", "--model", model, "--task", "custom", "--multi-label", "--data", data).json()
        self.assertAlmostEqual(measured["accuracy"], right_rows(), places=9)
        self.assertLess(measured["accuracy"], 0.5)

    def test_details_count_each_label_by_itself(self):
        self.train()
        model, data = self.folder / "run" / "model", self.folder / "sets-eval.tsv"
        config = self.config()
        config["funicular"]["thresholds"] = [0, 0.5, 1, 0.5]  # one label is always given, one never
        (model / "config.json").write_text(json.dumps(config))
        found = self.succeeds("evaluate", "--model", model, "--data", data, "--details", "--predictions", self.folder / "answers.jsonl").json()
        answers = [json.loads(line) for line in (self.folder / "answers.jsonl").read_text().splitlines()]
        self.assertNotIn("confusion_matrix", found)
        for name in LABELS.values():
            counts = [[0, 0], [0, 0]]
            for answer in answers:
                counts[name in answer["labels"]][name in answer["predicted"]] += 1
            self.assertEqual(found["confusion_matrices"][name], counts, name)
            self.assertEqual(found["classes"][name]["support"], sum(counts[1]))
        self.assertEqual({sum(map(sum, counts)) for counts in found["confusion_matrices"].values()}, {found["samples"]})

    def test_whose_thresholds_are_used_is_told(self):
        words = self.finetune_words(self.model(), output="told", train=self.write("sets-train.tsv", 24, 1), eval=self.write("sets-eval.tsv", 24, 2),
                                    max_steps=2, num_train_epochs=None)
        chosen = "the model's config.json keeps the threshold that was best for each label"
        said = self.succeeds(*words, "--multi-label").err
        self.assertEqual(said.count(chosen), 1)
        self.assertIn("evaluate and predict use these thresholds, and this training 0.5: the scores differ", said)
        model, data = self.folder / "told" / "model", self.folder / "sets-eval.tsv"
        self.assertEqual(len(self.config("told")["funicular"]["thresholds"]), 4)
        used = f"labels are given from the thresholds of {model / 'config.json'} on"
        measured = self.succeeds("evaluate", "--model", model, "--data", data)
        self.assertEqual(measured.err.count(used), 1)
        # Nothing was evaluated, so nothing was chosen; and of one label a text there is nothing to choose.
        alone = self.finetune_words(self.folder / "model", output="alone", train=self.folder / "sets-train.tsv", eval=None, max_steps=1, num_train_epochs=None)
        self.assertNotIn(chosen, self.succeeds(*alone, "--multi-label").err)
        self.assertNotIn("thresholds", self.config("alone").get("funicular", {}))
        self.assertNotIn(used.split(" of ")[0], self.succeeds("evaluate", "--model", self.folder / "alone" / "model", "--data", data).err)
        one = self.succeeds(*self.finetune_words(self.folder / "model", output="one", max_steps=1, num_train_epochs=None))
        self.assertNotIn(chosen, one.err)

    def test_labels_with_few_rows_keep_a_threshold_of_a_half_and_the_best_model_has_the_best_average_precision(self):
        held_out = self.folder / "rare.tsv"
        many, rare = [row for row in rows(600, 3) if "blame" not in row[0]][:150], [(["blame"], "bad")] * 19
        held_out.write_text("label\ttext\n" + "".join(f"{','.join(labels)}\t{text}\n" for labels, text in many + rare))
        words = self.finetune_words(self.model(), train=self.write("sets-train.tsv", 96, 1), eval=held_out, num_train_epochs=4)
        told = self.succeeds(*words, "--multi-label")
        self.assertIn("1 of 4 labels keep the threshold 0.5, because fewer than 20 of the evaluated rows have them: blame", told.err)
        thresholds = dict(zip(self.config()["id2label"].values(), self.config()["funicular"]["thresholds"]))
        self.assertEqual(thresholds["blame"], 0.5)
        self.assertNotEqual(thresholds["praise"], 0.5)
        lines = [json.loads(line) for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines()]
        best = max((line for line in lines if "eval_average_precision" in line), key=lambda line: line["eval_average_precision"])
        self.assertEqual(told.json()["best_step"], best["step"])

    def test_another_separator_than_the_one_that_is_given_is_told(self):
        def told(separator, *words, names=str):
            data = self.folder / "separated.tsv"
            found = [(labels, text) for labels, text in rows(60, 4) if labels]
            data.write_text("label\ttext\n" + "".join(f"{separator.join(map(names, labels))}\t{text}\n" for labels, text in found))
            model = self.folder / "model"
            self.several = sum(len(labels) > 1 for labels, _ in found)
            return self.succeeds(*self.finetune_words(model if model.exists() else self.model(), output=f"run{len(list(self.folder.iterdir()))}", train=data,
                                                      eval=None, max_steps=1, num_train_epochs=None), "--multi-label", *words).err
        for separator in ("|", ";", " | ", "、", "/", " "):
            err = told(separator)
            mark = separator.strip() or " "
            self.assertIn("no row has a comma between labels", err, separator)
            self.assertIn(f"{self.several} have a ", err)
            self.assertIn(f'--label-separator "{mark}"', err)
        self.assertIn('--label-separator ","', told(",", "--label-separator", ";"))
        for words in ((",",), (";", "--label-separator", ";")):
            self.assertNotIn("between labels", told(*words))
        self.assertNotIn("between labels", told(",", names=lambda name: name + " & more"))
        self.assertNotIn("a list that was written", told(",", names=lambda name: name + " [all]"))
        self.assertIn("as [praise", told(", ", names=lambda name: "[" + name if name == "praise" else name))

    def test_thresholds_are_those_of_the_best_model(self):
        self.train("tsv", "run", num_train_epochs=4)
        self.train("tsv", "longer", num_train_epochs=40)
        self.assertNotEqual(self.config()["funicular"]["thresholds"], self.config("longer")["funicular"]["thresholds"])

    def test_ranks_learn_the_same(self):
        self.train(max_steps=8, num_train_epochs=None, precision="fp64")
        words = self.finetune_words(self.folder / "model", output="ranks", max_steps=8, num_train_epochs=None, precision="fp64",
                                    train=self.folder / "sets-train.tsv", eval=self.folder / "sets-eval.tsv")
        self.succeeds("launch", "-n", 2, "--", PROGRAM, *words, "--multi-label")
        one, two = (read_safetensors(self.folder / run / "checkpoints" / "step-000008" / "model.safetensors") for run in ("run", "ranks"))
        for name, (_, raw) in one.items():
            values = [array.array("d", data) for data in (raw, two[name][1])]
            self.assertLess(max(abs(a - b) for a, b in zip(*values)), 1e-10, name)

    def test_a_model_of_one_label_and_one_of_many_are_not_taken_for_each_other(self):
        self.train(max_steps=1, num_train_epochs=None)
        many, data = self.folder / "run" / "model", self.folder / "sets-eval.tsv"
        self.succeeds("evaluate", "--model", many, "--data", data)  # it remembers
        self.refuses(["evaluate", "--model", many, "--task", "custom", "--no-multi-label", "--data", data], "any number of labels", "--multi-label")
        self.succeeds(*self.finetune_words(self.folder / "model", output="one", max_steps=1, num_train_epochs=None))
        one = self.folder / "one" / "model"
        self.refuses(["evaluate", "--model", one, "--task", "custom", "--multi-label", "--data", self.folder / "sets-eval.tsv"],
                     "gives one class per text", "needs a model that gives any number of labels per text; give --task custom")
        self.refuses(["evaluate", "--model", many, "--task", "sst2", "--multi-label", "--data", data], "--multi-label is for --task custom")

    def test_what_is_wrong_is_told_with_its_line(self):
        self.train(max_steps=1, num_train_epochs=None)
        unknown = write_rows(self.folder / "unknown.tsv", ("label", "text"), [("praise", "good"), ("praise,sorrow", "bad")])
        words = ["evaluate", "--model", self.folder / "run" / "model", "--task", "custom", "--multi-label", "--data"]
        self.refuses([*words, unknown], "unknown.tsv:3", "sorrow", "expected one of the labels blame, praise")
        (self.folder / "nested.jsonl").write_text('{"text": "good", "label": [["praise"]]}\n')
        self.refuses([*words, self.folder / "nested.jsonl"], "nested.jsonl:1", 'the key "label"', "found array")
        nothing = write_rows(self.folder / "nothing.tsv", ("label", "text"), [("", "good"), (" , ", "bad")])
        self.refuses([*self.finetune_words(self.folder / "model", output="none", train=nothing, eval=None), "--multi-label"],
                     "nothing.tsv", "no row has a label")


if __name__ == "__main__":
    unittest.main()
