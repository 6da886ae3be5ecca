"""What the options of tokenize, doctor and completion do."""

import re

from harness import HIDDEN, VOCABULARY, WORDS, array, json, pathlib, run, write_model

from .lab import *

TOKENIZE, DOCTOR, COMPLETION = Table(), Table(), Table()
TABLE = [("one", "two", "three"), ("film", "pro", "song"), ("book", "contra", "old")]

for table in (TOKENIZE, DOCTOR, COMPLETION):
    table.row("--help", "the options are listed")(shows_help)


def tabs(rows):
    return "".join("\t".join(row) + "\n" for row in rows)


# ---- tokenize


class Store:
    def __init__(self, folder):
        self.folder = folder
        self.meta = json.loads((folder / "meta.json").read_text())
        read = lambda name, kind: array.array(kind, (folder / name).read_bytes())
        words = [VOCABULARY[number] for number in read("tokens.bin", "H")]
        bounds = read("rows.bin", "Q")
        self.rows = [" ".join(words[begin:end]) for begin, end in zip(bounds, bounds[1:])]  # of pairs each text
        self.documents = list(read("documents.bin", "Q"))
        kind = {"classes": "i", "sets": "i", "values": "d"}.get(self.meta["labels"]["kind"])
        self.labels = list(read("labels.bin", kind)) if kind else None
        if self.meta["labels"]["kind"] == "sets":
            ends = read("label_rows.bin", "Q")
            self.sets = [self.labels[begin:end] for begin, end in zip(ends, ends[1:])]


def tokenize(lab, text, *words, more=(), output=None):
    """The store of an input of this text, and of `more`."""
    path = lab.folder / "in.txt"
    path.write_text(text)
    output = output or lab.folder / f"{len(list(lab.folder.glob('*.tokens')))}.tokens"
    lab.succeeds("tokenize", "--tokenizer", lab.plain_model(), "--output", output, *words, "--input", path, *more)
    return Store(output)


def table_words(text="one", label=None):
    return ["--format", "tsv", "--header", "--text-column", text, *(["--label-column", label] if label else [])]


@TOKENIZE.row("--tokenizer", "its vocabulary gives the tokens")
def tokenizer(lab):
    lab.assertEqual(tokenize(lab, "film book\n").rows, ["film book"])
    other = lab.once("other", lambda path: write_model(path, vocabulary=VOCABULARY[:-len(WORDS)]))
    lab.succeeds("tokenize", "--tokenizer", other, "--input", lab.folder / "in.txt", "--output", lab.folder / "letters.tokens")
    lab.assertEqual(Store(lab.folder / "letters.tokens").rows, ["f ##i ##l ##m b ##o ##o ##k"])


@TOKENIZE.row("--input", "the files, and those in the folders, are what is tokenised, in order")
def inputs(lab):
    folder = lab.folder / "texts"
    (folder / "below").mkdir(parents=True)
    for name, text in (("a.txt", "film"), ("below/b.txt", "book"), (".hidden.txt", "song"), ("z.txt", "old")):
        (folder / name).write_text(text + "\n")
    lab.assertEqual(tokenize(lab, "good\n", more=[folder]).rows, ["good", "film", "book", "old"])
    # Links to files and folders are followed, also in a circle; a file that is named twice is told of.
    linked = lab.folder / "linked"
    linked.mkdir()
    (linked / "far").symlink_to(folder)
    (linked / "self").symlink_to(linked)
    (linked / "z.txt").symlink_to(folder / "a.txt")
    lab.assertEqual(tokenize(lab, "good\n", more=[linked]).rows, ["good", "film", "book", "old", "film"])
    said = lab.succeeds("tokenize", "--tokenizer", lab.plain_model(), "--output", lab.folder / "twice.tokens",
                        "--input", folder, folder / "a.txt", folder / "below" / ".." / "z.txt").err
    lab.assertIn(f"--input names 2 of 3 files more than once, the first of them {folder / 'a.txt'}", said)
    (linked / "lost.txt").symlink_to(linked / "nothing.txt")
    lab.refuses(["tokenize", "--tokenizer", lab.plain_model(), "--input", linked, "--output", lab.folder / "x.tokens"],
                "lost.txt is a link to a file that is not there")


@TOKENIZE.row("--output", "the store lies there")
def output(lab):
    lab.assertEqual(tokenize(lab, "film\n", output=lab.folder / "my.store").rows, ["film"])


@TOKENIZE.row("--overwrite", "a store that is there is replaced; without it, it is left")
def overwrite(lab):
    place = lab.folder / "place.tokens"
    tokenize(lab, "film\n", output=place)
    (lab.folder / "in.txt").write_text("book\n")
    words = ["tokenize", "--tokenizer", lab.plain_model(), "--input", lab.folder / "in.txt", "--output", place]
    lab.refuses(words, "--overwrite")
    lab.assertEqual(Store(place).rows, ["film"])
    lab.succeeds(*words, "--overwrite")
    lab.assertEqual(Store(place).rows, ["book"])


@TOKENIZE.row("--task", "columns, labels and class names are the task's")
def task(lab):
    store = tokenize(lab, "x\t1\t*\tfilm\nx\t0\t*\tbook\n", "--task", "cola")
    lab.assertEqual((store.rows, store.labels, store.meta["labels"]["names"]), (["film", "book"], [1, 0], ["unacceptable", "acceptable"]))
    store = tokenize(lab, "sentence\tlabel\nfilm\t0\nbook\t1\n", "--task", "sst2")
    lab.assertEqual((store.rows, store.meta["labels"]["names"]), (["film", "book"], ["negative", "positive"]))


@TOKENIZE.row("--separate-columns", "more than two columns stay apart, which are one text without it")
def separate_columns(lab):
    words = ["--format", "tsv", "--no-header", "--text-column", 3, 1, 2]
    store = tokenize(lab, "film\tbook\tsong\nold\tbad\tfilm book\n", *words, "--separate-columns")
    lab.assertEqual((store.meta["columns"], store.rows), (3, ["song", "film", "book", "film book", "old", "bad"]))
    lab.assertEqual(tokenize(lab, "film\tbook\tsong\n", *words).rows, ["song film book"])


@TOKENIZE.row("--format", "the file is read as that")
def file_format(lab):
    text = "film\nbook\n\nsong\n"
    lab.assertEqual(tokenize(lab, text, "--format", "text").documents, [0, 2, 3])
    lab.assertEqual(tokenize(lab, text, "--format", "lines").documents, [0, 1, 2, 3])
    lab.assertEqual(tokenize(lab, "film\tbook\n", "--format", "tsv", "--no-header", "--text-column", 2).rows, ["book"])
    lab.assertEqual(tokenize(lab, "film,book\n", "--format", "csv", "--no-header", "--text-column", 2).rows, ["book"])
    lab.assertEqual(tokenize(lab, '{"text": "old"}\n', "--format", "jsonl").rows, ["old"])


@TOKENIZE.row("--text-column", "the texts are those of that column, or of two")
def text_column(lab):
    for column, words in (("one", ["film", "book"]), ("3", ["song", "old"])):
        lab.assertEqual(tokenize(lab, tabs(TABLE), *table_words(column)).rows, words)
    pairs = tokenize(lab, tabs(TABLE), *table_words("one"), "three")
    lab.assertEqual((pairs.meta["columns"], pairs.rows), (2, ["film", "song", "book", "old"]))
    joined = tokenize(lab, tabs(TABLE), *table_words("one"), "two", "three")
    lab.assertEqual((joined.meta["columns"], joined.rows), (1, ["film p ##r ##o song", "book c ##o ##n ##t ##r ##a old"]))


@TOKENIZE.row("--label-column", "the labels are those of that column")
def label_column(lab):
    for column, names in (("two", ["contra", "pro"]), ("three", ["old", "song"])):
        store = tokenize(lab, tabs(TABLE), *table_words("one", column))
        lab.assertEqual((store.meta["labels"]["names"], store.labels), (names, [1, 0]))
    lab.assertIsNone(tokenize(lab, tabs(TABLE), *table_words("one")).labels)


@TOKENIZE.row("--label-type", "classes have numbers, a set has any number of them, values are numbers")
def label_type(lab):
    rows = tabs([("1.5", "film"), ("-2", "book")])
    words = ["--format", "tsv", "--no-header", "--text-column", 2, "--label-column", 1, "--label-type"]
    lab.assertEqual(tokenize(lab, rows, *words, "value").labels, [1.5, -2])
    store = tokenize(lab, rows, *words, "class")
    lab.assertEqual((store.labels, store.meta["labels"]["names"]), ([1, 0], ["-2", "1.5"]))
    store = tokenize(lab, tabs([("b, a", "film"), ("", "book"), ("b", "song")]), *words, "set")
    lab.assertEqual((store.sets, store.meta["labels"]["names"]), ([[0, 1], [], [1]], ["a", "b"]))


@TOKENIZE.row("--label-separator", "what stands between the labels of a set")
def label_separator(lab):
    words = ["--format", "tsv", "--no-header", "--text-column", 2, "--label-column", 1, "--label-type", "set"]
    for more, names in ((["--label-separator", "|"], ["a", "b"]), ([], ["a|b"])):
        lab.assertEqual(tokenize(lab, tabs([("a|b", "film")]), *words, *more).meta["labels"]["names"], names)


@TOKENIZE.row("--label-names", "the classes have the numbers of that order, and others are refused")
def label_names(lab):
    store = tokenize(lab, tabs(TABLE), *table_words("one", "two"), "--label-names", "pro", "none", "contra")
    lab.assertEqual((store.labels, store.meta["labels"]["names"]), ([0, 2], ["pro", "none", "contra"]))
    words = ["tokenize", "--tokenizer", lab.plain_model(), "--input", lab.folder / "in.txt", "--output", lab.folder / "x.tokens"]
    lab.refuses([*words, *table_words("one", "two"), "--label-names", "pro", "none"], "contra")


@TOKENIZE.row("--header", "the first row names the columns; without it, it is data")
def header(lab):
    for words, rows in (([], ["film", "book"]), (["--header"], ["film", "book"]), (["--no-header"], ["o ##n ##e", "film", "book"])):
        lab.assertEqual(tokenize(lab, tabs(TABLE), "--format", "tsv", "--text-column", 1, *words).rows, rows)


def word_starts(store):
    bits = (store.folder / "words.bin").read_bytes()
    return "".join(str(bits[place // 8] >> place % 8 & 1) for place in range(store.meta["tokens"]))


def chinese(lab):
    vocabulary = [token if not token.isdigit() else "中国人民研究生命起源"[int(token)] for token in VOCABULARY]
    return lab.once("chinese", lambda path: write_model(path, vocabulary=vocabulary))


def chinese_starts(lab, text, *words):
    path, output = lab.folder / "chinese.txt", lab.folder / f"{len(list(lab.folder.glob('*.tokens')))}.tokens"
    path.write_text(text)
    lab.succeeds("tokenize", "--tokenizer", chinese(lab), "--input", path, "--output", output, *words)
    return word_starts(Store(output))


@TOKENIZE.row("--words", "blanks alone begin words, or what the tokenizer says")
def words(lab):
    text = "中国 人民 goods，\u3000研究 生命\n起源 film ab\n"
    lab.assertEqual(chinese_starts(lab, text), "1111" + "101" + "1111" + "11" + "1" + "10")
    lab.assertEqual(chinese_starts(lab, text, "--words", "presegmented"), "1010" + "100" + "1010" + "10" + "1" + "10")


@TOKENIZE.row("--word-refs", "the positions that a line names continue a word")
def word_refs(lab):
    refs = lab.folder / "refs.txt"
    refs.write_text("[2, 4]\n[]\n[ 3 ]\n")
    lab.assertEqual(chinese_starts(lab, "中国人民\n研究\n\nfilm 生命\n", "--word-refs", refs), "1010" + "11" + "110")
    words = ["tokenize", "--tokenizer", chinese(lab), "--input", lab.folder / "chinese.txt", "--output", lab.folder / "x.tokens",
             "--word-refs", refs]
    for text, phrase in (("[2]\n[]\n", "expected a line of references for each of the 3 rows of the input, found 2"),
                         ("[2]\n[0]\n[]\n", f'{refs}:2: expected a JSON list of positions of at least 1, found "[0]"'),
                         ("[2]\n\n[]\n", f"{refs}:2: expected a JSON list"), ("[2]\n[1,]\n[]\n", f"{refs}:2: expected a JSON list"),
                         ("[]\n[3]\n[]\n", "chinese.txt:2"), ("", "found 0")):
        refs.write_text(text)
        lab.refuses(words, phrase)
    lab.refuses([*words, "--skip-bad-rows"], "leave out --skip-bad-rows")


@TOKENIZE.row("--skip-bad-rows", "a row that cannot be read is left out; without it, the command stops there")
def skip_bad_rows(lab):
    text = "film\t1\nbook\nsong\t2\n"
    words = ["--format", "tsv", "--no-header", "--text-column", 1, "--label-column", 2]
    lab.assertEqual(tokenize(lab, text, *words, "--skip-bad-rows").rows, ["film", "song"])
    lab.refuses(["tokenize", "--tokenizer", lab.plain_model(), "--input", lab.folder / "in.txt", "--output", lab.folder / "x.tokens", *words],
                "in.txt:2")


@TOKENIZE.row("--threads", "so many threads tokenise, and the store is the same")
def tokenize_threads(lab):
    text = lab.folder / "much.txt"
    text.write_text("good film bad book very old\n" * 100000)
    stores = {}
    for count in (1, 4):
        stores[count] = lab.folder / f"by-{count}.tokens"
        words = ["tokenize", "--tokenizer", lab.plain_model(), "--input", text, "--output", stores[count], "--threads", count]
        lab.assertEqual(lab.most_threads([*words, "--overwrite"], 1 + count), 1 + count)
    lab.assertEqual(*[(store / "tokens.bin").read_bytes() for store in stores.values()])


@TOKENIZE.row("--config", "a file's keys are options")
def tokenize_config(lab):
    path = config_file(lab, 'format = "lines"\n')
    lab.assertEqual(tokenize(lab, "film\nbook\n", "--config", path).documents, [0, 1, 2])


@TOKENIZE.row("--verify", "a store is compared with its checksums, and nothing is made")
def verified(lab):
    store = tokenize(lab, "good film\n\nbad book\n").folder
    before = {path.name: path.read_bytes() for path in store.iterdir()}
    lab.assertIn("verified: 2 rows", lab.succeeds("tokenize", "--verify", store).out)
    lab.assertEqual({path.name: path.read_bytes() for path in store.iterdir()}, before)
    damage(store)
    lab.assertIn("tokens.bin", run("tokenize", "--verify", store).err)


def damage(store):
    """Flips a bit of the first token."""
    content = bytearray((store / "tokens.bin").read_bytes())
    content[0] ^= 1
    (store / "tokens.bin").write_bytes(content)


# ---- doctor and completion


def findings(lab, *words, code=0):
    """check -> what is said of it"""
    result = run("doctor", *words)
    lab.assertEqual(result.code, code, result.out)
    return {line.split()[1]: line for line in result.out.splitlines()}


@DOCTOR.row("--model", "that folder is checked")
def checked_model(lab):
    found = findings(lab, "--output", lab.folder, "--model", lab.plain_model())
    lab.assertIn(str(lab.plain_model()), found["model"])
    lab.assertIn(f"2 layers, hidden {HIDDEN}", found["config"])
    lab.assertNotIn("model", findings(lab, "--output", lab.folder))
    alone = findings(lab, "--output", lab.folder, "--model", lab.plain_model() / "config.json")
    lab.assertIn("without weights", alone["model"])
    lab.assertIn("a step needs", alone["step"])
    lab.assertNotIn("weights", alone)
    lab.assertIn("FAIL", findings(lab, "--output", lab.folder, "--model", lab.folder / "none", code=1)["model"])
    lab.assertEqual(findings(lab, lab.plain_model(), "--output", lab.folder)["config"], found["config"])


@DOCTOR.row("--data", "that store is verified, and has to be of the model's tokeniser")
def checked_data(lab):
    store = lab.tokenized("checked", ["good film", "bad book"])
    words = ("--output", lab.folder, "--model", lab.plain_model(), "--data", store)
    lab.assertIn("2 rows", findings(lab, *words)["store"])
    lab.assertNotIn("store", findings(lab, *words[:4]))
    damage(store)
    lab.assertIn("FAIL", findings(lab, *words, code=1)["store"])


@DOCTOR.row("--output", "that folder is written to")
def checked_output(lab):
    lab.assertIn(str(lab.folder), findings(lab, "--output", lab.folder)["writing"])
    lab.assertIn(str(pathlib.Path.cwd()), findings(lab)["writing"])


def needs(lab, *words, check="step"):
    """What a step is said to need, in MiB, of all ranks together, and the line that says so."""
    line = findings(lab, "--output", lab.folder, "--model", lab.plain_model(), *words)[check]
    (size, unit), = re.findall(r"([\d.]+) ([GM])iB(?: together)?:", line)
    return float(size) * {"M": 1, "G": 1024}[unit], line


@DOCTOR.row("--ranks", "what each layout of so many ranks needs is told")
def checked_ranks(lab):
    ddp, line = needs(lab, "--ranks", 2, check="ddp")
    lab.assertIn("2 ranks need", line)
    lab.assertGreater(ddp, needs(lab, "--ranks", 2, check="zero3")[0])
    lab.assertGreater(ddp, needs(lab)[0])


@DOCTOR.row("--batch-size", "of so many sequences")
def checked_batch(lab):
    few, line = needs(lab, "--batch-size", 8)
    lab.assertIn("8 sequences of 64 tokens in fp32", line)
    lab.assertGreater(needs(lab, "--batch-size", 512)[0], 2 * few)


@DOCTOR.row("--max-length", "of so many tokens each")
def checked_length(lab):
    lab.assertGreater(needs(lab, "--batch-size", 512)[0], 1.2 * needs(lab, "--batch-size", 512, "--max-length", 32)[0])


@DOCTOR.row("--precision", "in that arithmetic")
def checked_precision(lab):
    lab.assertGreater(needs(lab, "--precision", "fp64")[0], 1.3 * needs(lab)[0])


@DOCTOR.row("--recompute", "activations are computed again")
def checked_recompute(lab):
    lab.assertGreater(needs(lab, "--batch-size", 512)[0], needs(lab, "--batch-size", 512, "--recompute", "full")[0])


@DOCTOR.row("--device", "cuda is refused where there is none")
def checked_device(lab):
    lab.assertIn("CPU", findings(lab, "--output", lab.folder, "--device", "cpu")["device"])
    if not lab.has_gpu():
        lab.refuses(["doctor", "--device", "cuda"], "--device cuda")


@DOCTOR.row("--threads", "LibTorch has so many threads")
def checked_threads(lab):
    for count in (1, 3):
        lab.assertIn(f"{count} of ", findings(lab, "--output", lab.folder, "--threads", count)["threads"])


@DOCTOR.row("--config", "a file's keys are options")
def checked_config(lab):
    path = config_file(lab, "threads = 3\n")
    lab.assertIn("3 of ", findings(lab, "--output", lab.folder, "--config", path)["threads"])


@COMPLETION.row("--config", "a file is read; completion has no options that it could give")
def completion_config(lab):
    lab.assertEqual(lab.succeeds("completion", "bash", "--config", config_file(lab, "")).out, lab.succeeds("completion", "bash").out)
    lab.refuses(["completion", "bash", "--config", config_file(lab, "threads = 1\n")], "unknown option --threads")
