"""docs/project/evidence.md comes from claims and results, and tools/evidence.py marks a claim that is older than its code."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLAIMS = """[[claim]]
id = "speed"
topic = "Speed"
what = "It is fast."
note = "On a good day."
command = "sh tools/measure.sh FILE"
about = ["code"]
pattern = {"rows per second" = '(\\d+) rows', "seconds" = 'took ([\\d.]+) s'}
holds = {"rows lost" = "0"}
"""


def evidence(root, *words):
    return subprocess.run([sys.executable, "-B", ROOT / "tools/evidence.py", "--root", root, *words], capture_output=True, text=True, check=False)


class ThisTree(unittest.TestCase):
    def test_the_page_is_what_its_claims_and_results_give(self):
        done = evidence(ROOT, "check")
        self.assertEqual(done.returncode, 0, done.stderr)


class AnotherTree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for path, text in (("docs/project/evidence/claims.toml", CLAIMS), ("code/fast.cpp", "first"), ("other/slow.cpp", ""), ("rows", "7 rows\n9 rows\n"),
                           ("tools/measure.sh", "cat $1\necho took 1.5 s\n"), ("docs/project/evidence/results/.keep", "")):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)
        self.git("init", "-q")
        self.commit("code")

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *words], cwd=self.root, check=True, capture_output=True)

    def commit(self, name):
        self.git("add", "-A")
        self.git("commit", "-qm", name)

    def measure(self, *more, code=0):
        done = evidence(self.root, "measure", "speed", "--with", "FILE=rows", *more)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def page(self):
        self.assertEqual(evidence(self.root, "page").returncode, 0)
        return (self.root / "docs/project/evidence.md").read_text(encoding="utf-8")

    def result(self):
        return json.loads((self.root / "docs/project/evidence/results/speed.json").read_text(encoding="utf-8"))

    def test_measure_records_what_the_command_printed(self):
        self.measure()
        result = self.result()
        self.assertEqual(result["values"], {"rows per second": "9", "seconds": "1.5", "rows lost": "0"})
        self.assertEqual((result["command"], result["recorded"]), ("sh tools/measure.sh FILE", "by ./run evidence measure"))
        self.assertNotIn("uncommitted", result)
        page = self.page()
        self.assertIn("| It is fast. <sup>1</sup> | rows per second: 9 |", page)
        self.assertIn("| | seconds: 1.5 | | | |\n| | rows lost: 0 | | | |\n\n1. On a good day.", page)

    def test_a_claim_that_is_older_than_its_code_is_marked(self):
        self.measure()
        self.assertIn("| unchanged |", self.page())
        for path, mark in (("other/slow.cpp", "unchanged"), ("code/fast.cpp", "changed since (1 commit)"), ("code/new.cpp", "changed since (2 commits)")):
            (self.root / path).write_text("changed")
            self.commit(path)
            before = evidence(self.root, "check")
            self.assertEqual(before.returncode, 0, "the page need not follow the marks: " + before.stderr)
            self.assertEqual("1 are older than their code: speed" in before.stdout, mark != "unchanged", before.stdout)
            self.assertIn(f"| {mark} |", self.page())
        path = self.root / "docs/project/evidence/results/speed.json"
        path.write_text(path.read_text().replace(self.result()["commit"], "123456789"))
        self.assertIn("| unknown |", self.page())

    def test_measure_refuses_uncommitted_changes_and_records_nothing_that_failed(self):
        (self.root / "code/fast.cpp").write_text("changed")
        self.assertIn("code/fast.cpp; commit them, or give --dirty", self.measure(code=2).stderr)
        self.measure("--dirty")
        self.assertIn("with uncommitted changes", self.page())
        before = self.result()
        for script, said in (("exit 3", "exit code 3"), ("cat $1", 'the output holds no value "seconds"'),
                             ("cat $1; echo took 1.5 s; echo '1/1 Test #1: x ...***Skipped'", "tests did not run")):
            (self.root / "tools/measure.sh").write_text(script)
            self.assertIn(said, self.measure("--dirty", code=1).stderr)
            self.assertEqual(self.result(), before)
        self.assertIn("give it as --with FILE=PATH", evidence(self.root, "measure", "speed", "--dirty").stderr)
        self.assertIn("did you mean speed?", evidence(self.root, "measure", "sped").stderr)

    def test_measure_refuses_a_build_that_is_older_than_the_code(self):
        (self.root / "funicular").mkdir()
        (self.root / "funicular/new.cpp").write_text("")
        self.commit("new")
        self.assertIn("funicular/new.cpp is newer than build/release; run ./run build all first", self.measure(code=2).stderr)

    def test_check_names_what_disagrees(self):
        self.assertIn("speed: it has no result; run ./run evidence measure speed", evidence(self.root, "check").stderr)
        self.measure()
        claims, page = self.root / "docs/project/evidence/claims.toml", self.root / "docs/project/evidence.md"
        for path, old, new, said in ((claims, '"code"', '"gone"', "`about` names gone"), (claims, "measure.sh", "none.sh", "names tools/none.sh"),
                                     (claims, "'(\\d+) rows'", "'rows'", "has 0 groups"), (page, "second: 9", "second: 8", "run ./run evidence page"),
                                     (claims, "It is fast", "It is slow", "run ./run evidence page")):
            before = path.read_text()
            path.write_text(before.replace(old, new))
            done = evidence(self.root, "check")
            self.assertEqual((done.returncode, said in done.stderr), (1, True), done.stderr)
            path.write_text(before)
        (self.root / "docs/project/evidence/results/gone.json").write_text("{}")
        self.assertIn("results/gone.json: no claim has this id", evidence(self.root, "check").stderr)


if __name__ == "__main__":
    unittest.main()
