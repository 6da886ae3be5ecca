"""The table of two builds' speeds, of programs that only say how fast they are."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """#!/bin/sh
echo "$(basename $0) $*" >>"$(dirname $0)/calls"
case "$1" in
  bench) echo '{"tokens_per_second": SPEED}' ;;
  launch) echo '[{"tokens_per_second": SPEED}]' ;;
  predict) sleep SLEEP ;;
esac
"""


class Table(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, speed, sleep in (("before", 100, 0.2), ("after", 150, 0.02)):
            program = self.folder / name
            program.write_text(PROGRAM.replace("SPEED", str(speed)).replace("SLEEP", str(sleep)))
            program.chmod(0o755)

    def compare(self, *words):
        done = subprocess.run([sys.executable, "-B", ROOT / "tools/same_speed.py", self.folder / "before", self.folder / "after",
                               "--model", self.folder, *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {cells[1]: cells[2:6] for line in done.stdout.splitlines() if len(cells := re.split(r" *\| *", line)) == 7}

    def test_a_program_that_is_faster_has_a_ratio_above_1(self):
        rows = self.compare("--rounds", "3", "--only", "step|ranks")
        self.assertEqual(len(rows), 2 + 5)  # the head and its rule
        for case in ("step, MiniLM, fp32", "step, BERT-base, bf16", "two ranks, MiniLM, fp32"):
            self.assertEqual(rows[case], ["100", "150", "1.500 (1.500 to 1.500)", "1.000 (1.000 to 1.000)"])

    def test_predicting_is_timed_from_start_to_end(self):
        ratio = float(self.compare("--rounds", "2", "--only", "predict.*int8")["predict, MiniLM, int8"][2].split()[0])
        self.assertGreater(ratio, 1)

    def test_the_programs_begin_by_turns(self):
        self.compare("--rounds", "2", "--only", "step, MiniLM, fp32")
        calls = [line.split()[0] for line in (self.folder / "calls").read_text().splitlines() if " bench " in line]
        self.assertEqual(calls, ["before", "after", "after", "before"])

    def test_a_program_that_fails_is_an_error_with_its_words(self):
        (self.folder / "after").write_text("#!/bin/sh\necho no such option >&2\nexit 2\n")
        done = subprocess.run([sys.executable, "-B", ROOT / "tools/same_speed.py", self.folder / "before", self.folder / "after",
                               "--model", self.folder, "--rounds", "1"], capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("exit code 2: no such option", done.stderr)


if __name__ == "__main__":
    unittest.main()
