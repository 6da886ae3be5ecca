"""From a model folder to a trained one, and back: the commands together."""

import os
import shutil
import time

from harness import *


class Finetune(ProgramTest):
    def test_learns_and_leaves_a_complete_run(self):
        result = self.succeeds(*self.finetune_words(self.model(), num_train_epochs=12))
        metrics = result.json()
        self.assertGreaterEqual(metrics["accuracy"], 0.9)
        self.assertEqual(set(metrics), {"accuracy", "macro_f1", "loss", "best_step", "last_loss", "steps", "seconds", "baseline"})
        names = {path.name for path in (self.folder / "run").iterdir()}
        self.assertLessEqual({"run.json", "metrics.jsonl", "model", "checkpoints"}, names)
        self.assertLessEqual({"config.json", "model.safetensors", "tokenizer.json", "vocab.txt", "tokenizer_config.json"},
                             {path.name for path in (self.folder / "run" / "model").iterdir()})
        for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines():
            json.loads(line)

    def test_says_which_weights_are_new_and_which_are_not_used(self):
        model = self.model(extra_shapes={"cls.predictions.bias": [len(VOCABULARY)]})
        log = self.succeeds(*self.finetune_words(model, max_steps=1, num_train_epochs=None)).err
        self.assertIn("new, randomly initialised: classifier.weight, classifier.bias\n", log)
        self.assertIn("not used: cls.predictions.bias", log)

    def test_options_that_do_nothing_beside_the_others_are_pointed_out(self):
        words = self.finetune_words(self.model(), max_steps=1, num_train_epochs=None, resume="never")
        idle = ["--momentum", 0.5, "--trust-coefficient", 0.1, "--loss-scale", 8, "--staleness", 2]
        log = self.succeeds(*words, *idle).err
        self.assertIn("--momentum has no effect with --optim adamw; it works only with sgd, lars", log)
        self.assertIn("--trust-coefficient has no effect with --optim adamw; it works only with lars", log)
        self.assertIn("--loss-scale has no effect with --precision fp32; it works only with fp16", log)
        self.assertIn("--staleness has no effect with --strategy auto; it works only with ps-async", log)
        self.assertNotIn("--adam-beta1", log)
        words[words.index("--output") + 1] = self.folder / "other"
        self.assertNotIn("no effect", self.succeeds(*words, "--optim", "sgd", "--momentum", 0.5).err)

    def test_a_store_is_no_file_of_rows(self):
        model = self.model()
        self.refuses(["evaluate", "--model", model, "--task", "cola", "--data", self.store(model)],
                     "task cola takes a file of rows, found a folder", "--task mlm")

    def test_custom_labels_are_sorted_and_kept_in_the_config(self):
        self.succeeds(*self.finetune_words(self.model(), max_steps=1, num_train_epochs=None))
        written = json.loads((self.folder / "run" / "model" / "config.json").read_text())
        self.assertEqual(written["id2label"], {"0": "contra", "1": "pro"})
        self.assertEqual(written["label2id"], {"contra": 0, "pro": 1})
        self.assertEqual(written["architectures"], ["BertForSequenceClassification"])
        self.assertEqual(written["problem_type"], "single_label_classification")

    def test_evaluate_finds_the_metrics_of_the_best_evaluation(self):
        metrics = self.succeeds(*self.finetune_words(self.model())).json()
        found = self.succeeds("evaluate", "--model", self.folder / "run" / "model", "--task", "custom", "--data",
                              self.folder / "eval.tsv").json()
        self.assertEqual(found.pop("samples"), 32)
        for name, value in found.items():
            self.assertAlmostEqual(value, metrics[name], places=5, msg=name)

    def test_tokenised_rows_are_kept_until_the_file_changes(self):
        words = self.finetune_words(self.model(), max_steps=1, num_train_epochs=None)
        self.succeeds(*words)
        stores = sorted((self.folder / "run" / "data").iterdir())
        before = stores[0].stat().st_mtime_ns
        self.assertNotIn("tokenised", self.succeeds(*words).err)
        self.assertEqual(stores[0].stat().st_mtime_ns, before)
        write_rows(self.folder / "eval.tsv", ("label", "text"), sentiment_rows(8, 9))
        self.assertIn("tokenised", run(*words, "--resume", "auto").err)
        self.assertEqual(len(list((self.folder / "run" / "data").iterdir())), 2)

    def test_adam_epsilon_is_what_the_step_is_divided_by(self):
        model = self.model()
        short = {"max_steps": 1, "num_train_epochs": None, "eval": None}
        self.succeeds(*self.finetune_words(model, output="start", learning_rate=1e-30, **short))
        before = read_safetensors(self.folder / "start" / "model" / "model.safetensors")
        name = "bert.encoder.layer.0.output.dense.weight"
        for output, epsilon, moved in (("default", None, True), ("small", "1e-10", True), ("huge", "1e20", False)):
            self.succeeds(*self.finetune_words(model, output=output, adam_epsilon=epsilon, **short))
            after = read_safetensors(self.folder / output / "model" / "model.safetensors")
            self.assertEqual(after[name][1] != before[name][1], moved, f"epsilon {epsilon}")
            written = json.loads((self.folder / output / "run.json").read_text())["optimizer"]
            self.assertEqual(float(epsilon or 1e-8), written["epsilon"])
        for wrong in ("0", "-1e-8", "x"):
            self.refuses(self.finetune_words(model, output="wrong", adam_epsilon=wrong, **short), "--adam-epsilon")
        self.refuses(self.finetune_words(model, output="small", adam_epsilon="1e-9", **short), "epsilon was 1e-10 and is 1e-09")

    def test_classifier_of_another_number_of_classes_gets_a_new_head(self):
        model = self.model(extra_shapes={"classifier.weight": [3, HIDDEN], "classifier.bias": [3]},
                           id2label={"0": "x", "1": "y", "2": "z"}, label2id={"x": 0, "y": 1, "z": 2})
        result = self.succeeds(*self.finetune_words(model, num_train_epochs=12))
        self.assertIn("has a classifier of 3 classes (x, y, z) and the training rows have 2: a new classifier, randomly "
                      "initialised, takes its place", result.err)
        self.assertNotIn("not used", result.err)
        self.assertGreaterEqual(result.json()["accuracy"], 0.9)
        trained = self.folder / "run" / "model"
        self.assertEqual(read_safetensors(trained / "model.safetensors")["classifier.weight"][0], [2, HIDDEN])
        answer = self.succeeds("predict", "--model", trained, stdin="the film is good\n").json()
        self.assertEqual(set(answer["probabilities"]), {"contra", "pro"})

    def start_of(self, names):
        """The classifier that training starts from, where the model's has the classes `names`; and the messages."""
        model = self.model("-".join(names), extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]},
                           id2label=dict(zip("01", names)), label2id={name: i for i, name in enumerate(names)})
        output = self.folder / ("run-" + model.name)
        result = self.succeeds(*self.finetune_words(model, output=output, max_steps=1, num_train_epochs=None,
                                                    learning_rate=1e-30))
        tensor = lambda folder: read_safetensors(folder / "model.safetensors")["classifier.weight"][1]
        return tensor(model), tensor(output / "model"), result.err

    def test_classifier_of_the_same_classes_is_the_start_whatever_their_order(self):
        before, after, log = self.start_of(["contra", "pro"])
        self.assertEqual(after, before)
        for names in (["pro", "contra"], ["PRO", "Contra"]):
            before, after, log = self.start_of(names)
            half = len(before) // 2
            self.assertEqual(after, before[half:] + before[:half], "the row of each name stays its row")
            self.assertNotIn("taken for", log)

    def test_classifier_of_as_many_other_classes_is_the_start_with_a_warning(self):
        before, after, log = self.start_of(["sad", "glad"])
        self.assertEqual(after, before)
        self.assertIn("its classes sad, glad are taken for contra, pro, in this order", log)

    def test_micro_batches_do_not_change_the_result(self):
        model = self.model(hidden_dropout_prob=0.1)
        whole = self.succeeds(*self.finetune_words(model, output="a", precision="fp64")).json()
        cut = self.succeeds(*self.finetune_words(model, output="b", precision="fp64", micro_batch_size=2, num_workers=0)).json()
        tokens = self.succeeds(*self.finetune_words(model, output="c", precision="fp64", micro_batch_tokens=20)).json()
        for other in (cut, tokens):
            self.assertAlmostEqual(whole["last_loss"], other["last_loss"], delta=1e-9)
            self.assertAlmostEqual(whole["loss"], other["loss"], delta=1e-9)

    def test_mixed_precision_from_training_to_prediction(self):
        model = self.model()
        exact = self.succeeds(*self.finetune_words(model, output="fp32")).json()
        for precision, words in (("int8", []), ("bf16", ["--bf16"]), ("fp16", ["--fp16", "--initial-loss-scale", "16777216"])):
            trained = precision if words else "fp32"
            found = self.succeeds(*self.finetune_words(model, output=precision), *words).json()
            self.assertAlmostEqual(found["loss"], exact["loss"], delta=0.05, msg=precision)
            run = self.folder / precision
            again = self.succeeds("evaluate", "--model", run / "model", "--task", "custom", "--data",
                                  self.folder / "eval.tsv", "--precision", precision).json()
            self.assertAlmostEqual(again["loss"], found["loss"], delta=0.02, msg=precision)
            answers = {name: self.succeeds("predict", "--model", run / "model", "--precision", name,
                                           stdin="the film is good\n").json() for name in ("fp32", precision)}
            self.assertNotEqual(answers["fp32"], answers[precision])
            self.assertAlmostEqual(answers["fp32"]["score"], answers[precision]["score"], delta=0.02, msg=precision)
            self.assertEqual(json.loads((run / "run.json").read_text())["precision"], trained)
        records = [json.loads(line) for line in (self.folder / "fp16" / "metrics.jsonl").read_text().splitlines()]
        steps = [record for record in records if "loss" in record]
        self.assertGreater(steps[-1]["skipped_steps"], 0, "2^24 overflows at first")
        self.assertLess(steps[-1]["loss_scale"], 2 ** 24)
        self.assertNotIn("loss_scale", (self.folder / "bf16" / "metrics.jsonl").read_text())

    def test_loss_scale_options(self):
        model = self.model()
        words = self.finetune_words(model, max_steps=1, num_train_epochs=None, output="scale") + ["--fp16"]
        self.refuses([*words, "--min-loss-scale", "8", "--initial-loss-scale", "4"], "--initial-loss-scale", "--min-loss-scale), 8, to 16777216, found 4")
        self.refuses([*words, "--initial-loss-scale", "16777217"], "--initial-loss-scale must be above 0 and at most 16777216")
        self.succeeds(*words, "--loss-scale", "128")
        self.assertEqual(json.loads((self.folder / "scale" / "run.json").read_text())["loss_scale"], "static 128")

    def test_layerwise_optimisers(self):
        model = self.model()
        for name, loss, more in (("lamb", 0.6, {"learning_rate": 0.1, "trust_ratio": "paper"}),
                                 ("lars", 0.8, {"learning_rate": 3, "trust_coefficient": 0.01})):
            found = self.succeeds(*self.finetune_words(model, output=name, optim=name, num_train_epochs=6, **more)).json()
            self.assertLess(found["loss"], loss, name)
            written = json.loads((self.folder / name / "run.json").read_text())["optimizer"]
            self.assertEqual((written["name"], written["learning_rate"]), (name, more["learning_rate"]))
            self.assertEqual(written["trust_ratio"], more.get("trust_ratio", "apex"))

    def test_recomputation_changes_no_bit(self):
        model = self.model(hidden_dropout_prob=0.1)
        words = self.finetune_words(model, output="none")
        plain = self.succeeds(*words).json()
        for mode in ("full", "sqrt", "selective"):
            again = self.succeeds(*self.finetune_words(model, output=mode, recompute=mode)).json()
            self.assertEqual(again["last_loss"], plain["last_loss"], mode)
            self.assertEqual((self.folder / mode / "model" / "model.safetensors").read_bytes(),
                             (self.folder / "none" / "model" / "model.safetensors").read_bytes(), mode)

    def test_glue_files_of_each_task(self):
        texts = [text for _, text in sentiment_rows(12)]
        pairs = list(zip(texts, reversed(texts)))
        files = {
            "cola": (None, [("x", str(i % 2), "*", text) for i, text in enumerate(texts)]),
            "sst2": (("sentence", "label"), [(text, str(i % 2)) for i, text in enumerate(texts)]),
            "mrpc": (("\ufeffQuality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
                     [(str(i % 2), "7", "8", a, '"' + b) for i, (a, b) in enumerate(pairs)]),
            "rte": (("index", "sentence1", "sentence2", "label"),
                    [(str(i), a, b, ["entailment", "not_entailment"][i % 2]) for i, (a, b) in enumerate(pairs)]),
            "qnli": (("index", "question", "sentence", "label"),
                     [(str(i), a, b, ["entailment", "not_entailment"][i % 2]) for i, (a, b) in enumerate(pairs)]),
            "qqp": (("id", "qid1", "qid2", "question1", "question2", "is_duplicate"),
                    [(str(i), "1", "2", a, b, str(i % 2)) for i, (a, b) in enumerate(pairs)]),
            "mnli": (("index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse",
                      "sentence2_parse", "sentence1", "sentence2", "label1", "gold_label"),
                     [(str(i), "p", "q", "fiction", "(", ")", "(", ")", a, b, "neutral", ["entailment", "neutral", "contradiction"][i % 3])
                      for i, (a, b) in enumerate(pairs)]),
            "wnli": (("index", "sentence1", "sentence2", "label"), [(str(i), a, b, str(i % 2)) for i, (a, b) in enumerate(pairs)])}
        metrics = {"cola": {"matthews_correlation", "accuracy"}, "sst2": {"accuracy"}, "mrpc": {"accuracy", "f1"},
                   "rte": {"accuracy"}, "qnli": {"accuracy"}, "qqp": {"accuracy", "f1"}, "mnli": {"accuracy"}, "wnli": {"accuracy"}}
        names = {"cola": ["unacceptable", "acceptable"], "sst2": ["negative", "positive"],
                 "mrpc": ["not_equivalent", "equivalent"], "rte": ["entailment", "not_entailment"],
                 "qnli": ["entailment", "not_entailment"], "qqp": ["not_duplicate", "duplicate"],
                 "mnli": ["contradiction", "entailment", "neutral"], "wnli": ["not_entailment", "entailment"]}
        model = self.model()
        for task, (header, rows) in files.items():
            path = write_rows(self.folder / f"{task}.tsv", header, rows)
            words = self.finetune_words(model, output=task, task=task, train=path, eval=path, max_steps=2,
                                        num_train_epochs=None)
            self.assertLessEqual(metrics[task] | {"loss"}, set(self.succeeds(*words).json()))
            written = json.loads((self.folder / task / "model" / "config.json").read_text())
            self.assertEqual(list(written["id2label"].values()), names[task])
            found = self.succeeds("evaluate", "--model", self.folder / task / "model", "--task", task, "--data", path).json()
            self.assertEqual(set(found) - {"cut", "baseline"}, metrics[task] | {"loss", "samples"})

    def test_rows_that_are_cut_are_counted(self):
        rows = [("pro", "good " * words) for words in (3, 6, 7, 20)] + [("contra", "bad")]
        path = write_rows(self.folder / "rows.tsv", ("label", "text"), rows)
        model = self.model()
        words = self.finetune_words(model, train=path, eval=path, max_length=8, max_steps=1, num_train_epochs=None)
        told = "rows.tsv: 2 of 5 rows are longer than 8 tokens"
        self.assertEqual(self.succeeds(*words).err.count(told), 2)
        trained = self.folder / "run" / "model"
        evaluate = ["evaluate", "--model", trained, "--task", "custom", "--data", path]
        told += ": 15 of 37 tokens (40.5 %) are not read"  # of 20 and of 7 words 6 are
        measured = self.succeeds(*evaluate)
        self.assertIn(told, measured.err)
        self.assertEqual(measured.json()["cut"], {"rows": 2, "rows_share": 0.4, "tokens": 15, "tokens_share": 15 / 37})
        self.assertNotIn("longer than", self.succeeds(*evaluate, "--max-length", "22").err)
        lines = "".join(text + "\n" for _, text in rows)
        told = self.succeeds("predict", "--model", trained, stdin=lines).err
        self.assertIn("standard input: 2 of 5 rows are longer than 8 tokens: 15 of 37 tokens (40.5 %) are not read", told)
        self.assertIn("raise --max-length, up to the model's longest, 64, or divide these texts", told)
        told = self.succeeds("predict", "--model", trained, "--max-length", 64, stdin="good " * 70 + "\n").err
        self.assertIn("the answers come from the rest; the model takes no more tokens: divide these texts", told)
        self.assertNotIn("raise --max-length", told)

    def test_json_lines_csv_and_columns_by_number(self):
        rows = sentiment_rows(16)
        (self.folder / "rows.jsonl").write_text("".join(json.dumps({"t": text, "l": label}) + "\n" for label, text in rows))
        (self.folder / "rows.csv").write_text("l,t\n" + "".join(f'{label},"{text}, ""very"""\n' for label, text in rows))
        write_rows(self.folder / "rows.txt", None, rows)
        model = self.model()
        common = {"max_steps": 1, "num_train_epochs": None, "eval": None}
        for name in ("rows.jsonl", "rows.csv"):
            self.succeeds(*self.finetune_words(model, output=name + ".run", train=self.folder / name, text_column="t",
                                               label_column="l", **common))
        self.succeeds(*self.finetune_words(model, output="txt.run", train=self.folder / "rows.txt", text_column="2",
                                           label_column="1", format="tsv", **common), "--no-header")


class Interruption(ProgramTest):
    """An interrupted run ends with 75, and the same command finishes it with the bits of an undisturbed run."""

    def check(self, words, output, number, lines):
        undisturbed = self.folder / "undisturbed"
        self.succeeds(*words, "--output", undisturbed)
        stopped = run_and_interrupt(output / "metrics.jsonl", lines, number, *words, "--output", output)
        self.assertEqual(stopped.code, 75, stopped.err)
        self.assertIn("repeat the command to resume", stopped.err)
        self.assertEqual(stopped.out, "")
        self.assertFalse((output / "model").exists() and not list((output / "model").iterdir()))
        resumed = self.succeeds(*words, "--output", output)
        self.assertIn("resumed from", resumed.err)
        self.assertNotIn("randomly initialised", resumed.err)
        left, right = undisturbed / "model" / "model.safetensors", output / "model" / "model.safetensors"
        self.assertEqual(left.read_bytes(), right.read_bytes())

    def finetune_for_long(self):
        words = self.finetune_words(self.model(), output="unused", num_train_epochs=None, max_steps=400, micro_batch_size=4,
                                    logging_steps=1, save_steps=0, eval_steps=100)
        at = words.index("--output")
        return words[:at] + words[at + 2:]

    def test_sigint_in_fine_tuning(self):
        self.check(self.finetune_for_long(), self.folder / "run", signal.SIGINT, 3)

    def test_the_folder_of_a_run_that_has_not_ended_is_told_as_such(self):
        output = self.folder / "run"
        stopped = run_and_interrupt(output / "metrics.jsonl", 3, signal.SIGINT, *self.finetune_for_long(), "--output", output)
        self.assertEqual(stopped.code, 75, stopped.err)
        self.refuses(["predict", "--model", output], "this run has not finished and has no model yet", "rerun its command to resume")

    def test_sigterm_in_fine_tuning(self):
        self.check(self.finetune_for_long(), self.folder / "run", signal.SIGTERM, 130)

    def test_the_other_signals_of_job_managers_save_too_alone_and_through_launch(self):
        words = self.finetune_for_long()
        words[words.index("--max-steps") + 1] = "100000"
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
            for launch in ([], ["launch", "-n", 2, "--", PROGRAM]):
                with self.subTest(number, launched=bool(launch)):
                    output = self.folder / f"{number}-{len(launch)}"
                    stopped = run_and_interrupt(output / "metrics.jsonl", 3, number, *launch, *words, "--output", output)
                    self.assertEqual(stopped.code, 75, stopped.err)
                    self.assertEqual(len(list((output / "checkpoints").iterdir())), 1)

    def test_a_hangup_that_nohup_ignores_stops_nothing(self):
        words = exact(self.finetune_for_long())
        for launch in ([], ["launch", "-n", "2", "--", PROGRAM]):
            output = self.folder / f"run-{len(launch)}"
            process = subprocess.Popen(["nohup", PROGRAM, *launch, *words, "--output", str(output)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env=environment())
            records = output / "metrics.jsonl"
            while process.poll() is None and not (records.exists() and records.read_bytes().count(b"\n") >= 3):
                time.sleep(0.002)
            process.send_signal(signal.SIGHUP)
            out, err = process.communicate(timeout=300)
            self.assertEqual(process.returncode, 0, err)
            self.assertEqual(json.loads(out.splitlines()[-1])["steps"], 400)

    def pretrain_words(self, steps, head_steps):
        model = self.model()
        return ["pretrain", "--model", model, "--train", self.store(model), "--max-steps", steps, "--batch-size", 8,
                "--freeze-encoder-steps", head_steps, "--max-length", 16, "--logging-steps", 1, "--save-steps", 0]

    def test_sigint_in_the_steps_of_the_new_head(self):
        words = self.pretrain_words(20, 400)
        output = self.folder / "run"
        undisturbed = self.folder / "undisturbed"
        self.succeeds(*words, "--output", undisturbed)
        stopped = run_and_interrupt(output / "head" / "metrics.jsonl", 3, signal.SIGINT, *words, "--output", output)
        self.assertEqual(stopped.code, 75, stopped.err)
        self.assertIn("resumed from", self.succeeds(*words, "--output", output).err)
        self.assertEqual((undisturbed / "model" / "model.safetensors").read_bytes(),
                         (output / "model" / "model.safetensors").read_bytes())

    def test_the_first_interrupt_at_a_terminal_is_acknowledged(self):
        try:
            terminal, other = os.openpty()
        except OSError as problem:
            self.skipTest(f"no pseudo-terminals here: {problem}")
        output = self.folder / "run"
        process = subprocess.Popen([PROGRAM, *map(str, self.finetune_for_long()), "--output", str(output)],
                                   stdout=subprocess.DEVNULL, stderr=other, env={**environment(), "TERM": "xterm"})
        self.addCleanup(process.kill)
        os.close(other)
        shown, sent = b"", False
        while True:
            try:
                shown += os.read(terminal, 4096)
            except OSError:  # its other side is closed
                break
            records = output / "metrics.jsonl"
            if not sent and records.exists() and records.read_bytes().count(b"\n") >= 3:
                process.send_signal(signal.SIGINT)
                sent = True
        os.close(terminal)
        self.assertEqual(process.wait(timeout=120), 75, shown)
        self.assertIn(b"interrupt again to stop at once, unsaved", shown)

    def test_a_new_head_that_learns_with_all_is_pointed_out_once(self):
        words = [*self.pretrain_words(2, 0)[:-1], 1, "--output", self.folder / "run"]  # --save-steps 1
        self.assertIn("--freeze-encoder-steps N", self.succeeds(*words).err)
        self.assertNotIn("--freeze-encoder-steps N", self.succeeds(*words).err)
        words[words.index("--freeze-encoder-steps") + 1] = 1
        words[-1] = self.folder / "other"
        self.assertNotIn("--freeze-encoder-steps N", self.succeeds(*words).err)

    def test_sigint_after_the_steps_of_the_new_head(self):
        self.check(self.pretrain_words(400, 10), self.folder / "run", signal.SIGINT, 3)

    def test_signal_between_the_head_and_all_weights(self):
        words = self.pretrain_words(200, 5)  # more than a fast machine does before the signal comes
        undisturbed = self.folder / "undisturbed"
        self.succeeds(*words, "--output", undisturbed)
        for number, phrase in ((signal.SIGINT, "training all weights"), (signal.SIGTERM, "training all weights"),
                               (signal.SIGINT, "training the head")):
            output = self.folder / f"{number}-{phrase}"
            stopped = run_and_interrupt_when_it_says(phrase, number, *words, "--output", output)
            self.assertEqual(stopped.code, 75, stopped.err)
            self.assertIn("repeat the command to resume", stopped.err)
            self.assertRegex(stopped.err, r"interrupted at step \d+ of")
            self.assertIn("resumed from", self.succeeds(*words, "--output", output).err)
            self.assertEqual((undisturbed / "model" / "model.safetensors").read_bytes(),
                             (output / "model" / "model.safetensors").read_bytes())

    def test_a_finished_run_says_so_and_gives_its_result_again(self):
        words = self.finetune_words(self.model(), max_steps=3, num_train_epochs=None)
        first = self.succeeds(*words)
        self.assertNotIn("finished already", first.err)
        again = self.succeeds(*words)
        self.assertIn(f"the run in {self.folder / 'run'} is finished already, at step 3", again.err)
        self.assertNotIn("train  ", again.err)
        self.assertEqual({**again.json(), "seconds": 0}, {**first.json(), "seconds": 0})
        written = (self.folder / "run" / "run.json").read_bytes()
        self.refuses([*words, "--warmup-steps", "2"], "is finished, with other settings: schedule was")
        self.assertEqual((self.folder / "run" / "run.json").read_bytes(), written, "of the training that was done")

    def test_that_has_lost_its_checkpoints_says_that_it_starts_anew(self):
        words = self.finetune_words(self.model(), max_steps=3, num_train_epochs=None)
        self.succeeds(*words)
        shutil.rmtree(self.folder / "run" / "checkpoints")
        self.assertIn("holds the records of an earlier run, but no checkpoint: this run starts from the beginning", self.succeeds(*words).err)

    def test_other_weights_do_not_resume(self):
        words = self.finetune_words(self.model(), max_steps=3, num_train_epochs=None)
        self.succeeds(*words)
        other = self.model("other")
        write_safetensors(other / "model.safetensors", random_weights(encoder_shapes(), seed=2))
        words[words.index("--model") + 1] = str(other)
        self.refuses(words, "another run: initial_weights was")

    def test_other_evaluation_data_are_not_compared_with(self):
        words = self.finetune_words(self.model(), max_steps=6, num_train_epochs=None, eval_steps=3)
        self.succeeds(*words)
        other = write_rows(self.folder / "other.tsv", ("label", "text"), sentiment_rows(8, 9))
        words[words.index("--eval") + 1] = str(other)
        again = self.succeeds(*words)
        self.assertIn("the run has taken its last step, with other settings: evaluation_data was 32 samples", again.err)
        self.assertIn("the evaluation data changed", again.err)
        found = self.succeeds("evaluate", "--model", self.folder / "run" / "model", "--task", "custom", "--data", other).json()
        self.assertAlmostEqual(found["loss"], again.json()["loss"], places=5)

    def test_other_settings_do_not_resume(self):
        words = self.finetune_words(self.model(), max_steps=3, num_train_epochs=None)
        self.succeeds(*words)
        self.refuses([*words, "--seed", "7"], "it belongs to another run: seed was 42 and is 7\n")
        self.refuses([*words, "--seed", "7", "--drop-last"], "another run:\n  drop_last was false and is true\n  seed was 42 and is 7\n")
        self.refuses([*words, "--resume", "never"], "holds checkpoints of an earlier run")


class Pretrain(ProgramTest):
    def words(self, model, store, *more):
        return ["pretrain", "--model", model, "--train", store, "--output", self.folder / "run", "--max-length", "24",
                "--batch-size", "16", "--learning-rate", "5e-3", *map(str, more)]

    def test_loss_falls_and_the_model_folder_can_be_used(self):
        model = self.model()
        store = self.store(model)
        result = self.succeeds(*self.words(model, store, "--eval-fraction", 0.2, "--max-steps", 120, "--eval-steps", 20))
        self.assertLess(result.json()["loss"], 3.2)  # a guess at random: ln(83) = 4.4; uniform over the 15 words: 2.7
        run_folder = self.folder / "run" / "model"
        self.assertEqual(json.loads((run_folder / "config.json").read_text())["architectures"], ["BertForMaskedLM"])
        found = self.succeeds("evaluate", "--model", run_folder, "--task", "mlm", "--data", store, "--max-length", 24).json()
        self.assertAlmostEqual(found["perplexity"], 2.718281828459045 ** found["loss"], places=4)
        log = self.succeeds(*self.finetune_words(run_folder, output="tuned", max_steps=1, num_train_epochs=None)).err
        self.assertNotIn("encoder.layer", log)

    def test_only_the_head_learns_while_the_encoder_is_frozen(self):
        model = self.model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        store = self.store(model)
        # A second phase of one step at a vanishing rate leaves what the first one made.
        self.succeeds("pretrain", "--model", model, "--train", store, "--output", self.folder / "run", "--max-length", 24,
                      "--freeze-encoder-steps", 20, "--max-steps", 1, "--learning-rate", "1e-30")
        before = read_safetensors(model / "model.safetensors")
        after = read_safetensors(self.folder / "run" / "model" / "model.safetensors")
        for name, (_, values) in before.items():
            if not name.startswith("pooler"):
                self.assertEqual(after["bert." + name][1], values, name)
        self.assertNotEqual(after["cls.predictions.bias"][1], bytes(len(after["cls.predictions.bias"][1])))

    def test_config_alone_starts_from_random_weights(self):
        model = self.model()
        store = self.store(model)
        log = self.succeeds(*self.words(model / "config.json", store, "--tokenizer", model, "--max-steps", 2)).err
        self.assertIn("training starts from random ones", log)

    def test_best_model_can_be_chosen_by_perplexity(self):
        model = self.model()
        store = self.store(model)
        result = self.succeeds(*self.words(model, store, "--eval", store, "--max-steps", 4, "--metric-for-best-model",
                                           "perplexity"))
        self.assertIn("perplexity", result.json())


if __name__ == "__main__":
    unittest.main()
