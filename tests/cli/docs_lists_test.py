"""The docs have a row for each optimiser, learning-rate schedule and pipeline schedule that the program has."""

import re

from harness import *

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


class DocsLists(ProgramTest):
    def offered(self, option):
        """Values of an option of pretrain, as completion has them."""
        words = self.succeeds("completion", "bash", "pretrain").out
        return re.search(rf'^_funicular_words\[pretrain:{option}\]="(.*)"$', words, re.M).group(1).split()

    def test_have_a_row_for_each_value(self):
        for option, page in (("--optim", "reference/optimizers.md"), ("--lr-scheduler-type", "reference/optimizers.md"), ("--schedule", "explanation/schedules.md")):
            rows = re.findall(r"^\| `([a-z0-9_-]+)`", (DOCS / page).read_text(), re.M)
            values = self.offered(option)
            self.assertGreater(len(values), 4)
            self.assertEqual([value for value in values if value not in rows], [], f"docs/{page}, {option}")

    def test_name_the_options_of_optimisers_and_schedules(self):
        text = (DOCS / "reference/optimizers.md").read_text()
        section = re.search(r"^Optimisation:\n(.*?)\n\n", self.succeeds("pretrain", "--help-all").out, re.M | re.S).group(1)
        own = [option for option in re.findall(r"^  (--[a-z0-9-]+)", section, re.M) if option not in ("--max-grad-norm",)]
        self.assertGreater(len(own), 15)
        self.assertEqual([option for option in own if f"`{option}" not in text], [])
