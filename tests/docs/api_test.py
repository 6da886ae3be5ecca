"""The page of public headers lists what Doxygen reads, and everything in these headers is documented."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOXYFILE = ROOT / "docs/reference/Doxyfile"


def undocumented(doxyfile, root):
    """What Doxygen warns of."""
    with tempfile.TemporaryDirectory() as folder:
        settings = f"{doxyfile}\nOUTPUT_DIRECTORY = {folder}\nWARN_AS_ERROR = NO\n"
        done = subprocess.run(["doxygen", "-"], input=settings, cwd=root, capture_output=True, text=True, check=False)
        return [line for line in done.stderr.splitlines() if line]


class PublicHeaders(unittest.TestCase):
    def test_the_page_lists_what_doxygen_reads(self):
        read = re.findall(r"funicular/\w+/\w+\.h", DOXYFILE.read_text())
        listed = re.findall(r"`(funicular/\w+/\w+\.h)`", (ROOT / "docs/reference/api.md").read_text())
        self.assertEqual(sorted(read), sorted(listed))
        self.assertEqual([header for header in read if not (ROOT / header).is_file()], [])

    @unittest.skipUnless(shutil.which("doxygen"), "needs doxygen")
    def test_everything_in_them_is_documented(self):
        self.assertEqual(undocumented(DOXYFILE.read_text(), ROOT), [])

    @unittest.skipUnless(shutil.which("doxygen"), "needs doxygen")
    def test_what_is_not_documented_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "one.h").write_text("/// A class.\nclass A {\n public:\n  int f();\n};\n")
            settings = re.sub(r"INPUT .*", "INPUT = one.h", DOXYFILE.read_text(), flags=re.DOTALL)
            self.assertIn("f()", " ".join(undocumented(settings, folder)))


if __name__ == "__main__":
    unittest.main()
