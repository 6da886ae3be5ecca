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

    def test_name_each_field_of_the_records_of_a_run(self):
        """And no other. Names in capitals in the table stand for those of terms and metrics."""
        section = re.search(r"^### metrics.jsonl\n(.*?)^## ", (DOCS / "reference/files.md").read_text(), re.M | re.S).group(1)
        rows = re.findall(r"^\| `(\w+)`", section, re.M)
        model = self.model()
        tuned = self.finetune_words(model, max_steps=1, num_train_epochs=None, logging_steps=1)
        self.succeeds(*tuned)
        data = self.store(model)
        self.succeeds("pretrain", "--model", model, "--train", data, "--eval", data, "--output", self.folder / "pretrained", "--objective", "mlm-nsp",
                      "--max-length", 32, "--max-steps", 1, "--batch-size", 4, "--logging-steps", 1, "--precision", "fp16")
        self.succeeds("distill", "--teacher", self.folder / "run" / "model", "--student", "1-layer", "--task", "custom", "--train", self.folder / "train.tsv",
                      "--stage", "intermediate", "--output", self.folder / "distilled", "--max-steps", 1, "--logging-steps", 1, "--max-length", 16)
        met = set()
        for run in ("run", "pretrained", "distilled"):
            for line in (self.folder / run / "metrics.jsonl").read_text().splitlines():
                for field in json.loads(line):
                    terms = [row for row in rows if re.fullmatch(re.sub("[A-Z]+", r"\\w+", row), field)]
                    self.assertTrue(terms, field)
                    met.add(field if field in rows else terms[0])
        self.assertEqual(met, set(rows), "the table names fields that no run has")

    def test_name_the_options_of_optimisers_and_schedules(self):
        text = (DOCS / "reference/optimizers.md").read_text()
        section = re.search(r"^Optimisation:\n(.*?)\n\n", self.succeeds("pretrain", "--help-all").out, re.M | re.S).group(1)
        own = [option for option in re.findall(r"^  (--[a-z0-9-]+)", section, re.M) if option not in ("--max-grad-norm",)]
        self.assertGreater(len(own), 15)
        self.assertEqual([option for option in own if f"`{option}" not in text], [])
