"""The study of distillation: every student takes equally many steps, the labels get their best rate, finished runs stay."""
import argparse
import json
import pathlib
import unittest

from study_rig import StudyTest

import distillation_study as study

# A model is its command line, and its score is the rate that it was trained with.
STUB = """if words[0] == "evaluate":
    print(json.dumps({"matthews_correlation": float(json.loads((pathlib.Path(value("--model")) / "words").read_text())["rate"])}))
elif words[0] == "augment":
    pathlib.Path(value("--output")).write_text("more rows")
    print(json.dumps({"rows": 2}))
else:
    model = pathlib.Path(value("--output")) / "model"
    model.mkdir(parents=True)
    (model / "words").write_text(json.dumps({"rate": value("--learning-rate")}))
"""


class DistillationStudy(StudyTest):
    stub = STUB

    def setUp(self):
        super().setUp()
        for name, rows in (("train", 70), ("dev", 5)):
            (self.folder / f"{name}.tsv").write_text("header\n" + "row\n" * rows)
        self.args = argparse.Namespace(task="cola", train=self.folder / "train.tsv", eval=self.folder / "dev.tsv", results=self.folder / "results",
                                       program=self.program, model=self.folder, augmenter=self.folder / "heads", vectors=None, augment_once=False,
                                       int8=False, seeds=2, layers=3, teacher_epochs=1, epochs=1.5, steps=0,
                                       batch_size=32, max_length=64, teacher_rate=2e-4, layers_rate=3e-4, answers_rate=4e-4, rates=[1e-5, 9e-5, 5e-5])

    def test_students_take_equally_many_steps_from_the_same_start(self):
        study.study(self.args)
        value = lambda words, name: words[words.index(name) + 1]
        steps = {}
        for words in self.calls():
            if words[0] == "distill":
                name = pathlib.Path(value(words, "--output")).relative_to(self.args.results).parts[0]
                steps[name] = steps.get(name, 0) + int(value(words, "--max-steps"))
        self.assertEqual(set(steps.values()), {8})  # twice 1.5 * 70 / 32
        self.assertEqual({name for name in steps if "sweep" not in name},
                         {f"{kind}-{seed}" for kind in ("distilled", "augmented", "labels") for seed in (1, 2)})
        for words in self.calls():
            if words[0] == "distill" and "/augmented-2/" in value(words, "--output"):
                self.assertEqual(value(words, "--train"), str(self.args.results / "rows-2" / "rows.tsv"))
                self.assertEqual(value(words, "--teacher"), str(self.args.results / "teacher-2" / "run" / "model"))

    def test_variants_may_be_made_once_and_the_teacher_answer_in_8_bits(self):
        self.args.augment_once = self.args.int8 = True
        table = study.study(self.args)
        calls = [" ".join(words) for words in self.calls()]
        self.assertEqual(sum(words.startswith("augment ") for words in calls), 1)
        self.assertEqual(sum("rows-1/rows.tsv" in words for words in calls), 1 + 2 * 2)
        self.assertEqual(sum("--teacher-precision int8" in words for words in calls), 2 * 2)
        self.assertIn("| teacher in 8 bits |", table)

    def test_labels_have_the_best_of_their_rates(self):
        study.study(self.args)
        self.assertEqual(json.loads((self.args.results / "labels-1" / "result.json").read_text()), {"score": 9e-5, "rate": 9e-5})
        self.assertEqual(json.loads((self.args.results / "distilled-1" / "result.json").read_text()), {"score": 4e-4})

    def test_finished_runs_are_not_repeated_and_stopped_ones_are(self):
        table = study.study(self.args)
        before = len(self.calls())
        (self.args.results / "labels-2" / "result.json").unlink()
        self.assertEqual(study.study(self.args), table)
        self.assertEqual([words[0] for words in self.calls()[before:]], ["distill", "evaluate"])
        self.assertEqual((self.args.results / "table.md").read_text(), table + "\n")


if __name__ == "__main__":
    unittest.main()
