"""Where the Python with the peers is missing, the golden tests are there all the same, skipped and counted."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["FUNICULAR_BUILD_DIR"])


def cached(name):
    """What the build was configured with."""
    return re.search(rf"^{name}:[A-Z]+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M).group(1)


def golden_tests(folder):
    listed = subprocess.run(["ctest", "--test-dir", folder, "-N", "-R", "^golden/"], capture_output=True, text=True, check=True).stdout
    return {name for name in re.findall(r"Test +#\d+: (golden/\S+)", listed)}


class WithoutPython(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="funicular-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def configure(self, python):
        done = subprocess.run(["cmake", "-S", ROOT, "-B", self.folder, "-G", cached("CMAKE_GENERATOR"), "-Wno-dev",
                               f"-DTORCH_DIR={cached('TORCH_DIR')}", f"-DCMAKE_BUILD_TYPE={cached('CMAKE_BUILD_TYPE')}",
                               f"-DFUNICULAR_PYTHON={python}"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return " ".join(done.stderr.split())

    def run_golden(self, name):
        """ctest's exit code, its words, and the counts of the results' file."""
        done = subprocess.run(["ctest", "--test-dir", self.folder, "-R", f"^{name}$", "--output-junit", self.folder / "results.xml", "-V"],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, xml.etree.ElementTree.parse(self.folder / "results.xml").getroot().attrib

    def test_golden_tests_are_registered_and_skipped_and_counted(self):
        said = self.configure("/nonexistent")
        self.assertIn("The golden tests will be skipped: FUNICULAR_PYTHON=/nonexistent does not exist", said)
        names = golden_tests(self.folder)
        self.assertLessEqual({"golden/bert/references", "golden/metrics", "golden/tokenizer_sweep"}, names)
        for name in ("golden/bert/references", "golden/metrics"):
            code, out, counts = self.run_golden(name)
            self.assertEqual(code, 0, out)
            self.assertIn("skipped: there is no /nonexistent", out)
            self.assertRegex(out, rf"{name} \.*\s*\*\*\*Skipped")
            self.assertEqual((counts["tests"], counts["skipped"], counts["failures"]), ("1", "1", "0"))

    def test_a_golden_test_that_fails_is_not_skipped(self):
        python = self.folder / "python"
        python.write_text("#!/bin/sh\nexit 1\n")
        python.chmod(0o755)
        self.assertNotIn("will be skipped", self.configure(python))
        code, out, counts = self.run_golden("golden/metrics")
        self.assertEqual((code != 0, counts["failures"], counts["skipped"]), (True, "1", "0"), out)


if __name__ == "__main__":
    unittest.main()
