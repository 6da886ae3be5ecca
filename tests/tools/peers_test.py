"""The benchmarks beside the peers: their rows follow the written rule, and the driver pairs, resumes and leaves gaps."""
import json
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/peers"))
import make_batches

# Answers to both programs' options; each call leaves a line in calls.txt, and takes its seconds from seconds.json.
STUB = """#!{python}
import json, pathlib, sys
here = pathlib.Path(__file__).parent
words = sys.argv[1:]
if "--save-initial" in words:
    folder = pathlib.Path(words[words.index("--save-initial") + 1])
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{{}}")
    sys.exit()
side = "peer" if words[0].endswith("hf_step.py") else "ours"
with open(here / "calls.txt", "a") as calls:
    calls.write(side + "\\n")
with open(here / "words.txt", "a") as all_words:
    all_words.write(json.dumps(words) + "\\n")
seconds = json.loads((here / "seconds.json").read_text())[side]
if not seconds:
    sys.exit(side + " cannot")
number = (here / "calls.txt").read_text().split().count(side) - 1
print("a line of chatter")
took = seconds[number % len(seconds)]
print(json.dumps({{"step_seconds_median": took, "step_seconds_best": took, "tokens_per_second": 1,
                  "peak_resident_bytes": 10, "options": {{"attention": "sdpa", "threads": 2}}, "versions": {{"torch": "2"}}}}))
"""


class Batches(unittest.TestCase):
    def test_mix_is_split_mix_64(self):
        # The first outputs for the state 1234567, as published with the reference implementation.
        gamma = 0x9E3779B97F4A7C15
        self.assertEqual([make_batches.mix(1234567 + i * gamma) for i in range(3)],
                         [6457827717110365317, 3203168211198807973, 9817491932198370423])

    def test_ragged_rows_have_32_to_128_tokens_and_all_lengths_occur(self):
        made = make_batches.make_batches(7, "ragged", 200, 16, 30522)["batches"]
        self.assertEqual({len(row["token_ids"]) for batch in made for row in batch}, set(range(32, 129)))

    def test_labels_are_what_stood_at_15_percent_of_the_ordinary_tokens(self):
        made = make_batches.make_batches(1, "full", 20, 16, 30522)["batches"]
        shown = {"mask": 0, "kept": 0, "other": 0}
        for row in (row for batch in made for row in batch):
            tokens, positions = row["token_ids"], row["masked_positions"]
            self.assertEqual((tokens[0], tokens[-1], len(tokens)), (101, 102, 128))
            self.assertEqual((len(positions), positions), (19, sorted(set(positions))))
            self.assertTrue(0 < positions[0] and positions[-1] < 127)
            for position, label in zip(positions, row["labels"], strict=True):
                self.assertTrue(1000 <= label < 30522)
                shown["mask" if tokens[position] == 103 else "kept" if tokens[position] == label else "other"] += 1
        count = sum(shown.values())
        self.assertAlmostEqual(shown["mask"] / count, 0.8, delta=0.03)
        self.assertAlmostEqual(shown["kept"] / count, 0.1, delta=0.02)

    def test_a_row_depends_on_seed_batch_and_row_alone(self):
        few, many = (make_batches.make_batches(3, "ragged", n, 4, 30522)["batches"] for n in (2, 5))
        self.assertEqual(few, many[:2])
        rows = [json.dumps(row) for batch in many for row in batch]
        self.assertEqual(len(set(rows)), 20)


class Driver(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.stub = self.folder / "stub"
        self.stub.write_text(STUB.format(python=sys.executable))
        self.stub.chmod(self.stub.stat().st_mode | stat.S_IXUSR)

    def drive(self, ours: list, peer: list, *more: str) -> dict:
        (self.folder / "seconds.json").write_text(json.dumps({"ours": ours, "peer": peer}))
        results = self.folder / "results"
        done = subprocess.run(
            [sys.executable, ROOT / "bench/run_peers.py", "--results", results, "--program", self.stub, "--python",
             self.stub, "--only", "step-base-ragged-bf16-trainer-fp32", *more], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.output = done.stdout
        return json.loads((results / "table.json").read_text())["rows"][0]

    def calls(self) -> list[str]:
        return (self.folder / "calls.txt").read_text().split()

    def test_sides_alternate_and_the_ratio_is_the_median_of_paired_ratios(self):
        row = self.drive([1, 2, 4], [8, 10, 12])
        self.assertEqual(self.calls(), ["ours", "peer"] * 3)
        self.assertEqual(row["ratios"], [8, 5, 3])
        self.assertEqual(row["ratio"], 5)
        self.assertIn("| **5.00×** (3.00 – 8.00) | ≥ 8× | 2.000 s", self.output)

    def test_finished_runs_are_not_repeated_unless_asked_for_other_steps(self):
        self.drive([1], [3], "--repetitions", "1")
        row = self.drive([1], [9], "--repetitions", "1")
        self.assertEqual((self.calls(), row["ratio"]), (["ours", "peer"], 3))
        row = self.drive([1], [9], "--repetitions", "1", "--steps", "5")
        self.assertEqual((len(self.calls()), row["ratio"]), (4, 9))

    def test_a_side_that_fails_leaves_a_gap_and_runs_again_next_time(self):
        row = self.drive([], [9], "--repetitions", "1")
        self.assertEqual((row["ratio"], row["our_figures"], row["pairs"]), (None, "–", 0))
        self.assertIn("ours cannot", self.output)
        self.assertIn("9.000 s", row["peer_figures"])
        row = self.drive([3], [1], "--repetitions", "1")
        self.assertEqual((self.calls(), row["ratio"]), (["ours", "peer", "ours"], 3))

    def test_a_peer_that_can_be_tuned_runs_with_its_fastest_options(self):
        eager = ["--only", "step-base-ragged-bf16-eager-bf16", "--repetitions", "1"]
        self.assertEqual(self.drive([1], [5, 2, 4, 6, 7, 3], *eager)["ratio"], 3)
        self.assertEqual(self.calls(), ["ours"] + ["peer"] * 6)
        words = [json.loads(line) for line in (self.folder / "words.txt").read_text().splitlines()]
        self.assertEqual(words[-1][-2:], ["--attention", "sdpa"], "the second set took 2 s")
        self.assertIn("threads 2", self.output)

    def test_an_unknown_comparison_is_refused_with_the_names_that_exist(self):
        done = subprocess.run([sys.executable, ROOT / "bench/run_peers.py", "--only", "nothing-such"], text=True,
                              capture_output=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("step-base-full-bf16-compile-bf16", done.stderr)


if __name__ == "__main__":
    unittest.main()
