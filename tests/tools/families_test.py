"""What bench/families.py takes for a fault, and that it knows every family; tests/golden runs it on one of them."""
import pathlib
import re
import sys
import unittest
from types import SimpleNamespace

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import families


def fails():
    raise families.Failed("other bytes")


class Families(unittest.TestCase):
    def test_every_family_of_the_program_has_a_row(self):
        sources = (ROOT / "funicular/format/family").glob("*.cpp")
        types = {name for source in sources for name in re.findall(r"\bmodel_type = \"([^\"]+)\"", source.read_text(encoding="utf-8"))}
        self.assertGreater(len(types), 12)
        self.assertEqual(set(families.FAMILIES), types)

    def test_a_step_that_fails_is_named_and_the_other_steps_run(self):
        steps = {name: lambda: "fine" for name in ("resumed", "two_ranks", "int8", "distilled")}
        fails.__name__ = "two_ranks"
        failures = []
        cells = families.table_row(SimpleNamespace(**{**steps, "two_ranks": fails}, root=pathlib.Path("somewhere/bert")), failures)
        self.assertEqual(cells, ["fine", "FAILED", "fine", "fine"])
        self.assertEqual(failures, ["bert, two_ranks: other bytes"])


if __name__ == "__main__":
    unittest.main()
