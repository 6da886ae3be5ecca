"""Training on several ranks with the program: launched, killed, restarted, resumed elsewhere, proved."""

import os
import re
import shutil
import subprocess
import time

from harness import *


def launch(ranks, words, *options, variables=None):
    """funicular launch -n RANKS OPTIONS -- funicular WORDS"""
    return run("launch", "-n", ranks, *options, "--", PROGRAM, *words, env={**environment(), **(variables or {})})


def result_of(launched):
    """The JSON that rank 0 printed."""
    return json.loads([line for line in launched.out.splitlines() if line.startswith("{")][-1])


def ranks_of(launcher):
    """The processes of the ranks that are there."""
    listing = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(launcher)], capture_output=True, text=True, check=False)
    return [int(line.split(None, 1)[0]) for line in listing.stdout.splitlines() if "pretrain" in line and " launch " not in line]


class Finetune(ProgramTest):
    def test_two_ranks_find_the_metrics_of_one(self):
        model = self.model()
        one = self.succeeds(*self.finetune_words(model, "one", precision="fp64")).json()
        for strategy in ("ddp", "zero3", "pipeline", "tensor"):
            launched = launch(2, self.finetune_words(model, strategy, precision="fp64", strategy=strategy))
            self.assertEqual(launched.code, 0, launched.err)
            two = result_of(launched)
            for name in ("accuracy", "macro_f1", "loss", "last_loss", "best_step", "steps"):
                self.assertAlmostEqual(two[name], one[name], delta=1e-9 * abs(one[name]), msg=f"{strategy} {name}")
            for name, (shape, _) in read_safetensors(self.folder / "one" / "model" / "model.safetensors").items():
                self.assertEqual(read_safetensors(self.folder / strategy / "model" / "model.safetensors")[name][0], shape)
            self.assertEqual(len([line for line in launched.out.splitlines() if "{" in line]), 1, "one rank speaks")

    def test_a_run_goes_on_under_another_strategy_and_number_of_ranks(self):
        model = self.model()
        words = {"precision": "fp64", "save_steps": 4, "num_train_epochs": None, "max_steps": 14}
        layouts = [("zero2", 3, {}), ("tensor", 2, {}), ("pipeline", 2, {}), ("zero3", 4, {"tensor_parallel": 2}),
                   ("single", 1, {}), ("pipeline", 4, {"tensor_parallel": 2, "sequence_parallel": True}),
                   ("pipeline-zero3", 4, {"pipeline_parallel": 2})]
        for number, (strategy, ranks, more) in enumerate(layouts):
            launched = launch(ranks, self.finetune_words(model, "moved", **{**words, **more, "strategy": strategy,
                                                                             "max_steps": 2 * (number + 1),
                                                                             "lr_scheduler_type": "constant"}))
            self.assertEqual(launched.code, 0, launched.err)
            if number:
                self.assertIn(f"at step {2 * number} of", launched.err)  # where it goes on
        self.succeeds(*self.finetune_words(model, "constant", **{**words, "lr_scheduler_type": "constant"}))
        names = [f"checkpoints/step-000014/{file}.safetensors" for file in ("model", "optimizer")]
        for name in names:
            moved, whole = (read_safetensors(self.folder / run / name) for run in ("moved", "constant"))
            self.assertEqual(moved.keys(), whole.keys())
            for tensor, (_, data) in whole.items():
                a, b = array.array("d", moved[tensor][1]), array.array("d", data)
                self.assertLess(max(map(lambda x, y: abs(x - y), a, b), default=0), 1e-9, tensor)

    def test_a_pipeline_that_goes_on_with_other_versions_of_its_weights_says_so(self):
        words = {"model": self.model(), "num_train_epochs": None, "strategy": "pipeline", "schedule": "pipedream"}
        first = launch(2, self.finetune_words(**words, max_steps=2))
        self.assertEqual(first.code, 0, first.err)
        same = launch(2, self.finetune_words(**words, max_steps=3))
        self.assertNotIn("pipeline was", same.err)
        other = launch(2, self.finetune_words(**{**words, "schedule": "pipedream-2bw"}, max_steps=5))
        self.assertEqual(other.code, 0, other.err)
        self.assertRegex(other.err, "pipeline was pipedream, stages from segments [0-9 ]+, saved every 500 steps and is pipedream-2bw")

    def test_wrong_input_is_said_with_exit_code_2(self):
        model = self.model()
        for words, phrase in (({"strategy": "zero4"}, "zero4"), ({"strategy": "single"}, "2 ranks"),
                              ({"batch_size": 8, "gradient_accumulation_steps": 5}, "on each of 2 ranks"),
                              ({"train": self.folder / "absent.tsv"}, "absent.tsv")):
            launched = launch(2, self.finetune_words(model, **words))
            self.assertEqual(launched.code, 2, launched.err)
            self.assertIn(phrase, launched.err)


    def test_options_of_other_strategies_are_refused(self):
        model = self.model()
        order = self.folder / "order"
        for words, phrase in (({"strategy": "zero1", "reduce_precision": "bf16"}, "works only with ddp"),
                              ({"reduce_precision": "bf16", "deterministic": "true"}, "contradict"),
                              ({"reduce_precision": "fp16", "precision": "fp16"}, "does not go with fp16"),
                              ({"strategy": "dp"}, "for one process"),
                              ({"strategy": "ps-async", "precision": "fp16"}, "loss scale"),
                              ({"strategy": "ps-async", "record_interleaving": order, "replay_interleaving": order},
                               "give one of them"),
                              ({"strategy": "ps-async", "replay_interleaving": order}, "server-0.txt")):
            launched = launch(2, self.finetune_words(model, "refused", **words))
            self.assertNotEqual(launched.code, 0, words)
            self.assertIn(phrase, launched.err)

    def test_ranks_share_the_rows_of_an_evaluation_and_find_the_same_to_the_last_bit(self):
        model = self.model()
        self.succeeds(*self.finetune_words(model, "run"))
        words = ["evaluate", "--model", self.folder / "run" / "model", "--data", self.folder / "eval.tsv", "--eval-batch-size", 8,
                 "--micro-batch-tokens", 24, "--details"]
        one = self.succeeds(*words, "--predictions", self.folder / "one.jsonl")
        launched = launch(3, [*words, "--predictions", self.folder / "three.jsonl"])
        self.assertEqual(launched.code, 0, launched.err)
        self.assertEqual(result_of(launched), one.json())
        self.assertEqual((self.folder / "three.jsonl").read_bytes(), (self.folder / "one.jsonl").read_bytes())
        self.assertEqual(len([line for line in launched.out.splitlines() if "{" in line]), 1, "one rank speaks")
        absent = launch(2, [*words[:3], "--data", self.folder / "absent.tsv"])
        self.assertEqual(absent.code, 2, absent.err)
        self.assertIn("absent.tsv", absent.err)

    def test_ranks_evaluate_masked_words_as_one_process_does_to_the_last_bit(self):
        model = self.model(extra_shapes={**encoder_shapes(), "cls.predictions.bias": [len(VOCABULARY)],
                                         "cls.predictions.transform.dense.weight": [HIDDEN, HIDDEN],
                                         "cls.predictions.transform.dense.bias": [HIDDEN],
                                         "cls.predictions.transform.LayerNorm.weight": [HIDDEN],
                                         "cls.predictions.transform.LayerNorm.bias": [HIDDEN]})
        store = self.store(model)
        for more in ((), ("--eval-batch-size", 1, "--seed", 7)):
            words = ["evaluate", "--model", model, "--task", "mlm", "--data", store, "--max-length", 16, *more]
            one = self.succeeds(*words).json()
            self.assertGreater(one["perplexity"], 1)
            launched = launch(3, words)
            self.assertEqual(launched.code, 0, launched.err)
            self.assertEqual(result_of(launched), one)
        damaged = self.folder / "damaged.tokens"
        shutil.copytree(store, damaged)
        (damaged / "tokens.bin").write_bytes(bytes(len((damaged / "tokens.bin").read_bytes())))
        refused = launch(2, [*words[:6], damaged])
        self.assertEqual(refused.code, 2, refused.err)
        self.assertIn("damaged.tokens", refused.err)

    def test_ranks_leave_the_folder_of_an_evaluation_as_one_process_does(self):
        model = self.model()
        self.succeeds(*self.finetune_words(model, "run"))
        words = ["evaluate", "--model", self.folder / "run" / "model", "--data", self.folder / "eval.tsv", "--eval-batch-size", 4]
        one = self.succeeds(*words, "--output", self.folder / "one").json()
        launched = launch(3, [*words, "--output", self.folder / "three"])
        self.assertEqual(launched.code, 0, launched.err)
        self.assertEqual(result_of(launched), one)
        files = sorted(path.name for path in (self.folder / "one").iterdir())
        self.assertIn("predictions.jsonl", files)
        self.assertEqual(sorted(path.name for path in (self.folder / "three").iterdir()), files)
        self.assertEqual((self.folder / "three" / "predictions.jsonl").read_bytes(), (self.folder / "one" / "predictions.jsonl").read_bytes())
        told = [json.loads((self.folder / name / "evaluation.json").read_text()) for name in ("one", "three")]
        for each in told:
            self.assertGreater(each.pop("seconds"), 0)
            self.assertGreater(each.pop("rows_per_second"), 0)
        self.assertEqual(*told)

    def test_ranks_of_a_host_tokenise_the_rows_of_an_evaluation_once(self):
        model = self.model()
        self.succeeds(*self.finetune_words(model, "run"))
        words = ["evaluate", "--model", self.folder / "run" / "model", "--data", self.folder / "eval.tsv", "--precision", "fp32"]
        launched = launch(3, words, variables={"FUNICULAR_LOG": "debug", "TMPDIR": str(self.folder)})
        self.assertEqual(launched.code, 0, launched.err)
        self.assertEqual(launched.err.count("tokenised"), 1, launched.err)
        self.assertEqual(list(self.folder.glob("funicular-*")), [], "the store goes with its rank")
        # One rank a host: each has a store of its own.
        for rank in range(3):
            (self.folder / f"tmp-{rank}").mkdir()
        apart = run("launch", "-n", 3, "--", "sh", "-c",
                    f"TMPDIR={self.folder}/tmp-$RANK LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 exec {PROGRAM} " + " ".join(map(str, words)),
                    env={**environment(), "FUNICULAR_LOG": "debug"})
        self.assertEqual(apart.code, 0, apart.err)
        self.assertEqual(apart.err.count("tokenised"), 3, apart.err)
        self.assertEqual(result_of(apart), result_of(launched))
        with open(self.folder / "eval.tsv", "a") as file:
            file.write("a label and no text\n")
        line = len((self.folder / "eval.tsv").read_text().splitlines())
        refused = launch(3, words)
        self.assertEqual(refused.code, 2, refused.err)
        self.assertEqual(refused.err.count(f"eval.tsv:{line}"), 1, refused.err)

    def test_ranks_that_were_given_other_rows_to_evaluate_are_refused(self):
        model = self.model()
        self.succeeds(*self.finetune_words(model, "run"))
        rows = (self.folder / "eval.tsv").read_text().splitlines(keepends=True)
        for rank in (0, 1):
            (self.folder / f"part-{rank}.tsv").write_text("".join(rows[:1] + rows[1 + rank::2]))
        refused = run("launch", "-n", 2, "--", "sh", "-c",
                      f"{PROGRAM} evaluate --model {self.folder / 'run' / 'model'} --data {self.folder}/part-$RANK.tsv")
        self.assertEqual(refused.code, 2, refused.err)
        self.assertIn("the rows of --input differs: rank 1 has", refused.err)

    def test_ranks_with_another_option_that_changes_the_result_are_refused(self):
        model = self.model()
        self.succeeds(*self.finetune_words(model, "run"))
        for option, values in (("encoding", ("utf-8", "latin-1")), ("quotes", ("csv", "none")), ("details", ("true", "false"))):
            with self.subTest(option):
                refused = run("launch", "-n", 2, "--", "sh", "-c", f"V=$([ $RANK = 0 ] && echo {values[0]} || echo {values[1]}); {PROGRAM} evaluate "
                              f"--model {self.folder / 'run' / 'model'} --data {self.folder}/eval.tsv --{option}=$V")
                self.assertEqual(refused.code, 2, refused.err)
                self.assertIn(f'--{option} differs: rank 1 has "{values[1]}", rank 0 has "{values[0]}"', refused.err)

    def test_replicas_in_one_process_find_the_metrics_of_one_device(self):
        model = self.model()
        found = [self.succeeds(*self.finetune_words(model, name, precision="fp64", **words)).json()
                 for name, words in (("one", {}), ("dp", {"strategy": "dp", "devices": 2}))]
        for name in ("accuracy", "macro_f1", "loss", "last_loss", "steps"):
            self.assertAlmostEqual(found[0][name], found[1][name], delta=1e-9 * abs(found[0][name]), msg=name)

    def test_stages_on_devices_of_one_process_are_those_of_as_many_processes(self):
        model = self.model()
        words = {"precision": "fp64", "pipeline_parallel": 2, "save_steps": 3, "num_train_epochs": None, "max_steps": 6}
        self.succeeds(*self.finetune_words(model, "devices", **words, devices=2, schedule="naive"))
        self.assertEqual(json.loads((self.folder / "devices/run.json").read_text())["devices"], 2)
        launched = launch(2, self.finetune_words(model, "processes", **words, schedule="naive"))
        self.assertEqual(launched.code, 0, launched.err)
        for file in ("model/model.safetensors", "checkpoints/step-000006/model.safetensors", "checkpoints/step-000006/optimizer.safetensors"):
            ours, theirs = ((self.folder / run / file).read_bytes() for run in ("devices", "processes"))
            self.assertEqual(ours, theirs, file)
        # A checkpoint of the one is one of the other.
        shutil.rmtree(self.folder / "devices/checkpoints/step-000006")
        shutil.rmtree(self.folder / "devices/model")
        launched = launch(2, self.finetune_words(model, "devices", **words, schedule="naive"))
        self.assertEqual(launched.code, 0, launched.err)
        self.assertIn("at step 3 of", launched.err)
        self.assertEqual(*((self.folder / run / "model/model.safetensors").read_bytes() for run in ("devices", "processes")))

    def test_devices_that_do_not_fit_are_refused(self):
        model = self.model()
        for more, part in (({"zero": 1}, "--tensor-parallel and --zero"), ({"schedule": "pipedream"}, "funicular launch -n 2"),
                           ({"data_parallel": 2}, "leave out --devices 2")):
            refused = run(*self.finetune_words(model, "refused", pipeline_parallel=2, devices=2, **more))
            self.assertEqual(refused.code, 2, refused.err)
            self.assertIn(part, refused.err)


class Predict(ProgramTest):
    """Ranks share the rows of a file."""

    def setUp(self):
        super().setUp()
        self.classifier = self.model(extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]})

    def rows(self, count, bad=()):
        path = self.folder / "rows.tsv"
        lines = [f"{number}\t{text}" for number, (_, text) in enumerate(sentiment_rows(count, 7))]
        for number in bad:
            lines[number] = "no text"
        path.write_text("\n".join(["id\ttext", *lines]) + "\n")
        return path

    def words(self, path, *more):
        return ["predict", "--model", self.classifier, "--input", path, *more]

    def compare(self, found, expected):
        self.assertEqual(len(found.splitlines()), len(expected.splitlines()))
        for left, right in zip(map(json.loads, found.splitlines()), map(json.loads, expected.splitlines())):
            self.assertEqual((set(left), left.get("label"), left.get("error")), (set(right), right.get("label"), right.get("error")))
            self.assertAlmostEqual(left.get("score", 0), right.get("score", 0), places=5)

    def test_answers_of_ranks_are_those_of_one_process_in_the_order_of_the_rows(self):
        for count in (0, 1, 2, 5, 12, 25):
            path = self.rows(count)
            expected = self.succeeds(*self.words(path)).out
            self.assertEqual(len(expected.splitlines()), count)
            for ranks, window in ((2, 3), (3, 4), (2, 100)):
                launched = launch(ranks, self.words(path, "--window", window))
                self.assertEqual(launched.code, 0, launched.err)
                self.compare(launched.out, expected)
        self.assertGreater(len({json.loads(line)["score"] for line in expected.splitlines()}), 20)

    def test_the_file_of_the_answers_is_written_by_one(self):
        path, out = self.rows(90), self.folder / "answers.jsonl"
        launched = launch(3, self.words(path, "--output", out, "--window", 4))
        self.assertEqual((launched.code, launched.out), (0, ""), launched.err)
        self.compare(out.read_text(), self.succeeds(*self.words(path)).out)
        self.assertEqual([file.name for file in self.folder.glob("*answers*")], ["answers.jsonl"])
        refused = launch(3, self.words(path, "--output", out))
        self.assertEqual((refused.code, refused.err.count("there is a file already")), (2, 1), refused.err)

    def test_rows_that_cannot_be_read_are_refused_once_or_answered_in_their_place(self):
        path = self.rows(20, bad=(0, 5, 6, 19))
        refused = launch(2, self.words(path))
        self.assertEqual((refused.code, refused.err.count("rows.tsv:2: expected 2")), (2, 1), refused.err)
        launched = launch(3, self.words(path, "--skip-bad-rows", "--window", 2))
        self.assertEqual(launched.code, 0, launched.err)
        alone = self.succeeds(*self.words(path, "--skip-bad-rows"))
        self.compare(launched.out, alone.out)
        for said in (launched.err, alone.err):
            self.assertEqual(said.count("gave an error instead of an answer to 4 rows"), 1, said)

    def test_an_error_of_one_rank_ends_all_and_leaves_no_file(self):
        path, out = self.rows(20), self.folder / "answers.jsonl"
        model = self.folder / "model"
        weights = random_weights({**encoder_shapes(), "classifier.weight": [2, HIDDEN], "classifier.bias": [2]})
        # Finite weights that overflow for one word, which row 11 of the file has alone.
        weights["embeddings.word_embeddings.weight"][1][VOCABULARY.index("dull") * HIDDEN:(VOCABULARY.index("dull") + 1) * HIDDEN] = \
            array.array("f", [3e38, -3e38] * (HIDDEN // 2))
        write_safetensors(model / "model.safetensors", weights)
        lines = path.read_text().splitlines()
        lines[11] = "10\tdull dull"
        path.write_text("\n".join(lines) + "\n")
        for ranks in (1, 2, 3):
            launched = launch(ranks, self.words(path, "--output", out))
            self.assertEqual(launched.code, 1, launched.err)
            self.assertIn("the model answers", launched.err)
            self.assertEqual(list(self.folder.glob("*answers*")), [])

    def test_what_can_be_read_once_is_refused(self):
        refused = launch(2, ["predict", "--model", self.classifier])
        self.assertEqual((refused.code, refused.err.count("several ranks share the rows of a file")), (2, 1), refused.err)
        os.mkfifo(self.folder / "pipe")
        refused = launch(2, self.words(self.folder / "pipe"))
        self.assertEqual((refused.code, refused.err.count("several ranks share the rows of a regular file")), (2, 1), refused.err)
        one = launch(1, ["predict", "--model", self.classifier])
        self.assertEqual((one.code, one.out), (0, ""), one.err)

    def test_ranks_that_were_given_other_rows_are_refused(self):
        for rank in (0, 1):
            (self.folder / f"part-{rank}.txt").write_text(f"film {rank}\n")
        refused = run("launch", "-n", 2, "--", "sh", "-c", f"{PROGRAM} predict --model {self.classifier} --input {self.folder}/part-$RANK.txt")
        self.assertEqual(refused.code, 2, refused.err)
        self.assertIn("the data of --input differs: rank 1 has", refused.err)


def heap_of(process):
    """Kilobytes of the heap's pages that a process alone has, and that it shares."""
    found, in_heap = {"Private_Dirty": 0, "Shared_Dirty": 0}, False
    for line in pathlib.Path(f"/proc/{process}/smaps").read_text().splitlines():
        if re.match("[0-9a-f]+-[0-9a-f]+ ", line):
            in_heap = line.endswith("[heap]")
        elif in_heap and line.split(":")[0] in found:
            found[line.split(":")[0]] += int(line.split()[1])
    return found["Private_Dirty"], found["Shared_Dirty"]


class SharedMemory(ProgramTest):
    @unittest.skipIf(SANITIZED, "sanitizers have another heap, or threads of their own")
    def test_ranks_share_what_loading_libtorch_wrote(self):
        model = self.model()
        words = ["pretrain", "--model", model, "--train", self.store(model), "--output", self.folder / "run", "--max-length", "16",
                 "--batch-size", "4", "--max-steps", "100000", "--save-steps", "0", "--strategy", "ddp"]
        variables = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        with subprocess.Popen([PROGRAM, "launch", "-n", "2", "--", PROGRAM, *exact(words)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=variables) as process:
            try:
                metrics, deadline = self.folder / "run" / "metrics.jsonl", time.monotonic() + 120
                while not (metrics.exists() and metrics.read_text().count("\n") > 1) and time.monotonic() < deadline:
                    time.sleep(0.05)
                ranks = ranks_of(process.pid)  # found by their own command lines
                heaps = [heap_of(rank) for rank in ranks]
            finally:
                process.terminate()
                said = process.communicate(timeout=120)[0].decode()
        self.assertEqual(process.returncode, 75, said)
        self.assertEqual(len(heaps), 2, said)
        for alone, shared in heaps:
            self.assertGreater(shared, 25000)
            self.assertLess(alone, 25000)


class KilledRanks(ProgramTest):
    def words(self, output, strategy):
        name, schedule, slices = [*strategy.split(" "), "", ""][:3]
        return ["pretrain", "--model", self.folder / "model", "--train", self.data, "--output", self.folder / output,
                "--max-length", 32, "--max-steps", 120, "--batch-size", 8, "--save-steps", 5, "--strategy", name,
                *(["--schedule", schedule] if schedule else []), *(["--tensor-parallel", slices] if slices else [])]

    def test_a_run_whose_ranks_are_killed_ends_as_if_they_had_not_been(self):
        self.kill({"ddp": 4, "zero2": 4})

    def test_pipelines_whose_ranks_are_killed_end_as_if_they_had_not_been(self):
        self.kill({"pipeline 1f1b": 5, "pipeline pipedream-2bw": 5})

    def test_stages_of_slices_whose_ranks_are_killed_end_as_if_they_had_not_been(self):
        self.kill({"pipeline 1f1b 2": 3, "pipeline pipedream-2bw 2": 3}, ranks=4)

    def test_a_pipeline_of_which_a_rank_stands_still_goes_on(self):
        err = self.kill({"pipeline 1f1b": 1}, sign=signal.SIGSTOP)
        self.assertRegex(err.decode(), r"rank \d \(process \d+, which is stopped\) has not been heard of|rank 0.*does not answer")

    def kill(self, most, ranks=2, sign=signal.SIGKILL):
        self.data = self.store(self.model())
        for strategy, planned in most.items():
            undisturbed = launch(ranks, self.words(strategy + "-whole", strategy))
            self.assertEqual(undisturbed.code, 0, undisturbed.err)
            process = subprocess.Popen([PROGRAM, "launch", "-n", str(ranks), "--max-restarts", "100", "--grace", "1", "--", PROGRAM,
                                        *exact(self.words(strategy + "-killed", strategy))], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, env=environment())
            source, kills = random.Random(7), 0
            saved = self.folder / (strategy + "-killed") / "checkpoints"
            while process.poll() is None and kills < planned:
                time.sleep(source.uniform(0.1, 0.6))
                there = ranks_of(process.pid)
                if there and any(saved.glob("step-*")):
                    os.kill(source.choice(there), sign)
                    kills += 1
            _, err = process.communicate(timeout=300)
            self.assertEqual(process.returncode, 0, err.decode())
            self.assertGreater(kills, planned // 2, "the run ended before most of its kills")  # a busy machine kills late
            self.assertIn(b"resumed from", err)
            for name in ("model/model.safetensors", "checkpoints/step-000120/model.safetensors",
                         "checkpoints/step-000120/optimizer.safetensors"):
                self.assertEqual((self.folder / (strategy + "-killed") / name).read_bytes(),
                                 (self.folder / (strategy + "-whole") / name).read_bytes(), f"{strategy}: {name}")
        return err


class AsyncServers(ProgramTest):
    def words(self, output, **options):
        values = {"max_length": 32, "max_steps": 24, "batch_size": 8, "save_steps": 12, "logging_steps": 6,
                  "eval_fraction": 0.2, "eval_steps": 8, "strategy": "ps-async", **options}
        words = ["pretrain", "--model", self.folder / "model", "--train", self.data, "--output", self.folder / output]
        for name, value in values.items():
            words += ["--" + name.replace("_", "-"), value]
        return words

    def test_a_recorded_run_is_replayed_to_the_same_bytes(self):
        self.data = self.store(self.model())
        runs = {"recorded": {"record_interleaving": self.folder / "order"},
                "replayed": {"replay_interleaving": self.folder / "order"}}
        for name, options in runs.items():
            launched = launch(3, self.words(name, staleness=2, **options))
            self.assertEqual(launched.code, 0, launched.err)
            outcome = json.loads((self.folder / name / "run.json").read_text())["result"]
            self.assertEqual(sum(outcome["staleness"]), 48, "a push of each worker in each step")
        other = launch(3, self.words("otherwise", staleness=2, logging_steps=7, replay_interleaving=self.folder / "order"))
        self.assertEqual(other.code, 1, other.err)
        self.assertIn("--logging-steps", other.err)
        for file in ("model/model.safetensors", "checkpoints/step-000024/optimizer.safetensors", "metrics.jsonl"):
            recorded, replayed = ((self.folder / name / file).read_bytes() for name in runs)
            if file == "metrics.jsonl":
                recorded, replayed = ([json.loads(line).get("loss") for line in text.splitlines()] for text in (recorded, replayed))
            self.assertEqual(recorded, replayed, file)

    def test_a_run_goes_on_from_its_checkpoint(self):
        self.data = self.store(self.model())
        first = launch(3, self.words("moved", max_steps=12))
        self.assertEqual(first.code, 0, first.err)
        second = launch(4, self.words("moved", servers=2))
        self.assertEqual(second.code, 0, second.err)
        self.assertIn("resumed from", second.err)
        alone = self.succeeds(*self.words("moved", max_steps=30, strategy="single"))
        self.assertIn("resumed from", alone.err)


class Prove(ProgramTest):
    def test_layouts_that_agree(self):
        found = json.loads(self.succeeds("prove", "ddp -n 2 --micro-batch-size 3", "single", "--steps", 2, "--json").out)
        self.assertTrue(found["holds"])
        self.assertGreater(found["gradient"]["relative"], 0)
        self.assertLess(found["gradient"]["relative"], 1e-10)

    def test_tells_what_each_rank_holds(self):
        def held(layout, *words):
            return json.loads(self.succeeds("prove", layout, "single", "--steps", 1, *words, "--json").out)["held_bytes"]

        (zero1, (one,)), zero3, ddp = held("zero1 -n 2"), held("zero3 -n 2")[0], held("ddp -n 2")[0]
        self.assertEqual(one["state"], 2 * one["weights"], "in float64, by AdamW")
        self.assertAlmostEqual(one["gradients"], one["weights"], delta=one["weights"] / 100, msg="without the padding of the weights")
        self.assertEqual(ddp[0], ddp[1])
        for kind in ("weights", "gradients", "state"):
            self.assertAlmostEqual(ddp[0][kind], one[kind], delta=one[kind] / 100, msg=kind)
        for kind in ("weights", "gradients", "state"):
            self.assertAlmostEqual(sum(rank[kind] for rank in zero3), one[kind], delta=one[kind] / 25, msg=kind)
            self.assertLess(max(rank[kind] for rank in zero3), 0.65 * one[kind], kind)
        for rank in zero1:
            self.assertAlmostEqual(rank["weights"], one["weights"], delta=one["weights"] / 100)
        self.assertAlmostEqual(sum(rank["state"] for rank in zero1), one["state"], delta=one["state"] / 50)
        worker, other, server = held("ps-sync -n 3")[0]
        for kind in ("weights", "gradients"):
            self.assertAlmostEqual(worker[kind], one[kind], delta=one[kind] / 100, msg="a worker computes")
        self.assertEqual(worker["state"], 0)
        self.assertEqual(worker, other)
        self.assertAlmostEqual(server["state"], one["state"], delta=one["state"] / 100)
        for precision in ("fp64", "bf16"):
            (devices,), stages = (held(layout, "--precision", precision)[0] for layout in ("pipeline --devices 2", "pipeline -n 2"))
            self.assertEqual(devices, {kind: sum(stage[kind] for stage in stages) for kind in devices}, f"{precision}: one process has both stages")
        low, (low_one,) = held("ddp -n 2", "--precision", "bf16")
        self.assertGreater(low_one["weights"], 1.4 * one["weights"] / 2, "fp32 and a 16-bit copy of the matrices")
        self.assertLess(low_one["weights"], 1.5 * one["weights"] / 2)
        self.assertEqual([rank["weights"] for rank in low], [low_one["weights"]] * 2)
        self.assertRegex(self.succeeds("prove", "zero3 -n 2", "reference", "--steps", 1).out, r"zero3 -n 2 +\d+\.\d{3} +\d+\.\d{3} +\d+\.\d{3}\n\n")

    def test_stages_on_several_ranks_agree_with_one_process(self):
        for layout in ("pipeline -n 3 --stages 0x2,2 --micro-batch-size 3", "pipeline-zero1 -n 3 --stages 0,2x2 --schedule gpipe"):
            found = json.loads(self.succeeds("prove", layout, "single", "--steps", 2, "--json").out)
            self.assertTrue(found["holds"], found["first"])
            self.assertGreater(found["gradient"]["relative"], 0)
            self.assertLess(found["gradient"]["relative"], 1e-10)
        self.refuses(["prove", "pipeline -n 4 --stages 0x2,2", "single"], "4 ranks cannot be divided into pipelines of 3")
        self.refuses(["prove", "pipeline-zero2 -n 3 --stages 0x2,2", "single", "--steps", 1], "allow --zero 0 or 1")

    def test_a_fault_ends_with_exit_code_1_and_names_the_tensor(self):
        done = run("prove", "ddp -n 2 --fault halved-gradient", "single", "--steps", 1)
        self.assertEqual(done.code, 1, done.err)
        self.assertRegex(done.out, r"first difference above the bound: step 1, gradient cls\.predictions\.")
        self.assertIn("DOES NOT HOLD", done.out)

    def test_what_two_layouts_cannot_show_is_said_and_seen_beside_the_reference(self):
        agreed = self.succeeds("prove", "ddp -n 2 --fault halved-gradient", "single --fault halved-gradient", "--steps", 1)
        self.assertIn("cannot find a fault there. `reference` can", agreed.out)
        seen = run("prove", "single --fault halved-gradient", "reference", "--steps", 1)
        self.assertEqual(seen.code, 1, seen.err)
        self.assertRegex(seen.out, r"first difference above the bound: step 1, gradient ")
        self.assertIn("so comparing them cannot find a fault there", self.succeeds("prove", "--help").out.replace("\n", " "))

    def test_the_reference_agrees_with_a_classifier_of_ones_own_and_in_float32(self):
        model = self.model()
        found = json.loads(self.succeeds("prove", "zero3 -n 2", "reference", "--steps", 2, "--objective", "classification",
                                         "--model", model, "--max-length", 48, "--json").out)
        self.assertTrue(found["holds"], found["first"])
        self.assertEqual(found["promise"], 1e-10)
        self.assertEqual(found["loss"]["tensor"] in ("total", "classification", ""), True)
        found = json.loads(self.succeeds("prove", "single", "reference", "--steps", 2, "--precision", "fp32", "--json").out)
        self.assertTrue(found["holds"], found["first"])
        self.assertEqual(found["promise"], 1e-3)

    def test_mixed_precision_agrees_within_its_bound(self):
        for layout in ("zero2 -n 2", "zero3 -n 3", "ps-sync -n 3", "dp -n 2"):
            found = json.loads(self.succeeds("prove", layout, "single", "--steps", 2, "--precision", "bf16", "--json").out)
            self.assertTrue(found["holds"], found["first"])
            self.assertGreater(found["gradient"]["relative"], 0)

    def test_a_model_and_rows_of_ones_own(self):
        model = self.model()
        data = self.store(model)
        done = self.succeeds("prove", "zero3 -n 2", "single", "--steps", 2, "--model", model, "--data", data,
                             "--max-length", 48)
        self.assertIn("holds", done.out)

    def test_a_configuration_and_rows_of_ones_own(self):
        model = self.model()
        data = self.store(model)
        words = ["prove", "single --micro-batch-size 4", "single", "--steps", 1, "--max-length", 48, "--data", data]
        self.assertIn("holds", self.succeeds(*words, "--model", model / "config.json").out)
        alone = self.folder / "alone.json"
        alone.write_bytes((model / "config.json").read_bytes())
        self.refuses([*words, "--model", alone], f"copy the tokeniser's files beside {alone}", "or give a model folder with --model")
        self.refuses(words, f"{data}: a token store needs the special tokens of its tokeniser; give with --model the folder")

    def test_wrong_words_are_refused(self):
        self.refuses(["prove", "ddp -n 2"], "two layouts")
        self.refuses(["prove", "ddp -n 2", "dq"], "unknown strategy \"dq\"")
        self.refuses(["prove", "zero1 -n 2 --fault untied-weight", "single"], "expected one of: none, wrong-count")
        self.refuses(["prove", "ddp --ranks 2", "single"], "unknown word \"--ranks\"")
        self.refuses(["prove", "reference -n 2", "single"], "reference is one plain process")
        self.refuses(["prove", "reference", "single", "--optim", "lamb", "--steps", 1], "--optim adamw")


if __name__ == "__main__":
    unittest.main()
