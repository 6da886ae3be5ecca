"""tools/check_prose.py finds the sentences that break each rule, by kind, and compares their number with the limits."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS, RULES = ("help", "messages", "comments", "docs"), ("opening", "is_of", "a_for_per", "words", "long")

SOURCE = """// Of two kinds this is the first.
/// The value is of classes only. It is read once.
void f() {
  arguments.add("x", target, "rows a second are of no use here");
  throw Error("the run goes on when it is given again");
}
"""
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
    FOUND = {("comments", "opening"): 1, ("comments", "is_of"): 1, ("help", "is_of"): 1, ("help", "a_for_per"): 1,
             ("messages", "words"): 1, ("docs", "long"): 1, ("docs", "opening"): 1}

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


if __name__ == "__main__":
    unittest.main()
