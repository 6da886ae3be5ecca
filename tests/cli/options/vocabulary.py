"""What the options of vocabulary do."""

from harness import HIDDEN, VOCABULARY, encoder_shapes, json, random_weights, write_model, write_safetensors

from .lab import *

PROPOSE, EXTEND = Table(), Table()
WORD_ROWS = "embeddings.word_embeddings.weight"
BIAS = "cls.predictions.bias"


def model(lab):
    """With a decoder's bias, whose rows are tokens too."""
    def make(path):
        shapes = {**encoder_shapes(), BIAS: [len(VOCABULARY)]}
        write_model(path, extra_shapes=shapes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        write_safetensors(path / "model.safetensors", random_weights(shapes))
        return path
    return lab.once("with_bias", make)


def extend(lab, words, name, source=None, *more):
    path, output = lab.folder / f"{name}-words.txt", lab.folder / name
    path.write_text(words)
    result = lab.succeeds("vocabulary", "extend", "--model", source or model(lab), "--words", path, "--output", output, *more).json()
    return output, result


def refuses(lab, words, *phrases, more=()):
    path = lab.folder / "bad.txt"
    path.write_text(words)
    lab.refuses(["vocabulary", "extend", "--model", model(lab), "--words", path, "--output", lab.folder / "none", *more], *phrases)
    lab.assertFalse((lab.folder / "none").exists())
    lab.assertEqual(list(lab.folder.glob(".tmp-*")), [])


def rows_of(values, number, width):
    return list(values[number * width:(number + 1) * width])


@EXTEND.row("--model", "its weights and tokens stay as they are, and new ones begin with the means of their pieces")
def extended_model(lab):
    folder, result = extend(lab, "abc\nfilms\n", "extended")
    lab.assertEqual(result, {"added": 2, "left_out": 0, "tokens": len(VOCABULARY) + 2})
    words = (folder / "vocab.txt").read_text().split()
    lab.assertEqual(words, VOCABULARY + ["abc", "films"])
    lab.assertEqual(json.loads((folder / "config.json").read_text())["vocab_size"], len(words))
    before, after = tensors(model(lab) / "model.safetensors"), tensors(folder / "model.safetensors")
    lab.assertEqual(before.keys(), after.keys())
    for name, values in before.items():
        lab.assertEqual(list(after[name][:len(values)]), list(values), name)
        lab.assertEqual(len(after[name]) == len(values), name not in (WORD_ROWS, BIAS), name)
    for name, width in ((WORD_ROWS, HIDDEN), (BIAS, 1)):
        for number, pieces in enumerate((["a", "##b", "##c"], ["film", "##s"])):
            rows = [rows_of(before[name], VOCABULARY.index(piece), width) for piece in pieces]
            for found, *of_pieces in zip(rows_of(after[name], len(VOCABULARY) + number, width), *rows, strict=True):
                lab.assertAlmostEqual(found, sum(of_pieces) / len(pieces), places=7)
    again, result = extend(lab, "fabc\n", "again", folder)
    lab.assertEqual((again / "vocab.txt").read_text().split(), words + ["fabc"])
    trains(lab, folder, words)
    extends_the_generator_too(lab)
    lab.refuses(["vocabulary", "extend", "--model", lab.folder / "missing", "--words", lab.folder / "extended-words.txt", "--output",
                 lab.folder / "none"], "missing")


def extends_the_generator_too(lab):
    pair = write_model(lab.folder / "electra", model_type="electra", embedding_size=HIDDEN)
    write_model(pair / "generator", model_type="electra", embedding_size=HIDDEN, num_hidden_layers=1)
    folder, _ = extend(lab, "abc\n", "both", pair)
    for one, other in ((pair, folder), (pair / "generator", folder / "generator")):
        lab.assertEqual((other / "vocab.txt").read_text().split(), VOCABULARY + ["abc"])
        lab.assertEqual(json.loads((other / "config.json").read_text())["vocab_size"], len(VOCABULARY) + 1)
        before, after = tensors(one / "model.safetensors")[WORD_ROWS], tensors(other / "model.safetensors")[WORD_ROWS]
        lab.assertEqual(list(after[:len(before)]), list(before))
        lab.assertEqual(len(after), len(before) + HIDDEN)
    (pair / "generator" / "vocab.txt").write_text("\n".join([*VOCABULARY[:-1], "other"]) + "\n")
    lab.refuses(["vocabulary", "extend", "--model", pair, "--words", lab.folder / "both-words.txt", "--output", lab.folder / "none"],
                "both read one table of embeddings", "move the generator elsewhere")


def trains(lab, folder, words):
    """What is written is read: by tokenize, which finds the new words, and by pretrain."""
    text, store = lab.folder / "text.txt", lab.folder / "extended.tokens"
    text.write_text("abcd films Film fabc\n")
    lab.succeeds("tokenize", "--tokenizer", folder, "--input", text, "--output", store)
    numbers = list(memoryview((store / "tokens.bin").read_bytes()).cast("H"))
    lab.assertEqual([words[number] for number in numbers], ["abc", "##d", "films", "film", "f", "##a", "##b", "##c"])
    lab.succeeds("pretrain", "--model", folder, "--train", store, "--output", lab.folder / "run", "--max-steps", 1, "--max-length", 16)


@EXTEND.row("--words", "each becomes a token; one that cannot is refused with its line and what to do")
def words(lab):
    refuses(lab, "abc\nab cd\n", "bad.txt:2", "\"ab cd\"", "put each of its words on a separate line")
    refuses(lab, "abc\n\nfilm\n", "bad.txt:3", "has it already, as token", "leave the line out")
    refuses(lab, "Films\n", "bad.txt:1", "write \"films\"")
    refuses(lab, "", "at least one new word")
    lab.refuses(["vocabulary", "extend", "--model", model(lab), "--output", lab.folder / "none"], "--words is required")
    for words in (["shrink"], [], ["extend", "extend"]):
        lab.refuses(["vocabulary", *words, "--model", model(lab)], "funicular vocabulary extend or funicular vocabulary train")


@EXTEND.row("--output", "the folder lies there, and none is replaced")
def output(lab):
    folder, _ = extend(lab, "abc\n", "there")
    lab.assertLessEqual({"config.json", "model.safetensors", "tokenizer.json", "vocab.txt"}, {path.name for path in folder.iterdir()})
    path = lab.folder / "there-words.txt"
    again = ["vocabulary", "extend", "--model", model(lab), "--words", path, "--output", folder]
    lab.assertIn("is complete already", lab.succeeds(*again).err)
    path.write_text("abcd\n")
    lab.refuses(again, "exists; choose another folder")
    lab.refuses(["vocabulary", "extend", "--model", model(lab), "--words", path], "--output is required")


@EXTEND.row("--skip-bad-words", "words that cannot become tokens are named, not refused")
def skip_bad_words(lab):
    path, words = lab.folder / "skipped.txt", ["film", "abc", *(f"ab {i}" for i in range(6))]
    path.write_text("\n".join(words) + "\n")
    done = lab.succeeds("vocabulary", "extend", "--model", model(lab), "--words", path, "--output", lab.folder / "skipped", "--skip-bad-words")
    lab.assertEqual(done.json(), {"added": 1, "left_out": 7, "tokens": len(VOCABULARY) + 1})
    lab.assertEqual(done.err.count("left out: "), 5)
    lab.assertIn(f'left out: {path}:1: "film": the vocabulary has it already', done.err)
    lab.assertIn("7 words in all cannot become tokens", done.err)
    refuses(lab, "film\n", "1 that cannot become tokens,", "bad.txt:1", more=["--skip-bad-words"])
    lab.refuses(["vocabulary", "propose", "--model", model(lab), "--data", "none", "--skip-bad-words"], "for funicular vocabulary extend")


TEXT = "xyz xyz xyz xyz xyz\n\n" + " ".join(["ab"] * 6 + ["long"] * 9 + ["songs"] * 7) + "\n"


def propose(lab, *more, text=TEXT):
    path = lab.folder / "corpus.txt"
    path.write_text(text)
    return lab.succeeds("vocabulary", "propose", "--model", model(lab), *(["--input", path] if "--data" not in more else []), *more)


@PROPOSE.row("--input", "its words that are cut into pieces are listed, those first that save most, ready for extend")
def proposed(lab):
    done = propose(lab)
    lab.assertEqual(done.out, "xyz\t5\tx ##y ##z\nsongs\t7\tsong ##s\nab\t6\ta ##b\n")
    lab.assertIn("27 words, 50 tokens", done.err)
    lab.assertIn("with these 3 words the text has 27 tokens, 46.0 % fewer", done.err)
    folder, _ = extend(lab, done.out, "proposed")
    lab.assertIn("0 different words are cut", lab.succeeds("vocabulary", "propose", "--model", folder, "--input", lab.folder / "corpus.txt").err)
    lab.refuses(["vocabulary", "propose", "--model", model(lab)], "give one of them")


@PROPOSE.row("--data", "the words are those of a store")
def data(lab):
    path, store = lab.folder / "corpus.txt", lab.folder / "corpus.tokens"
    path.write_text(TEXT)
    lab.succeeds("tokenize", "--tokenizer", model(lab), "--input", path, "--output", store)
    lab.assertEqual(propose(lab, "--data", store).out, propose(lab).out)
    lab.refuses(["vocabulary", "extend", "--model", model(lab), "--words", path, "--output", lab.folder / "none", "--data", store],
                "for funicular vocabulary propose")


@PROPOSE.row("--count", "no more words are listed")
def count(lab):
    lab.assertEqual([line.split("\t")[0] for line in propose(lab, "--count", 2).out.splitlines()], ["xyz", "songs"])


@PROPOSE.row("--min-count", "rarer words are not listed")
def least_times(lab):
    lab.assertEqual([line.split("\t")[0] for line in propose(lab, "--min-count", 6).out.splitlines()], ["songs", "ab"])
    lab.assertIn("--min-count sets how often", propose(lab, "--min-count", 50).err)


@PROPOSE.row("--min-pieces", "words of fewer pieces are not listed")
def least_pieces(lab):
    lab.assertEqual([line.split("\t")[0] for line in propose(lab, "--min-pieces", 3).out.splitlines()], ["xyz"])


@EXTEND.row("--config", "a file's keys are options")
def extend_config(lab):
    path = lab.folder / "words.txt"
    path.write_text("abc\n")
    lab.succeeds("vocabulary", "extend", "--config", config_file(lab, f'model = "{model(lab)}"\nwords = "{path}"\n'), "--output",
                 lab.folder / "by_file")


EXTEND.row("--help", "the options are listed")(shows_help)
