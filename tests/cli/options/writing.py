"""What --encoding and --quotes do, of every command that reads texts or tables."""

import json

from . import answering, augmenting, comparing, distilling, masking, own, tokenizing, vocabulary
from .lab import *

ENCODING = "the input is converted from that encoding while it is read"
QUOTES = "csv: fields in quotes are read as in CSV; none: quotes are text; auto: as the rows of TSV show"


def put(lab, name, text, encoding="utf-8"):
    path = lab.folder / name
    path.write_bytes(text.encode(encoding))
    return path


def wide(lab, text, ending="txt"):
    """The text in UTF-16, which is refused without the option, and with it read as this text in UTF-8."""
    return put(lab, f"wide.{ending}", text, "utf-16"), put(lab, f"plain.{ending}", text)


def rows_for(*lines):
    return "label\ttext\n" + "".join(line + "\n" for line in lines)


@tokenizing.TOKENIZE.row("--encoding", ENCODING)
def tokenized_encoding(lab):
    path = put(lab, "chinese.txt", "good film\n", "utf-16-le")
    words = ["tokenize", "--tokenizer", lab.plain_model(), "--output", lab.folder / "wide.tokens", "--input", path]
    lab.refuses(words, "the file is in UTF-16LE", "--encoding UTF-16LE")
    lab.refuses([*words, "--encoding", "UTF-61"], "this system has no such encoding; iconv -l")
    lab.succeeds(*words, "--encoding", "UTF-16LE")
    lab.assertEqual(tokenizing.Store(lab.folder / "wide.tokens").rows, ["good film"])


@tokenizing.TOKENIZE.row("--quotes", QUOTES)
def tokenized_quotes(lab):
    def rows(text, *words):
        return tokenizing.tokenize(lab, text, "--format", "tsv", "--no-header", "--text-column", 1, *words).rows
    everywhere, somewhere = '"film"\tpro\n"book"\tcontra\n', '"film"\tpro\nbook\tcontra\n'
    for text, words, quoted in ((everywhere, [], True), (everywhere, ["--quotes", "none"], False), (somewhere, [], False),
                                (somewhere, ["--quotes", "auto"], False), (somewhere, ["--quotes", "csv"], True)):
        lab.assertEqual(rows(text, *words) == ["film", "book"], quoted, (text, words))


@masking.MASK.row("--encoding", ENCODING)
def masked_encoding(lab):
    path, plain = wide(lab, "film book\nsong\n")
    words = ["mask", "--tokenizer", lab.plain_model(), "--json", "--input"]
    lab.refuses([*words, path], "--encoding UTF-16")
    lab.assertEqual(lab.succeeds(*words, path, "--encoding", "UTF-16").out, lab.succeeds(*words, plain).out)


@vocabulary.PROPOSE.row("--encoding", ENCODING)
def proposed_encoding(lab):
    path, plain = wide(lab, "films films films films films films\n")
    words = ["vocabulary", "propose", "--model", vocabulary.model(lab), "--input"]
    lab.refuses([*words, path], "--encoding UTF-16")
    lab.assertEqual(lab.succeeds(*words, path, "--encoding", "UTF-16").out, lab.succeeds(*words, plain).out)


@comparing.COMPARE.row("--encoding", ENCODING)
def compared_encoding(lab):
    path, plain = wide(lab, "good film\n\nbad book\n")
    lab.refuses(comparing.words(lab, files=[path]), "--encoding UTF-16")
    scores = [comparing.compare(lab, *more, files=[file]) for file, more in ((path, ["--encoding", "UTF-16"]), (plain, []))]
    lab.assertEqual(*[[{**score, "text": ""} for score in each] for each in scores])


def trains(table):
    @table.row("--encoding", ENCODING)
    def trained_encoding(lab):
        path, _ = wide(lab, rows_for("pro\tfilm good", "contra\tbook bad"), "tsv")
        lab.refuses_to_train("wide.tsv: the file is in UTF-16", "--encoding UTF-16", train=path)
        run = lab.train(train=path, batch_size=2, optim="sgd", encoding="UTF-16")
        lab.assertEqual(own.read_words(run), {"film", "good", "book", "bad"})

    @table.row("--quotes", QUOTES)
    def trained_quotes(lab):
        path = put(lab, "quoted.tsv", rows_for('pro\t"film\tgood"', "contra\tbook bad"))
        for quotes in ("auto", "csv"):
            run = lab.train(train=path, batch_size=2, optim="sgd", quotes=quotes)
            lab.assertEqual(own.read_words(run), {"film", "good", "book", "bad"})
        lab.assertIn("fields in quotes are read as in CSV", lab.train(train=path, batch_size=2, optim="sgd", quotes="auto").err)
        lab.refuses_to_train("quoted.tsv:2: expected 2 tab-separated columns as in the header, found 3", train=path, quotes="none")


trains(own.FINETUNE)
trains(distilling.DISTILL)


@augmenting.VECTORS.row("--encoding", ENCODING)
def vectors_encoding(lab):
    path, plain = wide(lab, "cat sea\ndog sun\n")
    lab.refuses(["vectors", "--input", path, "--output", lab.folder / "unmade.txt"], "--encoding UTF-16")
    lab.assertEqual(augmenting.trained(lab, "--encoding", "UTF-16", source=path), augmenting.trained(lab, source=plain))


@augmenting.VECTORS.row("--quotes", QUOTES)
def vectors_quotes(lab):
    path = put(lab, "quoted.tsv", rows_for('pro\t"cat\tsea"'))
    lab.assertEqual(set(augmenting.trained(lab, "--text-column", "text", source=path)), {"cat", "sea"})
    lab.refuses(["vectors", "--input", path, "--output", lab.folder / "unmade.txt", "--text-column", "text", "--quotes", "none"], "found 3")


@augmenting.AUGMENT.row("--encoding", ENCODING)
def augmented_encoding(lab):
    path, plain = wide(lab, rows_for(*("\t".join(row) for row in augmenting.ROWS)), "tsv")
    lab.assertEqual(augmenting.augment(lab, "--encoding", "UTF-16", data=path), augmenting.augment(lab, data=plain))


@augmenting.AUGMENT.row("--quotes", QUOTES)
def augmented_quotes(lab):
    path = put(lab, "quoted.tsv", rows_for('1\t"good\told film"', "0\tbook"))
    output = lab.folder / "more.tsv"
    words = ["augment", "--model", augmenting.guesser(lab), "--task", "custom", "--input", path, "--output", output, "--variants", 2]
    lab.refuses([*words, "--quotes", "none"], "quoted.tsv:2", "found 3")
    counts = lab.succeeds(*words).json()
    lab.assertEqual(counts["rows"], 2)
    lab.assertIn('1\t"good\told film"\n', output.read_text())


@answering.EVALUATE.row("--encoding", ENCODING)
def evaluated_encoding(lab):
    path, plain = wide(lab, rows_for("pro\tfilm", "contra\tbook"), "tsv")
    lab.assertEqual(answering.evaluate(lab, "--encoding", "UTF-16", data=path), answering.evaluate(lab, data=plain))


@answering.EVALUATE.row("--quotes", QUOTES)
def evaluated_quotes(lab):
    path, plain = put(lab, "quoted.tsv", rows_for('pro\t"film\tgood"', "contra\tbook")), put(lab, "blank.tsv", rows_for("pro\tfilm good", "contra\tbook"))
    lab.assertEqual(answering.evaluate(lab, data=path), answering.evaluate(lab, data=plain))
    lab.refuses(["evaluate", "--model", answering.classifier(lab), "--task", "custom", "--data", path, "--quotes", "none"], "quoted.tsv:2")


@answering.PREDICT.row("--encoding", ENCODING)
def answered_encoding(lab):
    for encoding in ("utf-16", "utf-16-be"):
        path = put(lab, "lines.txt", "film\nbook\n", encoding)
        lab.assertEqual(answering.predict(lab, "", "--input", path, "--encoding", encoding), answering.predict(lab, "film\nbook\n"))
    lab.refuses(["predict", "--model", answering.classifier(lab), "--input", path], "--encoding UTF-16BE")
    piped = ["predict", "--model", answering.classifier(lab), "--encoding", "UTF-16LE"]
    out = lab.succeeds(*piped, stdin="film\nbook\n".encode("utf-16-le")).out
    lab.assertEqual([json.loads(line) for line in out.splitlines()], answering.predict(lab, "film\nbook\n"))


@answering.PREDICT.row("--quotes", QUOTES)
def answered_quotes(lab):
    expected = answering.predict(lab, "film book\nsong\n")
    text = 'a\ttext\n1\t"film\tbook"\n2\tsong\n'
    lab.assertEqual(answering.table_answers(lab, "table.tsv", text), expected)
    lab.assertEqual(answering.predict(lab, text, "--format", "tsv"), expected)
    lab.assertEqual(answering.predict(lab, text, "--format", "tsv", "--quotes", "csv"), expected)
    lab.refuses(["predict", "--model", answering.classifier(lab), "--format", "tsv", "--quotes", "none"], "standard input:2", stdin=text)
    lab.assertEqual(answering.table_answers(lab, "table.csv", "text\n5 film\n", "--quotes", "none"), answering.predict(lab, "5 film\n"))
