"""tools/check_prose.py finds the sentences that break each rule, by kind, and compares their number with the limits."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS, RULES = ("help", "messages", "comments", "docs"), ("opening", "noun", "is_of", "a_for_per", "words", "long")

SOURCE = """// Of two kinds this is the first.
/// The value is of classes only. It is read once.
void f() {
  arguments.add("x", target, "rows a second are of no use here");
  throw Error("the run goes on when it is given again");
  throw Error("ranks of Those hosts have stopped");
  arguments.add("y", other, "of a run: its folder");
}
"""
SOURCE = SOURCE.replace("}\n", f'  show("{"name " * 60}");\n  show("a line.\\n\\n  {"word " * 20}\\n  {"word " * 20}");\n}}\n')  # a list, and lines
PAGE = "# Where it is\n\n" + "one " * 26 + "word.\n\n- What it does\n\n```sh\nOf nothing in a block\n```\n"


def check(limits: dict) -> tuple[int, str]:
    """Exit code and output of the script on a tree of one source and one page."""
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for path, text in (("funicular/cli/a.cpp", SOURCE), ("docs/page.md", PAGE), ("tools/prose_limits.json", json.dumps(limits))):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, ROOT / "tools/check_prose.py", root], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


class CheckProse(unittest.TestCase):
    FOUND = {("comments", "opening"): 1, ("comments", "is_of"): 1, ("help", "is_of"): 1, ("help", "a_for_per"): 1, ("help", "opening"): 1,
             ("messages", "words"): 1, ("messages", "noun"): 1, ("docs", "long"): 1, ("docs", "opening"): 1}

    def limits(self, less=None):
        found = {key: count - (key == less) for key, count in self.FOUND.items()}
        return {kind: {rule: found.get((kind, rule), 0) for rule in RULES} for kind in KINDS}

    def test_a_tree_at_its_limits_passes(self):
        self.assertEqual(check(self.limits()), (0, "2 files keep within the limits of unclear English\n"))

    def test_one_sentence_above_any_limit_is_told_with_the_command_that_shows_it(self):
        for kind, rule in self.FOUND:
            code, output = check(self.limits(less=(kind, rule)))
            self.assertEqual(code, 1, (kind, rule))
            self.assertEqual(output, f"{kind}: 1 sentences break the rule '{rule}', at most 0 may; "
                                     f"tools/check_prose.py --list {kind} {rule} shows them\n")

    def test_a_changed_sentence_is_shown_and_an_old_one_is_not(self):
        with tempfile.TemporaryDirectory() as name:
            root, tools = pathlib.Path(name), pathlib.Path(name) / "tools"
            for script in ("check_prose.py", "tree_check.py"):
                (tools / script).parent.mkdir(exist_ok=True)
                (tools / script).write_text((ROOT / "tools" / script).read_text(encoding="utf-8"), encoding="utf-8")
            source = root / "funicular/cli/a.cpp"
            source.parent.mkdir(parents=True)
            source.write_text(SOURCE, encoding="utf-8")
            git = ("git", "-C", name, "-c", "user.name=n", "-c", "user.email=n@n.invalid")
            for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "all")):
                subprocess.run([*git, *words], check=True)

            def changed():
                done = subprocess.run([sys.executable, "-B", tools / "check_prose.py", "--changed"], capture_output=True, text=True)
                return done.returncode, done.stdout

            self.assertEqual(changed(), (0, "the changed sentences obey the rules\n"))
            source.write_text("// The first line.\n" + SOURCE.replace("classes only", "numbers only"), encoding="utf-8")
            (root / "README.md").write_text("What is new\n", encoding="utf-8")
            self.assertEqual(changed(), (1, "funicular/cli/a.cpp:1: is_of: The value is of numbers only.\n"
                                            "README.md:1: opening: What is new\n"))


if __name__ == "__main__":
    unittest.main()
