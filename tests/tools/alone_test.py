"""tools/alone.py finds the file that lacks an include, and chooses the files that a change touches."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = {"funicular/base/a.h": "#pragma once\n#include <vector>\nstd::vector<int> a();\n",
         "funicular/base/b.h": "#pragma once\nstd::vector<int> b();\n",
         "funicular/base/c.cpp": '#include "funicular/base/a.h"\nstd::vector<int> c() { return a(); }\n',
         "funicular/cli/d.cpp": "int d() { return 1; }\n"}


class Alone(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        for path, text in FILES.items() | {("tools/alone.py", (ROOT / "tools/alone.py").read_text(encoding="utf-8"))}:
            self.write(path, text)
        # The real build hides the gap of b.h behind its precompiled header.
        command = f"c++ -I{self.root} -O3 -Winvalid-pch -include {self.root}/cmake_pch.hxx -o CMakeFiles/%s.dir/Unity/unity_0.o -c unity_0.cpp"
        self.write("build/release/compile_commands.json", json.dumps(
            [{"command": command % target, "file": "unity_0.cpp"} for target in ("funicular_base", "funicular_commands")]))
        for words in (("init", "-q"), ("add", "funicular"), ("commit", "-qm", "all"), ("commit", "-q", "--allow-empty", "-m", "none")):
            subprocess.run(["git", "-C", self.root, "-c", "user.name=n", "-c", "user.email=n@n.invalid", *words], check=True)
        self.addCleanup(self.folder.cleanup)

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def run_it(self, *words):
        done = subprocess.run([sys.executable, "-B", self.root / "tools/alone.py", *words], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def test_the_header_that_lacks_an_include_is_told_and_no_other(self):
        code, output = self.run_it("--all")
        self.assertEqual(code, 1)
        self.assertIn("funicular/base/b.h:2", output)
        self.assertNotIn("a.h", output)
        self.assertEqual(self.run_it("funicular/base/a.h", "funicular/base/c.cpp", "funicular/cli/d.cpp"), (0, "3 files compile alone\n"))

    def test_changed_files_are_chosen_and_a_sample_of_the_others(self):
        self.assertEqual(self.run_it(), (0, "0 files compile alone\n"))
        self.write("funicular/cli/d.cpp", "int d() { return 2; }\n")
        self.assertEqual(self.run_it(), (0, "1 files compile alone\n"))
        self.assertEqual(self.run_it("--sample", "3")[0], 1)  # all of them


if __name__ == "__main__":
    unittest.main()
