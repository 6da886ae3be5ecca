"""tools/check_sizes.py finds files, classes, functions and lines that are too long, and takes nothing else for one."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check(files: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of the script on a tree with these files."""
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, ROOT / "tools/check_sizes.py", root], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


def body(lines: int, step: str = "  step();\n") -> str:
    """The braces of a function that has so many lines in all."""
    return "{\n" + step * (lines - 2) + "}\n"


class CheckSizes(unittest.TestCase):
    def assert_long(self, text: str, line: int, name: str, lines: int):
        code, output = check({"funicular/nn/a.cpp": text})
        self.assertEqual((code, output), (1, f"funicular/nn/a.cpp:{line}: {name} has {lines} lines; expected at most 60\n"))

    def assert_fits(self, text: str):
        self.assertEqual(check({"funicular/nn/a.cpp": text}), (0, "1 files and their classes and functions fit\n"))

    def test_a_file_of_500_lines_fits_and_one_of_501_does_not(self):
        self.assert_fits("int a;\n" * 500)
        code, output = check({"funicular/nn/a.cpp": "int a;\n" * 501})
        self.assertEqual(code, 1)
        self.assertIn("funicular/nn/a.cpp: 501 lines; expected at most 500", output)

    def test_a_function_of_60_lines_fits_and_one_of_61_does_not(self):
        self.assert_fits("void f() " + body(60))
        self.assert_long("void f() " + body(61), 1, "f", 61)

    def test_lines_are_counted_from_the_signature(self):
        self.assert_long("namespace a {\n\ntemplate <class T>\nvoid A<T>::f(int a,\n             int b) const " + body(59) + "}\n", 3, "f", 61)

    def test_members_constructors_and_operators_are_functions(self):
        for head, name in (("  int f() const override ", "f"), ("  A() : a_(1), b_{2} ", "A"), ("  bool operator==(const A& b) ", "operator=="), ("  ~A() ", "~A")):
            self.assert_long("class A : public B {\n public:\n" + head + body(61) + "};\n", 3, name, 61)

    def test_lambdas_and_local_classes_belong_to_their_function(self):
        inner = "  const auto g = [&](int a) {\n    if (a) { step(); }\n  };\n  struct B {\n    int h() { return 1; }\n  };\n"
        self.assert_long("void f() {\n" + inner + "  step();\n" * 60 + "}\n", 1, "f", 68)

    def test_tables_classes_and_namespaces_may_be_long(self):
        self.assert_fits("const std::vector<int> kTable = {\n" + "  f(1),\n" * 90 + "};\n")
        self.assert_fits("namespace {\n" + "void f() { step(); }\n" * 90 + "}\n")
        self.assert_fits("class A {\n" + "  void f();\n" * 90 + "};\n")
        self.assert_fits("LIST(a)\nnamespace b {\n" + "void f() { step(); }\n" * 90 + "}\n")
        self.assert_fits("enum class E : int {\n" + "  a,\n" * 90 + "};\n")

    def test_braces_in_strings_comments_and_macros_do_not_count(self):
        self.assert_fits('void f() {\n  g("{", \'{\');  // {\n}\n#define A(x) {\\\n  x\n/* { */\n' + "int a;\n" * 90)
        self.assert_fits('const char* a = R"({\n)";\n' + "int a;\n" * 90)

    def test_a_class_is_counted_over_the_files_of_its_folder(self):
        header = "class A final : public B<int> {\n public:\n" + "  void f();\n" * 97 + "};\n"
        source = "void A::g() " + body(50)
        files = {"funicular/nn/a.h": header, "funicular/nn/a.cpp": source * 2, "funicular/nn/b.cpp": source, "funicular/core/a.cpp": source}
        self.assertEqual(check(files), (0, "4 files and their classes and functions fit\n"))
        files["funicular/nn/b.cpp"] += "int A::h() " + body(2)
        self.assertEqual(check(files), (1, "funicular/nn/a.h:1: class A has 252 lines over all files; expected at most 250\n"))
        limits = '{"long_lines": 0, "classes": {"funicular/nn/A": %d}}'
        self.assertEqual(check(files | {"tools/size_limits.json": limits % 252})[0], 0)
        self.assertEqual(check(files | {"tools/size_limits.json": limits % 251})[0], 1)

    def test_a_line_of_120_characters_fits_and_one_of_121_does_not(self):
        self.assert_fits("// " + "ä" * 117 + "\n")
        code, output = check({"funicular/nn/a.cpp": "// " + "a" * 118 + "\n"})
        self.assertEqual((code, output), (1, "funicular: 1 lines have more than 120 characters; expected at most 0\n"))
        self.assertEqual(check({"funicular/nn/a.cpp": "// " + "a" * 118 + "\n", "tools/size_limits.json": '{"long_lines": 1, "classes": {}}'})[0], 0)

    def test_an_empty_tree_is_not_success(self):
        self.assertEqual(check({})[0], 1)


if __name__ == "__main__":
    unittest.main()
