"""What the options of augment and vectors do."""

from harness import HIDDEN, VOCABULARY, environment, json, shutil, write_model, write_rows

from .lab import *
from .masking import text_file
from .tokenizing import TABLE, tabs

AUGMENT, VECTORS = Table(), Table()
MEGABYTE = 1 << 20
ROWS = [("1", "good film, the old song"), ("2", "very dull Book"), ("3", "a long song is not fine")]

for table in (AUGMENT, VECTORS):
    table.row("--help", "the options are listed")(shows_help)


def guesser(lab, name="guesser", **changes):
    """A model that guesses hidden words."""
    head = {"bias": [len(VOCABULARY)], "transform.dense.weight": [HIDDEN, HIDDEN], "transform.dense.bias": [HIDDEN],
            "transform.LayerNorm.weight": [HIDDEN], "transform.LayerNorm.bias": [HIDDEN]}
    shapes = {"cls.predictions." + key: shape for key, shape in head.items()}
    return lab.once(name, lambda path: write_model(path, extra_shapes=shapes, **changes))


def rows(lab, name="rows.tsv", texts=ROWS):
    return lab.once(name, lambda path: write_rows(path, ("label", "text"), texts))


def augment(lab, *words, data=None, task="custom", model=None, output=None, variants=4):
    """(the counts, the rows that were written)"""
    output = output or lab.folder / f"out-{len(list(lab.folder.glob('out-*.made.json')))}.tsv"
    more = ["--variants", variants] if variants else []
    counts = lab.succeeds("augment", "--model", model or guesser(lab), "--task", task, "--input", data or rows(lab), "--output", output, *more, *words)
    return counts.json(), [line.split("\t") for line in output.read_text().splitlines()]


def texts_of(lab, *words, **more):
    return [row[-1] for row in augment(lab, *words, **more)[1][1:]]


def vector_file(lab, name="vectors.txt", turned=False):
    """Of "film", which is one piece, and of words of several."""
    near = [("zither", "1 0.1"), ("banjo", "1 0.2"), ("viola", "0.1 1"), ("tango", "0.2 1")]
    near[1], near[2] = (near[1][0], near[2 if turned else 1][1]), (near[2][0], near[1 if turned else 2][1])
    return lab.once(name, lambda path: path.write_text("".join(f"{word} {numbers}\n" for word, numbers in near)) and path)


def zither(lab):
    return rows(lab, "zither.tsv", [("1", "the zither")])


# ---- augment


@AUGMENT.row("--model", "it guesses the words")
def model(lab):
    other = guesser(lab, "other", layer_norm_eps=0.5)
    lab.assertNotEqual(texts_of(lab), texts_of(lab, model=other))


@AUGMENT.row("--input", "its rows are varied")
def source(lab):
    found = texts_of(lab)
    for _, text in ROWS:
        lab.assertIn(text, found)
    lab.assertEqual(len(set(found)), 3 * 5)


@AUGMENT.row("--output", "the file that rows and variants go to")
def output(lab):
    path = lab.folder / "more.tsv"
    _, found = augment(lab, output=path)
    lab.assertEqual(found[0], ["label", "text"])
    lab.refuses(["augment", "--model", guesser(lab), "--task", "custom", "--input", rows(lab), "--output", lab.folder / "more.jsonl"],
                "written as they are read, in tsv", ".tsv")


@AUGMENT.row("--vectors", "words of several pieces get the nearest ones")
def vectors(lab):
    words = ["--candidates", 1, "--probability", 1]
    lab.assertEqual(texts_of(lab, *words, data=zither(lab)), ["the zither"])
    lab.assertEqual(texts_of(lab, *words, "--vectors", vector_file(lab), data=zither(lab)), ["the zither", "the banjo"])
    lab.assertEqual(texts_of(lab, *words, "--vectors", vector_file(lab, "turned.txt", True), data=zither(lab)), ["the zither", "the viola"])


@AUGMENT.row("--vectors-cache", "the vectors are kept there, and made again where the text is another")
def vectors_cache(lab):
    cache = lab.folder / "vectors.bin"
    words = ["--candidates", 1, "--probability", 1, "--vectors-cache", cache, "--vectors"]
    lab.assertEqual(texts_of(lab, *words, vector_file(lab), data=zither(lab)), ["the zither", "the banjo"])
    first = cache.stat().st_ino
    texts_of(lab, "--seed", 3, *words, vector_file(lab), data=zither(lab))
    lab.assertEqual(cache.stat().st_ino, first)
    lab.assertEqual(texts_of(lab, *words, vector_file(lab, "turned.txt", True), data=zither(lab)), ["the zither", "the viola"])
    lab.assertNotEqual(cache.stat().st_ino, first)


@AUGMENT.row("--task", "columns, and how many variants, are the task's")
def task(lab):
    cola = lab.once("cola.tsv", lambda path: write_rows(path, None, [("x", "1", "*", "good old film song"), ("x", "0", "*", "old")]))
    sst2 = lab.once("sst2.tsv", lambda path: write_rows(path, ("sentence", "label"), [("good old film song", "1")]))
    for name, data, column, count in (("cola", cola, 3, 30), ("sst2", sst2, 0, 20), ("custom", rows(lab), 1, 30)):
        counts, found = augment(lab, task=name, data=data, variants=None)
        texts = [row[column] for row in found]
        first = texts.index("good old film song") if name != "custom" else texts.index(ROWS[0][1])
        lab.assertEqual(len(set(texts[first:first + count + 1])), count + 1)
        lab.assertEqual([row[:column] + row[column + 1:] for row in found[first:first + count + 1]],
                        [found[first][:column] + found[first][column + 1:]] * (count + 1))


@AUGMENT.row("--text-column", "the texts are those of that column, or of several")
def text_column(lab):
    data = lab.once("columns.tsv", lambda path: path.write_text(tabs(TABLE)) and path)
    for columns, changed in ((["one"], {0}), (["3"], {2}), (["one", "three"], {0, 2})):
        _, found = augment(lab, "--text-column", *columns, data=data)
        lab.assertEqual({column for column in range(3) if len({row[column] for row in found[1:]}) > 2}, changed)
    lab.refuses(["augment", "--model", guesser(lab), "--task", "custom", "--input", rows(lab), "--output", lab.folder / "labels.tsv",
                 "--text-column", "label"], "names the column of the labels")


@AUGMENT.row("--format", "the input is of that format whatever its name")
def form(lab):
    data = lab.once("rows.table", lambda path: write_rows(path, ("label", "text"), ROWS))
    lab.assertEqual(texts_of(lab, "--format", "tsv", data=data), texts_of(lab))


@AUGMENT.row("--header", "the first row names the columns, or is a row")
def header(lab):
    data = lab.once("bare.tsv", lambda path: write_rows(path, None, ROWS))
    _, found = augment(lab, "--no-header", "--text-column", 2, data=data)
    lab.assertEqual(found, augment(lab)[1][1:])


@AUGMENT.row("--skip-bad-rows", "rows that cannot be read are left out; without it, the command stops there")
def bad_rows(lab):
    data = lab.once("ragged.tsv", lambda path: path.write_text(tabs([("label", "text"), *ROWS[:1], ("x",), *ROWS[1:]])) and path)
    lab.assertEqual(augment(lab, "--skip-bad-rows", data=data), augment(lab))
    lab.refuses(["augment", "--model", guesser(lab), "--task", "custom", "--input", data, "--output", lab.folder / "none.tsv"], "ragged.tsv:3")


@AUGMENT.row("--candidates", "so many words may take a word's place")
def candidates(lab):
    data = rows(lab, "one.tsv", [("1", "the film")])
    for count in (1, 3):
        lab.assertEqual(len(texts_of(lab, "--candidates", count, "--probability", 1, data=data, variants=50)), 1 + count)


@AUGMENT.row("--probability", "with which a word gives way")
def probability(lab):
    lab.assertEqual(texts_of(lab, "--probability", 0), [text for _, text in ROWS])
    for text in texts_of(lab, "--probability", 1, data=rows(lab, "two.tsv", [("1", "film song")]))[1:]:
        lab.assertTrue(text.split()[0] != "film" and text.split()[1] != "song", text)


@AUGMENT.row("--variants", "so many variants are made of each text")
def variants(lab):
    for count in (1, 7):
        lab.assertEqual(augment(lab, variants=count)[0]["variants"], 3 * count)


@AUGMENT.row("--stop-words", "they stay, and only they")
def stop_words(lab):
    path = lab.once("stop.txt", lambda path: path.write_text("film\n") and path)
    data = rows(lab, "stop.tsv", [("1", "the film")])
    found = texts_of(lab, "--probability", 1, data=data)
    lab.assertEqual(({text.split()[0] for text in found}, len({text.split()[1] for text in found})), ({"the"}, 5))
    found = texts_of(lab, "--probability", 1, "--stop-words", path, data=data)
    lab.assertEqual(({text.split()[1] for text in found}, len({text.split()[0] for text in found})), ({"film"}, 5))


@AUGMENT.row("--compat", "tinybert: lower-cased words with blanks between them, and duplicates use up variants")
def compat(lab):
    counts, found = augment(lab, "--compat", "tinybert", "--probability", 0.01, variants=9)
    lab.assertEqual(counts["variants"] + counts["duplicates"], 27)
    lab.assertIn("good film , the old song", [row[1] for row in found])
    lab.assertNotIn("good film , the old song", texts_of(lab, "--probability", 0.01))
    lab.assertEqual(texts_of(lab, "--compat", "none"), texts_of(lab))


@AUGMENT.row("--max-length", "of longer texts what stands around a word is read")
def max_length(lab):
    lab.assertEqual(texts_of(lab, "--max-length", 64), texts_of(lab))
    lab.assertNotEqual(texts_of(lab, "--max-length", 7), texts_of(lab))


@AUGMENT.row("--seed", "other seeds give other variants")
def seed(lab):
    lab.assertEqual(texts_of(lab, "--seed", 42), texts_of(lab))
    lab.assertNotEqual(texts_of(lab, "--seed", 1), texts_of(lab))


@AUGMENT.row("--precision", "the arithmetic of the model; auto: what the processor multiplies")
def precision(lab):
    for name in ("fp32", "bf16", "fp16", "int8"):
        lab.assertEqual(augment(lab, "--precision", name)[0]["variants"], 12)
        record = json.loads(max(lab.folder.glob("out-*.made.json"), key=lambda path: path.stat().st_mtime_ns).read_text())
        lab.assertEqual(record["made_of"]["precision"], name)
    for isa, chosen in (("avx2", "fp32"), (None, fastest_precision())):
        variables = {**environment(), **({"FUNICULAR_ISA": isa} if isa else {})}
        result = lab.run_with(variables, "augment", "--model", guesser(lab), "--task", "custom", "--input", rows(lab), "--output",
                              lab.folder / f"auto-{isa}.tsv", "--precision", "auto")
        lab.assertIn(f"precision: {chosen}", result.err)


@AUGMENT.row("--micro-batch-tokens", "a pass has no more tokens than that, which bounds its memory")
def micro_batch_tokens(lab):
    data = rows(lab, "much.tsv", [("1", text) for text in lab.texts([25] * 60)])
    few, many = (lab.peak(["augment", "--model", guesser(lab), "--task", "custom", "--input", data, "--output", lab.folder / f"much-{tokens}.tsv",
                           "--variants", 1, "--precision", "fp32", "--micro-batch-tokens", tokens]) for tokens in (100, 100000))
    lab.assert_larger(many, few + 4 * MEGABYTE)
    lab.assertEqual((lab.folder / "much-100.tsv").read_text(), (lab.folder / "much-100000.tsv").read_text())


@AUGMENT.row("--device", "the model lies there")
def device(lab):
    lab.assertEqual(texts_of(lab, "--device", "cpu"), texts_of(lab))
    if not lab.has_gpu():
        lab.refuses(["augment", "--model", guesser(lab), "--task", "custom", "--input", rows(lab), "--output", lab.folder / "x.tsv", "--device", "cuda"],
                    "--device cuda")


@AUGMENT.row("--share-device", "refused on the CPU, which ranks share anyway")
def share_device(lab):
    lab.refuses(["augment", "--model", guesser(lab), "--task", "custom", "--input", rows(lab), "--output", lab.folder / "x.tsv", "--share-device"], "--share-device is for GPUs")


@AUGMENT.row("--threads", "more threads are there")
def threads(lab):
    data = rows(lab, "much.tsv", [("1", text) for text in lab.texts([25] * 60)])
    words = ["augment", "--model", guesser(lab), "--task", "custom", "--input", data, "--output", lab.folder / "threads.tsv"]
    of_one = lab.most_threads([*words, "--threads", 1], 0)
    lab.assertGreaterEqual(lab.most_threads([*words, "--seed", 1, "--threads", 4], of_one + 3), of_one + 3)


@AUGMENT.row("--config", "a file's keys are options")
def augment_config(lab):
    lab.assertEqual(augment(lab, "--config", config_file(lab, "probability = 0.0\n"))[0]["variants"], 0)


def chinese_guesser(lab):
    characters = list("中国股楼市大涨")  # in the place of letters
    return guesser(lab, "chinese guesser", vocabulary=[*VOCABULARY[:5], *characters, *VOCABULARY[5 + len(characters):]])


def chinese_variants(lab, text, *words):
    vectors = text_file(lab, "股市 1 0.1\n楼市 1 0.2\n大涨 0.1 1\n", "chinese-vectors")
    return texts_of(lab, "--vectors", vectors, "--candidates", 1, "--probability", 1, *words, data=rows(lab, f"{text}.tsv", [("1", text)]),
                    model=chinese_guesser(lab))


@AUGMENT.row("--words", "what stands between blanks is a word, and gives way as a whole")
def augment_words(lab):
    lab.assertEqual(chinese_variants(lab, "中国 股市", "--words", "presegmented"), ["中国 股市", "中国 楼市"])
    lab.assertNotIn("中国 楼市", chinese_variants(lab, "中国 股市"))


@AUGMENT.row("--word-dictionary", "Chinese words of the dictionary give way as a whole")
def augment_dictionary(lab):
    lab.assertEqual(chinese_variants(lab, "中国股市", "--word-dictionary", chinese_words(lab)), ["中国股市", "中国楼市"])
    lab.refuses(["augment", "--model", chinese_guesser(lab), "--task", "custom", "--input", rows(lab), "--output", lab.folder / "x.tsv", "--word-dictionary",
                 chinese_words(lab), "--compat", "tinybert"], "leave out --word-dictionary")


# ---- vectors


def corpus(lab):
    return lab.once("corpus.txt", lambda path: path.write_text("".join(f"the {a} and The {b}\n" for a in ("cat", "dog", "cow") for b in ("sea", "sun"))) and path)


def trained(lab, *words, source=None):
    """word -> numbers"""
    output = lab.folder / "trained.txt"
    small = [word for option, value in (("--size", 4), ("--min-count", 1)) if option not in words for word in (option, value)]
    lab.succeeds("vectors", "--input", source or corpus(lab), "--output", output, "--overwrite", *small, *words)
    return {line.split()[0]: [float(value) for value in line.split()[1:]] for line in output.read_text().splitlines()}


@VECTORS.row("--input", "its words get vectors")
def vectors_input(lab):
    lab.assertEqual(set(trained(lab)), {"the", "and", "cat", "dog", "cow", "sea", "sun"})


@VECTORS.row("--from", "each of its tokens gets a static vector")
def vectors_from(lab):
    folder = lab.folder / "static"
    lab.assertEqual(lab.succeeds("vectors", "--from", lab.plain_model(), "--output", folder, "--size", 7).json()["size"], 7)
    texts, output = lab.folder / "static.txt", lab.folder / "static.jsonl"
    texts.write_text("good film\n")
    lab.succeeds("embed", "--model", folder, "--input", texts, "--output", output)
    vector = json.loads(output.read_text())["embedding"]
    lab.assertEqual(len(vector), 7)
    lab.assertAlmostEqual(norm(vector), 1, places=5)
    lab.refuses(["vectors", "--from", lab.plain_model(), "--output", lab.folder / "other", "--epochs", 3], "--epochs is for vectors of words")
    lab.refuses(["vectors", "--from", folder, "--output", lab.folder / "other"], "a table of static embeddings already")


@VECTORS.row("--output", "the file that they go to, the most frequent first")
def vectors_output(lab):
    lab.assertEqual(list(trained(lab))[:2], ["the", "and"])


@VECTORS.row("--overwrite", "a file that is there is replaced; without it, it is left")
def vectors_overwrite(lab):
    path = lab.folder / "there.txt"
    path.write_text("mine")
    words = ["vectors", "--input", corpus(lab), "--min-count", 1, "--size", 4, "--output", path]
    lab.refuses(words, "--overwrite")
    lab.assertEqual(path.read_text(), "mine")
    lab.succeeds(*words, "--overwrite")
    lab.assertIn("the ", path.read_text())
    overwrites_static(lab)


def overwrites_static(lab):
    """A folder of static embeddings is replaced as a whole. The encoder's folder and other folders stay."""
    folder, mine, encoder = (lab.folder / name for name in ("again", "mine", "encoder"))
    words = ["vectors", "--from", lab.plain_model(), "--size", 7, "--output"]
    lab.succeeds(*words, folder)
    (folder / "stale.txt").write_text("old")
    lab.refuses([*words, folder], "give --overwrite")
    lab.succeeds(*words, folder, "--overwrite")
    lab.assertFalse((folder / "stale.txt").exists())
    lab.assertEqual(list(lab.folder.glob(".tmp-*")), [])
    mine.mkdir()
    (mine / "work.txt").write_text("mine")
    lab.refuses([*words, mine, "--overwrite"], "expected a new folder, or one with static embeddings")
    shutil.copytree(lab.plain_model(), encoder)
    before = sorted(path.name for path in encoder.iterdir())
    for output in (encoder, encoder / "static", lab.folder):
        lab.refuses(["vectors", "--from", encoder, "--size", 7, "--output", output, "--overwrite"], "the encoder's folder is")
    lab.assertEqual(sorted(path.name for path in encoder.iterdir()), before)


@VECTORS.row("--output-format", "with or without a first line of numbers")
def output_format(lab):
    lab.assertEqual(trained(lab, "--output-format", "word2vec"), {"7": [4.0], **trained(lab, "--output-format", "glove")})


@VECTORS.row("--format", "the texts are of that format")
def vectors_format(lab):
    data = lab.once("corpus.rows", lambda path: path.write_text('{"text": "one two"}\n') and path)
    lab.assertEqual(set(trained(lab, "--format", "jsonl", source=data)), {"one", "two"})
    lab.assertIn("{", trained(lab, source=data))


@VECTORS.row("--text-column", "the texts are those of that column, or of several")
def vectors_column(lab):
    data = lab.once("columns.tsv", lambda path: path.write_text(tabs(TABLE)) and path)
    lab.assertEqual(set(trained(lab, "--text-column", "one", source=data)), {"film", "book"})
    lab.assertEqual(set(trained(lab, "--text-column", "one", "three", source=data)), {"film", "book", "song", "old"})


@VECTORS.row("--header", "the first row of a table is one, or is none")
def vectors_header(lab):
    data = lab.once("columns.tsv", lambda path: path.write_text(tabs(TABLE)) and path)
    lab.assertEqual(set(trained(lab, "--no-header", "--text-column", "1", source=data)), {"one", "film", "book"})


@VECTORS.row("--size", "a vector has so many numbers")
def size(lab):
    lab.assertEqual({len(numbers) for numbers in trained(lab, "--size", 6).values()}, {6})


def pairs(lab, *words):
    return lab.succeeds("vectors", "--input", corpus(lab), "--overwrite", "--output", lab.folder / "v.txt", "--min-count", 1, *words).json()["pairs"]


@VECTORS.row("--window", "words so far from each other are near each other")
def window(lab):
    # the-X, X-and, and-the, the-Y; at distance 2: the-and, X-the, and-Y
    lab.assertEqual((pairs(lab, "--window", 1), pairs(lab, "--window", 2)), (2 * (5 + 3 + 1), 2 * (5 + 3 + 1 + 2)))


@VECTORS.row("--min-count", "rarer words get none")
def min_count(lab):
    lab.assertEqual(set(trained(lab, "--min-count", 3)), {"the", "and", "sea", "sun"})


@VECTORS.row("--max-words", "only so many, the most frequent ones, get one")
def max_words(lab):
    lab.assertEqual(set(trained(lab, "--max-words", 2)), {"the", "and"})


def chinese_text(lab, blanks=False):
    words = [("中国", "股市", "大涨"), ("中国", "楼市", "大涨")]
    return text_file(lab, "".join((" " if blanks else "").join(row) + "\n" for row in words))


def chinese_words(lab):
    return text_file(lab, "中国 9 n\n股市 5 n\n楼市 5 n\n大涨 3 v\n", "dictionary")


@VECTORS.row("--words", "what stands between blanks is a word, or each Chinese character is")
def words(lab):
    lab.assertEqual(set(trained(lab, source=chinese_text(lab, True))), set("中国股市楼大涨"))
    lab.assertEqual(set(trained(lab, "--words", "presegmented", source=chinese_text(lab, True))), {"中国", "股市", "楼市", "大涨"})
    lab.refuses(["vectors", "--input", corpus(lab), "--output", lab.folder / "v.txt", "--words", "500"], "vectors --max-words says how many")


@VECTORS.row("--word-dictionary", "Chinese characters are words as the dictionary says")
def vectors_dictionary(lab):
    dictionary = chinese_words(lab)
    found = trained(lab, "--word-dictionary", dictionary, source=chinese_text(lab))
    lab.assertEqual(found, trained(lab, "--words", "presegmented", source=chinese_text(lab, True)))
    for both in (dictionary, corpus(lab)):  # the second is no dictionary: it is not read
        lab.refuses(["vectors", "--input", corpus(lab), "--output", lab.folder / "w.txt", "--word-dictionary", both, "--words", "presegmented"],
                    "give one of them")
    lab.refuses(["vectors", "--input", corpus(lab), "--output", dictionary, "--overwrite", "--word-dictionary", dictionary],
                "would be replaced by the vectors")
    lab.assertIn("股市 5 n", dictionary.read_text())


@VECTORS.row("--lower-case", "case tells words apart, or does not")
def lower_case(lab):
    lab.assertEqual(set(trained(lab, "--no-lower-case")) - set(trained(lab)), {"The"})


@VECTORS.row("--negatives", "so many words are drawn against each pair")
def negatives(lab):
    loss = lambda count: lab.succeeds("vectors", "--input", corpus(lab), "--overwrite", "--output", lab.folder / "v.txt", "--min-count", 1, "--learning-rate", 1e-9,
                                      "--negatives", count).json()["loss"]
    lab.assertAlmostEqual(loss(3) / loss(1), 2, places=5)  # each of 1 + N terms is the logarithm of 2 at first


@VECTORS.row("--epochs", "more passes leave a smaller error")
def epochs(lab):
    loss = lambda count: lab.succeeds("vectors", "--input", corpus(lab), "--overwrite", "--output", lab.folder / "v.txt", "--min-count", 1, "--epochs", count).json()["loss"]
    lab.assertLess(loss(40), 0.9 * loss(1))


@VECTORS.row("--learning-rate", "how far a step goes")
def learning_rate(lab):
    small, smaller = trained(lab, "--learning-rate", 1e-9), trained(lab, "--learning-rate", 1e-10)
    lab.assertEqual(small, smaller)  # where they began, to six digits
    lab.assertNotEqual(trained(lab), small)


@VECTORS.row("--seed", "other seeds give other vectors")
def vectors_seed(lab):
    lab.assertEqual(trained(lab, "--seed", 42), trained(lab))
    lab.assertNotEqual(trained(lab, "--seed", 1), trained(lab))


@VECTORS.row("--threads", "the same vectors come out of any number")
def vectors_threads(lab):
    lab.assertEqual(trained(lab, "--threads", 1), trained(lab, "--threads", 3))
    lab.refuses(["vectors", "--input", corpus(lab), "--output", lab.folder / "v.txt", "--threads", 0], "--threads")


@VECTORS.row("--config", "a file's keys are options")
def vectors_config(lab):
    lab.assertEqual({len(numbers) for numbers in trained(lab, "--config", config_file(lab, "window = 3\nseed = 2\n")).values()}, {4})
    lab.assertEqual(trained(lab, "--config", config_file(lab, "seed = 2\n")), trained(lab, "--seed", 2))
