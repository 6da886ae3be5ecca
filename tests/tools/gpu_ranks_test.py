"""bench/gpu_ranks.py on the stand-in of NCCL: ranks agree, a killed rank is named, and a difference or a NaN is no success."""
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import gpu_ranks  # noqa: E402

ROW = {"failed": "", "change": 1.0, "difference": 1e-6, "equal_bytes": False}


class GpuRanks(unittest.TestCase):
    def test_ranks_agree_and_a_killed_one_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-B", ROOT / "bench/gpu_ranks.py", "--results", folder, "--program", os.environ["PROGRAM"],
                                   "--device", "cpu", "--only", "nccl 2,staged 2 deterministic,killed"], text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"nccl 2 .*difference \d")
        self.assertRegex(done.stdout, "staged 2 deterministic .*equal bytes")
        self.assertRegex(done.stdout, "killed .*'training_again_seconds'")

    def test_a_time_limit_leaves_the_runs_that_have_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen([sys.executable, "-B", ROOT / "bench/gpu_ranks.py", "--results", folder, "--program", os.environ["PROGRAM"],
                                        "--device", "cpu", "--only", "nccl 2"], text=True, stdout=subprocess.PIPE)
            printed = process.stdout.readline()
            process.terminate()
            process.communicate()
            written = json.loads((pathlib.Path(folder) / "gpu_ranks.json").read_text())
        self.assertRegex(printed, "^single .*change")
        self.assertEqual((process.returncode, list(written)), (128 + signal.SIGTERM, ["single"]))

    def test_its_runs_have_time(self):
        """The part has 90 s on a card that others use, too."""
        for runs in (len(gpu_ranks.RUNS) + len(["first", "processor", "killed"]), 1 + len(gpu_ranks.STRATEGIES)):
            self.assertLessEqual(8 * runs, 90)

    def test_a_run_that_there_is_not_is_refused(self):
        done = subprocess.run([sys.executable, "-B", ROOT / "bench/gpu_ranks.py", "--results", "nowhere", "--only", "nccl 3"], text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--only: unknown nccl 3; expected some of single,", done.stderr)

    def test_what_is_sound(self):
        self.assertTrue(gpu_ranks.sound("nccl 2", ROW))
        self.assertFalse(gpu_ranks.sound("nccl 2", ROW | {"difference": 0.01}))
        self.assertTrue(gpu_ranks.sound("nccl 2 bf16", ROW | {"difference": 0.01}))
        self.assertFalse(gpu_ranks.sound("nccl 2", ROW | {"difference": math.nan}))
        self.assertFalse(gpu_ranks.sound("staged 2 deterministic", ROW))
        self.assertFalse(gpu_ranks.sound("nccl 2", ROW | {"failed": "exit code 1"}))
        a, b = ({"w": gpu_ranks.array.array("f", values)} for values in ([1.0, math.nan], [3.0, 1.0]))
        self.assertTrue(math.isnan(gpu_ranks.largest_difference(a, b)))
        self.assertEqual(gpu_ranks.largest_difference(b, b), 0)


if __name__ == "__main__":
    unittest.main()
