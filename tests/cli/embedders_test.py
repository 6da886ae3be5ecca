"""Embedders: from pairs, triplets and scored pairs to a folder of sentence-transformers that evaluate reads."""

from harness import *

SUBJECTS = ["film", "book", "song", "old", "fine", "dull", "very", "long"]


def related(count, seed):
    """(anchor, positive, negative): the positive names the anchor's two words in another order, the negative others."""
    source, rows = random.Random(seed), []
    for _ in range(count):
        own = source.sample(SUBJECTS, 2)
        other = source.sample([word for word in SUBJECTS if word not in own], 2)
        letter = " ".join(source.choices("abcdefghijk", k=3))
        rows.append((f"the {own[0]} {own[1]} {letter}", f"{letter} {own[1]} is {own[0]}", f"the {other[0]} {other[1]}"))
    return rows


class EmbedderTest(ProgramTest):
    def write(self, name, lines):
        path = self.folder / name
        path.write_text("".join(json.dumps(line) + "\n" if isinstance(line, dict) else line + "\n" for line in lines))
        return path

    def pairs(self, name="pairs.jsonl", count=48, seed=1):
        return self.write(name, [{"anchor": a, "positive": p} for a, p, _ in related(count, seed)])

    def triplets(self, name="triplets.jsonl", count=48, seed=1, lists=False):
        return self.write(name, [{"anchor": a, "positive": p, "negative": [n, "not " + n][:1 + at % 2] if lists else n}
                                 for at, (a, p, n) in enumerate(related(count, seed))])

    def scores(self, name="scores.jsonl", count=48, seed=1, label="score"):
        return self.write(name, [{"sentence1": a, "sentence2": (p, n)[at % 2], label: 1 - at % 2} for at, (a, p, n) in enumerate(related(count, seed))])

    def words(self, task, train, held_out=None, output="run", **options):
        model = options.pop("model", self.folder / "model")
        if not model.exists():
            self.model()
        return self.finetune_words(model, task=task, train=train, eval=held_out, output=self.folder / output,
                                   **{"batch_size": 16, "num_train_epochs": 8, **options})

    def train(self, task, train, held_out, *more, **options):
        return self.succeeds(*self.words(task, train, held_out, **options), *more)


class Embedders(EmbedderTest):
    def test_learn_from_pairs_triplets_and_scores(self):
        held_out = self.pairs("eval.jsonl", 40, 2)
        found = self.train("pairs", self.pairs(), held_out).json()
        self.assertGreater(found["mrr"], 0.5)
        self.assertGreaterEqual(found["mrr"], found["accuracy"])
        found = self.train("triplets", self.triplets(lists=True), self.triplets("te.jsonl", 40, 2), output="triplets").json()
        self.assertGreater(found["mrr"], 0.4)
        found = self.train("scores", self.scores(), self.scores("se.jsonl", 40, 2), output="scores").json()
        self.assertGreater(found["spearmanr"], 0.7)
        folder = self.folder / "run" / "model"
        modules = json.loads((folder / "modules.json").read_text())
        self.assertEqual([entry["type"] for entry in modules], ["sentence_transformers.models.Transformer", "sentence_transformers.models.Pooling"])
        self.assertEqual(json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"], 16)
        config = json.loads((folder / "config.json").read_text())
        self.assertEqual((config["architectures"], config["funicular"]["task"]), (["BertModel"], "pairs"))

    def test_evaluate_repeats_the_scores_of_training(self):
        held_out = self.pairs("eval.jsonl", 40, 2)
        trained = self.train("pairs", self.pairs(), held_out)
        self.assertIn(f"next: funicular embed --model {self.folder / 'run'} --input texts.txt --output vectors.npy", trained.err)
        best = trained.json()
        model = self.folder / "run" / "model"
        found = self.succeeds("evaluate", "--model", model, "--data", held_out, "--predictions", self.folder / "answers.jsonl").json()
        for name in ("mrr", "accuracy", "loss"):
            self.assertAlmostEqual(found[name], best[name], places=5)
        ranks = [json.loads(line)["rank"] for line in (self.folder / "answers.jsonl").read_text().splitlines()]
        self.assertEqual(len(ranks), 40)
        self.assertAlmostEqual(sum(rank == 1 for rank in ranks) / 40, found["accuracy"])
        self.refuses(["predict", "--model", model, "--input", held_out], "funicular embed")

    def losses_of(self, output):
        return [json.loads(line)["loss"] for line in (self.folder / output / "metrics.jsonl").read_text().splitlines() if '"eval' not in line]

    def test_no_cut_of_a_batch_changes_a_run(self):
        train = self.triplets(lists=True)
        usual = {"logging_steps": 1, "max_steps": 6, "num_train_epochs": None}
        for output, more in (("whole", []), ("cut", ["--micro-batch-size", 3]), ("tokens", ["--micro-batch-tokens", 100])):
            self.train("triplets", train, None, "--compare", "joint", "--hardness", 5, "--matryoshka-dims", 8, *more, output=output, **usual)
        words = self.words("triplets", train, None, output="ranks", **usual)
        self.succeeds("launch", "-n", 2, "--", PROGRAM, *exact(words), "--compare", "joint", "--hardness", 5, "--matryoshka-dims", 8, "--micro-batch-size", 3)
        whole = self.losses_of("whole")
        self.assertEqual(len(whole), 6)
        for output in ("cut", "tokens", "ranks"):
            for a, b in zip(whole, self.losses_of(output)):
                self.assertAlmostEqual(a, b, delta=2e-4 * abs(a), msg=output)

    def test_gradients_of_fp16_are_scaled_and_scaled_back(self):
        train, usual = self.pairs(), {"logging_steps": 1, "max_steps": 8, "num_train_epochs": None, "optim": "sgd", "learning_rate": 0.02}
        self.train("pairs", train, None, output="whole", **usual)
        self.train("pairs", train, None, "--loss-scale", 256, output="half", precision="fp16", micro_batch_size=3, **usual)
        whole = self.losses_of("whole")
        self.assertLess(whole[-1], 0.9 * whole[0])
        for a, b in zip(whole, self.losses_of("half")):
            self.assertAlmostEqual(a, b, delta=0.03 * a)

    def test_an_interrupted_run_goes_on_as_one_that_was_not(self):
        train, options = self.pairs(), {"num_train_epochs": None, "max_steps": 60, "logging_steps": 1, "micro_batch_size": 4}
        self.succeeds(*self.words("pairs", train, **options))
        output, again = self.folder / "stopped", self.words("pairs", train, output="stopped", **options)
        stopped = run_and_interrupt(output / "metrics.jsonl", 3, signal.SIGINT, *again)
        self.assertEqual(stopped.code, 75, stopped.err)
        self.assertIn("resumed from", self.succeeds(*again).err)
        self.assertEqual(read_safetensors(output / "model" / "model.safetensors"), read_safetensors(self.folder / "run" / "model" / "model.safetensors"))
        self.refuses([*again, "--scale", 10], "loss was")

    def test_batches_keep_equal_texts_apart(self):
        rows = [{"anchor": f"the film {letter}", "positive": "good" if at % 2 else f"old {letter}"} for at, letter in enumerate("abcdefghijkl")]
        said = self.train("pairs", self.write("equal.jsonl", rows), None, batch_size=6, num_train_epochs=1).err
        self.assertIn("leaves out 4 of 12 rows", said)
        said = self.train("pairs", self.folder / "equal.jsonl", None, "--no-distinct-batches", batch_size=6, num_train_epochs=1, output="all").err
        self.assertNotIn("leaves out", said)

    def test_columns_have_any_names_and_files_any_form(self):
        lines = ["query\tanswer\twrong\tworse"] + ["\t".join((a, p, n, "bad " + n)) for a, p, n in related(20, 3)]
        table = self.write("rows.tsv", lines)
        self.train("triplets", table, None, "--text-column", "query", "answer", "wrong", "worse", num_train_epochs=1)
        self.assertEqual(self.succeeds("evaluate", "--model", self.folder / "run" / "model", "--data", table).json()["samples"], 20)

    def test_wrong_rows_are_named(self):
        good = {"anchor": "the film", "positive": "film", "negative": "book"}
        for row, task, phrases in (
                ({"anchor": "", "positive": "film"}, "pairs", ['"anchor" is empty', "expected a text in each row"]),
                ({"anchor": "film", "positive": "  "}, "pairs", ['"positive" is empty']),
                ({"anchor": "film", "positive": ["film"]}, "pairs", ['"positive" is a list', "write a row per text"]),
                ({"anchor": "film"}, "pairs", ["positive"]),
                ({"anchor": "film", "positive": "film", "negative": []}, "triplets", ['"negative" has no text', "expected a negative"]),
                ({"anchor": "film", "positive": "film", "negative": ["", " "]}, "triplets", ['"negative" has no text']),
                ("{broken", "pairs", ["JSON"]),
        ):
            train = self.write("wrong.jsonl", [good, row, good])
            self.refuses(self.words(task, train), "wrong.jsonl:2", *phrases)
        scored = {"sentence1": "the film", "sentence2": "film", "score": 0.5}
        for row, phrase in (({**scored, "score": "much"}, "number"), ({**scored, "score": None}, "score"), ({"sentence1": "film", "score": 1}, "sentence2"),
                            ({**scored, "sentence2": [1, 2]}, "sentence2")):
            self.refuses(self.words("scores", self.write("wrong.jsonl", [scored, row])), "wrong.jsonl:2", phrase)

    def test_wrong_options_are_named(self):
        pairs, triplets, scores = self.pairs(count=8), self.triplets(count=8), self.scores(count=8)
        for task, train, options, phrases in (
                ("pairs", pairs, ["--loss", "cosent"], ["--loss cosent does not fit --task pairs", "multiple-negatives"]),
                ("scores", scores, ["--loss", "triplet"], ["does not fit --task scores", "cosent, angle"]),
                ("scores", scores, ["--loss", "bce"], ["give --task reranker, or one of the losses cosent, angle, cosine, contrastive, online-contrastive"]),
                ("triplets", triplets, ["--loss", "margin-mse"], ["--label-column"]),
                ("scores", scores, ["--hardness", 5], ["--hardness works only with --loss multiple-negatives", "cosent"]),
                ("scores", scores, ["--compare", "joint"], ["--compare works only"]),
                ("pairs", pairs, ["--loss-margin", 1], ["--loss-margin works only", "triplet"]),
                ("pairs", pairs, ["--matryoshka-dims", 64], ["the model's vectors have 32 numbers"]),
                ("pairs", pairs, ["--matryoshka-dims", "half"], ["whole numbers", '"half"']),
                ("pairs", pairs, ["--matryoshka-dims", 8, 8], ["twice"]),
                ("scores", scores, ["--loss", "angle", "--matryoshka-dims", 7], ["odd"]),
                ("pairs", pairs, ["--scale", 0], ["--scale"]),
                ("pairs", pairs, ["--hardness", -1], ["--hardness"]),
                ("pairs", pairs, ["--loss", "infonce"], ["--loss", "multiple-negatives"]),
                ("pairs", pairs, ["--pooling", "middle"], ["--pooling", "mean"]),
                ("pairs", pairs, ["--text-column", "anchor"], ["--task pairs reads two related texts per row", "found 1"]),
                ("pairs", pairs, ["--text-column", "anchor", "positive", "negative"], ["expected 2 of --text-column"]),
                ("triplets", triplets, ["--text-column", "anchor", "positive"], ["expected at least 3"]),
                ("scores", scores, ["--label-column", "similarity"], ["similarity"]),
                ("scores", scores, ["--distinct-batches", "--loss", "cosine"], ["--distinct-batches works only"]),
                ("pairs", pairs, ["--label-smoothing", 0.1], ["--label-smoothing works only with one class"]),
                ("pairs", pairs, ["--eval", pairs, "--metric-for-best-model", "f1"], ["mrr"]),
                ("scores", self.scores("two.jsonl", 8, label="x"), ["--label-column", "x", "--loss", "triplet"], ["does not fit"]),
        ):
            self.refuses([*self.words(task, train, resume="never"), *options], *phrases)
        classes = self.write("half.jsonl", [{"sentence1": "film", "sentence2": "book", "score": score} for score in (1, 0.5)])
        for skip in ([], ["--skip-bad-rows"]):
            self.refuses([*self.words("scores", classes), "--loss", "contrastive", *skip], "half.jsonl:2", "the label 0.5", "expects 1 (similar) or 0")
        for bad in ("{broken", json.dumps({"sentence1": "film", "sentence2": "book", "score": "much"})):
            broken = self.write("broken.jsonl", [bad, *classes.read_text().splitlines()])
            self.refuses([*self.words("scores", broken), "--loss", "contrastive", "--skip-bad-rows"], "broken.jsonl: row 2 of the rows that are read",
                         "the label 0.5")
        self.refuses([*self.words("custom", self.custom_files()[0]), "--scale", 10], "--scale works only with --task pairs, triplets, scores or vectors")
        self.refuses(self.words("pairs", self.pairs("one.jsonl", 1)), "one.jsonl", "expected at least two")
        self.refuses([*self.words("pair", pairs)], "--task", "pairs")

    def test_rows_that_share_a_text_are_held_out_together(self):
        rows = [{"anchor": a, "positive": p} for a, p, _ in related(40, 1)]
        rows += [{"anchor": row["positive"].upper(), "positive": f"the song {number}"} for number, row in enumerate(rows[:20])]
        train = self.write("shared.jsonl", rows)
        done = self.train("pairs", train, None, "--eval-fraction", 0.2, num_train_epochs=1)
        self.assertIn("12 rows are held out for evaluation (--eval-fraction 0.2), each text with all rows that have it", done.err)
        self.assertGreater(done.json()["mrr"], 0)
        self.assertNotIn("stands in the training file", done.err)
        for task, train in (("triplets", self.triplets(lists=True)), ("scores", self.scores())):
            done = self.train(task, train, None, "--eval-fraction", 0.25, output=task, num_train_epochs=1)
            self.assertRegex(done.err, r"1\d rows are held out")
            self.assertIn({"triplets": "mrr", "scores": "spearmanr"}[task], done.json())
        hub = self.write("hub.jsonl", [{"anchor": "the film", "positive": f"film {number}"} for number in range(20)])
        done = self.train("pairs", hub, None, "--eval-fraction", 0.2, output="hub", num_train_epochs=1)
        self.assertIn("no rows that share texts are so few that the share can hold all of them", done.err)
        found = self.succeeds(*self.words("pairs", self.pairs(), output="folds", num_train_epochs=1), "--folds", 2).json()
        self.assertEqual(len(found["mrr"]["values"]), 2)

    def test_negatives_have_a_margin_each(self):
        rows = [{"anchor": a, "positive": p, "negative": [n, "not " + n][:1 + at % 2], "margin": [0.3, 0.4][:1 + at % 2]}
                for at, (a, p, n) in enumerate(related(40, 1))]
        more = ["--loss", "margin-mse", "--label-column", "margin"]
        found = self.train("triplets", self.write("margins.jsonl", rows), None, *more, "--eval-fraction", 0.25, num_train_epochs=1).json()
        self.assertGreater(found["mrr"], 0)
        rows[3]["margin"] = 0.5
        self.refuses([*self.words("triplets", self.write("wrong.jsonl", rows), output="wrong"), *more], "wrong.jsonl:4", "found 1 for 2 negatives")
        listed = [{"sentence1": a, "sentence2": p, "score": [0.5, 1]} for a, p, _ in related(4, 1)]
        self.refuses(self.words("scores", self.write("listed.jsonl", listed), output="wrong"), "listed.jsonl:1", "found a list")

    def test_texts_that_are_cut_are_told(self):
        train = self.pairs()
        options = {"max_length": 6, "num_train_epochs": 1}
        found = self.train("pairs", train, self.pairs("eval.jsonl", 40, 2), **options)
        self.assertIn("pairs.jsonl: 48 of 48 rows have a text that is longer than 6 tokens", found.err)
        self.assertIn("eval.jsonl: 40 of 40 rows have a text", found.err)
        said = self.succeeds("evaluate", "--model", self.folder / "run" / "model", "--data", train)
        self.assertIn("48 of 48 rows have a text that is longer than 6 tokens", said.err)
        self.assertEqual(said.json()["cut"]["rows"], 48)
        self.assertNotIn("longer than", self.train("pairs", train, None, output="whole", num_train_epochs=1, max_length=8).err)


class SentenceFolders(EmbedderTest):
    """Training that starts from a folder of sentence-transformers."""

    def sentences(self, name="sentences", below="", dense=False, **transformer):
        folder = self.folder / name
        self.model(f"{name}/{below}" if below else name)
        modules = ["Transformer", "Pooling"] + ["Dense"] * dense
        paths = [below, "1_Pooling", "2_Dense"]
        (folder / "modules.json").write_text(json.dumps([{"idx": at, "name": str(at), "path": paths[at], "type": f"sentence_transformers.models.{kind}"}
                                                         for at, kind in enumerate(modules)]))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": HIDDEN, "pooling_mode_mean_tokens": True}))
        (folder / below / "sentence_bert_config.json").write_text(json.dumps(transformer))
        if dense:
            (folder / "2_Dense").mkdir()
            (folder / "2_Dense/config.json").write_text(json.dumps({"in_features": HIDDEN, "out_features": 4, "bias": False,
                                                                    "activation_function": "torch.nn.modules.linear.Identity"}))
            self.write_dense(folder, 1)
        return folder

    def write_dense(self, folder, scale):
        weights = array.array("f", [scale * (1 + at % 5) / 10 for at in range(4 * HIDDEN)])
        write_safetensors(folder / "2_Dense/model.safetensors", {"linear.weight": ([4, HIDDEN], weights)})

    def length_of(self, output):
        return json.loads((self.folder / output / "model/sentence_bert_config.json").read_text())["max_seq_length"]

    def test_the_folder_says_the_length(self):
        train, usual = self.pairs(), {"num_train_epochs": None, "max_steps": 1}
        folder = self.sentences(max_seq_length=11)
        self.train("pairs", train, None, model=folder, max_length=None, output="own", **usual)
        self.assertEqual(self.length_of("own"), 11)
        self.train("pairs", train, None, model=folder, max_length=9, output="given", **usual)
        self.assertEqual(self.length_of("given"), 9)

    def test_the_encoder_may_lie_below(self):
        folder = self.sentences(below="0_Transformer", dense=True, max_seq_length=12)
        self.train("pairs", self.pairs(), None, model=folder, max_length=None, num_train_epochs=1)
        self.assertEqual(self.length_of("run"), 12)
        self.succeeds("evaluate", "--model", self.folder / "run/model", "--data", self.pairs())
        (folder / "modules.json").write_text(json.dumps([{"idx": 0, "path": "", "type": "sentence_transformers.models.StaticEmbedding"}]))
        self.refuses(["evaluate", "--model", folder, "--data", self.pairs()], "--task retrieval or similarity")

    def test_a_table_of_static_embeddings_tells_what_it_cuts(self):
        folder = self.sentences()
        (folder / "modules.json").write_text(json.dumps([{"idx": 0, "path": "", "type": "sentence_transformers.models.StaticEmbedding"}]))
        write_safetensors(folder / "model.safetensors", {"embedding.weight": ([len(VOCABULARY), 3], array.array("f", [1.0] * 3 * len(VOCABULARY)))})
        texts = self.folder / "texts.txt"
        texts.write_text("the film\nthe old film\nthe very old good film\n")
        said = self.succeeds("embed", "--model", folder, "--input", texts, "--output", self.folder / "v.npy", "--max-length", 4).err
        self.assertIn("1 of 3 rows are longer than 4 tokens: 1 of 10 tokens", said)
        self.assertIn("raise --max-length or divide", said)

    def test_a_tokeniser_that_keeps_case_is_refused_before_training(self):
        folder = self.sentences(do_lower_case=True)
        (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False, "tokenizer_class": "BertTokenizer"}))
        self.refuses(self.words("pairs", self.pairs(), model=folder), "sentences: do_lower_case is true, and the tokeniser keeps upper case")

    def test_a_run_ends_where_the_dense_weights_change(self):
        folder = self.sentences(dense=True)
        self.train("pairs", self.pairs(), None, model=folder, num_train_epochs=1)
        self.write_dense(folder, 2)
        self.refuses(self.words("pairs", self.pairs(), model=folder, num_train_epochs=1), "dense_weights was")

    def test_modules_that_do_not_fit_are_named_with_their_folder(self):
        folder = self.sentences()
        (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": 7, "pooling_mode_mean_tokens": True}))
        self.refuses(self.words("pairs", self.pairs(), model=folder), "sentences: the pooling reads hidden states of 7 numbers")


if __name__ == "__main__":
    unittest.main()
