"""The list of mutants fits the sources, and what plants and judges them works."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/mutants"))

import build  # noqa: E402
import catalogue  # noqa: E402
import judge  # noqa: E402
import kept  # noqa: E402
import report  # noqa: E402

ENTRY = '[[mutant]]\nname = "a-sum-is-a-difference"\nfile = "base/sum.cpp"\nold = "a + b"\nnew = "a - b"\ntests = ["test_base Sum.*"]\n'
SOURCE = "int sum(int a, int b) { return a + b; }\n"


class Tree:
    """A tree with one source, one test and these mutants."""

    def __init__(self, entries: str, source: str = SOURCE):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        for path, text in {"tests/mutants/base.toml": entries, "funicular/base/sum.cpp": source,
                           "tests/base/sum_test.cpp": "TEST(Sum, AddsUp) {}\n"}.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text, encoding="utf-8")

    def problems(self) -> str:
        try:
            return "\n".join(catalogue.problems(self.root, catalogue.load(self.root)))
        except catalogue.Invalid as error:
            return str(error)
        finally:
            self.folder.cleanup()


def mutant(name: str, old: str, new: str, **more) -> catalogue.Mutant:
    values = {"layer": "base", "file": "base/sum.cpp", "within": "", "tests": ("test_base Sum.*",), "through": ("base/sum.cpp",),
              "alone": False, "isa": "", "survives": "", "chance": ""}
    return catalogue.Mutant(name=name, old=old, new=new, **{**values, **more})


class TheList(unittest.TestCase):
    def test_every_mutant_fits_the_sources_as_they_are(self):
        self.assertEqual(catalogue.problems(ROOT, catalogue.load(ROOT)), [])

    def test_every_layer_has_some_and_there_are_enough(self):
        mutants = catalogue.load(ROOT)
        layers = {folder.name for folder in (ROOT / "funicular").iterdir() if folder.is_dir()}
        self.assertEqual({mutant.layer for mutant in mutants}, layers)
        self.assertGreaterEqual(len(mutants), 150)


class Mistakes(unittest.TestCase):
    def assert_found(self, entries: str, *words: str, source: str = SOURCE):
        found = Tree(entries, source).problems()
        for word in words:
            self.assertIn(word, found)

    def test_a_list_without_mistakes_has_none(self):
        self.assertEqual(Tree(ENTRY).problems(), "")

    def test_text_that_the_code_no_longer_has_is_named_with_its_mutant(self):
        self.assert_found(ENTRY, "mutant base/a-sum-is-a-difference", "occurs 0 times in funicular/base/sum.cpp", "a + b",
                          source=SOURCE.replace("a + b", "b + a"))

    def test_text_that_occurs_twice_is_refused_unless_more_of_it_is_given(self):
        twice = SOURCE + "int other(int a, int b) { return a + b; }\n"
        self.assert_found(ENTRY, "occurs 2 times", source=twice)
        within = ENTRY.replace("old =", 'within = "int other(int a, int b) { return a + b; }"\nold =')
        self.assertEqual(Tree(within, twice).problems(), "")

    def test_lists_cannot_be_switched(self):
        entry = ENTRY.replace("a + b", "int a, int b").replace("a - b", "int b, int a")
        self.assert_found(entry, "mutant base/a-sum-is-a-difference: its text is a list", "alone = true")
        for text in ("(int a, int b)", "a ? ',' : b", "int sum(int a, int b) { return a + b; }"):
            self.assertNotIn("is a list", Tree(ENTRY.replace("a + b", text)).problems())

    def test_texts_that_overlap_cannot_be_switched(self):
        other = ENTRY.replace("a-sum-is-a-difference", "another").replace('old = "a + b"', 'old = "return a + b"')
        self.assert_found(ENTRY + other, "mutant base/another: its text overlaps that of a-sum-is-a-difference", "alone = true")

    def test_a_test_that_is_not_there_is_named(self):
        self.assert_found(ENTRY.replace("Sum.*", "Sums.*"), "there is no test 'test_base Sums.*'")
        self.assert_found(ENTRY.replace("test_base Sum.*", "cli launch_test.Nobody.test_x"), "there is no test 'cli")

    def test_wrong_fields_are_named(self):
        self.assert_found(ENTRY + 'tests_that = 1\n', "unknown field 'tests_that'")
        self.assert_found(ENTRY.replace('new = "a - b"\n', ""), "field 'new' is missing")
        self.assert_found(ENTRY + ENTRY, "the name is taken")
        self.assert_found(ENTRY.replace('"a - b"', '"a + b"'), "changes nothing")
        self.assert_found(ENTRY + 'isa = "avx1024"\n', "no instruction set 'avx1024'")
        self.assert_found(ENTRY.replace("sum.cpp", "add.h"), "is a header; name the sources")


class Samples(unittest.TestCase):
    def setUp(self):
        self.mutants = [mutant(f"m-{i}", "a", "b", survives="always" if i % 10 == 0 else "") for i in range(100)]

    def test_a_seed_gives_the_same_sample_and_another_one_another(self):
        names = [[m.name for m in catalogue.choose(self.mutants, sample=20, seed=seed)] for seed in ("1", "1", "2")]
        self.assertEqual(names[0], names[1])
        self.assertNotEqual(names[0], names[2])
        self.assertEqual(len(set(names[0])), 20)

    def test_survivors_that_are_explained_are_not_in_it(self):
        self.assertEqual(len(catalogue.choose(self.mutants, sample=1000, seed="1")), 90)

    def test_one_mutant_more_changes_little(self):
        before = {m.name for m in catalogue.choose(self.mutants, sample=20, seed="1")}
        after = {m.name for m in catalogue.choose([mutant("new", "a", "b"), *self.mutants], sample=20, seed="1")}
        self.assertGreaterEqual(len(before & after), 19)

    def test_mutants_of_one_source_come_together_in_the_order_of_the_draw(self):
        mutants = [mutant(f"m-{i}", "a", "b", file=f"base/file_{i % 20}.cpp") for i in range(100)]
        first, = catalogue.choose(mutants, sample=1, seed="1")
        files = [m.file for m in catalogue.choose(mutants, sample=7, seed="1")]
        self.assertEqual(files[:5], [first.file] * 5)
        self.assertEqual(len(set(files)), 2)
        many = [m.name for seed in range(40) for m in catalogue.choose(mutants, sample=6, seed=str(seed))]
        self.assertGreater(len(set(many)), 80, "every source has its turn")


PROGRAM = """#include <cstdio>
int main() {
  int a = 5, b = 3, result = a + b;
  if (a > b) result += 100;
  else result += 200;
  if (b == 3)
    result *= 2;
  else
    result = 0;
  if (b == 7) result = 1;
  std::printf("%d\\n", result);
}
"""


class Switches(unittest.TestCase):
    def test_only_the_mutant_that_is_on_changes_the_program(self):
        mutants = [mutant("sum", "a + b", "a - b"), mutant("product", "a + b", "a * b"), mutant("condition", "if (a > b)", "if (a < b)"),
                   mutant("statement", "result *= 2;", "result *= 3; ++result;"), mutant("nothing", "result += 100;", ""),
                   mutant("head", "if (b == 7) result", "if (b == 3) result")]
        tree = Tree(ENTRY, PROGRAM)
        folder = pathlib.Path(tree.folder.name)
        (folder / "mutated.cpp").write_text(catalogue.switched(tree.root, "base/sum.cpp", mutants)[0], encoding="utf-8")
        (folder / "switch.cpp").write_text(build.SWITCH, encoding="utf-8")
        subprocess.run(["c++", "-std=c++20", "-o", "program", "mutated.cpp", "switch.cpp"], cwd=folder, check=True)

        def output(number: int) -> int:
            return int(subprocess.run([folder / "program"], env={**os.environ, "FUNICULAR_MUTANT": str(number)}, check=True,
                                      capture_output=True, text=True).stdout)

        expected = {"sum": 204, "product": 230, "condition": 416, "statement": 325, "nothing": 16, "head": 1}
        self.assertEqual(output(0), 216)
        self.assertEqual({one.name: output(one.number) for one in mutants}, expected)
        self.assertIn("result = a - b;", catalogue.replaced(tree.root, mutants[0]))
        tree.folder.cleanup()

    def variant_of(self, source: str, mutants: list) -> build.Variant:
        tree = Tree(ENTRY, source)
        self.addCleanup(tree.folder.cleanup)
        compiler = ["c++", "-DORDINARY"]
        ordinary = types.SimpleNamespace(root=tree.root, folder=tree.root, jobs=2, owners={}, isa="baseline", compiler=lambda target, source: compiler)
        made = build.Variant(ordinary, tree.root / "all", mutants)
        made.write_sources()
        made.compile()
        return made

    def test_what_none_can_be_compiled_with_is_built_alone_and_the_others_are_not(self):
        mutants = [mutant("sum", "a + b", "a * b"), mutant("type", "long sum", "int sum"), mutant("name", "product", "outcome")]
        made = self.variant_of("long sum(int a, int b) {\n  return a + b;\n}\nlong product(int a) { return a; }\n", mutants)
        self.assertEqual((made.separate, made.broken), ({"type", "name"}, {}))
        self.assertEqual([item.exists() for item in made.objects["funicular_base"]], [True])

    def test_an_error_behind_the_mutant_is_its_own(self):
        made = self.variant_of("int sum(int a, int b) {\n  int result = a;\n  return result + b;\n}\n",
                               [mutant("result", "int result = a;", "int result = b;")])
        self.assertEqual((made.separate, made.broken), ({"result"}, {}))

    def test_an_error_elsewhere_is_told(self):
        made = self.variant_of("int sum(int a, int b) {\n  return a + b;\n}\nint wrong = no_such_name;\n", [mutant("sum", "a + b", "a * b")])
        self.assertEqual(made.separate, {"sum"})
        self.assertIn("no_such_name", made.broken["base/sum.cpp"])


class Verdicts(unittest.TestCase):
    def run_shell(self, script: str, timeout: float = 20) -> judge.Outcome:
        return judge.run_test(["sh", "-c", script], ROOT, {}, timeout)

    def test_failures_crashes_and_hangs_are_told_apart(self):
        self.assertEqual(judge.how(self.run_shell("echo '[  FAILED  ] Suite.Name'; exit 1")), "Suite.Name fails")
        self.assertEqual(judge.how(self.run_shell("echo 'FAIL: test_name (file.Class)'; exit 1")), "test_name fails")
        self.assertEqual(judge.how(self.run_shell("kill -SEGV $$")), "dies of SIGSEGV")
        self.assertEqual(judge.how(self.run_shell("sleep 30", timeout=0.2)), "hangs")

    def test_tests_that_are_skipped_do_not_count(self):
        self.assertEqual(judge.Outcome(0, 1, "[  PASSED  ] 3 tests.\n[  SKIPPED ] 2 tests").tests, 3)
        self.assertEqual(judge.Outcome(0, 1, "[  PASSED  ] 0 tests.\n[  SKIPPED ] 2 tests").tests, 0)
        self.assertEqual(judge.Outcome(0, 1, "Ran 1 test in 0.1s\n\nOK (skipped=1)").tests, 0)

    def test_a_filter_means_tests_with_parameters_too(self):
        self.assertEqual(judge.with_parameters("A.B-C.*"), "A.B:*/A.B:*/A.B/*-C.*:*/C.*:*/C.*/*")

    def test_no_test_at_all_is_no_success(self):
        self.assertFalse(judge.Outcome(0, 1, "[==========] Running 0 tests from 0 test suites.\n[  PASSED  ] 0 tests.").ran)
        self.assertTrue(judge.Outcome(0, 1, "[==========] Running 2 tests from 1 test suite.").ran)
        self.assertTrue(judge.Outcome(0, 1, "x\nRan 1 test in 0.1s").ran)

    def test_nothing_that_a_test_started_is_left(self):
        outcome = self.run_shell("setsid sleep 61 >/dev/null 2>&1 & echo $!")
        process = pathlib.Path("/proc") / outcome.output.strip()
        for _ in range(50):
            if not (process / "cmdline").exists() or not (process / "cmdline").read_bytes():
                return
            time.sleep(0.1)
        self.fail(f"{process} is still there")


class EarlierRuns(unittest.TestCase):
    def setUp(self):
        self.tree = Tree(ENTRY)
        self.addCleanup(self.tree.folder.cleanup)
        self.path = self.tree.root / "build/mutants.jsonl"
        self.mutant = catalogue.load(self.tree.root)[0]
        self.opened().add(judge.Verdict(self.mutant, "killed", "Sum.AddsUp fails"))

    def opened(self, isa: str = "avx2") -> kept.Kept:
        return kept.Kept(self.tree.root, self.path, isa)

    def test_verdicts_are_found_again(self):
        self.assertEqual(self.opened().verdict(self.mutant), judge.Verdict(self.mutant, "killed", "Sum.AddsUp fails"))

    def test_the_last_verdict_of_a_mutant_counts(self):
        self.opened().add(judge.Verdict(self.mutant, "survived"))
        self.assertEqual(self.opened().verdict(self.mutant).state, "survived")

    def test_a_line_that_a_killed_run_left_half_is_passed_over(self):
        with self.path.open("a", encoding="utf-8") as file:
            file.write('\n{"mutant": "base/a-sum')
        self.assertEqual(self.opened().verdict(self.mutant).state, "killed")
        self.opened().add(judge.Verdict(self.mutant, "survived"))
        self.assertEqual(self.opened().verdict(self.mutant).state, "survived")

    def test_what_concerns_a_mutant_has_it_judged_again(self):
        other = mutant(self.mutant.name, "a + b", "a * b")
        self.assertIsNone(self.opened().verdict(other))
        self.assertIsNone(self.opened("avx512").verdict(self.mutant))
        for path, text in {"funicular/base/sum.cpp": "// changed\n" + SOURCE, "tests/base/sum_test.cpp": "TEST(Sum, Other) {}\n"}.items():
            before = (self.tree.root / path).read_text(encoding="utf-8")
            (self.tree.root / path).write_text(text, encoding="utf-8")
            self.assertIsNone(self.opened().verdict(self.mutant), path)
            (self.tree.root / path).write_text(before, encoding="utf-8")
        self.assertIsNotNone(self.opened().verdict(self.mutant))

    def test_the_sources_of_a_test_of_the_program_are_its_file_and_what_it_imports(self):
        found = kept.sources_of_test(ROOT, "cli options_test.EveryOption.test_pretrain")
        for name in ("options_test.py", "harness.py", "options/training.py"):
            self.assertIn(ROOT / "tests/cli" / name, found)
        self.assertNotIn(ROOT / "tests/cli/usage_test.py", found)

    def test_the_sources_of_a_layers_test_are_the_files_of_its_suites_and_the_headers_of_tests(self):
        def sources(test: str) -> set[str]:
            return {str(path.relative_to(ROOT / "tests")) for path in kept.sources_of_test(ROOT, test)}
        found = sources("test_parallel Layouts.*:PassRecorder.Writes*")
        self.assertLessEqual({"parallel/layout_test.cpp", "parallel/pass_recorder_test.cpp", "comm/ranks.h", "train/helpers.h"}, found)
        self.assertFalse({"parallel/pipeline_test.cpp", "comm/group_test.cpp"} & found)
        self.assertIn("comm/group_test.cpp", sources("test_comm *Collectives.Started*"))
        self.assertIn("comm/group_test.cpp", sources("test_comm Ranks/Collectives.Started*"))
        self.assertIn("comm/group_test.cpp", sources("test_comm *Started*"))

    def test_every_planted_bug_has_a_source_of_its_tests(self):
        for one in catalogue.load(ROOT):
            for test in one.tests:
                self.assertTrue(any(path.suffix == (".cpp" if test.startswith("test_") else ".py") for path in kept.sources_of_test(ROOT, test)), test)


class TheTable(unittest.TestCase):
    VERDICTS = [judge.Verdict(mutant("a", "x", "y"), "killed"), judge.Verdict(mutant("b", "x", "y", survives="because"), "survived"),
                judge.Verdict(mutant("c", "x", "y", layer="nn"), "killed"), judge.Verdict(mutant("d", "x", "y", layer="nn"), "not testable here"),
                judge.Verdict(mutant("e", "x", "y", layer="nn", chance="a race"), "killed")]

    def test_counts_each_layer_and_explains_survivors(self):
        text = report.table(self.VERDICTS, "avx2")
        for line in ("| `base` | 2 | 1 | 1 | 0 |", "| `nn` | 3 | 2 | 0 | 1 |", "| **all** | 5 | 3 | 1 | 1 |",
                     "- `base/b` (`funicular/base/sum.cpp`): because", "75.0 %", "- `nn/e` (`funicular/base/sum.cpp`): a race"):
            self.assertIn(line, text)

    def test_replaces_what_is_between_its_marks_and_nothing_else(self):
        with tempfile.TemporaryDirectory() as folder:
            document = pathlib.Path(folder) / "testing.md"
            document.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", encoding="utf-8")
            report.write(document, "new")
            self.assertEqual(document.read_text(encoding="utf-8"), f"before\n{report.BEGIN}\nnew\n{report.END}\nafter\n")
            document.write_text("no marks\n", encoding="utf-8")
            self.assertRaises(catalogue.Invalid, report.write, document, "new")


if __name__ == "__main__":
    unittest.main()
