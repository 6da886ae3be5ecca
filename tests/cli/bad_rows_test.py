"""Rows that cannot be read: refused with the option that goes on without them, or left out, counted and told. And files that are
compressed."""

import bz2
import gzip
import lzma
import shutil

from harness import *

CLASSIFIER = {"classifier.weight": [2, HIDDEN], "classifier.bias": [2]}
HINT = "--skip-bad-rows leaves such rows out"


def table_with(rows, wrong):
    """A TSV of (label, text) in which the lines `wrong`, by number from 1, the header's, stand as they are given."""
    lines = ["label\ttext", *("\t".join(row) for row in rows)]
    for number, line in sorted(wrong.items()):
        lines.insert(number - 1, line)
    return "\n".join(lines) + "\n"


class BadRowsTest(ProgramTest):
    def classifier(self, **changes):
        if not (self.folder / "classifier").exists():
            self.model("classifier", extra_shapes=CLASSIFIER, id2label={"0": "contra", "1": "pro"}, label2id={"contra": 0, "pro": 1}, **changes)
        return self.folder / "classifier"

    def put(self, name, text):
        (self.folder / name).write_text(text)
        return self.folder / name

    def told(self, err, *lines, done="left out"):
        """The message of the rows, which stands in one piece."""
        rows = f"{len(lines)} row" + ("" if len(lines) == 1 else "s")
        self.assertIn(f"{done} {rows} that could not be read:\n" + "".join(f"  {line}" for line in lines), err.replace(str(self.folder) + "/", ""))


class ShortRows(BadRowsTest):
    """Rows as MultiNLI's original files have them: the last of fifteen columns are left out where they would be empty."""

    HEADER = ["gold_label", "parse1", "sentence1", "sentence2", "pairID", *(f"label{number}" for number in range(1, 6))]

    def table(self, name="mnli.tsv", full=False, more=()):
        rows = [(label, f"( {text} )", text, f"the {text}", f"{number}c", *[label] * (5 if full else 1 + number % 5))
                for number, (label, text) in enumerate(sentiment_rows(20))]
        rows = [[*row, *[""] * (len(self.HEADER) - len(row))] if full else row for row in rows]
        return self.put(name, "".join("\t".join(row) + "\n" for row in [self.HEADER, *rows, *more]))

    def words(self, train, output):
        model = self.folder / "model"
        if not model.exists():
            self.model()
        return self.finetune_words(model, output=output, train=train, eval=None, max_steps=3, num_train_epochs=None, precision="fp32",
                                   label_column="gold_label") + ["--text-column", "sentence1", "sentence2"]

    def test_train_the_model_that_whole_rows_train_and_are_told(self):
        short = self.succeeds(*self.words(self.table(), "short"))
        self.assertIn("mnli.tsv: read 16 rows that have fewer columns than the header's 10, but all that are asked for:", short.err)
        self.assertIn("mnli.tsv:2: 6 columns", short.err)
        whole = self.succeeds(*self.words(self.table("whole.tsv", full=True), "whole"))
        self.assertNotIn("fewer columns", whole.err)
        self.assertEqual(*[(self.folder / run / "model" / "model.safetensors").read_bytes() for run in ("short", "whole")])

    def test_with_too_many_columns_or_without_one_that_is_asked_for_are_refused(self):
        for name, row in (("long.tsv", ["pro", *"abcdefghij"]), ("early.tsv", ["pro", "a", "b"])):
            found = f"{name}:22: expected 10 tab-separated columns as in the header, found {len(row)}"
            self.refuses(self.words(self.table(name, more=[row]), "run"), found)

    def test_keep_their_form_when_they_are_answered_and_varied(self):
        source, model = self.table(), self.classifier()
        answers = self.succeeds("predict", "--model", model, "--input", source, "--text-column", "sentence1", "sentence2")
        self.assertEqual(len(answers.out.splitlines()), 20)
        self.assertIn("read 16 rows that have fewer columns", answers.err)


class Training(BadRowsTest):
    def test_goes_on_without_them_and_gives_the_model_of_the_other_rows(self):
        rows, model = sentiment_rows(40), self.model()
        train = self.put("few.tsv", table_with(rows, {3: "pro", 9: "pro\tgood\tfilm", 20: "\tthe film"}))
        held_out = self.put("held.tsv", table_with(rows[:8], {2: "neutral\tthe film"}))
        few = {"max_steps": 4, "num_train_epochs": None, "precision": "fp32"}
        words = self.finetune_words(model, train=train, eval=held_out, **few)
        said = self.refuses(words, "few.tsv:3: expected 2 tab-separated columns as in the header, found 1; " + HINT).err
        self.assertNotIn("few.tsv:9", said)
        skipping = self.succeeds(*words, "--skip-bad-rows")
        self.told(skipping.err, "few.tsv:3: expected 2 tab-separated columns as in the header, found 1\n",
                  "few.tsv:9: expected 2 tab-separated columns as in the header, found 3\n", "few.tsv:20: the label is empty\n")
        self.told(skipping.err, 'held.tsv:2: expected one of the labels contra, pro, found "neutral"\n')
        clean = self.finetune_words(model, output="clean", train=write_rows(self.folder / "a.tsv", ("label", "text"), rows),
                                    eval=write_rows(self.folder / "b.tsv", ("label", "text"), rows[:8]), **few)
        self.assertEqual(self.succeeds(*clean).json()["accuracy"], skipping.json()["accuracy"])
        self.assertEqual(*[(self.folder / run / "model" / "model.safetensors").read_bytes() for run in ("run", "clean")])
        # What was tokenised without them is not what the command without the option reads.
        self.refuses(words, "few.tsv:3")

    def test_only_the_first_few_are_told(self):
        train = self.put("few.tsv", table_with(sentiment_rows(12), {number: "pro" for number in range(2, 10)}))
        err = self.succeeds(*self.finetune_words(self.model(), train=train, eval=None, max_steps=1, num_train_epochs=None), "--skip-bad-rows").err
        self.assertIn("left out 8 rows that could not be read", err)
        self.assertIn("few.tsv:6: ", err)
        self.assertNotIn("few.tsv:7: ", err)
        self.assertIn("\n  and 3 more\n", err)

    def test_a_file_of_nothing_else_is_refused(self):
        train = self.put("few.tsv", "label\ttext\npro\n")
        self.refuses([*self.finetune_words(self.model(), train=train), "--skip-bad-rows"], "few.tsv: no rows that can be read")

    def test_ranks_leave_out_the_same(self):
        train = self.put("few.tsv", table_with(sentiment_rows(24), {3: "pro"}))
        words = self.finetune_words(self.model(), train=train, max_steps=2, num_train_epochs=None)
        launched = self.succeeds("launch", "-n", 2, "--", PROGRAM, *exact([*words, "--skip-bad-rows"]))
        self.assertEqual(launched.err.count("left out 1 row"), 1, launched.err)


class Evaluation(BadRowsTest):
    def test_measures_the_other_rows_and_numbers_answers_as_the_file_does(self):
        model = self.classifier()
        rows = [("pro", "good film"), ("contra", "dull book"), ("pro", "old song")]
        data = self.put("rows.tsv", table_with(rows, {2: "pro", 4: "neutral\tthe film", 6: "a\tb\tc"}))
        words = ["evaluate", "--model", model, "--task", "custom", "--data", data]
        self.refuses(words, "rows.tsv:2: expected 2", HINT)
        found = self.succeeds(*words, "--skip-bad-rows", "--predictions", self.folder / "answers.jsonl", "--output", self.folder / "report")
        self.told(found.err, "rows.tsv:2: expected 2 tab-separated columns as in the header, found 1\n",
                  'rows.tsv:4: expected one of the labels contra, pro, found "neutral"\n',
                  "rows.tsv:6: expected 2 tab-separated columns as in the header, found 3\n")
        clean = self.succeeds("evaluate", "--model", model, "--task", "custom", "--data", write_rows(self.folder / "clean.tsv", ("label", "text"), rows)).json()
        self.assertEqual(found.json(), {**clean, "left_out": 3})
        self.assertNotIn("left_out", clean)
        answers = [json.loads(line) for line in (self.folder / "answers.jsonl").read_text().splitlines()]
        # Rows count from 1, without the header, and those that were left out have numbers, too.
        self.assertEqual([(answer["row"], answer["label"]) for answer in answers], [(2, "pro"), (4, "contra"), (6, "pro")])
        written = json.loads((self.folder / "report" / "evaluation.json").read_text())
        self.assertEqual((written["samples"], written["left_out"], "left_out" in written["metrics"]), (3, 3, False))
        texts = {2: "good film", 4: "dull book", 6: "old song"}
        self.assertTrue(written["mistakes"])
        for wrong in written["mistakes"]:
            self.assertEqual(wrong["texts"], [texts[wrong["row"]]])

    def test_stores_of_tokens_have_none(self):
        model = self.model()
        self.refuses(["evaluate", "--model", model, "--task", "mlm", "--data", self.store(model), "--skip-bad-rows"], "is for files of rows")


class Prediction(BadRowsTest):
    def test_answers_them_by_an_error_in_their_place(self):
        model = self.classifier()
        lines = {"rows.tsv": "id\ttext\n1\tgood film\n2\n3\tdull book\n4\told\tsong\n",
                 "rows.jsonl": '{"text": "good film"}\n{"text": 1\n{"text": "dull book"}\n{"label": "old song"}\n',
                 "rows.csv": 'id,text\n1,good film\n2,"dull" book\n3,dull book\n4\n'}
        expected = [json.loads(line) for line in self.succeeds("predict", "--model", model, stdin="good film\ndull book\n").out.splitlines()]
        for name, text in lines.items():
            path = self.put(name, text)
            first = 2 if name == "rows.jsonl" else 3
            self.refuses(["predict", "--model", model, "--input", path], f"{name}:{first}: ", '--skip-bad-rows answers such rows with {"error": …}')
            for window in (1, 2, 100):
                result = self.succeeds("predict", "--model", model, "--input", path, "--skip-bad-rows", "--window", window)
                answers = [json.loads(line) for line in result.out.splitlines()]
                self.assertEqual(len(answers), 4)
                for given, wanted in zip(answers[::2], expected):
                    self.assertEqual(given["label"], wanted["label"])
                    self.assertAlmostEqual(given["score"], wanted["score"], places=5)
                for line, answer in zip((first, first + 2), answers[1::2]):
                    self.assertEqual(set(answer), {"error"})
                    self.assertTrue(answer["error"].startswith(f"{path}:{line}: "), answer)
            self.assertIn("gave an error instead of an answer to 2 rows that could not be read:\n  " + answers[1]["error"] + "\n  " + answers[3]["error"],
                          result.err)

    def test_lines_and_pairs(self):
        model = self.classifier()
        answers = self.succeeds("predict", "--model", model, "--skip-bad-rows", stdin=b"good film\nd\xe9j\xe0 vu\n\nbook\n").out.splitlines()
        self.assertEqual([set(json.loads(line)) == {"error"} for line in answers], [False, True, False, False])
        self.assertIn("standard input:2: expected UTF-8, found the byte 0xE9", answers[1])
        answers = self.succeeds("predict", "--model", model, "--pairs", "--skip-bad-rows", stdin="a\tb\nalone\n\nx\ty\tz\n").out.splitlines()
        self.assertEqual([json.loads(line).get("error", "").split(": ")[-1] for line in answers],
                         ["", *[f"expected two texts separated by a tab, found {count}" for count in (1, 1, 3)]])
        # What is quoted of a row is not cut within a character.
        answer, = self.succeeds("predict", "--model", model, "--skip-bad-rows", "--format", "csv", "--no-header", "--text-column", 1,
                                stdin='"a"bééééé\n').out.splitlines()
        self.assertIn("after the closing quote", json.loads(answer)["error"])


class Augmentation(BadRowsTest):
    def test_leaves_them_out(self):
        head = {"bias": [len(VOCABULARY)], "transform.dense.weight": [HIDDEN, HIDDEN], "transform.dense.bias": [HIDDEN],
                "transform.LayerNorm.weight": [HIDDEN], "transform.LayerNorm.bias": [HIDDEN]}
        model = self.model("guesser", extra_shapes={"cls.predictions." + key: shape for key, shape in head.items()})
        rows = [("pro", "good film, very long"), ("contra", "the old song")]
        bad = self.put("bad.tsv", table_with(rows, {2: "pro", 4: "a\tb\tc", 6: "contra"}))
        clean = write_rows(self.folder / "clean.tsv", ("label", "text"), rows)

        def words(data, output):
            return ["augment", "--model", model, "--task", "custom", "--input", data, "--output", self.folder / output, "--variants", 3]
        self.refuses(words(bad, "none.tsv"), "bad.tsv:2: expected 2", HINT)
        result = self.succeeds(*words(bad, "bad-more.tsv"), "--skip-bad-rows")
        self.told(result.err, *[f"bad.tsv:{line}: expected 2 tab-separated columns as in the header, found {count}" + ("\n" if line < 6 else "")
                                for line, count in ((2, 1), (4, 3), (6, 1))])
        self.assertEqual(result.json(), self.succeeds(*words(clean, "clean-more.tsv")).json())
        self.assertEqual((self.folder / "bad-more.tsv").read_bytes(), (self.folder / "clean-more.tsv").read_bytes())


def foreign(data):
    """The same bytes as each program packs them whose files are refused: (ending, program that unpacks, bytes)."""
    yield ".bz2", "bunzip2", bz2.compress(data)
    yield ".xz", "unxz", lzma.compress(data)


def packed(data):
    """The same bytes as each program packs them whose files are read: (ending, bytes)."""
    yield ".gz", gzip.compress(data)
    if shutil.which("zstd"):
        yield ".zst", subprocess.run(["zstd", "-c"], input=data, capture_output=True, check=True).stdout


class Compressed(BadRowsTest):
    def test_files_are_refused_with_the_line_that_unpacks_them_wherever_rows_or_texts_are_read(self):
        table = table_with(sentiment_rows(20), {})
        model, encoder = self.classifier(), self.model()
        readers = {"tokenize": (["tokenize", "--tokenizer", model, "--output", self.folder / "x.tokens", "--text-column", 1], "--input"),
                   "mask": (["mask", "--tokenizer", model], "--input"),
                   "vocabulary": (["vocabulary", "propose", "--model", model], "--input"),
                   "vectors": (["vectors", "--output", self.folder / "v.txt"], "--input"),
                   "predict": (["predict", "--model", model], "--input"),
                   "evaluate": (["evaluate", "--model", model, "--task", "custom"], "--data"),
                   "finetune": (self.finetune_words(encoder, train=None), "--train")}
        for ending, program, data in foreign(table.encode()):
            for name, (words, option) in readers.items():
                with self.subTest(command=name, ending=ending):
                    path = self.folder / ("rows.tsv" + ending)
                    path.write_bytes(data)
                    self.refuses([*words, option, path], f"{path} is compressed", f"unpack it first: {program} -k {path}")
                    # Whatever the name says.
                    other = self.folder / "rows.tsv"
                    other.write_bytes(data)
                    self.refuses([*words, option, other], f"{other} is compressed", f"{program} -c < {other} > {other}.txt")
                    other.unlink()

    def test_what_comes_through_a_pipe_is_unpacked_in_it(self):
        for _, program, data in foreign(b"good film\n" * 20):
            self.refuses(["predict", "--model", self.classifier()], "standard input is compressed", f"{program} -c < FILE | funicular", stdin=data)

    def test_the_line_that_is_told_works(self):
        path = self.folder / "rows.tsv.bz2"
        path.write_bytes(bz2.compress(b"id\ttext\n1\tgood film\n"))
        err = self.refuses(["predict", "--model", self.classifier(), "--input", path], "unpack it first").err
        line = err.strip().split("unpack it first: ")[1]
        subprocess.run(["sh", "-c", line], check=True)
        self.assertEqual(len(self.succeeds("predict", "--model", self.classifier(), "--input", self.folder / "rows.tsv").out.splitlines()), 1)

    def test_gzip_and_zstd_give_the_rows_that_the_plain_file_gives(self):
        table = table_with(sentiment_rows(20), {}).encode()
        model, encoder = self.classifier(), self.model()
        (self.folder / "rows.tsv").write_bytes(table)
        predict = ["predict", "--model", model, "--keep", "label", "--input"]
        evaluate = ["evaluate", "--model", model, "--task", "custom", "--data"]
        answers = self.succeeds(*predict, self.folder / "rows.tsv").out
        scores = self.succeeds(*evaluate, self.folder / "rows.tsv").json()
        self.assertEqual(len(answers.splitlines()), 20)
        for ending, data in packed(table):
            path, other = self.folder / ("rows.tsv" + ending), self.folder / "other.tsv"
            for file in (path, other):
                file.write_bytes(data)
            self.assertEqual(self.succeeds(*predict, path).out, answers)
            self.assertEqual(self.succeeds(*predict, other).out, answers)  # whatever the name says
            self.assertEqual(self.succeeds(*predict[:-1], "--format", "tsv", stdin=data).out, answers)
            self.assertEqual(self.succeeds(*evaluate, path).json(), scores)
            self.succeeds(*self.finetune_words(encoder, output="run-" + ending[1:], train=path, eval=path, max_steps=2, num_train_epochs=None))

    def test_compressed_files_that_end_early_are_refused_with_the_byte(self):
        model = self.classifier()
        for ending, data in packed(table_with(sentiment_rows(2000), {}).encode()):
            path = self.folder / ("rows.tsv" + ending)
            path.write_bytes(data[:-4])
            answers = self.folder / "answers.jsonl"
            for words in (["predict", "--model", model, "--input", path, "--output", answers], ["evaluate", "--model", model, "--task", "custom", "--data", path]):
                self.refuses(words, f"{path}: the file ends at byte {len(data) - 4}", "take the whole file from its source again")
            self.assertFalse(answers.exists())

    def test_lists_of_words_and_vectors(self):
        model = self.classifier()
        for name, words in {"words": ["vocabulary", "extend", "--model", model, "--output", self.folder / "bigger", "--words"],
                            "vectors": ["augment", "--model", model, "--task", "custom", "--input", write_rows(self.folder / "in.tsv", ("label", "text"), [("a", "film")]),
                                        "--output", self.folder / "out.tsv", "--stop-words"]}.items():
            path = self.folder / f"{name}.txt.gz"
            path.write_bytes(gzip.compress(b"film\n"))
            self.refuses([*words, path], f"unpack it first: gunzip -k {path}")

    def test_a_text_that_begins_alike_is_a_text(self):
        for text in ("BZh9 is how such a file begins\n", "PK", "7z", "B"):
            self.assertEqual(len(self.succeeds("predict", "--model", self.classifier(), stdin=text).out.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
