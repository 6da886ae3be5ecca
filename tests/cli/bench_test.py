"""funicular bench: the time of a step, its memory, what techniques gain; and wrong input."""

import os
import xml.etree.ElementTree

from harness import *

SMALL = ["--max-length", "48", "--batch-size", "8"]
KINDS = ["weights", "gradients", "optimizer", "activations", "workspace"]


class Steps(ProgramTest):
    def bench(self, *words):
        return self.succeeds("bench", "--model", self.model(), *SMALL, "--steps", "2", "--warmup", "1", *words)

    def test_a_step_is_timed_and_its_parts_are_shares_of_it(self):
        result = self.bench("--json", "--floor", "--profile").json()
        self.assertGreater(result["tokens_per_second"], 0)
        self.assertLessEqual(result["step_seconds_best"], result["step_seconds_median"])
        self.assertEqual(len(result["losses"]), 3)
        self.assertGreater(result["floor"]["share"], 0)
        self.assertGreater(result["floor"]["fastest_step_share"], result["floor"]["share"])  # of two steps
        compute = result["floor"]["flops_per_second"] * result["floor"]["share"]
        self.assertAlmostEqual(result["model_flops_per_second"] / compute, 1, delta=0.02)  # whole tokens of the mean
        self.assertLess(sum(part["share"] for part in result["profile"]), 1.001)
        shares = {kind["kind"]: kind["share"] for kind in result["work"]}
        self.assertEqual(list(shares), ["products", "attention", "normalisation, activation", "loss", "optimiser", "rest"])
        self.assertAlmostEqual(sum(shares.values()), 1)
        for kind in list(shares)[:5]:
            self.assertGreater(shares[kind], 0, kind)
        ours = sum(part["share"] for part in result["profile"] if part["part"].startswith("funicular::"))
        self.assertGreaterEqual(sum(shares.values()) - shares["rest"], ours - 1e-3)  # parts below 1/1000 are not listed

    def test_the_operations_of_a_step_do_not_depend_on_how_it_is_cut(self):
        model = self.model()
        operations = []
        for words in ([], ["--micro-batch-size", "4"]):
            result = self.succeeds("bench", "--model", model, *SMALL, "--steps", "2", "--json", *words).json()
            operations.append(result["model_flops_per_second"] * result["tokens_per_step"] / result["tokens_per_second"])
        self.assertAlmostEqual(operations[1] / operations[0], 1)

    def test_the_losses_do_not_depend_on_accumulation_or_recomputation(self):
        one = self.bench("--json").json()["losses"]
        model = self.folder / "model"
        for options in (["--micro-batch-size", "3"], ["--recompute", "full"]):
            words = ["bench", "--model", model, *SMALL, "--steps", "2", "--warmup", "1", "--json", *options]
            for a, b in zip(one, self.succeeds(*words).json()["losses"]):
                self.assertAlmostEqual(a, b, places=4)

    def test_text_for_people(self):
        out = self.bench("--floor", "--profile", "--precision", "bf16").out
        for phrase in ("real tokens/s", "GB resident", "large square product", "funicular::attention", "bf16"):
            self.assertIn(phrase, out)

    def test_the_trace_is_one_of_chrome_and_its_events_nest(self):
        path = self.folder / "trace.json"
        self.bench("--trace", path)
        events = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
        names = {event["name"] for event in events}
        for name in ("aten::index_select", "funicular::attention", "funicular::attention_backward", "funicular::optimizer"):
            self.assertIn(name, names)
        self.assertEqual(sum(event["name"] == "funicular::optimizer" for event in events), 3)
        threads = {}
        for event in events:
            threads.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
        for spans in threads.values():
            open_ends = []
            for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
                while open_ends and open_ends[-1] <= begin:
                    open_ends.pop()
                self.assertTrue(not open_ends or end <= open_ends[-1] + 1e-6, (begin, end, open_ends))
                open_ends.append(end)


@counting
class Memory(ProgramTest):
    def test_every_combination_is_measured_beside_what_is_predicted(self):
        result = self.succeeds("bench", "memory", "--model", self.model(), "--json", "--batch-size", "8", "16",
                               "--max-length", "32", "64", "--precision", "fp32", "bf16", "--recompute", "none", "full",
                               "--gradient-accumulation-steps", "2").json()
        rows = result["combinations"]
        self.assertEqual(len({(row["batch_size"], row["max_length"], row["precision"], row["recompute"]) for row in rows}), 16)
        for row in rows:
            self.assertEqual(row["micro_batch_size"], row["batch_size"] // 2)
            for side in ("measured", "predicted"):
                self.assertEqual(row[side]["peak"], sum(row[side][kind] for kind in KINDS))
            for kind in KINDS[:3]:
                self.assertEqual(row["measured"][kind], row["predicted"][kind])

    def test_the_usual_combinations_as_a_table(self):
        lines = self.succeeds("bench", "memory", "--model", self.model(), *SMALL).out.splitlines()
        self.assertEqual(len(lines), 1 + 2 * 2 * 2 * 4)
        self.assertIn("activations", lines[0])
        self.assertIn("fp32, 8 rows of 48 in parts of 8, none", lines[1])
        self.assertIn("bf16, 8 rows of 48 in parts of 2, full", lines[-2])


    def test_what_ranks_would_need_that_are_not_there(self):
        words = ["bench", "memory", "--model", self.model(), *SMALL, "--precision", "fp32", "--recompute", "none"]
        rows = self.succeeds(*words, "--ranks", "3", "--json").json()["combinations"]
        self.assertEqual([row["strategy"] for row in rows], ["ddp", "zero1", "zero2", "zero3"])
        held = [sum(rank[kind] for rank in row["predicted"] for kind in KINDS[:3]) for row in rows]
        self.assertEqual(held, sorted(held, reverse=True))
        self.assertGreater(held[0], 2 * held[3])
        for row in rows:
            self.assertEqual(len(row["predicted"]), 3)
            for rank in row["predicted"]:
                self.assertEqual(rank["peak"], sum(rank[kind] for kind in KINDS))
        lines = self.succeeds(*words, "--strategy", "pipeline").out.splitlines()
        self.assertEqual(len(lines), 1 + 2)
        self.assertIn("pipeline, fp32, 8 rows of 48, none", lines[1])
        self.assertIn("rank 1", lines[2])
        self.refuses([*words, "--strategy", "dp"], "what dp needs cannot be predicted")
        self.refuses([*words, "--strategy", "pipeline --devices 2"], "what pipeline --devices 2 needs cannot be predicted")
        self.refuses([*words, "--strategy", "pipeline --schedul gpipe"], "--schedul", "--schedule")

    def test_what_ranks_need_is_measured_beside_what_was_predicted(self):
        words = ["bench", "ranks", "--model", self.model(), *SMALL, "--steps", "1", "--warmup", "1"]
        out = self.succeeds("launch", "-n", "2", "--", PROGRAM, *words, "--json", "--strategy", "zero2", "zero3", "pipeline",
                            "pipeline --schedule gpipe --stages 0,1").out
        uses = json.loads(next(line for line in out.splitlines() if line.startswith("[{")))
        self.assertEqual([use["strategy"] for use in uses], ["zero2", "zero3", "pipeline", "pipeline --schedule gpipe --stages 0,1"])
        self.assertNotEqual(uses[2]["measured"]["weights"], uses[3]["measured"]["weights"], "the stages are those that were asked for")
        for use in uses:
            for kind in ("weights", "gradients", "optimizer", "gathered"):
                self.assertEqual(use["measured"][kind], use["predicted"][kind], (use["strategy"], kind))
            self.assertAlmostEqual(use["measured"]["peak"] / use["predicted"]["peak"], 1, delta=0.03)


@counting
class Techniques(ProgramTest):
    NAMES = ["loader worker", "packing", "masked-only head", "bf16", "fused optimiser", "larger batch", "accumulation",
             "recomputation", "no-grad evaluation"]
    SHORT = ["--steps", "1", "--repetitions", "1", "--larger", "2", "--run-steps", "4", "--eval-steps", "2", *SMALL]

    def test_a_row_a_technique_on_generated_text_in_text_and_as_a_plot(self):
        plot = self.folder / "plot.svg"
        out = self.succeeds("bench", "techniques", "--model", self.model(), *self.SHORT, "--plot", plot).out
        for name in ["ordinary step", *self.NAMES, "early stopping"]:
            self.assertEqual(sum(line.startswith(name) for line in out.splitlines()), 1, name)
        root = xml.etree.ElementTree.fromstring(plot.read_text())
        self.assertTrue(root.tag.endswith("svg"))
        texts = [element.text for element in root.iter() if element.tag.endswith("text")]
        for name in self.NAMES:
            self.assertIn(name, texts)

    def test_on_a_store_of_the_users_own(self):
        model = self.model()
        store = self.store(model)
        result = self.succeeds("bench", "techniques", "--model", model, "--data", store, *self.SHORT, "--json").json()
        self.assertEqual([row["name"] for row in result["techniques"]], self.NAMES)
        for row in result["techniques"]:
            for side in ("alone", "all"):
                self.assertGreater(row[side]["tokens_per_second"], 0)
                self.assertGreater(row[side]["memory_bytes"], 0)
        early = result["early_stopping"]
        self.assertEqual(early["without"]["steps"], 4)
        self.assertLessEqual(early["with"]["steps"], 4)

    def test_a_store_of_another_tokeniser(self):
        model = self.model()
        other = self.model("other", vocabulary=[word + "x" if word == "film" else word for word in VOCABULARY])
        self.refuses(["bench", "techniques", "--model", model, "--data", self.store(other), *self.SHORT], "tokeniser")

    def test_a_store_with_too_little_text(self):
        model = self.model()
        store = self.store(model, text="good film\n\nbad book\n\nfine song")
        self.refuses(["bench", "techniques", "--model", model, "--data", store, *self.SHORT], "expected at least 16 samples")

    def test_a_store_without_its_tokeniser(self):
        store = self.store(self.model())
        self.refuses(["bench", "techniques", "--model", "small", "--data", store], "--tokenizer")


class WrongInput(ProgramTest):
    def test_an_unknown_thing_to_measure(self):
        self.refuses(["bench", "memroy"], "expects memory, techniques, ranks or nothing", "memroy")
        self.refuses(["bench", "memory", "techniques"], "memory techniques")

    def test_options_of_another_mode(self):
        self.refuses(["bench", "memory", "--floor"], "--floor is no option of funicular bench memory")
        self.refuses(["bench", "memory", "--plot", "x.svg"], "--plot is no option of funicular bench memory")
        self.refuses(["bench", "--data", "x"], "--data is no option of funicular bench")
        self.refuses(["bench", "techniques", "--trace", "x"], "--trace is no option of funicular bench techniques")

    def test_several_values_where_one_is_expected(self):
        self.refuses(["bench", "--batch-size", "8", "16"], "--batch-size expects one value here, found 2")
        self.refuses(["bench", "techniques", "--recompute", "full", "sqrt"], "--recompute expects one value here")

    def test_values_out_of_range(self):
        self.refuses(["bench", "--batch-size", "0"], "--batch-size expects whole numbers of at least 1, found \"0\"")
        self.refuses(["bench", "memory", "--max-length", "64", "many"], "--max-length", "\"many\"")
        self.refuses(["bench", "--precision", "fp8"], "--precision expects one of")
        for words in (["bench"], ["bench", "memory"]):
            self.refuses([*words, "--precision", "tf32"], "--precision tf32 is for NVIDIA GPUs")
        model = self.model()
        for words in (["bench"], ["bench", "memory"], ["bench", "techniques"]):
            self.refuses([*words, "--model", model, "--max-length", "128"], "--max-length 128 is more than the model's 64")

    def test_a_model_that_is_not_there(self):
        for words in (["bench"], ["bench", "memory"], ["bench", "techniques"]):
            self.refuses([*words, "--model", self.folder / "none"], "no such folder")

    def test_files_that_cannot_be_written(self):
        self.refuses(["bench", "--trace", self.folder / "none" / "trace.json"], "there is no folder")
        self.refuses(["bench", "techniques", "--plot", self.folder], "is a folder")

    def test_an_allocator_that_does_not_count(self):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "FUNICULAR_ALLOCATOR": "system"}
        for mode in ("memory", "techniques"):
            done = subprocess.run([PROGRAM, "bench", mode, "--model", str(self.model(mode)), *SMALL], env=environment,
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("FUNICULAR_ALLOCATOR", done.stderr)


if __name__ == "__main__":
    unittest.main()
