"""The files that evaluate and predict write: their forms, the wrong answers in them, and what is told of rows that mislead."""

import csv

from harness import *

NAMES = ["con, tra", 'so "pro"', "tab\tbed"]  # each needs quotes somewhere


def classifier(folder, labels=NAMES, seed=1, **changes):
    shapes = {"classifier.weight": [len(labels), HIDDEN], "classifier.bias": [len(labels)]}
    model = write_model(folder, extra_shapes=shapes, id2label={str(number): name for number, name in enumerate(labels)},
                        label2id={name: number for number, name in enumerate(labels)}, **changes)
    write_safetensors(model / "model.safetensors", random_weights({**encoder_shapes(), **shapes}, seed))
    return model


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def table_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


class Forms(ProgramTest):
    def answered(self, *words, endings=("jsonl", "csv", "tsv", "json"), **more):
        """What the files of each ending hold, as dictionaries."""
        found = {}
        for ending in endings:
            path = self.folder / f"answers.{ending}"
            self.succeeds(*words, path, **more)
            found[ending] = lines_of(path) if ending == "jsonl" else json.loads(path.read_text()) if ending == "json" else table_of(path)
        return found

    def flat(self, answer):
        """An answer as the row of a table."""
        row = {}
        for key, value in answer.items():
            if isinstance(value, dict):
                row.update({f"{key}_{member}": json.dumps(inner) for member, inner in value.items()})
            else:
                row[key] = ",".join(value) if isinstance(value, list) else value if isinstance(value, str) else json.dumps(value)
        return row

    def test_follow_the_ending_of_the_file(self):
        model, text = classifier(self.folder / "model"), "".join(text + "\n" for _, text in sentiment_rows(20))
        found = self.answered("predict", "--model", model, "--output", stdin=text)
        self.assertEqual(len(found["jsonl"]), 20)
        self.assertEqual(found["json"], found["jsonl"])
        for ending in ("csv", "tsv"):
            self.assertEqual(found[ending], [self.flat(answer) for answer in found["jsonl"]])
        self.succeeds("predict", "--model", model, "--output", self.folder / "none.csv", stdin="")
        self.assertEqual((self.folder / "none.csv").read_text().splitlines(), (self.folder / "answers.csv").read_text().splitlines()[:1])
        data = write_rows(self.folder / "rows.jsonl", None, [[json.dumps({"text": text, "label": NAMES[0]})] for _, text in sentiment_rows(9)])
        found = self.answered("evaluate", "--model", model, "--task", "custom", "--data", data, "--overwrite", "--predictions")
        self.assertEqual(found["json"], found["jsonl"])
        self.assertEqual(found["csv"], [self.flat(answer) for answer in found["jsonl"]])
        self.assertEqual(found["tsv"], found["csv"])

    def test_of_errors_several_labels_and_numbers(self):
        rows = self.folder / "rows.jsonl"
        rows.write_text('{"text": "film"}\n{"text": 1\n{"text": "book"}\n')
        labels = classifier(self.folder / "sets", ["a", "b, c"], problem_type="multi_label_classification")
        for model in (labels, classifier(self.folder / "number", ["x"], problem_type="regression")):
            found = self.answered("predict", "--model", model, "--input", rows, "--skip-bad-rows", "--overwrite", "--output")
            self.assertEqual(found["json"], found["jsonl"])
            self.assertIn("rows.jsonl:2", found["csv"][1]["error"])
            for row, answer in zip(found["csv"], found["jsonl"], strict=True):
                self.assertEqual({key: value for key, value in row.items() if value or key == "labels" and "labels" in answer}, self.flat(answer))

    def test_that_a_name_promises_and_the_command_does_not_write_are_refused(self):
        model, rows = classifier(self.folder / "model"), write_rows(self.folder / "rows.tsv", ("label", "text"), [("a", "film")] * 3)
        run = self.finetune_words(model, output="run.json")
        tags = write_model(self.folder / "tags", architectures=["BertForTokenClassification"], id2label={"0": "O", "1": "X"},
                           extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]})
        answers = ".jsonl, .ndjson, .json, .csv, .tsv"
        for words, name, expected in ((["predict", "--model", model, "--output"], "a.xlsx", answers),
                                      (["predict", "--model", model, "--output"], "a.jsonl.GZ", answers),
                                      (["predict", "--model", tags, "--output"], "a.csv", ".jsonl or .json"),
                                      (["evaluate", "--model", model, "--task", "custom", "--data", rows, "--predictions"], "a.txt", answers),
                                      (["evaluate", "--model", model, "--task", "custom", "--data", rows, "--output"], "a.csv", "a name for a folder"),
                                      (["report", "--input", self.folder, "--output"], "r.csv", ".html"),
                                      (["vectors", "--input", rows, "--output"], "v.json", ".txt, .vec"),
                                      (["augment", "--model", model, "--task", "custom", "--input", rows, "--output"], "a.json", ".tsv"),
                                      (["bench", "--trace"], "t.html", ".json"),
                                      (["bench", "techniques", "--model", model, "--plot"], "p.png", ".svg"),
                                      (run[:run.index("--output")] + run[run.index("--output") + 2:] + ["--output"], "r.json", "a name for a folder"),
                                      (["vocabulary", "extend", "--model", model, "--words", rows, "--output"], "w.txt", "a name for a folder")):
            self.refuses([*words, self.folder / name], name, expected)
            self.assertFalse((self.folder / name).exists(), name)
        self.refuses(["predict", "--model", tags, "--output-format", "csv"], "--output-format csv:", "expected jsonl or json", stdin="film\n")
        # A name without an ending, and what is no regular file, may hold anything.
        for place in (self.folder / "answers", self.folder / "v1.5", "/dev/null"):
            self.succeeds("predict", "--model", model, "--output", place, stdin="film\n")


class WrongAnswers(ProgramTest):
    def evaluated(self, data, *words, model=None, **changes):
        model = model or classifier(self.folder / "model", ["a", "b", "c"], **changes)
        result = self.succeeds("evaluate", "--model", model, "--task", "custom", "--data", data, "--output", self.folder / "out", *words)
        return json.loads((self.folder / "out" / "evaluation.json").read_text())["mistakes"], lines_of(self.folder / "out" / "predictions.jsonl"), result

    def test_stand_in_the_order_of_the_probability_of_their_label_with_their_ids_and_all_of_them(self):
        rows = [(str(700 + number), random.Random(number).choice("abc"), text) for number, (_, text) in enumerate(sentiment_rows(150))]
        data = write_rows(self.folder / "rows.tsv", ("review_id", "label", "text"), rows)
        mistakes, answers, _ = self.evaluated(data)
        wrong = sorted((answer["probabilities"][answer["label"]], answer["row"]) for answer in answers if answer["label"] != answer["predicted"])
        self.assertGreater(len(wrong), 50)
        self.assertEqual([(mistake["label_score"], mistake["row"]) for mistake in mistakes], wrong)
        for mistake in mistakes:
            self.assertEqual((mistake["ids"]["review_id"], mistake["label"], mistake["texts"][0]), rows[mistake["row"] - 1])

    def test_of_json_lines_have_their_ids_too_where_a_row_has_one(self):
        data = self.folder / "rows.jsonl"
        rows = [{"idx": number, "text": text, "label": "abc"[number % 3]} for number, (_, text) in enumerate(sentiment_rows(30))]
        del rows[7]["idx"]
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        mistakes, _, _ = self.evaluated(data)
        self.assertEqual([mistake.get("ids", {}).get("idx") for mistake in mistakes],
                         [None if mistake["row"] == 8 else str(mistake["row"] - 1) for mistake in mistakes])

    def test_of_several_labels_stand_in_the_order_of_the_decision_that_is_contradicted_most(self):
        rows = [(",".join(label for label in "abc" if random.Random(number).random() < 0.5), text) for number, (_, text) in enumerate(sentiment_rows(40))]
        data = write_rows(self.folder / "sets.tsv", ("label", "text"), rows)
        mistakes, answers, _ = self.evaluated(data, "--multi-label", problem_type="multi_label_classification")
        score = lambda answer: min(share if name in answer["labels"] else 1 - share for name, share in answer["probabilities"].items())
        wrong = sorted((score(answer), answer["row"]) for answer in answers if answer["labels"] != answer["predicted"])
        self.assertEqual([mistake["row"] for mistake in mistakes], [row for _, row in wrong])


class Told(ProgramTest):
    def test_texts_that_are_empty_have_answers_and_are_counted_with_their_first_line(self):
        model = classifier(self.folder / "model", ["a", "b"])
        told = self.succeeds("predict", "--model", model, stdin="film\n\n \nbook\n").err
        self.assertIn("standard input: 2 of 4 rows have no text, the first is line 2", told)
        self.assertNotIn("no text", self.succeeds("predict", "--model", model, stdin="film\n").err)
        table = write_rows(self.folder / "rows.csv", None, [["id,text"], ["1,film"], ["2,"], ['3," "']])
        self.assertIn("rows.csv: 2 of 3 rows have no text, the first is line 3", self.succeeds("predict", "--model", model, "--input", table).err)
        words = ["launch", "-n", 2, "--", PROGRAM, "predict", "--model", model, "--input", table, "--window", 1]
        self.assertIn("rows.csv: 2 of 3 rows have no text, the first is line 3", self.succeeds(*words).err)
        rows = write_rows(self.folder / "eval.tsv", ("label", "text"), [("a", "film"), ("b", "")])
        self.assertIn("1 of 2 rows have no text, the first is row 2", self.succeeds("evaluate", "--model", model, "--task", "custom", "--data", rows).err)
        tags = write_model(self.folder / "tags", architectures=["BertForTokenClassification"], id2label={"0": "O", "1": "X"},
                           extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]})
        self.assertIn("1 of 2 rows have no text, the first is line 1", self.succeeds("predict", "--model", tags, stdin="\nfilm\n").err)

    def test_rows_that_are_repeated_or_learnt_before_are_counted(self):
        train = write_rows(self.folder / "seen.tsv", ("label", "text"), [("a", "film"), ("b", "film"), ("b", "book"), ("a", "old song")])
        both = write_rows(self.folder / "both.tsv", ("label", "text"), [("a", "film"), ("a", "book"), ("b", "not good")])
        new = write_rows(self.folder / "new.tsv", ("label", "text"), [("a", "fine film"), ("b", "dull")])
        words = lambda name, held_out: self.finetune_words(self.folder / "model", output=name, train=train, eval=held_out, max_steps=1, num_train_epochs=None)
        self.model()
        told = self.succeeds(*words("run", both)).err
        self.assertIn("seen.tsv: 1 of 4 rows repeat the text of another row, 1 of them with another label", told)
        self.assertIn(f"both.tsv: 2 of 3 rows have a text that stands in the training file {train}, 1 of them with another label", told)
        self.assertIn("seen.tsv: the evaluated file is the training file", self.succeeds(*words("same", train)).err)
        self.assertNotIn("training file", self.succeeds(*words("clean", new)).err)
        model = self.folder / "run" / "model"
        self.assertIn("both.tsv: 2 of 3 rows have a text that stands in the training file", self.succeeds("evaluate", "--model", model, "--data", both).err)
        self.assertIn("seen.tsv: the evaluated file is the training file", self.succeeds("evaluate", "--model", model, "--data", train).err)
        self.assertNotIn("training file", self.succeeds("evaluate", "--model", model, "--data", new).err)
        student = ["distill", "--stage", "prediction", "--teacher", model, "--student", "1-layer", "--task", "custom", "--train", train, "--eval", both,
                   "--output", self.folder / "student", "--max-steps", 1, "--precision", "fp32"]
        self.assertIn("both.tsv: 2 of 3 rows have a text that stands in the training file", self.succeeds(*student).err)

    def test_the_smallest_of_many_classes(self):
        rows = [(f"class {number:02}", "film") for number in range(12) for _ in range(20 - number)] + [("clas 3", "book"), ("zebra", "old")]
        told = self.succeeds(*self.finetune_words(self.model(), train=write_rows(self.folder / "many.tsv", ("label", "text"), rows), eval=None,
                                                  max_steps=1, num_train_epochs=None)).err
        self.assertIn("14 classes: clas 3 (1 rows), class 00 (20)", told)
        self.assertIn("…; the smallest: clas 3 (1), zebra (1), class 11 (9), class 10 (10), class 09 (11)", told)


if __name__ == "__main__":
    unittest.main()
