"""What people meet who use the program for the first time: their own tables, slips in options and files, and what is said meanwhile."""

import re
import shutil
import subprocess

from harness import *

CLASSIFIER = {"classifier.weight": [2, HIDDEN], "classifier.bias": [2]}


def sentences(rows):
    return [text for _, text in rows]


def numbers(count, seed=0):
    """Rows (number, text): how many words of the text are "good"."""
    source = random.Random(seed)
    found = []
    for _ in range(count):
        words = [source.choice(["good", "bad", "the", "film"]) for _ in range(4)]
        found.append((f"{words.count('good') / 2 + 0.25:.2f}", " ".join(words)))
    return found


class Tables(ProgramTest):
    """predict reads what evaluate reads."""

    def trained(self, *more, **options):
        self.succeeds(*self.finetune_words(self.model("start"), **{"max_steps": 2, "num_train_epochs": None, **options}), *more)
        return self.folder / "run" / "model"

    def test_predict_reads_the_text_column_of_tables_by_their_names(self):
        model, rows = self.trained(), sentiment_rows(12, 3)
        lines = self.succeeds("predict", "--model", model, stdin="".join(text + "\n" for text in sentences(rows))).out
        for name, text in {"rows.jsonl": "".join(json.dumps({"id": 7, "text": text}) + "\n" for text in sentences(rows)),
                           "rows.csv": "id,text\n" + "".join(f'7,"{text}"\n' for text in sentences(rows)),
                           "rows.tsv": "text\tid\n" + "".join(f"{text}\t7\n" for text in sentences(rows))}.items():
            (self.folder / name).write_text(text)
            self.assertEqual(self.succeeds("predict", "--model", model, "--input", self.folder / name).out, lines, name)
        other = self.folder / "other.data"
        other.write_text("".join(json.dumps({"words": text}) + "\n" for text in sentences(rows)))
        self.assertEqual(self.succeeds("predict", "--model", model, "--input", other, "--format", "jsonl", "--text-column", "words").out, lines)
        self.refuses(["predict", "--model", model, "--input", self.folder / "rows.jsonl", "--text-column", "none"], "rows.jsonl:1", '"none"')
        self.refuses(["predict", "--model", model, "--text-column", "text"], "--text-column is for tables", stdin="film\n")

    def test_a_model_of_pairs_reads_its_own_two_columns(self):
        rows = [("same" if i % 2 else "other", "good film", text) for i, text in enumerate(sentences(sentiment_rows(16)))]
        pairs = write_rows(self.folder / "pairs.tsv", ("verdict", "a", "b"), rows)
        model = self.trained("--text-columns", "a", "b", "--label-column", "verdict", train=pairs, eval=pairs)
        found = self.succeeds("evaluate", "--model", model, "--data", pairs).json()
        self.assertEqual(found, self.succeeds("evaluate", "--model", model, "--task", "custom", "--data", pairs).json())
        self.assertEqual(found, self.succeeds("evaluate", "--model", model, "--data", pairs, "--text-column", "2", "3").json())
        self.refuses(["evaluate", "--model", model, "--data", pairs, "--text-column", "a"], "was fine-tuned on pairs of texts")
        answers = self.succeeds("predict", "--model", model, "--input", pairs).out
        self.assertEqual(answers, self.succeeds("predict", "--model", model, stdin="".join(f"{a}\t{b}\n" for _, a, b in rows)).out)
        self.refuses(["predict", "--model", model, "--input", pairs, "--text-column", "a"], "was fine-tuned on pairs of texts")

    def test_a_model_of_single_texts_refuses_pairs(self):
        model = self.trained()
        pairs = write_rows(self.folder / "pairs.tsv", ("label", "a", "b"), [("pro", "good", "film")])
        self.refuses(["evaluate", "--model", model, "--data", pairs, "--text-column", "a", "b"], "was fine-tuned on single texts")

    def test_more_than_two_text_columns_are_joined(self):
        rows = sentiment_rows(24, 4)
        def cut(text):
            words = text.split()
            return [words[0], "", " ".join(words[1:])]
        three = write_rows(self.folder / "three.tsv", ("label", "a", "b", "c"), [(label, *cut(text)) for label, text in rows])
        whole = write_rows(self.folder / "whole.tsv", ("label", "text"), rows)
        self.trained("--text-columns", "a", "b", "c", train=three, eval=three, precision="fp64")
        model = self.folder / "run" / "model"
        self.succeeds(*self.finetune_words(self.folder / "start", output="whole", train=whole, eval=whole, max_steps=2,
                                           num_train_epochs=None, precision="fp64"))
        self.assertEqual((model / "model.safetensors").read_bytes(), (self.folder / "whole" / "model" / "model.safetensors").read_bytes())
        measured = [self.succeeds("evaluate", "--model", folder, "--data", data).json()["loss"]
                    for folder, data in ((model, three), (self.folder / "whole" / "model", whole))]
        self.assertEqual(measured[0], measured[1])
        self.assertEqual(self.succeeds("predict", "--model", model, "--input", three).out,
                         self.succeeds("predict", "--model", model, stdin="".join(text + "\n" for text in sentences(rows))).out)


class Slips(ProgramTest):
    """Tables that are not quite what the options say."""

    def few(self, **options):
        return self.finetune_words(self.folder / "model" if (self.folder / "model").exists() else self.model(),
                                   **{"max_steps": 1, "num_train_epochs": None, "eval": None, **options})

    def table(self, name, rows, header=("label", "text")):
        return write_rows(self.folder / name, header, rows)

    def test_a_format_that_is_given_holds_whatever_the_files_name(self):
        model, rows = self.model(), sentiment_rows(12)
        for name, format, text in (("rows.json", "jsonl", "".join(json.dumps({"label": a, "text": b}) + "\n" for a, b in rows)),
                                   ("rows.tsv.xz", "tsv", "label\ttext\n" + "".join(f"{a}\t{b}\n" for a, b in rows))):
            (self.folder / name).write_text(text)
            self.succeeds(*self.few(train=self.folder / name, output=name + ".run"), "--format", format)
            more = ["--header"] if format == "tsv" else []
            self.succeeds("tokenize", "--tokenizer", model, "--input", self.folder / name, "--format", format, "--text-column", "text",
                          "--output", self.folder / (name + ".tokens"), *more)
        (self.folder / "array.json").write_text(json.dumps([{"label": a, "text": b} for a, b in rows]))
        self.refuses(self.few(train=self.folder / "array.json", output="a"), "to_json(orient=")
        self.refuses([*self.few(train=self.folder / "array.json", output="a"), "--format", "jsonl"], "array.json:1", "to_json(orient=")

    def test_semicolons_separate_where_the_first_rows_show_it(self):
        rows = sentiment_rows(24)
        german = self.folder / "german.csv"
        german.write_text("ID;Text;Bewertung\n" + "".join(f"7;{text}, gut;{label}\n" for label, text in rows))
        result = self.succeeds(*self.few(train=german, eval=german), "--text-column", "Text", "--label-column", "Bewertung")
        self.assertEqual(result.err.count("german.csv: semicolons separate the columns"), 1)
        plain = self.folder / "plain.txt"
        plain.write_text("".join(f"{text}, gut\n" for _, text in rows))
        model = self.folder / "run" / "model"
        expected = self.succeeds("predict", "--model", model, "--input", plain).out
        self.assertEqual(self.succeeds("predict", "--model", model, "--input", german).out, expected)
        self.assertEqual(self.succeeds("predict", "--model", model, "--input", german, "--no-header", "--text-column", 2).out.splitlines()[1:],
                         expected.splitlines())
        self.refuses([*self.few(train=german), "--text-column", "Texts", "--label-column", "Bewertung"], "did you mean \"Text\"?")

    def test_a_decimal_comma_is_named(self):
        rows = self.table("rows.tsv", [("1,5", "film"), ("2,25", "book")])
        self.refuses([*self.few(train=rows), "--regression"], "rows.tsv:2", "a decimal point, not a comma")

    def test_a_column_cannot_be_both_text_and_label(self):
        for columns in (["--text-column", "label"], ["--text-column", "text", "text"], ["--text-column", 1]):
            self.refuses([*self.few(), *columns], "is given twice")

    def test_a_number_that_is_another_columns_name_is_refused(self):
        rows = self.table("rows.tsv", sentiment_rows(8), header=("0", "1"))
        self.refuses([*self.few(train=rows), "--label-column", 1, "--text-column", 2], "rows.tsv:1: which column is 1?", "calls the 2. column so")
        good = self.table("good.tsv", sentiment_rows(8), header=("1", "2"))
        self.succeeds(*self.few(train=good), "--label-column", 1, "--text-column", 2)

    def test_the_classes_are_told_with_their_rows(self):
        rows = [("good", "film")] * 3 + [("good ", "film")] * 2 + [("Good", "book"), ("very bad", "old"), ("1", "a"), ("1.0", "b")]
        told = self.succeeds(*self.few(train=self.table("rows.tsv", rows))).err
        self.assertIn('6 classes: 1 (1 rows), 1.0 (1), Good (1), good (3), "good " (2), very bad (1)', told)
        self.assertIn('the classes "1" and "1.0" differ only by blanks, case or the form of a number', told)
        self.assertIn('the classes "Good" and "good" and "good " differ only', told)
        usual = self.succeeds(*self.few(output="usual")).err
        self.assertIn("2 classes: contra (32 rows), pro (32)", usual)
        for phrase in ("differ only", "an id?", "have no text"):
            self.assertNotIn(phrase, usual)
        ids = self.table("ids.tsv", [(f"id{i}", "film") for i in range(12)])
        told = self.succeeds(*self.few(train=ids, output="ids")).err
        self.assertIn("each of the 12 classes has one row; is the label column an id?", told)
        self.assertIn("id8 (1), …" if "id8 (1), …" in told else "id7 (1), …", told)

    def test_rows_without_text_are_told_and_refused_where_none_has_any(self):
        rows = [("a", "film"), ("b", ""), ("b", " "), ("a", "book")]
        self.assertIn("2 of 4 rows have no text", self.succeeds(*self.few(train=self.table("rows.tsv", rows))).err)
        none = self.table("none.tsv", [("a", ""), ("b", "")])
        self.refuses(self.few(train=none, output="none"), "none.tsv: no row has a text", "--text-column")

    def test_missing_values_and_a_header_among_the_rows_are_told(self):
        rows = self.table("rows.tsv", [("a", "film"), ("nan", "book"), ("None", "old"), ("a", "nan"), ("a", "null"), ("b", "nan film")])
        told = self.succeeds(*self.few(train=rows, eval=rows)).err
        self.assertIn('rows.tsv: there is a class "nan"; pandas and Excel write missing values so', told)
        self.assertEqual(told.count("the text of 2 of 6 rows is only"), 2)
        self.assertIn("first in row 4: was the text missing?", told)
        predict = ["predict", "--model", self.folder / "run" / "model"]
        told = self.succeeds(*predict, stdin="film\nnan\nnan film\nnull\n").err
        self.assertIn("standard input: the text of 2 of 4 rows is only", told)
        self.assertIn("first in line 2: was the text missing?", told)
        self.assertNotIn("was the text missing", self.succeeds(*predict, stdin="film\nnan film\n").err)
        told = self.succeeds(*self.few(train=rows, output="plain"), "--no-header", "--label-column", 1, "--text-column", 2).err
        self.assertIn('the first row alone has the label "label": is it a header? Then leave out --no-header', told)

    def test_files_of_other_makers_are_not_replaced(self):
        model, rows, own = self.model(extra_shapes=CLASSIFIER), self.table("rows.tsv", [("a", "film book")]), self.folder / "own"
        for words in (["predict", "--model", model, "--input", rows], ["vectors", "--input", rows, "--text-column", "text", "--min-count", 1]):
            own.write_text("mine")
            self.refuses([*words, "--output", own], "there is a file already", "--overwrite")
            self.assertEqual(own.read_text(), "mine")
            self.succeeds(*words, "--output", own, "--overwrite")
            self.assertNotIn("mine", own.read_text())
        own = self.folder / "other"  # beside `own` lies what vectors has noted
        own.write_text("mine")
        self.refuses(["augment", "--model", model, "--task", "custom", "--input", rows, "--output", own], "augment did not write it")
        self.succeeds(*self.few())
        words = ["report", "--input", self.folder / "run", "--output"]
        self.refuses([*words, own], "it is no page of funicular report")
        self.assertEqual(own.read_text(), "mine")
        for _ in range(2):
            self.succeeds(*words, self.folder / "page.html")

    def test_a_corpus_of_one_document_has_no_next_sentences(self):
        model = self.model()
        one, several = self.store(model, "\n".join(["good film book"] * 40), "one.tokens"), self.store(model)
        words = ["pretrain", "--model", model, "--output", self.folder / "out", "--max-steps", 1, "--max-length", 16, "--objective"]
        for more in (["--train", one], ["--train", several, one], ["--train", several, "--eval", one]):
            self.refuses([*words, "mlm-nsp", *more], "one.tokens", "there is one document", "blank line")
        self.succeeds(*words, "mlm-sop", "--train", one)
        told = self.succeeds("mask", "--tokenizer", model, "--data", one, "--objective", "mlm-nsp", "--sequences", 10)
        self.assertIn("there is one document", told.err)
        self.assertIn("follows: 10 sequences, 100.0 %", told.out)

    def test_mask_tells_what_pairs_are(self):
        model = self.model()
        for objective, names in (("mlm-nsp", {"follows", "of another document"}), ("mlm-sop", {"in order", "swapped"})):
            found = self.succeeds("mask", "--tokenizer", model, "--data", self.folder / "text.tokens" if objective == "mlm-sop" else self.store(model),
                                  "--objective", objective, "--sequences", 60, "--show", "--examples", 60, "--json").json()
            self.assertLessEqual(names, set(found["pairs"]))
            for name, counts in found["pairs"].items():
                self.assertEqual(counts["sequences"], sum(line.endswith(f"  ({name})") for line in found["examples"]))
            self.assertAlmostEqual(sum(counts["share"] for counts in found["pairs"].values()), 1)

    def test_unknown_tokens_are_told_before_a_training(self):
        model = self.model()
        store = self.store(model, "\u4e2d \u6587 film\n\n\u4e2d \u6587 book")
        for words in (["pretrain", "--model", model, "--train", store, "--output", self.folder / "out", "--max-steps", 1, "--max-length", 16],
                      ["mask", "--tokenizer", model, "--data", store]):
            self.assertIn("many tokens are unknown (67 %)", self.succeeds(*words).err)

    def test_an_electra_begins_with_a_bert_and_says_so(self):
        model = self.model()
        words = ["pretrain", "--model", model, "--train", self.store(model), "--output", self.folder / "out", "--max-steps", 1, "--max-length", 16]
        self.assertIn("is a BERT: its embeddings and layers are the start of an ELECTRA, and its heads are left out",
                      self.succeeds(*words, "--objective", "electra").err)


class Numbers(ProgramTest):
    """Regression."""

    def files(self):
        return {"train": write_rows(self.folder / "numbers.tsv", ("label", "text"), numbers(96, 1)),
                "eval": write_rows(self.folder / "more-numbers.tsv", ("label", "text"), numbers(32, 2))}

    def test_are_learnt_measured_and_predicted(self):
        files = self.files()
        found = self.succeeds(*self.finetune_words(self.model(), **files, num_train_epochs=30), "--regression").json()
        self.assertGreater(found["pearson"], 0.9)
        self.assertGreater(found["spearmanr"], 0.9)
        model = self.folder / "run" / "model"
        config = json.loads((model / "config.json").read_text())
        self.assertEqual((config["problem_type"], len(config["id2label"])), ("regression", 1))
        measured = self.succeeds("evaluate", "--model", model, "--data", files["eval"]).json()
        for name in ("pearson", "spearmanr", "mean_absolute_error", "loss"):
            self.assertAlmostEqual(measured[name], found[name], places=5)
        rows = numbers(32, 2)
        lines = self.succeeds("predict", "--model", model, stdin="".join(text + "\n" for text in sentences(rows))).out
        values = [json.loads(line)["value"] for line in lines.splitlines()]
        errors = [abs(value - float(label)) for value, (label, _) in zip(values, rows, strict=True)]
        self.assertAlmostEqual(sum(errors) / 32, measured["mean_absolute_error"], places=4)
        self.assertAlmostEqual(sum(error * error for error in errors) / 32, measured["loss"], places=4)
        self.refuses(["evaluate", "--model", model, "--task", "sst2", "--data", files["eval"]], "gives a number per text", "--task sst2 needs a model that gives one class per text")
        self.refuses(["evaluate", "--model", model, "--data", files["eval"], "--details"], "--details works only with classes", "--predictions")

    def test_are_refused_as_classes_where_there_are_many(self):
        rows = [(f"{i / 7:.3f}", text) for i, (_, text) in enumerate(sentiment_rows(147))]
        measured = write_rows(self.folder / "measured.tsv", ("label", "text"), rows)
        model = self.model()
        self.refuses(self.finetune_words(model, train=measured, eval=None), "147 different numbers", "--regression")
        comma = write_rows(self.folder / "comma.tsv", ("label", "text"), [(label.replace(".", ","), text) for label, text in rows])
        self.refuses(self.finetune_words(model, train=comma, eval=None), "147 different numbers", "--regression")
        graded = write_rows(self.folder / "graded.tsv", ("label", "text"), [(str(i % 5 / 2), text) for i, (_, text) in enumerate(rows)])
        told = self.succeeds(*self.finetune_words(model, output="graded", train=graded, eval=None, max_steps=1, num_train_epochs=None)).err
        self.assertIn("the labels are 5 numbers", told)
        self.assertIn("--regression learns them as numbers", told)

    def test_of_glue_have_a_task(self):
        rows = [(label, text, "the film is good") for label, text in numbers(16, 1)]
        data = write_rows(self.folder / "sts.tsv", ("score", "sentence1", "sentence2"), rows)
        found = self.succeeds(*self.finetune_words(self.model(), task="stsb", train=data, eval=data, max_steps=2, num_train_epochs=None)).json()
        self.assertLessEqual({"pearson", "spearmanr", "loss"}, set(found))


class Losses(ProgramTest):
    """Class weights and label smoothing, beside their formulas: of a model that answers its bias, whatever the text."""

    BIAS = [0.0, 1.0]

    def first_loss(self, *more):
        """Of one step over 6 rows of class 0 and 2 of class 1."""
        model = self.model(extra_shapes=CLASSIFIER, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0) \
            if not (self.folder / "model").exists() else self.folder / "model"
        weights = random_weights({**encoder_shapes(), **CLASSIFIER})
        weights["classifier.weight"] = ([2, HIDDEN], array.array("f", [0] * 2 * HIDDEN))
        weights["classifier.bias"] = ([2], array.array("f", self.BIAS))
        write_safetensors(model / "model.safetensors", weights)
        rows = write_rows(self.folder / "few.tsv", ("label", "text"), [("a", "film")] * 6 + [("b", "good film")] * 2)
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        words = self.finetune_words(model, train=rows, eval=rows, max_steps=1, num_train_epochs=None, precision="fp64", learning_rate=1e-30)
        return self.succeeds(*words, *more).json()

    def test_are_the_weighted_and_smoothed_means(self):
        import math
        total = sum(math.exp(value) for value in self.BIAS)
        a, b = (-math.log(math.exp(value) / total) for value in self.BIAS)
        plain = (6 * a + 2 * b) / 8
        found = self.first_loss()
        self.assertAlmostEqual(found["last_loss"], plain, places=6)
        weighted = self.first_loss("--class-weights", 1, 4)
        self.assertAlmostEqual(weighted["last_loss"], (6 * a + 4 * 2 * b) / (6 + 4 * 2), places=6)
        self.assertAlmostEqual(weighted["loss"], plain, places=6)  # of the evaluation
        balanced = self.first_loss("--class-weights", "balanced")
        self.assertAlmostEqual(balanced["last_loss"], (a + b) / 2, places=6)
        smoothed = self.first_loss("--label-smoothing", 0.2)
        self.assertAlmostEqual(smoothed["last_loss"], 0.8 * plain + 0.2 * (a + b) / 2, places=6)
        self.assertAlmostEqual(smoothed["loss"], plain, places=6)

    def test_are_refused_where_they_make_no_sense(self):
        words = self.finetune_words(self.model())
        self.refuses([*words, "--class-weights", 1, 2, 3], "there are 2 classes", "found 3 weights")
        self.refuses([*words, "--class-weights", "heavy", 1], "expects numbers above 0, or balanced")
        told = self.succeeds(*self.finetune_words(self.folder / "model", output="told", max_steps=1, num_train_epochs=None), "--class-weights", 1, 4)
        self.assertIn("class weights: contra 1, pro 4", told.err)
        self.refuses([*words, "--label-smoothing", 1], "--label-smoothing must be at least 0")
        for kind in ("--multi-label", "--regression"):
            file = write_rows(self.folder / "numbers.tsv", ("label", "text"), numbers(8, 1))
            rows = self.finetune_words(self.folder / "model", output=kind.strip("-"), train=file, eval=file)
            self.refuses([*rows, kind, "--label-smoothing", 0.1], "--label-smoothing works only with one class per text or per word", kind)


class Details(ProgramTest):
    def test_the_rows_are_not_replaced_by_the_answers(self):
        data = write_rows(self.folder / "test.tsv", ("label", "text"), sentiment_rows(4))
        before = data.read_bytes()
        model = self.model(extra_shapes=CLASSIFIER)
        words = ["evaluate", "--model", model, "--task", "custom", "--data", data]
        self.refuses([*words, "--predictions", self.folder / "." / "test.tsv"], "is the file that is evaluated")
        self.assertEqual(data.read_bytes(), before)

    def test_of_an_evaluation_are_the_scores_of_each_class_and_the_saved_answers(self):
        self.succeeds(*self.finetune_words(self.model(), max_steps=12, num_train_epochs=None))
        rows = sentiment_rows(40, 2)[:33]
        data, answers = write_rows(self.folder / "test.tsv", ("label", "text"), rows), self.folder / "answers.jsonl"
        words = ["evaluate", "--model", self.folder / "run" / "model", "--data", data]
        found = self.succeeds(*words, "--details", "--predictions", answers).json()
        lines = [json.loads(line) for line in answers.read_text().splitlines()]
        self.assertEqual([line["row"] for line in lines], list(range(1, 34)))
        self.assertEqual([line["label"] for line in lines], [label for label, _ in rows])
        predicted = [json.loads(line) for line in self.succeeds("predict", "--model", self.folder / "run" / "model", "--input", data).out.splitlines()]
        self.assertEqual([line["predicted"] for line in lines], [answer["label"] for answer in predicted])
        for line, answer in zip(lines, predicted):
            self.assertAlmostEqual(line["score"], answer["score"], places=5)
        names = ["contra", "pro"]
        matrix = [[sum(line["label"] == truth and line["predicted"] == answer for line in lines) for answer in names] for truth in names]
        self.assertEqual(found["confusion_matrix"], matrix)
        for at, name in enumerate(names):
            given, support = sum(row[at] for row in matrix), sum(matrix[at])
            expected = {"precision": matrix[at][at] / given if given else 0, "recall": matrix[at][at] / support,
                        "f1": 2 * matrix[at][at] / (given + support), "support": support}
            for key, value in expected.items():
                self.assertAlmostEqual(found["classes"][name][key], value, places=9)
        self.assertNotIn("classes", self.succeeds(*words).json())
        self.refuses([*words, "--predictions", self.folder / "none" / "answers"], "there is no folder")


class Told(ProgramTest):
    """What is said while a run goes on."""

    def test_evaluations_are_told_as_they_happen(self):
        result = self.succeeds(*self.finetune_words(self.model(), max_steps=6, num_train_epochs=None, eval_steps=2))
        lines = re.findall(r"evaluation at step (\d) of 6: (.*); (.*)", result.err)
        written = [json.loads(line) for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines() if "eval_loss" in line]
        self.assertEqual([int(step) for step, _, _ in lines], [2, 4, 6])
        best = None
        for (step, metrics, remark), record in zip(lines, written, strict=True):
            shown = dict(part.rsplit(" ", 1) for part in metrics.split(", "))
            self.assertEqual({f"eval_{name}": f"{float(value):.4f}" for name, value in shown.items()},
                             {name: f"{value:.4f}" for name, value in record.items() if name.startswith("eval_")})
            key = (record["eval_accuracy"], -record["eval_loss"])
            if best is None or key > best[0]:
                best = (key, step)
                self.assertEqual(remark, "the best so far")
            else:
                self.assertEqual(remark, f"best accuracy so far {best[0][0]:.4f}, at step {best[1]}")

    def test_the_precision_is_chosen_where_none_is_given(self):
        classifier = self.model("classifier", extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]})
        train, held_out = self.custom_files()
        lines = self.folder / "lines.txt"
        lines.write_text("the film\n\nthe plot is good\n")
        training = ["--max-steps", 1, "--batch-size", 2, "--max-length", 16]
        for words in (["predict", "--model", classifier, "--input", lines],
                      ["evaluate", "--model", classifier, "--task", "custom", "--data", held_out],
                      ["finetune", "--model", self.model(), "--task", "custom", "--train", train, "--output", self.folder / "tuned", *training],
                      ["pretrain", "--model", self.model("plain"), "--train", lines, "--output", self.folder / "trained", *training]):
            # Not by the harness, which asks for fp32 where tests ask for nothing.
            done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=300, check=False, env=environment())
            self.assertRegex(done.stderr, r"precision: (fp32|bf16), .* \(--precision auto\)", words[0])

    def test_the_steps_are_told_before_the_first(self):
        words = self.finetune_words(self.model(), batch_size=16, gradient_accumulation_steps=2, warmup_steps=2)
        self.assertIn("a batch of 16 sequences = 8 × 2 accumulated, 4 steps per epoch, 12 in all, learning rate 0.005, linear, warm-up 2 steps",
                      self.succeeds(*words).err)

    def test_a_folder_of_other_things_is_told(self):
        (self.folder / "run").mkdir()
        words = self.finetune_words(self.model(), max_steps=1, num_train_epochs=None)
        self.assertNotIn("other files", self.succeeds(*words).err)
        (self.folder / "else").mkdir()
        (self.folder / "else" / "notes.txt").write_text("mine")
        words[words.index("--output") + 1] = self.folder / "else"
        self.assertIn("is a folder with other files", self.succeeds(*words).err)
        words[words.index("--max-steps") + 1] = 2
        self.assertNotIn("other files", self.succeeds(*words).err)

    def test_an_early_stop_is_told(self):
        words = self.finetune_words(self.model(), num_train_epochs=50, eval_steps=1, patience=2, learning_rate=1e-30)
        result = self.succeeds(*words)
        self.assertIn("stopped early, at step 3 of", result.err)
        self.assertIn("accuracy has not improved in 2 evaluations (--patience 2); the best is 0.", result.err)

    def test_an_early_stop_agrees_with_the_evaluations_before_it(self):
        words = self.finetune_words(self.model(), num_train_epochs=50, eval_steps=1, patience=2, learning_rate=1e-6)
        said = self.succeeds(*words).err
        evaluations = re.findall(r"evaluation at step (\d+) of \d+: accuracy ([\d.]+), .*; (the best so far|.*)", said)
        metric, best, step = re.search(r"(\w+) has not improved in 2 evaluations .*; the best is ([\d.]+), the model that of step (\d+)", said).groups()
        self.assertEqual((metric, float(best)), ("accuracy", max(float(value) for _, value, _ in evaluations)))
        self.assertEqual(step, [at for at, _, remark in evaluations if remark == "the best so far"][-1])
        self.assertEqual({value for _, value, _ in evaluations[-3:]}, {best}, "what did not improve")

    def test_messages_begin_with_the_time_where_there_is_no_terminal(self):
        words = self.finetune_words(self.model(), max_steps=1, num_train_epochs=None)
        lines = self.succeeds(*words).err.splitlines()
        self.assertTrue(lines)
        for line in lines:
            self.assertRegex(line, r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S|^  ")
        message = run("predict", "--model", "none", env={**environment(), "FUNICULAR_LOG_TIMES": "off"}).err
        self.assertTrue(message.startswith("error: "), message)

    def test_a_finished_run_with_other_settings_is_refused_in_one_line(self):
        words = self.finetune_words(self.model(), max_steps=3, num_train_epochs=None)
        self.succeeds(*words)
        words[words.index("--learning-rate") + 1] = "0.001"
        message = self.refuses(words, "is finished, with other settings: learning_rate was 0.005 and is 0.001; another --output").err
        self.assertEqual(len([line for line in message.splitlines() if "finished" in line]), 1)
        self.assertNotIn("{", message)

    def test_a_run_that_was_interrupted_is_not_called_finished(self):
        words = self.finetune_words(self.model(), max_steps=6, num_train_epochs=None, save_steps=4)
        self.succeeds(*words)
        for leftover in ("checkpoints/step-000006", "model"):
            shutil.rmtree(self.folder / "run" / leftover)
        words[words.index("--max-steps") + 1] = "3"
        message = self.refuses(words, "has taken 4 steps, as many as are asked for or more, with other settings: max_steps was 6 and is 3").err
        self.assertNotIn("is finished", message)

    def test_a_run_that_stopped_early_is_finished_too(self):
        words = self.finetune_words(self.model(), num_train_epochs=50, eval_steps=1, patience=2, learning_rate=1e-30)
        self.succeeds(*words)
        words[words.index("--learning-rate") + 1] = "0.001"
        self.refuses(words, "is finished, with other settings: learning_rate was 1e-30 and is 0.001")

    def test_a_resume_does_not_say_that_training_begins(self):
        model = self.model()
        store = self.store(model)
        words = ["pretrain", "--model", model / "config.json", "--tokenizer", model, "--train", store, "--output", self.folder / "run",
                 "--max-length", 24, "--batch-size", 8]
        self.assertIn("training starts from random ones", self.succeeds(*words, "--max-steps", 2).err)
        again = self.succeeds(*words, "--max-steps", 4).err
        self.assertIn("resumed from", again)
        self.assertNotIn("random ones", again)

    def test_a_usage_error_is_told_once_whatever_the_number_of_ranks(self):
        for words in (["--no-such-option"], ["--model", self.folder / "absent"]):
            result = run("launch", "-n", 3, "--", PROGRAM, *self.finetune_words(self.model() if not (self.folder / "model").exists()
                                                                                else self.folder / "model"), *words)
            self.assertEqual(result.code, 2, result.err)
            phrase = "no-such-option" if "--no-such-option" in words else "--model is given twice"
            self.assertEqual(result.err.count(phrase), 1, result.err)
        words = self.finetune_words(self.folder / "model", train=self.folder / "absent.tsv")
        result = run("launch", "-n", 3, "--", PROGRAM, *words)
        self.assertEqual(result.code, 2, result.err)
        self.assertEqual(result.err.count("absent.tsv"), 1, result.err)
        alone = run(*words, "--no-such-option", env={**environment(), "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1",
                                                       "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"})
        self.assertEqual((alone.code, alone.err), (2, ""))

    @counting
    def test_techniques_end_with_how_long_they_took(self):
        result = self.succeeds("bench", "techniques", "--model", self.model(), "--steps", 1, "--batch-size", 2, "--max-length", 32)
        self.assertRegex(result.err, r"bench techniques  done in \d+:\d\d")


class DiskSpace(ProgramTest):
    def test_is_asked_for_before_the_first_step(self):
        disk = self.folder / "disk"
        disk.mkdir()
        inside = f"mount -t tmpfs -o size=128k none '{disk}' && exec \"$@\""
        if subprocess.run(["unshare", "-rm", "sh", "-c", inside, "sh", "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no file system can be mounted here")
        words = self.finetune_words(self.model(), max_steps=400, num_train_epochs=None)
        words[words.index("--output") + 1] = disk / "run"
        words[words.index("--train") + 1] = write_rows(self.folder / "few.tsv", ("label", "text"), sentiment_rows(4))
        words[words.index("--eval") + 1] = self.folder / "few.tsv"
        done = subprocess.run(["unshare", "-rm", "sh", "-c", inside, "sh", PROGRAM, *map(str, words)], capture_output=True, text=True,
                              check=False, env=environment())
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("do not fit. Free some space", done.stderr)
        self.assertNotIn("evaluation at step", done.stderr)


if __name__ == "__main__":
    unittest.main()
