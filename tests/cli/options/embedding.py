"""What the options of embed and search do."""

import struct

from harness import HIDDEN, json, shutil

from .answering import MEGABYTE, refuses_graphs, shows_device
from .lab import *

EMBED, SEARCH = Table(), Table()
PROMPTS = {"query": "good ", "document": "bad book ", "other": "very old "}

for table in (EMBED, SEARCH):
    table.row("--help", "the options are listed")(shows_help)


def sentence_folder(lab, name="sentences", modes=("mean",), similarity="cosine", **changes):
    """A folder of sentence-transformers, in the form of version 5.3 and older."""
    def make(path):
        shutil.copytree(lab.plain_model(), path)
        (path / "1_Pooling").mkdir()
        (path / "modules.json").write_text(json.dumps([{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
                                                       {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]))
        (path / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": HIDDEN, "pooling_mode": list(modes)}))
        (path / "config_sentence_transformers.json").write_text(
            json.dumps({"prompts": PROMPTS, "similarity_fn_name": similarity, **changes}))
        return path
    return lab.once(name, make)


def put(lab, text, name="texts.txt"):
    path = lab.folder / name
    path.write_text(text)
    return path


def read_npy(path):
    """Rows of numbers."""
    raw = path.read_bytes()
    header = raw[10:128].decode()
    rows, columns = map(int, header.split("'shape': (")[1].split(")")[0].split(","))
    kind = {"<f4": "f", "|i1": "b", "|u1": "B"}[header.split("'descr': '")[1].split("'")[0]]
    values = struct.unpack(f"<{rows * columns}{kind}", raw[128:])
    return [list(values[row * columns:(row + 1) * columns]) for row in range(rows)]


def embed(lab, text, *words, model=None, name="texts.txt"):
    output = lab.folder / f"vectors-{len(list(lab.folder.glob('vectors-*')))}.npy"
    lab.succeeds("embed", "--model", model or lab.plain_model(), "--input", put(lab, text, name), "--output", output, *words)
    return read_npy(output)


def assert_same(lab, a, b, places=6):
    lab.assertEqual(len(a), len(b))
    for left, right in zip(a, b):
        lab.assertEqual(len(left), len(right))
        for x, y in zip(left, right):
            lab.assertAlmostEqual(x, y, places=places)


@EMBED.row("--model", "it gives the vectors, as its modules say")
def embedding_model(lab):
    vector, = embed(lab, "film\n")
    lab.assertEqual(len(vector), HIDDEN)
    lab.assertEqual(len(embed(lab, "film\n", model=sentence_folder(lab, "two", ("cls", "max")))[0]), 2 * HIDDEN)
    lab.refuses(["embed", "--model", lab.folder / "none", "--input", put(lab, "film\n"), "--output", lab.folder / "v.npy"], "no such folder")


@EMBED.row("--input", "each of its rows has a vector")
def embedded_input(lab):
    vectors = embed(lab, "film\nbook\n\nfilm\n")
    lab.assertEqual(len(vectors), 4)
    lab.assertEqual(vectors[0], vectors[3])
    lab.assertNotEqual(vectors[0], vectors[1])
    lab.refuses(["embed", "--model", lab.plain_model(), "--input", lab.folder / "none", "--output", lab.folder / "v.npy"], "no such file")


@EMBED.row("--output", "the vectors are there, as numpy's table or as JSON lines")
def vectors_output(lab):
    expected, output = embed(lab, "film\nbook\n"), lab.folder / "vectors.jsonl"
    lab.succeeds("embed", "--model", lab.plain_model(), "--input", put(lab, "film\nbook\n"), "--output", output)
    assert_same(lab, [json.loads(line)["embedding"] for line in output.read_text().splitlines()], expected)
    lab.refuses(["embed", "--model", lab.plain_model(), "--input", put(lab, "a\n"), "--output", lab.folder / "v.txt"], "v.txt")


@EMBED.row("--overwrite", "a file that is there is replaced; without it, it is left")
def vectors_overwrite(lab):
    path = lab.folder / "there.npy"
    path.write_text("mine")
    words = ["embed", "--model", lab.plain_model(), "--input", put(lab, "film\n"), "--output", path]
    lab.refuses(words, "--overwrite")
    lab.assertEqual(path.read_text(), "mine")
    lab.succeeds(*words, "--overwrite")
    lab.assertEqual(len(read_npy(path)), 1)


@EMBED.row("--format", "the input is read as that, whatever its name")
def embedded_format(lab):
    expected = embed(lab, "film\nbook\n")
    for name, text in {"jsonl": '{"text": "film"}\n{"text": "book"}\n', "csv": "a,text\n1,film\n2,book\n", "tsv": "a\ttext\n1\tfilm\n2\tbook\n"}.items():
        assert_same(lab, embed(lab, text, "--format", name, name="table.data"), expected)
        assert_same(lab, embed(lab, text, name=f"table.{name}"), expected)


@EMBED.row("--text-column", "the texts are those of that column, or of several, joined")
def embedded_column(lab):
    text = "one,two\nfilm,book\nsong,old\n"
    assert_same(lab, embed(lab, text, "--text-column", "two", name="table.csv"), embed(lab, "book\nold\n"))
    assert_same(lab, embed(lab, text, "--text-column", "one", "two", name="table.csv"), embed(lab, "film book\nsong old\n"))


@EMBED.row("--header", "the first row names the columns; without it, it is data")
def embedded_header(lab):
    assert_same(lab, embed(lab, "1,film\n2,book\n", "--no-header", "--text-column", "2", name="t.csv"), embed(lab, "film\nbook\n"))
    assert_same(lab, embed(lab, "1,film\n2,book\n", "--header", "--text-column", "2", name="t.csv"), embed(lab, "book\n"))


@EMBED.row("--encoding", "the input is converted from it")
def embedded_encoding(lab):
    path, output = lab.folder / "wide.txt", lab.folder / "wide.npy"
    path.write_bytes("film\n".encode("utf-16"))
    lab.succeeds("embed", "--model", lab.plain_model(), "--input", path, "--output", output, "--encoding", "UTF-16")
    assert_same(lab, read_npy(output), embed(lab, "film\n"))


@EMBED.row("--quotes", "none: they are text")
def embedded_quotes(lab):
    text = 'a,text\n1,"film"\n'
    assert_same(lab, embed(lab, text, "--quotes", "csv", name="q.csv"), embed(lab, "film\n"))
    assert_same(lab, embed(lab, text, "--quotes", "none", name="q.csv"), embed(lab, '"film"\n'))


@EMBED.row("--pooling", "a folder without modules pools so; others are refused")
def pooling(lab):
    text = "good film\nold\n"
    lab.assertEqual(embed(lab, text), embed(lab, text, "--pooling", "mean"))
    for mode in ("cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"):
        found = embed(lab, text, "--pooling", mode)
        assert_same(lab, found, embed(lab, text, model=sentence_folder(lab, mode, (mode,))))
        lab.assertNotEqual(found, embed(lab, text))
    both = embed(lab, text, "--pooling", "max", "cls")
    assert_same(lab, both, [a + b for a, b in zip(embed(lab, text, "--pooling", "max"), embed(lab, text, "--pooling", "cls"))])
    lab.refuses(["embed", "--model", sentence_folder(lab), "--input", put(lab, "a\n"), "--output", lab.folder / "p.npy", "--pooling", "cls"],
                "leave out --pooling")


@EMBED.row("--role", "the model's prompt for it stands before each text")
def role(lab):
    model = sentence_folder(lab)
    assert_same(lab, embed(lab, "film\n", "--role", "query", model=model), embed(lab, "good film\n"))
    assert_same(lab, embed(lab, "film\n", "--role", "document", model=model), embed(lab, "bad book film\n"))
    assert_same(lab, embed(lab, "film\n", model=model), embed(lab, "film\n"))
    older = sentence_folder(lab, "passages", prompts={"corpus": "bad ", "passage": "old "})
    assert_same(lab, embed(lab, "film\n", "--role", "document", model=older), embed(lab, "old film\n"))
    blank = sentence_folder(lab, "blank", prompts={"document": "", "passage": "old "})
    assert_same(lab, embed(lab, "film\n", "--role", "document", model=blank), embed(lab, "film\n"))


@EMBED.row("--prompt-name", "that prompt of the model stands before each text")
def prompt_name(lab):
    model = sentence_folder(lab, "default", default_prompt_name="document")
    assert_same(lab, embed(lab, "film\n", "--prompt-name", "other", model=model), embed(lab, "very old film\n"))
    assert_same(lab, embed(lab, "film\n", model=model), embed(lab, "bad book film\n"))
    lab.refuses(["embed", "--model", model, "--input", put(lab, "a\n"), "--output", lab.folder / "n.npy", "--prompt-name", "none"],
                "the model's prompts are document, other, query")


@EMBED.row("--prompt", "it stands before each text, as it is")
def prompt(lab):
    assert_same(lab, embed(lab, "film\n", "--prompt", "old ", model=sentence_folder(lab)), embed(lab, "old film\n"))
    lab.refuses(["embed", "--model", sentence_folder(lab), "--input", put(lab, "a\n"), "--output", lab.folder / "n.npy", "--prompt", "a",
                 "--role", "query"], "leave out --prompt-name and --role")


@EMBED.row("--truncate-dim", "the first numbers alone are there")
def truncate_dim(lab):
    whole, cut = embed(lab, "film\n"), embed(lab, "film\n", "--truncate-dim", 5)
    assert_same(lab, cut, [whole[0][:5]])
    assert_same(lab, embed(lab, "film\n", model=sentence_folder(lab, "narrow", truncate_dim=3)), [whole[0][:3]])
    lab.refuses(["embed", "--model", lab.plain_model(), "--input", put(lab, "a\n"), "--output", lab.folder / "t.npy", "--truncate-dim", HIDDEN + 1],
                f"expected 1 to {HIDDEN}")


@EMBED.row("--normalize", "vectors have length 1")
def normalize(lab):
    (whole,), (unit,) = embed(lab, "film\n", "--truncate-dim", 7), embed(lab, "film\n", "--truncate-dim", 7, "--normalize")
    lab.assertAlmostEqual(norm(unit), 1, places=6)
    assert_same(lab, [unit], [[value / norm(whole) for value in whole]])


@EMBED.row("--max-length", "what is longer is cut off")
def embedded_length(lab):
    assert_same(lab, embed(lab, "good film very old book\n", "--max-length", 2 + SPECIAL), embed(lab, "good film\n"))


@EMBED.row("--vector-type", "the numbers are of that type")
def vector_type(lab):
    text = "".join(line + "\n" for line in lab.texts())
    whole = embed(lab, text)
    for name, shift in (("uint8", 0), ("int8", 128)):
        codes = embed(lab, text, "--vector-type", name)
        for column in range(HIDDEN):
            values = [row[column] for row in whole]
            lab.assertAlmostEqual([row[column] + shift for row in codes][values.index(max(values))], 255, delta=1)  # by rounding
            lab.assertEqual([row[column] + shift for row in codes][values.index(min(values))], 0)
    for name, shift in (("ubinary", 0), ("binary", 128)):
        for row, code in zip(whole, embed(lab, text, "--vector-type", name)):
            bits = "".join(f"{byte + shift:08b}" for byte in code)
            lab.assertEqual(bits, "".join(str(int(value > 0)) for value in row))


@EMBED.row("--ranges", "bytes are between these numbers")
def ranges(lab):
    embed(lab, "".join(line + "\n" for line in lab.texts()), "--vector-type", "int8")
    made = set(lab.folder.glob("vectors-*.ranges.npy"))
    path = min(made)
    least, most = read_npy(path)
    (vector,), (code,) = embed(lab, "film\n"), embed(lab, "film\n", "--vector-type", "uint8", "--ranges", path)
    for value, byte, low, high in zip(vector, code, least, most):
        lab.assertLessEqual(abs(min(255, max(0, (value - low) / (high - low) * 255)) - byte), 1.001)
    copy, = set(lab.folder.glob("vectors-*.ranges.npy")) - made
    lab.assertEqual(copy.read_bytes(), path.read_bytes(), "the ranges that are given stand beside the file, too")
    lab.refuses(["embed", "--model", lab.plain_model(), "--input", put(lab, "a\n"), "--output", lab.folder / "r.npy", "--ranges", path],
                "--ranges works only with --vector-type int8 or uint8")


@EMBED.row("--precision", "the arithmetic has as many digits")
def embedding_precision(lab):
    text = "".join(line + "\n" for line in lab.texts())
    found = {name: sum(embed(lab, text, "--precision", name), []) for name in ("fp64", "fp32", "fp16", "bf16", "int8")}
    for name, least, most in (("fp32", 0, 1e-5), ("fp16", 1e-6, 1e-2), ("bf16", 1e-5, 5e-2), ("int8", 1e-5, 2e-1)):
        lab.assertTrue(least <= max(map(abs, less(found[name], found["fp64"]))) < most, name)
    lab.refuses(["embed", "--model", lab.plain_model(), "--input", put(lab, text), "--output", lab.folder / "t.npy", "--precision", "tf32"],
                "--precision tf32 is for NVIDIA GPUs")


@EMBED.row("--micro-batch-tokens", "a pass has no more tokens than that, which bounds its memory")
def embedding_tokens(lab):
    path = put(lab, "".join(line + "\n" for line in lab.texts([40] * 400)), "much.txt")
    few, many = (lab.peak(["embed", "--model", lab.plain_model(), "--input", path, "--overwrite", "--precision", "fp32", "--output",
                           lab.folder / f"{tokens}.npy", "--micro-batch-tokens", tokens]) for tokens in (200, 100000))
    lab.assert_larger(many, few + 8 * MEGABYTE)


@EMBED.row("--window", "the vectors are the same, whatever is read ahead")
def embedding_window(lab):
    text = "".join(line + "\n" for line in lab.texts())
    assert_same(lab, embed(lab, text, "--window", 1), embed(lab, text, "--window", 7))


@EMBED.row("--device", "cpu computes here; cuda is refused where there is none")
def embedding_device(lab):
    shows_device(lab, ["embed", "--model", lab.plain_model(), "--input", put(lab, "film\n"), "--output", lab.folder / "d.npy", "--overwrite",
                       "--precision", "fp32"])


@EMBED.row("--cuda-graphs", "refused on the CPU, which has no kernels to record")
def embedding_graphs(lab):
    refuses_graphs(lab, ["embed", "--model", lab.plain_model(), "--input", put(lab, "film\n"), "--output", lab.folder / "g.npy"])


@EMBED.row("--share-device", "refused on the CPU, which ranks share anyway")
def embedding_shared_device(lab):
    lab.refuses(["embed", "--model", lab.plain_model(), "--input", put(lab, "film\n"), "--output", lab.folder / "s.npy", "--share-device"], "--share-device is for GPUs")


@EMBED.row("--threads", "more threads are there")
def embedding_threads(lab):
    path = put(lab, "".join(line + "\n" for line in lab.texts([40] * 400)), "much.txt")
    most = [lab.most_threads(["embed", "--model", lab.plain_model(), "--input", path, "--output", lab.folder / f"t{count}.npy", "--overwrite",
                              "--precision", "fp32", "--threads", count], least) for count, least in ((1, 0), (4, 5))]
    lab.assertGreater(most[1], most[0])


@EMBED.row("--config", "a file's keys are options")
def embedding_config(lab):
    path = config_file(lab, "truncate_dim = 3\n")
    lab.assertEqual(len(embed(lab, "film\n", "--config", path)[0]), 3)


# ---- search


def search(lab, *words, text="good film\nold book\n"):
    out = lab.succeeds("search", "--index", index(lab), "--queries", put(lab, text, "queries.txt"), *words).out
    return [json.loads(line)["neighbours"] for line in out.splitlines()]


TEXTS = ["old book", "good film", "very good film", "song", "a very old book"]


def index(lab, *words):
    def make(path):
        lab.succeeds("embed", "--model", sentence_folder(lab), "--input", put(lab, "\n".join(TEXTS) + "\n"), "--output", path, *words)
        return path
    return lab.once("-".join(["index", *map(str, words)]) + ".npy", make)


def by_model(lab, *words, **more):
    return search(lab, "--model", sentence_folder(lab), *words, **more)


@SEARCH.row("--index", "its rows are found")
def searched_index(lab):
    first, second = by_model(lab)
    lab.assertEqual((first[0]["row"], second[0]["row"]), (1, 0))
    lab.assertAlmostEqual(first[0]["score"], 1, places=5)
    lab.assertEqual(len(first), len(TEXTS))
    lab.refuses(["search", "--index", put(lab, "text", "no.npy"), "--queries", put(lab, "a\n"), "--model", lab.plain_model()], "is no .npy file")


@SEARCH.row("--queries", "texts or vectors")
def queries(lab):
    output = lab.folder / "queries.npy"
    lab.succeeds("embed", "--model", sentence_folder(lab), "--input", put(lab, "good film\nold book\n", "q.txt"), "--output", output)
    out = lab.succeeds("search", "--index", index(lab), "--queries", output).out
    lab.assertEqual([json.loads(line)["neighbours"] for line in out.splitlines()], by_model(lab))


@SEARCH.row("--model", "it embeds the texts")
def searching_model(lab):
    lab.refuses(["search", "--index", index(lab), "--queries", put(lab, "a\n")], "give --model DIR")
    lab.refuses(["search", "--index", index(lab), "--queries", put(lab, "a\n"), "--model", sentence_folder(lab, "two", ("cls", "max"))],
                f"the queries have {2 * HIDDEN} numbers each, and the index {HIDDEN}")


@SEARCH.row("--neighbours", "so many are found")
def neighbours(lab):
    lab.assertEqual([len(row) for row in by_model(lab, "-k", 2)], [2, 2])
    lab.assertEqual(by_model(lab, "--top-k", 2), [row[:2] for row in by_model(lab)])


@SEARCH.row("--similarity", "that is what is compared")
def similarity(lab):
    cosine, dot, euclidean, manhattan = (by_model(lab, "--similarity", name)[0] for name in ("cosine", "dot", "euclidean", "manhattan"))
    lab.assertAlmostEqual(cosine[0]["score"], 1, places=5)
    lab.assertAlmostEqual(euclidean[0]["score"], 0, places=3)
    lab.assertLess(manhattan[-1]["score"], euclidean[-1]["score"])
    lab.assertGreater(dot[0]["score"], 2)
    own = search(lab, "--model", sentence_folder(lab, "by-dot", similarity="dot"))
    lab.assertEqual([one["score"] for one in own[0]], [one["score"] for one in dot])


@SEARCH.row("--ids", "rows have these names")
def ids(lab):
    path = put(lab, "a\nb\nc\nd\ne\n", "ids.txt")
    lab.assertEqual(by_model(lab, "--ids", path)[0][0]["id"], "b")
    lab.refuses(["search", "--index", index(lab), "--queries", put(lab, "a\n"), "--model", lab.plain_model(), "--ids", put(lab, "a\n", "few.txt")],
                "expected a line for each of the 5 vectors, found 1")


@SEARCH.row("--ranges", "bytes of an index stand for numbers of them")
def index_ranges(lab):
    bytes_of = index(lab, "--vector-type", "int8")
    words = ["search", "--index", bytes_of, "--queries", put(lab, "good film\n", "one.txt"), "--model", sentence_folder(lab)]
    found = lab.succeeds(*words).out
    moved, aside = (lab.folder / name for name in ("moved.npy", "aside.npy"))
    shutil.copy(bytes_of, moved)
    shutil.copy(bytes_of.with_name(bytes_of.name + ".ranges.npy"), aside)
    words[2] = moved
    lab.refuses(words, "bytes need the ranges that they stand for; give --ranges FILE")
    lab.assertEqual(lab.succeeds(*words, "--ranges", aside).out, found)
    lab.assertEqual(json.loads(found)["neighbours"][0]["row"], 1)
    lab.assertAlmostEqual(json.loads(found)["neighbours"][0]["score"], 1, places=2)


@SEARCH.row("--output", "the results are there")
def search_output(lab):
    output = lab.folder / "found.jsonl"
    lab.assertEqual(by_model(lab, "--output", output), [])
    lab.assertEqual([json.loads(line)["neighbours"] for line in output.read_text().splitlines()], by_model(lab))


@SEARCH.row("--overwrite", "a file that is there is replaced; without it, it is left")
def search_overwrite(lab):
    path = put(lab, "mine", "there.jsonl")
    lab.refuses(["search", "--index", index(lab), "--queries", put(lab, "a\n"), "--model", lab.plain_model(), "--output", path], "--overwrite")
    by_model(lab, "--output", path, "--overwrite")
    lab.assertIn("neighbours", path.read_text())


def same_queries(lab, text, *words, name="queries.csv"):
    """Texts written in another way, and embedded with options, give what the plain lines give."""
    path = put(lab, text, name) if isinstance(text, str) else text
    out = lab.succeeds("search", "--index", index(lab), "--model", sentence_folder(lab), "--queries", path, *words).out
    lab.assertEqual([json.loads(line)["neighbours"] for line in out.splitlines()], by_model(lab))


@SEARCH.row("--format", "the texts are read as that")
def search_format(lab):
    same_queries(lab, "a,text\n1,good film\n2,old book\n", "--format", "csv", name="queries.data")


@SEARCH.row("--text-column", "the texts are those of that column")
def search_column(lab):
    same_queries(lab, "one,two\n1,good film\n2,old book\n", "--text-column", "two")


@SEARCH.row("--encoding", "the texts are converted from it")
def search_encoding(lab):
    path = lab.folder / "wide.txt"
    path.write_bytes("good film\nold book\n".encode("utf-16"))
    same_queries(lab, path, "--encoding", "UTF-16")


@SEARCH.row("--quotes", "csv: a quote opens a field")
def search_quotes(lab):
    same_queries(lab, 'text\n"good film"\n"old book"\n', "--quotes", "csv")


def scores_of(lab, *words, model=None, text="film\n"):
    out = lab.succeeds("search", "--index", index(lab), "--model", model or sentence_folder(lab), "--queries", put(lab, text, "asked.txt"), *words).out
    return [one["score"] for one in json.loads(out)["neighbours"]]


@SEARCH.row("--pooling", "a folder without modules pools so")
def search_pooling(lab):
    lab.assertNotEqual(scores_of(lab, "--pooling", "cls", model=lab.plain_model()), scores_of(lab, "--pooling", "mean", model=lab.plain_model()))
    lab.assertEqual(scores_of(lab, "--pooling", "mean", model=lab.plain_model()), scores_of(lab))


@SEARCH.row("--role", "the model's prompt for it stands before each query")
def search_role(lab):
    lab.assertEqual(scores_of(lab, "--role", "query"), scores_of(lab, text="good film\n"))


@SEARCH.row("--prompt-name", "that prompt of the model stands before each query")
def search_prompt_name(lab):
    lab.assertEqual(scores_of(lab, "--prompt-name", "other"), scores_of(lab, text="very old film\n"))


@SEARCH.row("--prompt", "it stands before each query")
def search_prompt(lab):
    lab.assertEqual(scores_of(lab, "--prompt", "good "), scores_of(lab, text="good film\n"))


@SEARCH.row("--truncate-dim", "the queries have so many numbers")
def search_truncate(lab):
    lab.refuses(["search", "--index", index(lab), "--queries", put(lab, "a\n"), "--model", lab.plain_model(), "--truncate-dim", 3],
                "the queries have 3 numbers each")


@SEARCH.row("--normalize", "the queries have length 1")
def search_normalize(lab):
    plain, unit = (scores_of(lab, "--similarity", "dot", *words) for words in ([], ["--normalize"]))
    lab.assertAlmostEqual(unit[0] / plain[0], unit[-1] / plain[-1], places=4)
    lab.assertLess(unit[0], plain[0])


@SEARCH.row("--max-length", "what is longer is cut off")
def search_length(lab):
    lab.assertEqual(scores_of(lab, "--max-length", 2 + SPECIAL, text="good film very old\n"), scores_of(lab, text="good film\n"))


@SEARCH.row("--precision", "the arithmetic has as many digits")
def search_precision(lab):
    exact, rough = scores_of(lab, "--precision", "fp32"), scores_of(lab, "--precision", "bf16")
    lab.assertTrue(0 < max(map(abs, less(exact, rough))) < 1e-2)


@SEARCH.row("--micro-batch-tokens", "the results are the same in smaller passes")
def search_tokens(lab):
    lab.assertEqual(scores_of(lab, "--micro-batch-tokens", 1), scores_of(lab))


@SEARCH.row("--window", "the results are the same, whatever is read ahead")
def search_window(lab):
    lab.assertEqual(by_model(lab, "--window", 1), by_model(lab))


@SEARCH.row("--device", "cpu computes here; cuda is refused where there is none")
def search_device(lab):
    shows_device(lab, ["search", "--index", index(lab), "--queries", put(lab, "film\n"), "--model", sentence_folder(lab), "--precision", "fp32"])


@SEARCH.row("--threads", "the results are the same")
def search_threads(lab):
    lab.assertEqual(by_model(lab, "--threads", 2), by_model(lab))


@SEARCH.row("--config", "a file's keys are options")
def search_config(lab):
    lab.assertEqual(by_model(lab, "--config", config_file(lab, "neighbours = 2\n")), by_model(lab, "-k", 2))
