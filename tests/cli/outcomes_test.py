"""What does not work as asked ends with a message and an exit code that say so."""

import time

from harness import *

CLASSIFIER = {"classifier.weight": [2, HIDDEN], "classifier.bias": [2]}


class Outcomes(ProgramTest):
    def test_output_that_cannot_be_written_is_no_success(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([PROGRAM, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write to standard output", done.stderr)

    def test_loss_that_is_no_number_is_no_result(self):
        model = self.model(extra_shapes=CLASSIFIER)
        tensors = random_weights({**encoder_shapes(), **CLASSIFIER})
        for at in range(HIDDEN):  # finite weights whose logits are not
            tensors["encoder.layer.1.output.LayerNorm.weight"][1][at] = 3e38
        write_safetensors(model / "model.safetensors", tensors)
        path = write_rows(self.folder / "dev.tsv", None, [("a", "1", "", "the film")])
        self.refuses(["evaluate", "--model", model, "--task", "cola", "--data", path], "[evaluate] loss is ", "nan", code=1)

    def test_path_that_the_system_refuses_is_wrong_input(self):
        self.refuses(["predict", "--model", "x" * 300], "[file]", "File name too long")

    def test_weights_in_another_format_are_not_passed_over(self):
        model = self.model()
        store = self.store(model)
        (model / "model.safetensors").rename(model / "pytorch_model.bin")
        self.refuses(["pretrain", "--model", model, "--train", store, "--output", self.folder / "run", "--max-steps", 1,
                      "--max-length", 16], "pytorch_model.bin", "pickle")

    def test_pairs_for_a_model_with_one_segment(self):
        shapes = {**encoder_shapes(), **CLASSIFIER, "embeddings.token_type_embeddings.weight": [1, HIDDEN]}
        model = self.model(extra_shapes=shapes, type_vocab_size=1)
        self.refuses(["predict", "--model", model, "--pairs"], "type_vocab_size is 1", stdin="a\tb\n")

    def test_interrupted_prediction_leaves_no_file(self):
        out = self.folder / "answers.jsonl"
        process = subprocess.Popen([PROGRAM, "predict", "--model", str(self.model(extra_shapes=CLASSIFIER)), "--window", "1",
                                    "--output", str(out)], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 120
        while not list(self.folder.glob("*answers*")) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertTrue(list(self.folder.glob("*answers*")), "it has a file under another name while it runs")
        process.send_signal(signal.SIGINT)
        process.wait(timeout=120)
        message = process.stderr.read().decode()
        process.stdin.close()
        process.stderr.close()
        self.assertEqual(process.returncode, 75, message)
        self.assertIn("interrupted; the answers are not complete: run the same command again", message)
        self.assertEqual(list(self.folder.glob("*answers*")), [])

    def test_an_interrupted_command_ends_with_75_and_can_be_run_again(self):
        model = self.model(extra_shapes=CLASSIFIER, id2label={"0": "contra", "1": "pro"})
        rows = write_rows(self.folder / "rows.tsv", ("label", "text"), sentiment_rows(40_000))
        out = self.folder / "answers.jsonl"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
            with self.subTest(number):
                stopped = run_and_interrupt_when_it_says("tokenised", number, "evaluate", "--model", model, "--task", "custom", "--data", rows,
                                                         "--predictions", out)
                self.assertEqual(stopped.code, 75, stopped.err)
                self.assertRegex(stopped.err, "interrupted; (nothing unfinished is left, |the rows are tokenised, and no more was done: )run the same")
                self.assertEqual((stopped.out, list(self.folder.glob("*answers*"))), ("", []))

    def test_bad_labels_are_skipped_where_bad_rows_are(self):
        path = write_rows(self.folder / "rows.tsv", None, [("0.5", "good"), ("x", "bad"), ("1", "film")])
        words = ["tokenize", "--tokenizer", self.model(), "--input", path, "--text-column", "2", "--label-column", "1",
                 "--label-type", "value", "--output", self.folder / "rows.tokens"]
        self.refuses(words, "rows.tsv:2", "expected a finite number as label")
        self.assertIn("left out 1 row that could not be read:\n  " + f"{path}:2: expected a finite number", self.succeeds(*words, "--skip-bad-rows").err)


class Settings(ProgramTest):
    def run_file(self, *words, text=""):
        (self.folder / "run.toml").write_text(text)
        self.succeeds(*self.finetune_words(self.model(), num_train_epochs=None), "--config", self.folder / "run.toml", *words)
        return json.loads((self.folder / "run" / "run.json").read_text())

    def test_switches_are_read_strictly(self):
        words = self.finetune_words(self.model("other"), num_train_epochs=None, max_steps=1)
        self.refuses([*words, "--drop-last=maybe"], "--drop-last expects true or false", '"maybe"')
        self.refuses([*words, "--no-shuffle=false"], "--no-shuffle takes no value")
        written = self.run_file("--max-steps", "1", "--shuffle=NO", "--drop-last=Yes", "--bf16=True")
        self.assertEqual((written["identity"]["drop_last"], written["precision"]), ("true", "bf16"))

    def test_whole_numbers_keep_every_digit(self):
        self.assertEqual(self.run_file("--max-steps", "1", "--seed", "9007199254740993")["seed"], 9007199254740993)

    def test_typed_option_rules_out_its_rival_in_the_file(self):
        self.assertEqual(self.run_file("--max-steps", "2", text="num-train-epochs = 3\n")["identity"]["seed"], "42")

    def test_key_given_twice_in_one_table(self):
        (self.folder / "run.toml").write_text("batch-size = 8\nbatch_size = 4\n")
        self.refuses(["finetune", "--config", self.folder / "run.toml"], "--batch-size is given twice")

    def test_truncation_is_kept_for_evaluation(self):
        pairs = [("same" if i % 2 else "other", text, text + " old") for i, (_, text) in enumerate(sentiment_rows(24))]
        train = write_rows(self.folder / "pairs.tsv", ("label", "a", "b"), pairs)
        self.succeeds(*self.finetune_words(self.model(), train=train, eval=train, max_length=16, num_train_epochs=1,
                                           truncation="only_second"), "--text-columns", "a", "b")
        note = json.loads((self.folder / "run" / "model" / "config.json").read_text())["funicular"]
        self.assertEqual(note["truncation"], "only_second")
        # Of 16 tokens three are special, so that three are left of the second text.
        first, second = "good film " * 5, "bad book the old " * 3
        long, cut = (json.loads(line) for line in self.succeeds(
            "predict", "--model", self.folder / "run" / "model",
            stdin=f"{first}\t{second}\n{first}\tbad book the\n").out.splitlines())
        self.assertEqual(long, cut)

    def test_run_does_not_resume_with_another_dropout(self):
        model = self.model()
        words = self.finetune_words(model, max_steps=2, num_train_epochs=None)
        self.succeeds(*words)
        (model / "config.json").write_text(json.dumps(config(hidden_dropout_prob=0.2)))
        self.refuses(words, "dropout 0.1 (hidden)", "dropout 0.2 (hidden)")


if __name__ == "__main__":
    unittest.main()
