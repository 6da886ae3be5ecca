"""tools/check_layers.py finds each kind of violation when one is planted, and is silent on a tree that obeys."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check(files: dict[str, str], table: str | None = None) -> tuple[int, str]:
    """Exit code and output of the script on a tree with these files and this table, or the real one."""
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        files = {**files, "docs/explanation/architecture.md": table or (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")}
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, ROOT / "tools/check_layers.py", root], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


class CheckLayers(unittest.TestCase):
    def assert_found(self, path: str, include: str, words: str):
        code, output = check({path: f"#pragma once\n// What it is for.\n#include {include}\n"})
        self.assertEqual(code, 1, output)
        self.assertIn(f"{path}:3: ", output)
        self.assertIn(words, output)

    def test_a_tree_that_obeys_passes(self):
        code, output = check({"funicular/nn/a.cpp": '#include <ATen/core/Tensor.h>\n#include "funicular/core/batch.h"\n',
                              "funicular/cli/b.cpp": '#include "funicular/task/metrics.h"\n'})
        self.assertEqual((code, output), (0, "2 files obey the table of layers\n"))

    def test_a_lower_layer_that_includes_a_higher_one_is_found(self):
        self.assert_found("funicular/base/a.h", '"funicular/text/b.h"', "layer base may not include layer text")
        self.assert_found("funicular/train/a.cpp", '"funicular/model/encoder.h"', "layer train may not include layer model")

    def test_libtorch_in_a_plain_layer_is_found(self):
        for header in ("<torch/types.h>", "<ATen/core/Tensor.h>", "<c10/util/Half.h>"):
            self.assert_found("funicular/text/kernels/a.cpp", header, "layer text does not use LibTorch")

    def test_the_expensive_header_is_found_everywhere(self):
        self.assert_found("funicular/nn/a.cpp", "<torch/torch.h>", "15 s")

    def test_an_include_not_written_from_the_root_is_found(self):
        self.assert_found("funicular/nn/a.cpp", '"bert.h"', "from the root")

    def test_a_header_that_does_not_say_what_it_is_for_is_found(self):
        for text in ("#pragma once\n", "#pragma once\n\n// Late.\n", "#pragma once\n#include <span>\n", "#pragma once\n//\n", "// First.\n#pragma once\n", ""):
            code, output = check({"funicular/base/a.h": text})
            self.assertEqual(code, 1, text)
            self.assertIn("funicular/base/a.h:2: expected, below #pragma once, a line of comment", output)
        self.assertEqual(check({"funicular/base/a.h": "#pragma once\n// What it is for.\n"})[0], 0)

    def test_a_folder_without_a_row_is_found(self):
        code, output = check({"funicular/magic/a.h": "\n"})
        self.assertEqual(code, 1)
        self.assertIn("folder magic has no row", output)

    def test_a_row_that_names_one_below_itself_is_found(self):
        table = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8").replace("| base, text, format | no |", "| base, text, nn | no |", 1)
        code, output = check({"funicular/base/a.cpp": "\n"}, table)
        self.assertEqual(code, 1, output)
        self.assertIn("the row of data names nn, a row below it", output)
        code, output = check({"funicular/base/a.cpp": "\n"}, table.replace("base, text, nn", "base, text, magic"))
        self.assertIn("there is no row of magic", output)

    def test_an_empty_tree_is_not_success(self):
        self.assertEqual(check({})[0], 1)


if __name__ == "__main__":
    unittest.main()
