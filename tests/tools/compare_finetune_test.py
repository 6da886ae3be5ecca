"""The table of the paired fine-tuning: which results stand beside which, and what it says of their precision."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Table(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = pathlib.Path(folder.name)
        # Results of runs that are done: nothing is trained, the program only makes the table.
        for side, precision, score in (("hf", "bf16", 0.30), ("hf", "fp32", 0.40), ("funicular", "fp32", 0.45),
                                       ("funicular", "bf16", 0.36)):
            for seed in (1, 2):
                result = {"matthews_correlation": score + seed / 100, "wall_seconds": 100 * score}
                (self.results / f"cola-{seed}-{side}-{precision}.json").write_text(json.dumps(result))

    def compare(self, *words):
        return subprocess.run([sys.executable, ROOT / "bench/peers/compare_finetune.py", "--data", self.results, "--results",
                               self.results, "--tasks", "cola", "--seeds", "1", "2", *words], capture_output=True, text=True)

    def rows(self, *words):
        done = self.compare(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()[2:]]

    def test_different_precisions_are_paired_and_both_are_named(self):
        row, = self.rows("--precision", "fp32", "--peer-precision", "bf16")
        self.assertEqual(row[:8], ["cola", "matthews_correlation", "bf16", "fp32", "2", "0.3150", "0.4650",
                                   "+0.1500 ± 0.0000"])
        self.assertEqual(row[8:], ["30", "45"])

    def test_equal_precisions_are_paired_unless_told_otherwise(self):
        row, = self.rows()
        self.assertEqual(row[2:7], ["bf16", "bf16", "2", "0.3150", "0.3750"])

    def test_several_are_paired_in_their_order_and_one_peer_stands_beside_all(self):
        self.assertEqual([row[2:4] for row in self.rows("--precision", "fp32", "bf16", "--peer-precision", "bf16", "fp32")],
                         [["bf16", "fp32"], ["fp32", "bf16"]])
        self.assertEqual([row[2:4] for row in self.rows("--precision", "fp32", "bf16", "--peer-precision", "bf16")],
                         [["bf16", "fp32"], ["bf16", "bf16"]])

    def test_what_cannot_be_paired_is_refused(self):
        for words, phrase in ((("--precision", "fp32", "--peer-precision", "bf16", "fp32"), "expected 1 or 1"),
                              (("--precision", "fp16"), "the peer trains in fp32 or bf16")):
            done = self.compare(*words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(phrase, done.stderr)


if __name__ == "__main__":
    unittest.main()
