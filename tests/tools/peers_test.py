"""The benchmarks beside the peers: their rows follow the written rule, both sides do the same work, and the driver pairs,
resumes, leaves gaps and shows what is like for like first."""
import json
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/peers"), str(ROOT / "bench")]
import batch_plan
import cut_models
import make_batches

# Answers to both programs' options; each call leaves a line in calls.txt, and takes its seconds from seconds.json.
STUB = """#!{python}
import json, os, pathlib, sys
here = pathlib.Path(__file__).parent
words = sys.argv[1:]
if "--save-initial" in words:
    folder = pathlib.Path(words[words.index("--save-initial") + 1])
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{{}}")
    sys.exit()
if "--make-model" in words:
    folder = pathlib.Path(words[words.index("--make-model") + 1])
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{{}}")
    (folder / "vocab.txt").write_text("one\\ntwo\\n")
    sys.exit()
side = "peer" if words[0].endswith(".py") else "ours"
limits = [os.environ.get(name) for name in ("FUNICULAR_ISA", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")]
with open(here / "limits.txt", "a") as all_limits:
    all_limits.write(json.dumps([side, *limits]) + "\\n")
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
print(json.dumps({{"step_seconds_median": took, "step_seconds": [took], "tokens_per_second": 100 / took,
                  "floor": {{"share": 0.8, "tokens_per_second": 125 / took, "flops_per_second": 1e9}},
                  "start_seconds": 1, "probed_seconds": {{"8": 2 * took, "16": took}}, "probed_lines": 10, "batch_size": 16,
                  "lines_per_second": 5, "peak_resident_bytes": 10, "options": {{"attention": "sdpa", "threads": 2}}, "versions": {{"torch": "2"}}}}))
"""


class CutModels(unittest.TestCase):
    def test_two_equal_stages_stand_still_for_one_micro_batch(self):
        self.assertAlmostEqual(cut_models.bound([1, 2, 3], [0, 2], 16), 16 / 17)
        self.assertAlmostEqual(cut_models.bound([1, 2, 3], [0, 2], 1), 1 / 2)

    def test_the_slower_stage_sets_the_pace(self):
        # Both at once would take 16 * 5 / 2; the stages of 3 and 2 take 16 * 3, and 2 once.
        self.assertAlmostEqual(cut_models.bound([2, 1, 2], [0, 2], 16), 40 / 50)
        self.assertAlmostEqual(cut_models.bound([2, 1, 2], [0, 1], 16), 40 / 50)


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


def all_rows(batches: list) -> list[str]:
    return sorted(json.dumps(row) for batch in batches for row in batch)


class Plans(unittest.TestCase):
    def test_both_sides_warm_up_on_the_same_rows_and_are_timed_on_the_same_rows(self):
        for rows in ("ragged", "full", "grouped"):
            for steps in (3, 8):
                made = batch_plan.plan(rows, 2, steps)
                ours, peer = (made[side]["batches"] for side in ("ours", "peer"))
                self.assertEqual((len(ours), len(peer)), (2 + steps, 2 + steps), rows)
                self.assertEqual({len(batch) for batch in ours + peer}, {16})
                self.assertEqual(all_rows(ours[:2]), all_rows(peer[:2]), rows)
                self.assertEqual(all_rows(ours[2:]), all_rows(peer[2:]), rows)
                self.assertEqual(len(set(all_rows(peer))), 16 * (2 + steps), "no row comes twice")

    def test_the_peers_grouped_batches_have_next_to_no_padding_and_long_and_short_ones_come_as_often(self):
        made = batch_plan.plan("grouped", 2, 8)
        lengths = [[len(row["token_ids"]) for row in batch] for batch in made["peer"]["batches"][2:]]
        real, padded = sum(map(sum, lengths)), sum(16 * max(batch) for batch in lengths)
        self.assertGreater(real / padded, 0.97)
        self.assertAlmostEqual(real / (16 * 8), 80, delta=2, msg="lengths are uniform in 32 … 128")
        ours = [sum(len(row["token_ids"]) for row in batch) for batch in made["ours"]["batches"][2:]]
        self.assertLess(max(ours) / min(ours), 1.5, "ours are shuffled")

    def test_rows_are_grouped_in_pieces_of_fifty_batches_with_the_longest_row_first(self):
        lengths = [32 + make_batches.mix(i) % 97 for i in range(1700)]
        order = batch_plan.shuffled(1700, 1)
        self.assertEqual(sorted(order), list(range(1700)))
        found = batch_plan.length_grouped(lengths, 8, order)
        self.assertEqual(sorted(found), list(range(1700)))
        self.assertEqual(lengths[found[0]], max(lengths))
        for piece in range(1, 4):
            own = [lengths[row] for row in found[400 * piece:400 * (piece + 1)]]
            self.assertEqual(own[1:], sorted(own[1:], reverse=True))
        self.assertEqual([batch_plan.length_grouped([5, 9, 7], 8, [2, 0, 1])], [[1, 2, 0]], "few rows are one piece")


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
        folder = results / "quick" if "--quick" in more else results
        return json.loads((folder / "table.json").read_text())["rows"][0]

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

    def words(self, flag: str) -> list[list]:
        """What followed the option in each call."""
        calls = [json.loads(line) for line in (self.folder / "words.txt").read_text().splitlines()]
        return [words[words.index(flag) + 1] for words in calls if flag in words]

    def test_both_sides_are_told_the_same_warm_up_and_steps_and_read_the_same_rows(self):
        for rows, more in (("ragged", ["--quick"]), ("grouped", ["--quick"]),
                           ("grouped", ["--repetitions", "1", "--no-tune", "--steps", "8"])):
            (self.folder / "words.txt").unlink(missing_ok=True)
            self.drive([1], [2], "--only", f"step-base-{rows}-bf16-eager-bf16", *more)
            for flag in ("--warmup", "--steps"):
                ours, peer = self.words(flag)
                self.assertEqual(ours, peer, flag)
            ours, peer = (json.loads(pathlib.Path(file).read_text())["batches"] for file in self.words("--batches"))
            steps = int(self.words("--steps")[0])
            self.assertEqual(steps, 3 if "--quick" in more else 8)
            self.assertEqual(len(ours), int(self.words("--warmup")[0]) + steps, "no batch is met twice")
            self.assertEqual(all_rows(ours[-steps:]), all_rows(peer[-steps:]))

    def test_of_grouped_rows_the_speed_of_all_steps_is_compared(self):
        row = self.drive([2], [8], "--only", "step-base-grouped-bf16-eager-bf16", "--no-tune", "--repetitions", "1")
        self.assertEqual((row["kind"], row["ratio"], row["our_figures"]), ("like", 4, "50 tokens/s"))

    def test_what_is_like_for_like_stands_first_after_the_limit(self):
        self.drive([1], [3], "--only", "base-(ragged|grouped)-bf16($|-eager|-trainer-fp32)", "--no-tune", "--repetitions", "1")
        rows = json.loads((self.folder / "results/table.json").read_text())["rows"]
        self.assertEqual([row["name"] for row in rows],
                         ["floor-base-ragged-bf16", "step-base-grouped-bf16-eager-bf16", "step-base-ragged-bf16-eager-bf16",
                          "step-base-ragged-bf16-trainer-fp32"])
        self.assertEqual((rows[0]["ratio"], rows[0]["unit"], rows[0]["pairs"]), (80, "%", 1))
        places = [self.output.index(phrase) for phrase in ("## The limit", "**80 %**", "## Like for like", "## Tuned, but padded",
                                                           "## As it comes")]
        self.assertEqual(places, sorted(places))

    def test_prediction_is_timed_from_start_to_end_with_the_options_that_were_fastest(self):
        row = self.drive([1], [4, 3, 2, 5, 1], "--only", "predict-bf16-loop-bf16", "--repetitions", "1", "--lines", "10")
        self.assertEqual(row["kind"], "like")
        calls = [json.loads(line) for line in (self.folder / "words.txt").read_text().splitlines()]
        self.assertEqual(calls[0][0], "predict")
        self.assertEqual(calls[0][calls[0].index("--precision") + 1], "bf16")
        measured = calls[-1]
        self.assertEqual(len(calls), 6, "ours, four sets of options, the fastest again")
        self.assertEqual(measured[measured.index("--batch-size") + 1:], ["16"])
        self.assertIn("5 once started", row["peer_figures"])
        self.assertLess(row["peer_runs"][0]["lines_per_second"], 10 / row["peer_runs"][0]["command_seconds"] + 1e-9)

    def test_with_instruction_sets_both_sides_are_limited_alike_and_measured_apart(self):
        self.drive([1], [3], "--isa", "avx2,native", "--only", "minilm-ragged", "own-step", "--repetitions", "1")
        rows = json.loads((self.folder / "results/table.json").read_text())["rows"]
        self.assertEqual([(row["name"], row["kind"], row["ratio"]) for row in rows],
                         [(f"{isa}/own-step-bf16", "own", 1) for isa in ("avx2", "native")]
                         + [("avx2/step-minilm-ragged-fp32-trainer-fp32", "plain", 3), ("native/step-minilm-ragged-bf16-trainer-fp32", "plain", 3)])
        self.assertIn("## Fewer bits", self.output)
        self.assertIn("| avx2: step, MiniLM", self.output)
        limits = [json.loads(line) for line in (self.folder / "limits.txt").read_text().splitlines()]
        self.assertEqual(limits, [[side, *limit] for limit in (["avx2", "avx2", "AVX2"], [None] * 3)
                                  for side in ("ours", "ours", "ours", "peer")])
        words = [json.loads(line) for line in (self.folder / "words.txt").read_text().splitlines()]
        self.assertEqual([call[call.index("--precision") + 1] for call in words], ["bf16", "fp32", "fp32", "fp32"] + ["bf16", "fp32", "bf16", "fp32"])
        done = subprocess.run([sys.executable, ROOT / "bench/run_peers.py", "--isa", "avx2,sse9"], text=True, capture_output=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("found 'sse9'", done.stderr)

    def test_an_unknown_comparison_is_refused_with_the_names_that_exist(self):
        done = subprocess.run([sys.executable, ROOT / "bench/run_peers.py", "--only", "nothing-such"], text=True,
                              capture_output=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("step-base-full-bf16-compile-bf16", done.stderr)


if __name__ == "__main__":
    unittest.main()
