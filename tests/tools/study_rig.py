"""A program in place of funicular that notes its command lines in calls.txt, for the tests of studies."""
import json
import pathlib
import stat
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

BEGINNING = f"""#!{sys.executable}
import json, pathlib, sys
here, words = pathlib.Path(__file__).parent, sys.argv[1:]
value = lambda name: words[words.index(name) + 1]
with open(here / "calls.txt", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
"""


class StudyTest(unittest.TestCase):
    stub = ""  # what the program does with `words` and value("--option"), in Python

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.program = self.folder / "funicular"
        self.program.write_text(BEGINNING + self.stub)
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    def calls(self, command=""):
        """Command lines whose first word ends with `command`."""
        calls = [json.loads(line) for line in (self.folder / "calls.txt").read_text().splitlines()]
        return [words for words in calls if words[0].endswith(command)]
