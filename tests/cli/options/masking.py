"""What the options of masking do, of pretrain and of mask, which shows the same masks."""

import os
import pty
import re
import subprocess
import unittest

from harness import PROGRAM, VOCABULARY, WORDS, environment, json, write_model

from .lab import *
from .own import hidden_tokens

MASKING, MASK = Table(), Table()
SINGLE = WORDS + LETTERS  # tokens that are words
IDEOGRAPHS = list("中国人民研究生命起源")
UNIT = re.compile(r"\{([^|{}]*)\|([^{}]*)\}")


def words(options):
    found = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        found += [option] if value is True else [option, *map(str, value if isinstance(value, list) else [value])]
    return found


def text_file(lab, text, name="text"):
    path = lab.folder / f"{name}.txt"
    path.write_text(text)
    return path


def mask(lab, text, tokenizer=None, **options):
    """What mask says of the text, as JSON with examples."""
    return lab.succeeds("mask", "--tokenizer", tokenizer or lab.plain_model(), "--input", text_file(lab, text), "--show", "--json",
                        *words({"max_length": 64, **options})).json()


def units(found, number=0):
    """(what stood there, what is shown) of the units of an example."""
    return UNIT.findall(found["examples"][number])


def hidden_words(found):
    return {word for stood, _ in units(found) for word in stood.split()}


FORTY = " ".join(SINGLE[:40])


def both_hide(lab, name, text=FORTY, **options):
    """The words that mask says are hidden; pretrain hides the same."""
    found = hidden_words(mask(lab, text, sequences=1, **options))
    if lab.command == "pretrain":
        lab.assertEqual(hidden_tokens(lab, name, text, **options), found)
    return found


def row(option, does):
    """Of both commands."""
    def add(show):
        MASKING.row(option, does)(show)
        MASK.row(option, does)(show)
        return show
    return add


@row("--masking", "tokens, words, n-grams, spans or entities are hidden")
def masking(lab):
    lexicon = text_file(lab, "nothing of the kind\n", "lexicon")
    hidden = {}
    for name in ("token", "whole-word", "ngram", "span", "entity"):
        more = {"lexicon": lexicon} if name == "entity" else {}
        hidden[name] = both_hide(lab, "forty", masking=name, mlm_probability=0.3, **more)
    lab.assertEqual(hidden["token"], hidden["whole-word"])
    lab.assertEqual(hidden["whole-word"], hidden["entity"])
    lab.assertEqual(len({frozenset(value) for value in hidden.values()}), 3)
    for name, longest in (("token", 1), ("ngram", 4), ("span", 10)):
        found = mask(lab, "\n\n".join([FORTY] * 100), masking=name, mlm_probability=0.3)
        lab.assertEqual(max(map(int, found["units"]["by_words"])), longest)


@row("--ngram-shares", "n-grams have so many words in these shares")
def ngram_shares(lab):
    both_hide(lab, "forty", masking="ngram", ngram_shares=[0, 1])
    found = mask(lab, "\n\n".join([FORTY] * 200), masking="ngram", ngram_shares=[6, 0, 3, 1])["units"]["by_words"]
    for length, share in (("1", 0.6), ("3", 0.3), ("4", 0.1)):
        lab.assertAlmostEqual(found[length]["share"], share, delta=0.08)
    lab.assertLess(found.get("2", {"share": 0})["share"], 0.03)  # cut at the end of a text
    refused = ["mask", "--tokenizer", lab.plain_model(), "--input", text_file(lab, FORTY)]
    lab.refuses([*refused, "--masking", "ngram", "--ngram-shares", "half"], "--ngram-shares expects numbers, found \"half\"")
    lab.refuses([*refused, "--ngram-shares", "1"], "--ngram-shares does nothing without --masking ngram")


@row("--lexicon", "its entities are hidden whole")
def lexicon(lab):
    entity = SINGLE[3:9]
    path = text_file(lab, " ".join(entity) + "\n" + " ".join(entity[:2]) + "\n", "lexicon")
    whole = 0
    for seed in range(6):
        found = hidden_words(mask(lab, FORTY, sequences=1, masking="entity", lexicon=path, mlm_probability=0.5, seed=seed))
        lab.assertIn(len(found & set(entity)), (0, len(entity)))
        whole += found >= set(entity)
    lab.assertTrue(0 < whole < 6)
    both_hide(lab, "forty", masking="entity", lexicon=path, mlm_probability=0.5)


@row("--word-weights", "words of a larger weight are hidden more often, those of 0 never")
def word_weights(lab):
    path = text_file(lab, "".join(f"{word}\t0\n" for word in SINGLE[4:]), "weights")
    hidden = both_hide(lab, "forty", masking="whole-word", word_weights=path, mlm_probability=0.5)
    lab.assertEqual(hidden, set(SINGLE[:4]))


def chinese_model(lab):
    vocabulary = [token if not token.isdigit() else IDEOGRAPHS[int(token)] for token in VOCABULARY]
    return lab.once("chinese", lambda path: write_model(path, vocabulary=vocabulary))


@row("--word-dictionary", "Chinese characters are words as the dictionary says")
def word_dictionary(lab):
    path = text_file(lab, "中国 50 n\n人民 40 n\n研究 30 v\n生命 20 n\n起源 10 n\n研究生 3 n\n", "dictionary")
    text = "中国人民good研究生命起源film"
    with_words = {"masking": "whole-word", "mlm_probability": 0.5, "sequences": 200}
    found = mask(lab, text, chinese_model(lab), word_dictionary=path, examples=200, **with_words)
    seen = {stood for number in range(200) for stood, _ in units(found, number)}
    lab.assertEqual(seen, {"中国", "人民", "good", "研究", "生命", "起源", "film"})
    lines = mask(lab, "人民中\n国人民", chinese_model(lab), word_dictionary=path, examples=200, **with_words)
    seen = {stood for number in range(200) for stood, _ in units(lines, number)}
    lab.assertEqual(seen, {"人民", "中", "国"})  # no word goes on in the next line
    for options in ({"pack_sentences": "within"}, {"objective": "mlm-nsp"}, {"objective": "mlm-sop"}):
        lines = mask(lab, "人民中\n国人民\n\ngood", chinese_model(lab), word_dictionary=path, examples=200, **options, **with_words)
        seen = {stood for number in range(200) for stood, _ in units(lines, number)}
        cut = {"人"} if options.get("objective") == "mlm-nsp" else set()  # the other document's part is as long as what it replaces
        lab.assertEqual(seen - cut, {"人民", "中", "国", "good"}, options)
    without = mask(lab, text, chinese_model(lab), **with_words)
    lab.assertEqual(without["units"]["mean_tokens"], 1)
    if lab.command == "pretrain":
        store = lab.folder / "chinese.tokens"
        if not store.exists():
            lab.succeeds("tokenize", "--tokenizer", chinese_model(lab), "--input", text_file(lab, text), "--output", store)
        runs = [lab.train(model=chinese_model(lab), train=store, masking="whole-word", mlm_probability=0.5, **more)
                for more in ({}, {"word_dictionary": path})]
        lab.assertNotEqual(*[run.each("loss") for run in runs])


def similar_file(lab):
    return text_file(lab, "".join(f"{word}\tbook good\n" for word in SINGLE if word not in ("book", "good")), "similar")


@row("--replacement", "what is hidden becomes [MASK], or a similar word")
def replacement(lab):
    found = {}
    for name, more in (("bert", {}), ("similar", {"similar_words": similar_file(lab)})):
        options = {"masking": "whole-word", "replacement": name, **more}
        found[name] = mask(lab, "\n\n".join([FORTY] * 100), **options)["shown"]
        both_hide(lab, "forty", **options)
    lab.assertAlmostEqual(found["bert"]["mask"]["share"], 0.8, delta=0.05)
    lab.assertEqual(found["bert"]["similar"]["tokens"], 0)
    lab.assertAlmostEqual(found["similar"]["similar"]["share"], 0.8 * 38 / 40, delta=0.05)
    lab.assertEqual(found["similar"]["mask"]["tokens"], 0)


@row("--similar-words", "similar words are those of the file")
def similar_words(lab):
    options = {"masking": "whole-word", "replacement": "similar", "mlm_probability": 0.5}
    found = mask(lab, "\n\n".join([FORTY] * 20), similar_words=similar_file(lab), examples=20, **options)
    shown = [shown for number in range(20) for stood, shown in units(found, number) if stood != shown]
    lab.assertGreater(sum(word in ("book", "good") for word in shown), 0.7 * len(shown))
    lab.assertGreater(found["without_similar"]["words"], 0)
    if lab.command == "pretrain":
        other = text_file(lab, "".join(f"{word}\told\n" for word in SINGLE if word != "old"), "others")
        runs = [lab.train(similar_words=path, **options) for path in (similar_file(lab), other)]
        lab.assertNotEqual(*[run.each("loss") for run in runs])


def vectors_file(lab):
    """Words on a line: the nearest are those beside."""
    lines = "".join(f"{word} {number} {2 * number + 1} 1\n" for number, word in enumerate(SINGLE[:40]))
    return text_file(lab, "40 3\n" + lines, "vectors")


def similar_shown(lab, **options):
    """Words that were shown instead of the last of SINGLE's forty by similarity."""
    found = mask(lab, " ".join(SINGLE[30:40]), sequences=300, examples=300, masking="whole-word", replacement="similar",
                 similar_words=vectors_file(lab), mlm_probability=0.5, **options)
    counts = {}
    for number in range(300):
        for stood, shown in units(found, number):
            if stood == SINGLE[39] and shown != stood:
                counts[shown] = counts.get(shown, 0) + 1
    return found, {word for word, count in counts.items() if count > 10}


def shows_vectors(lab, option, few, many, read):
    for value in (few, many):
        found, shown = similar_shown(lab, **{option: value})
        lab.assertTrue(read(value, found, shown), (value, found["without_similar"], shown))
    if lab.command == "pretrain":
        options = {"masking": "whole-word", "replacement": "similar", "similar_words": vectors_file(lab)}
        lab.assertNotEqual(*[lab.train(**{option: value}, **options).each("loss") for value in (few, many)])


@row("--similar-count", "so many of the nearest words may be shown")
def similar_count(lab):
    shows_vectors(lab, "similar_count", 1, 4, lambda value, found, shown: len(shown) == value)


@row("--similar-vocabulary", "only the first so many words of the file have similar ones")
def similar_vocabulary(lab):
    shows_vectors(lab, "similar_vocabulary", 20, 40, lambda value, found, shown: found["without_similar"]["share"] == (value == 20))


@row("--compat", "a program's own rules are followed")
def compat(lab):
    text = "\n\n".join([FORTY] * 100)
    share = lambda **options: mask(lab, text, **options)["shown"]["mask"]["share"]
    lab.assertEqual(share(masking="whole-word", compat="hf"), 1)
    lab.assertLess(share(masking="whole-word", compat="google"), 0.9)
    numbers = {name: {len(hidden_words({"examples": [line]})) for line in mask(lab, text, compat=name, examples=100)["examples"]}
               for name in ("none", "google", "hf")}
    lab.assertEqual((numbers["none"], numbers["google"]), ({6}, {6}))
    lab.assertGreater(len(numbers["hf"]), 4)
    words = mask(lab, "good,bad film", masking="whole-word", compat="hf", mlm_probability=0.5, sequences=50, examples=50)
    lab.assertEqual({stood for number in range(50) for stood, _ in units(words, number)}, {"good", ",", "bad", "film"})
    both_hide(lab, "forty", compat="fairseq")
    both_hide(lab, "forty", masking="span", compat="spanbert", mlm_probability=0.3)
    lab.refuses(["mask", "--tokenizer", lab.plain_model(), "--input", text_file(lab, text), "--compat", "spanbert"],
                "--compat spanbert knows --masking span, found token")


@row("--pack-sentences", "sequences are filled with whole rows, within documents or across them")
def pack_sentences(lab):
    rows = [SINGLE[:5], SINGLE[5:11], SINGLE[11:18], SINGLE[18:27]]
    text = "{}\n{}\n\n{}\n\n{}\n".format(*map(" ".join, rows))
    counts = {}
    for name in ("none", "within", "across"):
        found = mask(lab, text, pack_sentences=name, max_length=24 if name == "across" else 10, sequences=8, examples=8)
        lines = [UNIT.sub(lambda unit: unit[1], line) for line in found["examples"]]
        counts[name] = sorted({len(line.split()) for line in lines})
        if name == "across":
            lab.assertIn(" ".join(["[CLS]", *rows[0], *rows[1], "[SEP]", *rows[2], "[SEP]"]), lines)
    lab.assertEqual(counts, {"none": [6, 7, 8, 9], "within": [3, 7, 8, 9, 10], "across": [11, 21]})
    if lab.command == "pretrain":
        store = lab.folder / "packed.tokens"
        if not store.exists():
            lab.succeeds("tokenize", "--tokenizer", lab.plain_model(), "--input", text_file(lab, text), "--output", store)
        for name, tokens in (("within", [13, 9, 11]), ("across", [21, 11])):
            lab.assertEqual(lab.train(train=store, pack_sentences=name, batch_size=1, max_steps=len(tokens)).tokens, tokens)
        lab.refuses_to_train("--pack-sentences across", "--eval STORE", pack_sentences="across", eval_fraction=0.5)
        lab.refuses_to_train("--pack-sentences fills sequences of one text", pack_sentences="within", objective="mlm-sop")


# ---- of mask alone


@MASK.row("--mlm-probability", "that share of the tokens is hidden")
def mlm_probability(lab):
    for share in (0.15, 0.4):
        found = mask(lab, "\n\n".join([FORTY] * 10), mlm_probability=share, sequences=10)
        lab.assertEqual((found["hidden_share"], found["hidden_tokens"]), (share, 400 * share))


@MASK.row("--whole-words", "all pieces of a word are hidden, or none")
def whole_words(lab):
    text = " ".join(first + second for first, second in zip(LETTERS[:20], LETTERS[1:]))
    lab.assertEqual(mask(lab, text, whole_words=True)["units"]["mean_tokens"], 2)
    lab.assertEqual(mask(lab, text)["units"]["mean_tokens"], 1)
    lab.refuses(["mask", "--tokenizer", lab.plain_model(), "--input", text_file(lab, text), "--whole-words", "--masking", "span"],
                "--whole-words is --masking whole-word, found --masking span too")


@MASK.row("--static-masks", "the same tokens are hidden again every so many epochs")
def static_masks(lab):
    lines = mask(lab, FORTY, static_masks=2, sequences=4)["examples"]
    lab.assertEqual((lines[0], lines[1]), (lines[2], lines[3]))
    lab.assertNotEqual(lines[0], lines[1])
    lab.assertEqual(len(set(mask(lab, FORTY, sequences=4)["examples"])), 4)


@MASK.row("--tokenizer", "its tokens are hidden, and its [MASK] is shown")
def tokenizer(lab):
    lab.assertIn("|[MASK]}", mask(lab, FORTY, sequences=1)["examples"][0])
    other = lab.once("other", lambda path: write_model(path, vocabulary=VOCABULARY[:-len(WORDS)]))
    lab.assertEqual(mask(lab, "film", other)["tokens"], 4 * 1000)
    lab.refuses(["mask", "--tokenizer", lab.folder / "none", "--input", text_file(lab, "film")], "no such file or folder")


@MASK.row("--input", "its rows are masked, documents separated by blank lines")
def inputs(lab):
    lab.assertEqual(mask(lab, "film\nbook\n\nsong\n", sequences=2)["tokens"], 3)
    lab.refuses(["mask", "--tokenizer", lab.plain_model(), "--input", text_file(lab, "")], "no rows")


@MASK.row("--data", "its rows are masked instead")
def data(lab):
    store = lab.tokenized("some", ["film book", "good"])
    found = lab.succeeds("mask", "--tokenizer", lab.plain_model(), "--data", store, "--json", "--sequences", 2).json()
    lab.assertEqual(found["tokens"], 3)
    lab.refuses(["mask", "--tokenizer", lab.plain_model(), "--data", store, "--input", text_file(lab, "film")], "give one of them")


def on_terminal(lab, *words):
    """What the command writes to a terminal."""
    try:
        reads, writes = pty.openpty()
    except OSError as error:
        raise unittest.SkipTest(f"no terminal can be made: {error}")
    process = subprocess.Popen([PROGRAM, *map(str, words)], stdout=writes, stderr=subprocess.DEVNULL, env=environment())
    os.close(writes)
    seen = b""
    try:
        while part := os.read(reads, 1 << 16):
            seen += part
    except OSError:  # a terminal's other end is closed
        pass
    os.close(reads)
    lab.assertEqual(process.wait(), 0)
    return seen.decode().replace("\r\n", "\n")


@MASK.row("--show", "masked sequences come first, in plain text where nobody looks")
def show(lab):
    words = ["mask", "--tokenizer", lab.plain_model(), "--input", text_file(lab, FORTY)]
    plain, shown = lab.succeeds(*words).out, lab.succeeds(*words, "--show").out
    lab.assertTrue(shown.endswith("\n\n" + plain))
    lab.assertTrue(shown.startswith("[CLS] "))
    lab.assertNotIn("\033", shown)
    seen = on_terminal(lab, *words, "--show")
    lab.assertRegex(seen, r"\033\[32m\w+\033\[0m \033\[31m\[MASK\]\033\[0m")
    lab.assertIn("\n\n\033[32mwhat stood there\033[0m, and what is shown: \033[31m[MASK]\033[0m, \033[33mrandom\033[0m, "
                 "\033[34msimilar\033[0m, \033[90mthe same\033[0m\n\n", seen)
    lab.assertEqual(seen.count("[CLS]"), 10)
    lab.assertNotIn("\033", on_terminal(lab, *words))  # nothing of it is a masked sequence
    lab.assertNotIn("\033", on_terminal(lab, *words, "--show", "--json"))
    lab.assertIn("6 hidden, 15.00 %", lab.succeeds(*words, "--sequences", 1).out)
    for phrase in ("shown as [MASK] ", ", random ", "units of 1.00 words", " 1 word  100.00 %", "with every word hidden: 0.00 %; with none: 0.00 %"):
        lab.assertIn(phrase, plain)


@MASK.row("--examples", "so many sequences are printed")
def examples(lab):
    for number in (1, 7):
        lab.assertEqual(len(mask(lab, FORTY, examples=number)["examples"]), number)


@MASK.row("--sequences", "so many sequences are masked and counted")
def sequences(lab):
    for number in (1, 30):
        lab.assertEqual(mask(lab, FORTY, sequences=number)["sequences"], number)


@MASK.row("--json", "the numbers are one JSON object, with shares that add up")
def as_json(lab):
    found = mask(lab, FORTY, masking="span")
    lab.assertAlmostEqual(sum(how["share"] for how in found["shown"].values()), 1)
    lab.assertAlmostEqual(sum(number["share"] for number in found["units"]["by_words"].values()), 1)
    lab.assertEqual(sum(how["tokens"] for how in found["shown"].values()), found["hidden_tokens"])
    lab.assertEqual(mask(lab, "film", sequences=5)["all_words_hidden"], {"sequences": 5, "share": 1})
    lab.assertEqual(found["no_word_hidden"], {"sequences": 0, "share": 0})


@MASK.row("--objective", "sequences are made for it")
def objective(lab):
    for name, separators in (("mlm", 1), ("mlm-nsp", 2), ("mlm-sop", 2)):
        line = mask(lab, FORTY, objective=name, sequences=1)["examples"][0]
        lab.assertEqual(line.count("[SEP]"), separators, name)
    # What ELECTRA's generator reads: 85 % of what is hidden as [MASK], the rest as it is, or with similar words 85 % of those.
    shares = lambda **options: {name: how["share"] for name, how in mask(lab, FORTY, objective="electra", sequences=400, **options)["shown"].items()}
    masked, similar = shares(), shares(masking="whole-word", replacement="similar", similar_words=similar_file(lab))
    for found, name in ((masked["mask"], "mask"), (similar["similar"] + similar["random"], "similar")):
        lab.assertAlmostEqual(found, 0.85, delta=0.03, msg=name)
    lab.assertEqual((masked["random"], masked["similar"], similar["mask"]), (0, 0, 0))


@MASK.row("--max-length", "longer documents are cut into pieces")
def max_length(lab):
    lab.assertEqual(mask(lab, FORTY, max_length=12, sequences=4)["tokens"], 40)
    lab.assertEqual(mask(lab, FORTY, sequences=1)["tokens"], 40)


@MASK.row("--seed", "other seeds hide other tokens")
def seed(lab):
    lines = [mask(lab, FORTY, seed=number, sequences=1)["examples"][0] for number in (1, 1, 2)]
    lab.assertEqual(lines[0], lines[1])
    lab.assertNotEqual(lines[0], lines[2])


@MASK.row("--config", "a file's keys are options")
def mask_config(lab):
    lab.assertEqual(mask(lab, FORTY, config=config_file(lab, "sequences = 3\n"))["sequences"], 3)


MASK.row("--help", "the options are listed")(shows_help)
