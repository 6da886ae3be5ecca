"""Chains that end with a small model: rows that are augmented first, and the one that the quickstart writes."""

import subprocess

from harness import *
from augment_test import HEAD
from chain_test import ChainTest

STEPS = pathlib.Path(__file__).resolve().parents[2] / "tools/quickstart/steps.sh"
SHORT = {"task": "custom", "max-length": 16, "batch-size": 8, "num-train-epochs": 1, "learning-rate": 0.01, "precision": "fp32", "save-steps": 0}


def step(name, command, **options):
    values = {option.replace("_", "-"): value for option, value in options.items()}
    return "\n".join([f"[{name}]", f'command = "{command}"', *(f"{option} = {json.dumps(value)}" for option, value in values.items()), ""])


def deep_shapes(layers):
    """Of the layers behind those that a model of the tests has."""
    return {name.replace("layer.0.", f"layer.{layer}."): shape for name, shape in encoder_shapes().items() if "layer.0." in name
            for layer in range(2, layers)}


class AugmentedRows(ChainTest):
    def setUp(self):
        super().setUp()
        write_model(self.folder / "guesser", extra_shapes=HEAD)
        self.file.write_text(
            step("teacher", "finetune", model="model", train="train.tsv", output="runs/teacher", **SHORT) +
            step("more", "augment", model="guesser", task="custom", input="train.tsv", output="more.tsv", variants=2, precision="fp32") +
            step("student", "distill", stage="prediction", teacher="runs/teacher/model", student="1-layer", train="more.tsv", eval="eval.tsv",
                 output="runs/student", logging_steps=1, **SHORT) +
            step("tested", "evaluate", model="runs/student/model", data="eval.tsv", output="tested", precision="fp32"))

    def learnt(self):
        """How many rows the student's only epoch had."""
        rows = len((self.folder / "more.tsv").read_text().splitlines()) - 1
        steps = [json.loads(line)["step"] for line in (self.folder / "runs/student/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(max(steps), -(-rows // SHORT["batch-size"]))
        return rows

    def test_are_what_the_student_learns(self):
        self.succeeds("chain", self.file)
        few = self.learnt()
        self.assertGreater(few, 2 * 24)  # rows of the file
        self.change("variants = 2", "variants = 3")
        plan = self.plan()
        self.assertEqual([plan[name][0] for name in ("teacher", "more", "student", "tested")], ["done", "rerun", "perhaps", "perhaps"])
        result = self.succeeds("chain", self.file)
        self.assertEqual(self.started(result), ["augment", "distill", "evaluate"])
        self.assertIn("student: rerun: input more.tsv changed", result.err)
        self.assertGreater(self.learnt(), few)
        self.assertEqual({kind for kind, _ in self.plan().values()}, {"done"})


class Quickstart(ChainTest):
    def test_chain_makes_a_student_and_compares_it(self):
        data = self.folder / "data"
        data.mkdir()
        for part in ("train", "eval", "test"):
            write_rows(data / f"{part}.tsv", ("label", "text"), [("good" if i % 2 else "bad", f"the {WORDS[i % 5]} film {part}") for i in range(16)])
        (data / "text-train.txt").write_text("the good film train\n\nanother text\nof two lines\n\nbeyond the limit\n")
        settings = f'folder="{self.folder}" texts=6 student_epochs=2 finetune_length=16 finetune_batch=4 seed=1'
        written = subprocess.run(["bash", "-c", settings + '; source "$0"; write_texts; write_chain 16 6', STEPS], check=True, capture_output=True,
                                 text=True)
        self.file.write_text(written.stdout)
        rows = (data / "texts.tsv").read_text().splitlines()
        self.assertEqual((rows[0], rows[-1], len(rows), len(set(rows))), ("text", "another text of two lines", 7, 7))
        write_model(self.folder / "runs/adapt/model", extra_shapes=deep_shapes(6), num_hidden_layers=6)
        self.succeeds("finetune", "--model", self.folder / "runs/adapt/model", "--task", "custom", "--train", data / "train.tsv", "--eval", data / "eval.tsv",
                      "--output", self.folder / "runs/labels-adapted", "--max-steps", 2, "--max-length", 16)
        self.assertEqual({kind for kind, _ in self.plan().values()}, {"run"})
        first = self.succeeds("chain", self.file)
        self.assertEqual(self.started(first), ["distill"] * 2 + ["evaluate"] * 3 + ["report"])
        for model in ("small/student", "small/alone"):
            self.assertEqual(json.loads((self.folder / model / "model/config.json").read_text())["num_hidden_layers"], 1)
        page = (self.folder / "small/report.html").read_text()
        for name in ("teacher", "student", "alone"):
            self.assertIn(name, page)
        self.assertEqual({kind for kind, _ in self.plan().values()}, {"done"})


if __name__ == "__main__":
    unittest.main()
