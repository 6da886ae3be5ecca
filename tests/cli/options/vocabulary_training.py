"""What the options of vocabulary train do."""

from harness import json

from .lab import *

TRAIN = Table()
TEXT = "".join(f"{word}\n" * times for word, times in (("low", 5), ("lower", 2), ("Newest", 6), ("widest", 3)))
FIRST = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def train(lab, *more, text=TEXT, kind="wordpiece", name="text.txt"):
    """The tokens by id, and the folder, which is removed from its place."""
    path, output = lab.folder / name, lab.folder / f"trained-{len(list(lab.folder.glob('trained-*')))}"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = lab.succeeds("vocabulary", "train", "--kind", kind, "--input", path, "--output", output, *more)
    vocabulary = json.loads((output / "tokenizer.json").read_text())["model"]["vocab"]
    tokens = [piece for piece, _ in vocabulary] if isinstance(vocabulary, list) else sorted(vocabulary, key=vocabulary.get)
    lab.assertEqual(done.json()["tokens"], len(tokens))
    return tokens, output, done


def refuses(lab, words, *phrases):
    output = lab.folder / "refused"
    lab.refuses(["vocabulary", "train", "--output", output, *words], *phrases)
    lab.assertFalse(output.exists())


@TRAIN.row("--kind", "each is a tokeniser of its kind that tokenize takes; a kind is required")
def kind(lab):
    for name, type_ in (("wordpiece", "WordPiece"), ("bpe", "BPE"), ("byte-bpe", "BPE"), ("unigram", "Unigram")):
        _, output, done = train(lab, "--size", 600, kind=name)
        lab.assertEqual(json.loads((output / "tokenizer.json").read_text())["model"]["type"], type_)
        lab.assertIn("fewer than --size 600", done.err)
        lab.succeeds("tokenize", "--tokenizer", output, "--input", lab.folder / "text.txt", "--output", lab.folder / f"{name}.tokens")
        lab.assertEqual(json.loads((lab.folder / f"{name}.tokens" / "meta.json").read_text())["unknown_tokens"], 0)
    refuses(lab, ["--input", lab.folder / "text.txt"], "funicular vocabulary train: --kind is required")
    refuses(lab, ["--kind", "wordpiece"], "funicular vocabulary train: --input is required")
    empty = lab.folder / "empty.txt"
    empty.write_text("\n\n")
    refuses(lab, ["--kind", "unigram", "--input", empty], "the text has no words")
    lab.refuses(["vocabulary", "train", "--kind", "unigram", "--input", empty, "--output", lab.folder], "exists; choose another folder")
    _, output, _ = train(lab, "--size", 270, kind="byte-bpe")
    nested = lab.folder / "new" / "folder" / "tokeniser"
    lab.succeeds("vocabulary", "train", "--kind", "byte-bpe", "--size", 270, "--input", lab.folder / "text.txt", "--output", nested)
    lab.assertEqual((nested / "tokenizer.json").read_bytes(), (output / "tokenizer.json").read_bytes())
    lab.refuses(["vocabulary", "train", "--kind", "byte-bpe", "--input", lab.folder / "text.txt", "--output", lab.folder / "text.txt" / "t"], "is a file")
    refuses(lab, ["--kind", "bpe", "--input", empty, "--model", lab.folder], "--model is for funicular vocabulary extend")
    lab.refuses(["vocabulary", "propose", "--kind", "bpe"], "--kind is for funicular vocabulary train")


@TRAIN.row("--size", "so many tokens; one too small for the characters is refused")
def size(lab):
    tokens, *_ = train(lab, "--size", 24)
    lab.assertEqual(len(tokens), 24)
    refuses(lab, ["--kind", "wordpiece", "--input", lab.folder / "text.txt", "--size", 12], "a vocabulary of 12 tokens is too small", "expected at least 23")


@TRAIN.row("--min-frequency", "rarer pairs are no tokens")
def min_frequency(lab):
    rare = {"lower", "##er"}
    lab.assertLessEqual(rare, set(train(lab, "--min-frequency", 2)[0]))
    tokens, *_ = train(lab, "--min-frequency", 3)
    lab.assertFalse(rare & set(tokens))
    lab.assertIn("low", tokens)
    refuses(lab, ["--kind", "unigram", "--input", lab.folder / "text.txt", "--min-frequency", 3], "--min-frequency is not for --kind unigram")


@TRAIN.row("--limit-alphabet", "rarer characters get no token")
def limit_alphabet(lab):
    tokens, *_ = train(lab, "--limit-alphabet", 3)
    lab.assertEqual(sorted(token for token in tokens if len(token) == 1), ["e", "s", "w"])
    refuses(lab, ["--kind", "byte-bpe", "--input", lab.folder / "text.txt", "--limit-alphabet", 3], "its alphabet is the 256 bytes")


@TRAIN.row("--special-tokens", "they follow those of the kind, and are read as one token")
def special_tokens(lab):
    tokens, output, _ = train(lab, "--special-tokens", "[E1]", "[E2]")
    lab.assertEqual(tokens[:7], [*FIRST, "[E1]", "[E2]"])
    marked = lab.folder / "marked.txt"
    marked.write_text("[E1]low [E2]\n")
    lab.succeeds("tokenize", "--tokenizer", output, "--input", marked, "--output", lab.folder / "marked.tokens")
    lab.assertEqual(json.loads((lab.folder / "marked.tokens" / "meta.json").read_text())["unknown_tokens"], 0)
    refuses(lab, ["--kind", "wordpiece", "--input", lab.folder / "text.txt", "--special-tokens", "a\nb"], "has a control character")
    lab.assertEqual([token["content"] for token in json.loads((output / "tokenizer.json").read_text())["added_tokens"]], tokens[:7])
    refuses(lab, ["--kind", "wordpiece", "--input", lab.folder / "text.txt", "--special-tokens", "[SEP]"], '"[SEP]" is there already')


@TRAIN.row("--lowercase", "no upper case is left; the default of wordpiece alone")
def lowercase(lab):
    for kind, extra, lowers in (("wordpiece", [], True), ("wordpiece", ["--no-lowercase"], False), ("bpe", [], False), ("bpe", ["--lowercase"], True),
                                ("unigram", ["--lowercase"], True), ("unigram", ["--no-cased"], True), ("byte-bpe", ["--no-lowercase"], False)):
        tokens, output, _ = train(lab, "--size", 290, *extra, kind=kind)
        lab.assertEqual("N" not in tokens, lowers, (kind, extra))
        lab.assertEqual('owercase": true' in (output / "tokenizer.json").read_text() or '"Lowercase"' in (output / "tokenizer.json").read_text(), lowers)
    refuses(lab, ["--kind", "byte-bpe", "--input", lab.folder / "text.txt", "--lowercase"], "lower-case the text itself")


@TRAIN.row("--cased", "upper case is kept")
def cased(lab):
    lab.assertIn("N", train(lab, "--cased")[0])
    lab.assertIn("N", train(lab, "--cased", "--no-lowercase")[0])
    refuses(lab, ["--kind", "byte-bpe", "--input", lab.folder / "text.txt", "--no-cased"], "--no-cased is not for --kind byte-bpe")
    refuses(lab, ["--kind", "wordpiece", "--input", lab.folder / "text.txt", "--cased", "--lowercase"], "contradict each other")


@TRAIN.row("--text-column", "the column of a table, or the key of JSON lines")
def text_column(lab):
    tokens, *_ = train(lab, "--text-column", "body", text="title,body\nzzz,low\nzzz,low\n", name="table.csv")
    lab.assertIn("low", tokens)
    lab.assertNotIn("z", tokens)
    lab.assertIn("low", train(lab, text='{"text": "low"}\n{"text": "low"}\n', name="rows.jsonl")[0])
    refuses(lab, ["--kind", "wordpiece", "--input", lab.folder / "table.csv"], "table.csv is a table", "--text-column NAME")
    refuses(lab, ["--kind", "wordpiece", "--input", lab.folder / "text.txt", "--text-column", "2"], "--text-column is for tables and JSON lines")


@TRAIN.row("--header", "the first row is data with --no-header; without a word the command says that it names the columns")
def header(lab):
    rows = "".join(f"{word}\t0\n" for word in ("zebra", "low", "low"))
    tokens, _, done = train(lab, "--text-column", 1, text=rows, name="table.tsv")
    lab.assertNotIn("z", tokens)
    lab.assertIn("table.tsv: the first row names the columns; --no-header: it is data", done.err)
    tokens, _, done = train(lab, "--text-column", 1, "--no-header", text=rows, name="table.tsv")
    lab.assertIn("z", tokens)
    lab.assertNotIn("names the columns", done.err)
    refuses(lab, ["--kind", "wordpiece", "--input", lab.folder / "text.txt", "--no-header"], "--header is for tables")


@TRAIN.row("--skip-bad-rows", "lines that are not UTF-8 are left out and counted; without it they are refused by their place")
def skip_bad_rows(lab):
    bad = TEXT.encode() + b"\xA4\xA4\n"
    _, _, done = train(lab, "--skip-bad-rows", text=bad, name="bad.txt")
    lab.assertIn("1 ", done.err)
    lab.assertIn("left out", done.err)
    refuses(lab, ["--kind", "wordpiece", "--input", lab.folder / "bad.txt"], "bad.txt:17", "expected UTF-8")


@TRAIN.row("--max-length", "transformers cuts longer rows")
def max_length(lab):
    _, output, _ = train(lab, "--max-length", 77)
    lab.assertEqual(json.loads((output / "tokenizer_config.json").read_text())["model_max_length"], 77)
    refuses(lab, ["--kind", "wordpiece", "--input", lab.folder / "text.txt", "--max-length", "3000000000"], "at most 2147483647")


@TRAIN.row("--max-words", "the rarest words are forgotten, and not more of them than needed")
def max_words(lab):
    text = TEXT + "".join(f"{a}{b}{c}\n" for a in "abcdefghij" for b in "abcdefghij" for c in "abcdefghijk")
    tokens, _, done = train(lab, "--max-words", 1000, "--min-frequency", 0, text=text)
    lab.assertIn("more than 1000 different words: 104 rare words were forgotten", done.err)
    lab.assertEqual(done.json()["words"], 1000)
    lab.assertIn("low", tokens)


@TRAIN.row("--threads", "the vocabulary does not depend on it")
def threads(lab):
    one, three = (train(lab, "--threads", count, "--size", 30, kind="unigram")[1] for count in (1, 3))
    lab.assertEqual((one / "tokenizer.json").read_bytes(), (three / "tokenizer.json").read_bytes())
