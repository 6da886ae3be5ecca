"""The studies of training: their vocabulary, their measures of curves, their sweeps, and that finished runs stay."""
import collections
import json
import math
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import large_batch_study
import loss_curves
import study_tools

# In place of funicular: its held-out loss is |log2(rate / best)|, where best.json gives the best rate of a batch; rates
# above 1 diverge. Its training losses are those of curves.json for the precision (and micro-batch), plus the seed.
STUB = """#!{python}
import json, math, pathlib, sys
here, words = pathlib.Path(__file__).parent, sys.argv[1:]
value = lambda name: words[words.index(name) + 1]
output = pathlib.Path(value("--output"))
with open(here / "calls.txt", "a") as calls:
    calls.write(" ".join(words) + "\\n")
output.mkdir(parents=True, exist_ok=True)
if words[0] == "tokenize":
    sys.exit()
(output / "model").mkdir(exist_ok=True)
(output / "model/model.safetensors").write_text("")
rate = float(value("--learning-rate"))
curves = here / "curves.json"
losses = [8.0]
if curves.exists():
    precision = value("--precision") if "--precision" in words else "fp32"
    losses = [loss + int(value("--seed")) - 1 for loss in json.loads(curves.read_text())[precision]]
with open(output / "metrics.jsonl", "w") as metrics:
    for step, loss in enumerate(losses, 1):
        metrics.write(json.dumps({{"step": step, "loss": loss, "loss_scale": 4.0, "skipped_steps": 3}}) + "\\n")
    if rate > 1:
        sys.exit("error: [trainer] step 2: the loss term mlm is not finite")
    held_out = losses[-1]
    if "--batch-size" in words and (here / "best.json").exists():
        best = json.loads((here / "best.json").read_text())[value("--optim") + value("--batch-size")]
        held_out = abs(math.log2(rate / best))
    metrics.write(json.dumps({{"step": len(losses), "eval_loss": held_out, "eval_perplexity": 1}}) + "\\n")
"""
TEXT = "\n\n".join(f"The {n} red foxes.\nThey ran home, and {n} slept." for n in range(60))


class Vocabulary(unittest.TestCase):
    def test_the_most_frequent_pairs_are_joined_as_in_the_example_of_the_paper(self):
        # Sennrich, Haddow and Birch, section 3.2: low 5, lowest 2, newer 6, wider 3; but here a word's beginning is marked,
        # not its end, so that "lo" begins a word and "##er" 9 times does not.
        counts = {"low": 5, "lowest": 2, "newer": 6, "wider": 3}
        vocabulary = study_tools.build_vocabulary(counts, 100)
        self.assertEqual(vocabulary[:5], ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
        letters = {"l", "n", "w", "##d", "##e", "##i", "##o", "##r", "##s", "##t", "##w"}
        self.assertEqual(set(vocabulary[5:16]), letters)
        self.assertEqual(vocabulary[16], "##er")
        self.assertLess(vocabulary.index("lo"), vocabulary.index("low"))
        self.assertIn("newer", vocabulary)
        self.assertEqual(study_tools.build_vocabulary(counts, 17), vocabulary[:17])
        with self.assertRaisesRegex(study_tools.Failed, "characters alone take 16"):
            study_tools.build_vocabulary(counts, 15)

    def test_every_word_of_known_characters_can_be_spelt(self):
        counts = collections.Counter(study_tools.words_of(TEXT))
        vocabulary = set(study_tools.build_vocabulary(counts, 100))
        self.assertEqual(len(vocabulary), 100)
        for word in counts:
            self.assertTrue({word[0], *("##" + c for c in word[1:])} <= vocabulary, word)

    def test_words_are_those_of_an_uncased_bert(self):
        self.assertEqual(study_tools.words_of("Café-au_lait, 3.5 €"), ["cafe", "-", "au", "_", "lait", ",", "3", ".", "5", "€"])

    def test_lines_of_spaces_separate_documents(self):
        self.assertEqual(study_tools.documents_of("a\nb\n \n\nc"), ["a\nb", "c"])


class Curves(unittest.TestCase):
    def test_smoothing_is_the_mean_of_the_last_values(self):
        self.assertEqual(study_tools.smooth([4, 2, 6, 10], 2), [4, 3, 4, 8])

    def test_differences_are_relative_and_begin_with_the_first_full_window(self):
        of = lambda losses: loss_curves.Curve([1, 2, 3], losses, {3: 1.0})
        found = loss_curves.differences(of([2, 3, 6]), of([2, 2, 4]), 2)
        self.assertEqual(found, [(2, 0.25), (3, 0.5)])

    def test_ticks_are_round_and_lie_within(self):
        self.assertEqual(study_tools.round_ticks(0.3, 2.1), [0.5, 1, 1.5, 2])
        self.assertEqual(study_tools.round_ticks(0, 1200), [0, 200, 400, 600, 800, 1000, 1200])

    def test_a_plot_is_xml_whose_curves_lie_within_the_axes(self):
        root = xml.etree.ElementTree.fromstring(
            study_tools.plot("a < b", "x", "y", {"one & two": [(256, 3.0), (4096, 5.0)], "flat": [(256, 4.0)]}, True))
        lines = [element.get("points") for element in root.iter("{http://www.w3.org/2000/svg}polyline")]
        self.assertEqual(lines, ["70.0,405.0 630.0,40.0", "70.0,222.5"])


class Sweep(unittest.TestCase):
    def test_the_middle_rate_comes_first_and_grows_with_the_root_of_the_batch(self):
        self.assertEqual(large_batch_study.first_places(5), [0, -1, 1, -2, 2])
        rate = lambda batch, place: large_batch_study.Point("adamw", batch, place).rate
        self.assertEqual([rate(1024, 0) / rate(256, 0), rate(4096, 1) / rate(256, 0)], [2, 8])

    def test_a_sweep_goes_on_beside_a_best_at_its_edge_and_below_where_all_diverged(self):
        following = large_batch_study.next_place
        self.assertIsNone(following({-1: 3.0, 0: 2.0, 1: 2.5}))
        self.assertEqual(following({-1: 3.0, 0: 2.0, 1: 1.5}), 2)
        self.assertEqual(following({-1: 1.0, 0: 2.0, 1: math.inf}), -2)
        self.assertEqual(following({0: math.inf, 1: math.inf}), -1)


class Driver(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.stub, self.results = self.folder / "stub", self.folder / "results"
        self.stub.write_text(STUB.format(python=sys.executable))
        self.stub.chmod(self.stub.stat().st_mode | stat.S_IXUSR)
        (self.folder / "text.txt").write_text(TEXT)

    def drive(self, script: str, *more: str) -> dict:
        done = subprocess.run([sys.executable, ROOT / "bench" / script, "--data", self.folder / "text.txt", "--results",
                               self.results, "--program", self.stub, *more], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.output = done.stdout
        return json.loads((self.results / "table.json").read_text())

    def calls(self) -> list[str]:
        return [line for line in (self.folder / "calls.txt").read_text().splitlines() if line.startswith("pretrain")]

    def sweep(self, *more: str) -> dict:
        (self.folder / "best.json").write_text(json.dumps({"adamw256": 4e-3, "lamb256": 0.32}))
        return self.drive("large_batch_study.py", "--batches", "256", "--rates", "3", *more)

    def test_a_sweep_is_continued_until_its_best_lies_inside(self):
        adamw, lamb = self.sweep()["best"]
        self.assertEqual((adamw["rate"], adamw["held_out_loss"], adamw["runs"], adamw["at_edge"]), (4e-3, 0, 3, False))
        # From 0.04: 0.02, 0.04, 0.08, then 0.16, 0.32, 0.64.
        self.assertEqual((lamb["rate"], lamb["held_out_loss"], lamb["runs"], lamb["at_edge"]), (0.32, 0, 6, False))
        self.assertIn("| 256 | 1 | 0.0000 | 0.004 | 3 (0) | 0.0000 | 0.32 | 6 (0) |", self.output)

    def test_a_best_that_stays_at_the_edge_is_named_so(self):
        self.sweep("--extend", "1")
        self.assertIn("| 1.0000 | 0.16 (edge) | 4 (0) |", self.output)

    def test_finished_runs_are_not_repeated_unless_asked_for_other_options(self):
        self.sweep()
        count = len(self.calls())
        self.sweep()
        self.assertEqual(len(self.calls()), count)
        self.sweep("--epochs", "7")
        self.assertEqual(len(self.calls()), 2 * count)

    def test_a_run_that_diverges_is_a_result_and_another_failure_is_not(self):
        (self.folder / "best.json").write_text(json.dumps({"lamb4096": 0.64}))
        best, = self.drive("large_batch_study.py", "--batches", "4096", "--optimizers", "lamb", "--rates", "7")["best"]
        self.assertEqual((best["diverged"], best["rate"]), (1, 0.64))  # of 0.02, 0.04 … 1.28
        self.assertIn("1.28: diverged", self.output)
        self.stub.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('error: no such option')\n")
        done = subprocess.run([sys.executable, ROOT / "bench/large_batch_study.py", "--data", self.folder / "text.txt",
                               "--results", self.results, "--epochs", "9", "--program", self.stub], text=True, capture_output=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no such option", done.stderr)
        self.assertFalse([*(self.results / "runs").glob("adamw*")])

    def test_curves_are_compared_with_fp32_from_one_start(self):
        (self.folder / "curves.json").write_text(json.dumps({"fp32": [10, 8], "bf16": [10, 10], "fp16": [10, 8]}))
        rows = self.drive("loss_curves.py", "--steps", "2", "--window", "1")["runs"]
        self.assertEqual([(name, round(row["largest_difference"], 9), round(row["mean_difference"], 9))
                          for name, row in rows.items()],
                         [("fp32", 0, 0), ("bf16", 0.25, 0.125), ("fp16", 0, 0), ("fp16-overflow", 0, 0),
                          ("fp32-seed", 0.125, 0.1125), ("fp32-rounding", 0, 0)])
        self.assertIn("| bf16 | 10.0000 | 10.0000 | 25 % | 12.5 % | 10.0000 | 2 | +25 % |  |", self.output)
        self.assertIn("| fp16-overflow | 10.0000 | 8.0000 | 0 % | 0 % | 8.0000 | 2 | +0 % | 3 |", self.output)
        self.assertEqual(len({call.split("--model ")[1].split()[0] for call in self.calls()[1:]}), 1)

    def test_a_finished_curve_is_not_trained_again_unless_asked_for_other_options(self):
        for steps, calls in (("2", 3), ("2", 3), ("3", 5)):  # the first makes the initial weights
            self.drive("loss_curves.py", "--steps", steps, "--window", "1", "--only", "bf16")
            self.assertEqual(len(self.calls()), calls)

    def test_an_unfinished_curve_is_shown_as_far_as_it_got_and_its_run_goes_on(self):
        words = ["--steps", "3", "--window", "1", "--only", "bf16"]
        (self.folder / "curves.json").write_text(json.dumps({"fp32": [10, 8, 7], "bf16": [10, 9]}))
        self.drive("loss_curves.py", *words)
        result = self.results / "runs/bf16/result.json"
        result.write_text(json.dumps(json.loads(result.read_text()) | {"seconds": None}))  # stopped
        row = self.drive("loss_curves.py", *words, "--report-only")["runs"]["bf16"]
        self.assertEqual((len(self.calls()), row["steps"], row["loss_at"]), (3, 2, {"1": 10, "2": 9, "3": None}))
        self.assertEqual((row["largest_difference"], row["held_out"]), (0.125, None))
        self.drive("loss_curves.py", *words)
        self.assertEqual(len(self.calls()), 4)


if __name__ == "__main__":
    unittest.main()
