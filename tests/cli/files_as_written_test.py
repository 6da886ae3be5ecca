"""Files as other programs write them: quotes, encodings, line ends, byte-order marks, and files of another kind than the one expected."""

import csv
import io
import os
import shutil

from harness import *

CLASSIFIER = {"classifier.weight": [2, HIDDEN], "classifier.bias": [2]}
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4665bf1f4ea0bf3a1e5c7f0d2b7e5d0c1f0e9d8c7b6a594837261504f3e2d1c0\nsize 90888945\n"
ZERO_BYTES = bytes(4096)
OTHERS = {"a Git LFS pointer": (LFS, "git lfs pull"), "a web page": (b"<!DOCTYPE html>\n<html><body>Sign in</body></html>\n", "download the file itself"),
          "a Parquet file": (b"PAR1\x15\x04\x15", "read_parquet"), "an Arrow file": (b"ARROW1\0\0", "read_feather"),
          "an Excel file": (b"PK\x03\x04" + bytes(22) + b"\x13\0\0\0[Content_Types].xml", "read_excel"),
          "a PDF file": (b"%PDF-1.7\n", "pdftotext"), "filled with zero bytes": (ZERO_BYTES, "take it from its source again")}


class WrittenFiles(ProgramTest):
    def classifier(self):
        if not (self.folder / "classifier").exists():
            self.model("classifier", extra_shapes=CLASSIFIER, id2label={"0": "ham", "1": "spam"}, label2id={"ham": 0, "spam": 1})
        return self.folder / "classifier"

    def encoder(self):
        return self.folder / "model" if (self.folder / "model").exists() else self.model()

    def put(self, name, data):
        path = self.folder / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def finetune(self, train, *words):
        return self.succeeds(*self.finetune_words(self.encoder(), train=train, eval=None, max_steps=1, num_train_epochs=None), *words)

    def rows_of_store(self):
        return sum(json.loads(path.read_text())["rows"] for path in self.folder.glob("run/data/train-*/meta.json"))


class Quotes(WrittenFiles):
    def stray(self):
        rows = [f"{'spam' if number % 2 else 'ham'},good film {number}" for number in range(40)]
        rows[2] = 'ham,a 5" film'
        return rows

    def test_one_stray_quote_costs_one_row_and_it_is_told_with_its_line(self):
        told = "left out 1 row that could not be read:\n  {}:4: column 2: a quote within an unquoted field"
        path = self.put("train.csv", "label,text\n" + "\n".join(self.stray()) + "\n")
        words = self.finetune_words(self.encoder(), train=path, eval=None, max_steps=1, num_train_epochs=None)
        self.refuses(words, "train.csv:4: column 2: a quote within an unquoted field", "--quotes none", "--skip-bad-rows")
        self.assertIn(told.format(path), self.finetune(path, "--skip-bad-rows").err)
        self.assertEqual(self.rows_of_store(), 39)
        tokens = ["tokenize", "--tokenizer", self.encoder(), "--input", path, "--header", "--text-column", "text"]
        skipped = self.succeeds(*tokens, "--output", self.folder / "a.tokens", "--skip-bad-rows").err
        self.assertIn("39 rows", skipped)
        self.assertIn(told.format(path), skipped)
        self.assertIn("40 rows", self.succeeds(*tokens, "--output", self.folder / "b.tokens", "--quotes", "none").err)
        measured = self.succeeds("evaluate", "--model", self.classifier(), "--task", "custom", "--data", path, "--skip-bad-rows").json()
        self.assertEqual((measured["samples"], measured["left_out"]), (39, 1))
        answers = self.succeeds("predict", "--model", self.classifier(), "--input", path, "--skip-bad-rows").out.splitlines()
        self.assertEqual([number for number, line in enumerate(answers) if "error" in json.loads(line)], [2])
        self.assertEqual(len(answers), 40)

    def test_an_open_quote_costs_its_line_and_is_named_by_it(self):
        rows = self.stray()
        rows[2], rows[30] = 'ham,"never closed', 'ham,"two\nlines"'
        text = "label,text\n" + "\n".join(rows) + "\n"
        path = self.put("train.csv", text)
        self.refuses(["evaluate", "--model", self.classifier(), "--task", "custom", "--data", path],
                     "train.csv:4: column 2: a quote is opened and never closed")
        for source in (["--input", path], ["--format", "csv"]):
            answers = self.succeeds("predict", "--model", self.classifier(), "--skip-bad-rows", *source, stdin=text).out.splitlines()
            self.assertEqual((len(answers), sum("error" in json.loads(line) for line in answers)), (40, 1))
        longer = self.put("longer.csv", text.replace('"two\nlines"', '"two\nlines",more'))
        self.assertIn("left out 2 rows (3 lines) that could not be read", self.finetune(longer, "--skip-bad-rows").err)
        self.assertEqual(self.rows_of_store(), 38)

    def test_tsv_of_pandas_is_read_as_csv_reads_it_and_glues_as_it_stands(self):
        texts = ['he said "good"', '"a" b', "two\nlines", "a\ttab", "plain"]
        written = io.StringIO()
        csv.writer(written, delimiter="\t", lineterminator="\n").writerows([("label", "text"), *zip(("ham", "spam", "ham", "spam", "ham"), texts)])
        path = self.put("pandas.tsv", written.getvalue())
        said = self.finetune(path).err
        self.assertIn("pandas.tsv: fields in quotes are read as in CSV, as its rows show; --quotes none", said)
        lines = self.put("lines.jsonl", "".join(json.dumps({"label": "ham", "text": text}) + "\n" for text in texts))
        words = ["predict", "--model", self.classifier(), "--input"]
        self.assertEqual(self.succeeds(*words, path).out, self.succeeds(*words, lines).out)
        glue = self.put("glue.tsv", 'label\ttext\nham\t"He left , " she said\nspam\t"never closed\n')
        plain = self.put("glue.jsonl", json.dumps({"text": '"He left , " she said'}) + "\n" + json.dumps({"text": '"never closed'}) + "\n")
        self.assertEqual(self.succeeds(*words, glue).out, self.succeeds(*words, plain).out)
        self.assertIn("glue.tsv: quotes are read as text, as its rows show; --quotes csv", self.succeeds(*words, glue).err)


class Encodings(WrittenFiles):
    def test_the_likely_one_is_named_with_the_option_that_reads_it(self):
        chinese = "label,text\n" + "好,今天天气很好\n坏,我爱北京大学\n" * 4
        western = "label,text\nham,naïve café\nspam,it’s a “film”\n"
        for name, text, encoding in (("GB18030", chinese, "gb18030"), ("UTF-16", chinese, "utf-16"), ("UTF-16LE", chinese, "utf-16-le"),
                                     ("WINDOWS-1252", western, "cp1252")):
            with self.subTest(name):
                path, plain = self.put("train.csv", text.encode(encoding)), self.put("plain.csv", text)
                words = ["predict", "--model", self.classifier(), "--input"]
                self.refuses([*words, path], "train.csv:" if encoding != "utf-16" else "train.csv", f"--encoding {name} converts it while it is read")
                self.assertEqual(self.succeeds(*words, path, "--encoding", name).out, self.succeeds(*words, plain).out)
        err = self.refuses([*words, self.put("train.csv", "text\nпривет как дела\n".encode("cp1251"))], "--encoding NAME").err
        self.assertNotIn("probably", err)

    def test_bytes_that_do_not_convert_are_named_by_their_line(self):
        path = self.put("train.csv", "label,text\n好,今天\n坏,".encode("gb18030") + b"\xff\n" + "好,很好\n".encode("gb18030"))
        words = ["predict", "--model", self.classifier(), "--input", path, "--encoding", "GB18030"]
        self.refuses(words, "train.csv:3: expected GB18030, found bytes behind byte 4 of the row that are no character of it")
        self.assertEqual(["error" in json.loads(line) for line in self.succeeds(*words, "--skip-bad-rows").out.splitlines()], [False, True, False])


class LineEnds(WrittenFiles):
    def test_cr_cr_lf_and_cr_alone_are_line_ends(self):
        text = "text,label\ngood film,ham\nbad film,spam\n"
        expected = self.finetune(self.put("lf.csv", text)).err.count("tokenised")
        for name, end in (("crcrlf", "\r\r\n"), ("cr", "\r")):
            shutil.rmtree(self.folder / "run")
            done = self.finetune(self.put(f"{name}.csv", text.replace("\n", end)))
            self.assertEqual(done.err.count("tokenised"), expected)
            self.assertEqual(json.loads((self.folder / "run" / "model" / "config.json").read_text())["label2id"], {"ham": 0, "spam": 1})
            self.assertEqual("lines end in CR alone" in done.err, name == "cr")
        words = ["predict", "--model", self.classifier()]
        expected = self.succeeds(*words, stdin="good film\nbad\n").out
        for end in ("\r\r\n", "\r\n", "\r"):
            done = self.succeeds(*words, stdin=f"good film{end}bad{end}")
            self.assertEqual(done.out, expected, repr(end))
            self.assertEqual("standard input: its lines end in CR alone" in done.err, end == "\r", repr(end))

    def test_a_stream_whose_first_lines_alone_end_in_cr_is_refused(self):
        done = run("predict", "--model", self.classifier(), stdin="good film\r" * 8000 + "bad\n")
        self.assertEqual(done.code, 2, done.err)
        self.assertIn("standard input: its first lines end in CR alone, and a later one in LF", done.err)

    def test_a_carriage_return_elsewhere_is_refused_and_shown(self):
        path = self.put("train.csv", "text,label\ngood film,ham\rbad\nbad film,spam\n")
        words = self.finetune_words(self.encoder(), train=path, eval=None)
        self.refuses(words, "train.csv:2: column 2: a carriage return (CR) inside a line")
        quoted = self.put("train.csv", 'text,label\ngood film,"ham\r"\nbad film,spam\n')
        self.assertIn('expected the name of a class, found "ham\\r" with a control character', self.refuses(words, f"{quoted}:2").err)


class OtherFiles(WrittenFiles):
    def test_are_called_by_name_where_texts_tables_lists_weights_and_settings_are_read(self):
        rows = write_rows(self.folder / "rows.tsv", ("label", "text"), [("ham", "film"), ("spam", "book")])
        model, name = self.classifier(), str(self.folder / "other")
        tokenize = ["tokenize", "--tokenizer", model, "--output", self.folder / "x.tokens"]
        augment = ["augment", "--model", model, "--task", "custom", "--input", rows, "--output", self.folder / "more.tsv"]
        mask = ["mask", "--tokenizer", model, "--input", self.put("text.txt", "good film\n")]
        readers = {"text": [*tokenize, "--input"], "table": ["evaluate", "--model", model, "--task", "custom", "--format", "tsv", "--data"],
                   "lines": ["predict", "--model", model, "--input"], "tags": ["finetune", "--model", model, "--task", "tags", "--output", self.folder / "r", "--train"],
                   "stop words": [*augment, "--stop-words"], "options": [*tokenize, "--input", rows, "--config"],
                   "references": [*tokenize, "--input", self.folder / "text.txt", "--word-refs"],
                   "lexicon": [*mask, "--masking", "entity", "--lexicon"], "new words": ["vocabulary", "extend", "--model", model, "--output", self.folder / "v", "--words"],
                   "chain": ["chain"]}
        for kind, (data, remedy) in OTHERS.items():
            path = self.put("other", data)
            for reader, words in readers.items():
                with self.subTest(kind=kind, reader=reader):
                    self.refuses([*words, path], f"{name} is {kind}", remedy)
        (model / "tokenizer_config.json").write_text("{}")
        for file in ("model.safetensors", "config.json", "vocab.txt", "tokenizer_config.json"):
            for kind, (data, remedy) in OTHERS.items():
                with self.subTest(kind=kind, file=file):
                    kept = (model / file).read_bytes()
                    (model / file).write_bytes(data)
                    self.refuses(["predict", "--model", model], f"{file} is {kind}", remedy, stdin="film\n")
                    (model / file).write_bytes(kept)

    def test_zero_bytes_within_a_table_or_as_a_whole_line_make_a_bad_row(self):
        for name, data, place in (("rows.csv", b"text\ngood film\nbad \0\0\n", "rows.csv:3: expected text, found a zero byte as byte 5"),
                                  ("rows.txt", b"good film\nbad \0 book\n" + bytes(20), "rows.txt:3: expected text, found a zero byte as byte 1")):
            self.refuses(["predict", "--model", self.classifier(), "--input", self.put(name, data)], place)


WRITE_COLUMNS = """
import datetime, json, pathlib, sys
import pyarrow, pyarrow.feather, pyarrow.parquet
folder, rows = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
table = pyarrow.Table.from_pylist(rows)
table = table.append_column("at", pyarrow.array([datetime.datetime(2024, 1, 2, 3, 4, 5)] * len(rows), pyarrow.timestamp("ns")))
table = table.append_column("__index_level_0__", pyarrow.array(range(len(rows))))
table = table.set_column(0, "text", table["text"].dictionary_encode())
pyarrow.parquet.write_table(table, folder / "a.parquet", row_group_size=7)
pyarrow.feather.write_feather(table, folder / "b.feather")
with pyarrow.ipc.new_stream(folder / "c.arrow", table.schema) as stream:  # as datasets keeps them
    stream.write_table(table)
"""


class ColumnarFiles(WrittenFiles):
    def setUp(self):
        super().setUp()
        python = os.environ.get("FUNICULAR_PYTHON", "")
        if subprocess.run([python or "python3", "-c", "import pyarrow"], capture_output=True, check=False).returncode:
            self.skipTest("pyarrow is not installed")
        rows = [{"text": text.replace(" ", ' "\n\u00e9 ', 1), "label": "spam" if number % 2 else "ham", "stars": number, "share": number / 4 or None,
                 "sure": number % 3 == 0, "words": text.split(), "shares": {"ham": 0.25, "spam": float("nan") if number else 0.75}}
                for number, (_, text) in enumerate(sentiment_rows(24))]
        subprocess.run([python or "python3", "-c", WRITE_COLUMNS, self.folder, json.dumps(rows)], check=True)
        for row in rows:
            row["shares"]["spam"] = 0.75 if row is rows[0] else None
            row["at"] = "2024-01-02 03:04:05"
        self.put("lines.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        self.names = ("a.parquet", "b.feather", "c.arrow")

    def test_have_the_rows_that_json_lines_have(self):
        found = []
        for name in ("lines.jsonl", *self.names):
            file = self.folder / name
            trained = self.succeeds("finetune", file, "--model", self.encoder(), "--text-column", "text", "--label-column", "label", "--output", self.folder / "run",
                                    "--max-steps", 2, "--max-length", 16).json()
            model = self.folder / "run" / "model"
            kept = self.succeeds("predict", "--model", model, "--input", file, "--keep", "text", "stars", "share", "sure", "words", "shares", "at").out
            found.append((trained["loss"], self.succeeds("evaluate", "--model", model, "--input", file).json()["loss"], kept))
            shutil.rmtree(self.folder / "run")
        for name, other in zip(self.names, found[1:]):
            self.assertEqual(other, found[0], name)
        self.assertIn('"stars": 23', found[0][2])

    def test_are_refused_by_name(self):
        predict = ["predict", "--model", self.classifier(), "--input"]
        broken = self.put("broken.parquet", (self.folder / "a.parquet").read_bytes()[:900])
        self.refuses([*predict, broken], f"{broken}: pyarrow cannot read it as a table: ArrowInvalid", "footer")
        for name, line in (("a.parquet", "read_parquet"), ("b.feather", "read_feather"), ("c.arrow", "Dataset.from_file")):
            self.refuses([*predict, self.folder / name], f"{line}('{self.folder / name}')", "pip install pyarrow", env={**environment(), "FUNICULAR_PYTHON": "/no/python"})
        self.refuses([*predict, self.folder / "a.parquet", "--text-column", "txt"], 'a.parquet:1: the key "txt" is missing')
        self.refuses([*predict, self.folder / "a.parquet", "--format", "csv"], "are read as JSON lines, but the format is csv")
        numbers = self.succeeds(*predict, self.folder / "a.parquet", "--keep", "__index_level_0__").out
        self.assertNotRegex(numbers, '"__index_level_0__": [0-9]', "pandas' row numbers are no column")


class ByteOrderMarks(WrittenFiles):
    def test_are_no_part_of_any_list_or_settings(self):
        model, mark = self.classifier(), b"\xef\xbb\xbf"
        rows = self.put("rows.tsv", mark + b"label\ttext\nham\tgood film\n")
        guesser = self.model("guesser", extra_shapes={"cls.predictions.bias": [len(VOCABULARY)]})
        for name, data in {"stop.txt": "good\nfilm\n", "words.txt": "goodfilm\n", "options.toml": "seed = 7\n", "refs.txt": "[]\n",
                           "dictionary.txt": "good 3\n", "weights.txt": "good\t2\n", "lexicon.txt": "good film\n"}.items():
            self.put(name, mark + data.encode())
        tokenize = ["tokenize", "--tokenizer", model, "--input", self.put("text.txt", "good film\n"), "--overwrite", "--output", self.folder / "t.tokens"]
        self.succeeds(*tokenize, "--word-refs", self.folder / "refs.txt", "--config", self.put("empty.toml", mark + b"overwrite = true\n"))
        self.assertIn('"added":1', self.succeeds("vocabulary", "extend", "--model", guesser, "--output", self.folder / "v", "--words", self.folder / "words.txt").out)
        mask = ["mask", "--tokenizer", model, "--input", self.folder / "text.txt", "--json"]
        self.succeeds(*mask, "--masking", "entity", "--lexicon", self.folder / "lexicon.txt", "--config", self.folder / "options.toml")
        for file in ("config.json", "vocab.txt"):
            (model / file).write_bytes(mark + (model / file).read_bytes())
        self.assertEqual(len(self.succeeds("predict", "--model", model, "--input", rows).out.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
