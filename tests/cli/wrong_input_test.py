"""Wrong input has its message, and loses nothing."""

import shutil

from harness import *


class Models(ProgramTest):
    def predict(self, model):
        return ["predict", "--model", model]

    def classifier(self, name="classifier", **changes):
        shapes = {"classifier.weight": [2, HIDDEN], "classifier.bias": [2]}
        return self.model(name, extra_shapes=shapes, **changes)

    def test_folder_that_is_missing_a_file_or_empty(self):
        self.refuses(self.predict(self.folder / "none"), "no such folder")
        self.refuses(self.predict("google/bert_uncased_L-2"), "no such folder; to download the model of this name")
        (self.folder / "file").write_text("")
        self.refuses(self.predict(self.folder / "file"), "expected a folder with config.json, found a file")
        (self.folder / "empty").mkdir()
        self.refuses(self.predict(self.folder / "empty"), "has no config.json")
        self.model("empty/model")
        self.refuses(self.predict(self.folder / "empty"), "empty/model lacks weights")

    def test_model_without_a_classifier(self):
        model = self.model()
        self.refuses(self.predict(model), "lacks weights", "classifier.weight", "funicular finetune")
        rows = write_rows(self.folder / "test.tsv", ("label", "text"), [("pro", "the film")])
        self.refuses(["evaluate", "--model", model, "--task", "custom", "--data", rows], "lacks weights", "funicular finetune")
        self.refuses(["evaluate", "--model", model, "--task", "mlm", "--data", self.store(model)], "lacks weights", "funicular pretrain")

    def test_config_that_is_no_json(self):
        model = self.classifier()
        (model / "config.json").write_text('{"hidden_size": 32,\n "x" }')
        self.refuses(self.predict(model), "config.json:2", "not valid JSON")

    def test_config_whose_values_do_not_fit(self):
        self.refuses(self.predict(self.classifier(num_attention_heads=5)), "num_attention_heads")

    def test_weights_missing(self):
        model = self.classifier()
        (model / "model.safetensors").unlink()
        self.refuses(self.predict(model), "model.safetensors", "download or copy the model whole")
        (model / "model.safetensors.index.json").write_text("{}")
        self.refuses(self.predict(model), "model.safetensors.index.json", "weight_map")

    def test_weights_cut_short(self):
        model = self.classifier()
        path = model / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
        self.refuses(self.predict(model), "model.safetensors")

    def test_weights_whose_header_lies(self):
        model = self.classifier()
        path = model / "model.safetensors"
        raw = path.read_bytes()
        path.write_bytes((2**63).to_bytes(8, "little") + raw[8:])
        self.refuses(self.predict(model), "model.safetensors")
        path.write_bytes(b"not a model")
        self.refuses(self.predict(model), "model.safetensors")

    def test_weights_of_another_shape(self):
        model = self.classifier(intermediate_size=48)
        self.refuses(self.predict(model), "intermediate.dense", "64", "48")
        # As many numbers, in another order: the sizes of the configuration agree with the first layer's.
        model = self.classifier("turned")
        tensors = random_weights({**encoder_shapes(), "encoder.layer.1.intermediate.dense.weight": [HIDDEN, 64],
                                  "classifier.weight": [2, HIDDEN], "classifier.bias": [2]})
        write_safetensors(model / "model.safetensors", tensors)
        self.refuses(self.predict(model), "encoder.layer.1.intermediate.dense.weight has the shape [32, 64]")

    def test_weights_that_are_not_finite(self):
        model = self.classifier()
        tensors = random_weights({**encoder_shapes(), "classifier.weight": [2, HIDDEN], "classifier.bias": [2]})
        tensors["encoder.layer.1.output.dense.bias"][1][3] = float("nan")
        write_safetensors(model / "model.safetensors", tensors)
        self.refuses(self.predict(model), "encoder.layer.1.output.dense.bias holds NaN")

    def test_tokeniser_of_another_model(self):
        model = self.classifier(vocabulary=VOCABULARY + ["zzz"])
        self.refuses(self.predict(model), "do not belong together", str(len(VOCABULARY) + 1), str(len(VOCABULARY)))

    def test_tokeniser_missing(self):
        model = self.classifier()
        (model / "vocab.txt").unlink()
        self.refuses(self.predict(model), "vocab.txt")

    def test_length_beyond_the_models_positions(self):
        self.refuses(self.predict(self.classifier()) + ["--max-length", "65"], "--max-length 65 is more than the model's 64 positions")

    def test_fewer_positions_than_the_default_length(self):
        train = write_rows(self.folder / "rows.tsv", ("label", "text"), [("pro", "good film"), ("contra", "bad film")] * 4)
        words = ["finetune", "--model", self.classifier(), "--task", "custom", "--train", train, "--output", self.folder / "run", "--max-steps", 1]
        self.refuses([*words, "--max-length", 65], "--max-length 65 is more than the model's 64 positions")
        self.succeeds(*words)
        self.assertEqual(json.loads((self.folder / "run" / "model" / "config.json").read_text())["funicular"]["max_length"], 64)

    def test_regression_model(self):
        model = self.model(problem_type="regression", extra_shapes={"classifier.weight": [1, HIDDEN], "classifier.bias": [1]},
                           id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0})
        rows = write_rows(self.folder / "classes.tsv", ("label", "text"), [("pro", "film")])
        self.refuses(["evaluate", "--model", model, "--task", "custom", "--data", rows], "gives a number per text", "give --task custom --regression")

    def test_classes_of_another_number(self):
        model = self.model(extra_shapes={"classifier.weight": [3, HIDDEN], "classifier.bias": [3]},
                           id2label={"0": "x", "1": "y", "2": "z"}, label2id={"x": 0, "y": 1, "z": 2})
        path = write_rows(self.folder / "dev.tsv", None, [("a", "1", "", "the film")])
        self.refuses(["evaluate", "--model", model, "--task", "cola", "--data", path], "has 3 classes (x, y, z)", "cola needs 2")


class Outputs(ProgramTest):
    def test_that_hold_the_model_of_the_run_are_refused(self):
        run = self.folder / "run"
        self.succeeds(*self.finetune_words(self.model(), max_steps=1, num_train_epochs=None))
        words = self.finetune_words(run / "model", max_steps=1, num_train_epochs=None)
        weights = (run / "model" / "model.safetensors").read_bytes()
        said = self.refuses(words, str(run / "model"), "which this run reads and would replace", "another --output")
        self.assertNotIn("tokenised", said.err, "nothing may be done before the refusal")
        (self.folder / "link").symlink_to(run)
        self.refuses(self.finetune_words(self.folder / "link" / "model", max_steps=1, num_train_epochs=None),
                     "would replace")
        self.refuses(["pretrain", "--model", run / "model", "--train", self.store(run / "model"), "--output", run],
                     "would replace")
        self.assertEqual((run / "model" / "model.safetensors").read_bytes(), weights)

    def test_that_hold_a_model_of_another_origin_are_refused(self):
        model = self.model()
        (self.folder / "run").mkdir()
        shutil.copytree(model, self.folder / "run" / "model")
        before = sorted((self.folder / "run").rglob("*"))
        self.refuses(self.finetune_words(model, max_steps=1, num_train_epochs=None), "was not written by a run into")
        self.assertEqual(sorted((self.folder / "run").rglob("*")), before)


class Rows(ProgramTest):
    def setUp(self):
        super().setUp()
        self.encoder = self.model()

    def finetune(self, train, *phrases, task="custom", **options):
        path = self.folder / "bad.tsv"
        path.write_text(train)
        self.refuses(self.finetune_words(self.encoder, train=path, task=task, **options), *phrases)
        self.assertFalse((self.folder / "run" / "model").exists())
        return path

    def test_file_missing(self):
        words = self.finetune_words(self.encoder, train=self.folder / "none.tsv")
        self.refuses(words, "none.tsv", "No such file")

    def test_header_without_the_column(self):
        self.finetune("label\tsentence\npro\tthe film\n", "bad.tsv", '"text"', "sentence", "--no-header")

    def test_glue_header_of_another_task(self):
        self.finetune("sentence\tlabel\nthe film\t1\n", "bad.tsv", "#1 String", task="mrpc")

    def test_row_with_too_few_columns(self):
        self.finetune("label\ttext\npro\tthe film\ncontra\n", "bad.tsv:3", "expected 2", "found 1")
        self.finetune("a\t1\t\tthe film\nb\t0\n", "bad.tsv:2", task="cola")

    def test_label_that_the_task_does_not_know(self):
        self.finetune("a\t1\t\tthe film\nb\t2\t\tthe book\n", "bad.tsv:2", "0, 1 (unacceptable, acceptable)", '"2"', task="cola")

    def test_label_of_the_evaluation_file_that_training_did_not_have(self):
        held_out = write_rows(self.folder / "other.tsv", ("label", "text"), [("pro", "good"), ("neutral", "film")])
        words = self.finetune_words(self.encoder, eval=held_out)
        self.refuses(words, "other.tsv:3", "neutral", "contra", "pro")

    def test_empty_file(self):
        self.finetune("", "bad.tsv")
        self.finetune("label\ttext\n", "bad.tsv", "no rows")

    def test_single_label(self):
        self.finetune("label\ttext\npro\tthe film\npro\tthe book\n", 'every row has the label "pro"', "at least two")

    def test_utf16(self):
        path = self.folder / "bad.tsv"
        path.write_bytes("label\ttext\npro\tx\n".encode("utf-16"))
        self.refuses(self.finetune_words(self.encoder, train=path), "UTF-16")

    def test_output_that_is_a_file(self):
        (self.folder / "run").write_text("mine")
        self.refuses(self.finetune_words(self.encoder), str(self.folder / "run") + " is a file; remove it")
        self.assertEqual((self.folder / "run").read_text(), "mine")

    def test_loss_that_is_not_finite_ends_the_run(self):
        words = self.finetune_words(self.encoder, learning_rate=1e38, max_grad_norm=0, num_train_epochs=20)
        result = self.refuses(words, "finite", code=1)
        self.assertIn("step", result.err)


class Stores(ProgramTest):
    def pretrain(self, model, store, *words):
        return ["pretrain", "--model", model, "--train", store, "--output", self.folder / "run", "--max-length", "16",
                "--max-steps", "2", *words]

    def test_store_of_another_tokeniser(self):
        model = self.model()
        other = self.model("other", vocabulary=VOCABULARY[:-1])
        self.refuses(self.pretrain(model, self.store(other)), "text.tokens", "tokeni")

    def test_store_missing_or_interrupted(self):
        model = self.model()
        self.refuses(self.pretrain(model, self.folder / "none.tokens"), "none.tokens")
        store = self.store(model)
        (store / "meta.json").unlink()
        self.refuses(self.pretrain(model, store), "text.tokens")

    def test_store_cut_short(self):
        model = self.model()
        store = self.store(model)
        path = store / "tokens.bin"
        path.write_bytes(path.read_bytes()[:-2])
        self.refuses(self.pretrain(model, store), "tokens.bin")

    def test_empty_store(self):
        model = self.model()
        self.refuses(self.pretrain(model, self.store(model, text="\x01\n")), "holds no text")  # a row of no token

    def test_input_without_rows(self):
        model = self.model()
        store = self.store(model)
        before = (store / "meta.json").read_bytes()
        for text in ("", " \n\n"):
            (self.folder / "blank.txt").write_text(text)
            self.refuses(["tokenize", "--tokenizer", model, "--input", self.folder / "blank.txt", "--output", store, "--overwrite"],
                         "the input has no rows")
        self.assertEqual((store / "meta.json").read_bytes(), before)

    def test_table_without_a_column(self):
        model = self.model()
        table = write_rows(self.folder / "rows.tsv", ("label", "text"), [("pro", "the film")])
        words = ["tokenize", "--tokenizer", model, "--input", table, "--output", self.folder / "new.tokens"]
        self.refuses(words, "rows.tsv is a table: give the column to tokenise", "--text-column NAME or --text-column 1")
        self.assertIn("1 rows, 1 documents, 2 tokens", self.succeeds(*words, "--header", "--text-column", "text").err)

    def test_tokeniser_that_is_a_hubs(self):
        words = ["tokenize", "--tokenizer", "bert-base-uncased", "--input", __file__, "--output", self.folder / "new.tokens"]
        self.refuses(words, "no such file or folder; to download the model of this name")

    def test_tokeniser_of_other_weights_is_told(self):
        model = self.model()
        other = self.model("other", vocabulary=VOCABULARY[:-1])
        run = self.succeeds(*self.pretrain(model, self.store(other)), "--tokenizer", other)
        self.assertIn("their embeddings stand for other tokens", run.err)
        (self.folder / "run").rename(self.folder / "first")
        self.assertNotIn("other tokens", self.succeeds(*self.pretrain(model, self.store(model, name="own.tokens")), "--tokenizer", model).err)

    def test_input_that_is_not_utf8(self):
        model = self.model()
        text = self.folder / "latin.txt"
        text.write_bytes(b"the film\nna\xefve\n")
        words = ["tokenize", "--tokenizer", model, "--input", text, "--output", self.folder / "new.tokens"]
        self.refuses(words, "latin.txt:2: expected UTF-8, found the byte 0xEF as byte 3", "--encoding WINDOWS-1252")
        self.assertFalse((self.folder / "new.tokens").exists())
        self.assertIn("left out 1 row that could not be read", self.succeeds(*words, "--skip-bad-rows").err)

    def test_options_of_evaluations_that_do_not_take_place(self):
        model = self.model()
        store = self.store(model)
        for words, shown in ((("--patience", "3"), "--patience 3 needs evaluations"),
                             (("--eval-steps", "5"), "--eval-steps 5 needs evaluations"),
                             (("--metric-for-best-model", "loss"), "--metric-for-best-model loss needs evaluations")):
            self.refuses(self.pretrain(model, store, *words), shown, "give --eval STORE or --eval-fraction SHARE")
            train, _ = self.custom_files()
            self.refuses(["finetune", "--model", model, "--task", "custom", "--train", train, "--output", self.folder / "run",
                          *words], shown, "give --eval FILE")
        self.assertFalse((self.folder / "run").exists())

    def test_strategy_of_several_ranks_without_them_is_told(self):
        model = self.model()
        words = self.pretrain(model, self.store(model), "--strategy", "zero1")
        self.assertIn("--strategy zero1 shares the work of several ranks", self.succeeds(*words).err)
        words[words.index("--output") + 1] = self.folder / "launched"
        launched = self.succeeds("launch", "-n", 2, "--", PROGRAM, *words)
        self.assertNotIn("shares the work", launched.err)

    def test_what_was_written_of_a_layout_is_what_is_told_of_it(self):
        model = self.model()
        words = [*self.pretrain(model, self.store(model), "--staleness", 2), "--zero"]
        told = self.succeeds(*words, 1).err
        self.assertIn("--zero 1 shares the work of several ranks", told)
        self.assertIn("--staleness has no effect with --zero 1; it works only with ps-async", told)
        self.assertNotIn("--strategy", told)
        self.refuses([*words, 3, "--strategy", "zero1"], "--zero 3 and the strategy zero1 contradict each other")

    def test_two_ways_to_evaluate(self):
        model = self.model()
        store = self.store(model)
        self.refuses(self.pretrain(model, store, "--eval", store, "--eval-fraction", "0.1"),
                     "--eval and --eval-fraction are both given")

    def test_config_alone_needs_a_tokeniser(self):
        model = self.model()
        self.refuses(self.pretrain(model / "config.json", self.store(model)), "--tokenizer")

    def test_vocabulary_without_mask(self):
        size = len(VOCABULARY) - 1
        model = self.model(vocabulary=[token for token in VOCABULARY if token != "[MASK]"], vocab_size=size,
                           extra_shapes={"embeddings.word_embeddings.weight": [size, HIDDEN]})
        self.refuses(self.pretrain(model, self.store(model)), "[MASK]")


class Predictions(ProgramTest):
    def test_pair_line_without_a_tab_names_its_line_and_leaves_no_file(self):
        model = self.model(extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]})
        out = self.folder / "answers.jsonl"
        out.write_text("earlier\n")
        self.refuses(["predict", "--model", model, "--pairs", "--output", out, "--overwrite"], "standard input:2",
                     "expected two texts separated by a tab, found 1", stdin="a\tb\nalone\n")
        self.assertEqual(out.read_text(), "earlier\n")
        self.assertEqual([path.name for path in self.folder.glob("*answers*")], ["answers.jsonl"])

    def test_output_that_is_the_input(self):
        model = self.model(extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]})
        texts = self.folder / "lines"
        texts.write_text("the film\n")
        self.refuses(["predict", "--model", model, "--input", texts, "--output", texts], "--input and --output are both")
        self.assertEqual(texts.read_text(), "the film\n")

    def test_line_that_is_not_utf8(self):
        model = self.model(extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]})
        self.refuses(["predict", "--model", model], "standard input:2: expected UTF-8, found the byte 0xE9",
                     stdin=b"the film\nd\xe9j\xe0 vu\n")

    def test_lines_of_a_table_are_told(self):
        model = self.model(extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]})
        table = self.succeeds("predict", "--model", model, stdin="label\ttext\npro\tthe film\n")
        self.assertEqual(len(table.out.splitlines()), 2)
        self.assertIn("2 of 2 lines hold a tab", table.err)
        self.assertNotIn("tab", self.succeeds("predict", "--model", model, stdin="the film\n").err)
        self.assertNotIn("hold a tab", self.succeeds("predict", "--model", model, "--pairs", stdin="a\tb\n").err)

    def test_lines_of_json_are_told(self):
        model = self.model(extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]})
        rows = '{"text": "the film"}\n  {"text": "the plot"} \nthe {film}\n'
        self.assertIn("2 of 3 lines look like JSON", self.succeeds("predict", "--model", model, stdin='["a", "b"]\n[{"text": "a"}]\n[film] [book]\n').err)
        self.assertIn("2 of 3 lines look like JSON", self.succeeds("predict", "--model", model, stdin=rows).err)
        told = self.succeeds("predict", "--model", model, "--format", "jsonl", "--text-column", "text", stdin=rows.rsplit("the", 1)[0])
        self.assertNotIn("look like JSON", told.err)

    def test_tables_that_are_not_there_are_told_before_their_format(self):
        model = self.model()
        self.refuses(self.finetune_words(model, eval=self.folder / "eval.cvs"), "eval.cvs does not exist")
        self.refuses(self.finetune_words(model, train=self.folder), "is a folder")

    def test_input_missing(self):
        model = self.model(extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]})
        self.refuses(["predict", "--model", model, "--input", self.folder / "none"], "cannot read --input", "No such file")


if __name__ == "__main__":
    unittest.main()
