#!/usr/bin/env python3
"""Compares Funicular's tokenisers of pieces with Hugging Face `tokenizers`: ids, word starts and offsets.

Unigram and BPE with byte fallback, under the normalisers and splitters of XLM-R, CamemBERT, bge-m3, ALBERT, DeBERTa-v3, T5, Gemma
and Llama 2, with vocabularies that are made up here: pieces of all scripts, some twice, some of equal scores, some missing.
With --vocabularies also the real ones that vocabularies.py fetches, and the models of SentencePiece beside `sentencepiece`.
Texts: every code point alone and inside words; random strings; malformed UTF-8; every file under --data. Fails unless the number
of differences is 0.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

from byte_bpe_sweep import STRINGS, every_kind
from character_maps import character_map
from tokenizer_sweep import CODE_POINTS, Pools, Sweep, invalid_utf8

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

MARK = "\u2581"
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
MORE = [MARK, f"a{MARK}b", f" {MARK}", f"{MARK} ", "<unk>", "<0x41>", "``", "''", "\u2460\u0301", "A\u0302\u0300", "\u30d5\u309a", "\uff26",
        "\ufb01x", "\u00a8", "a\u00a8 b", " \u00a8", "\u200b", "a\u200b b", "\ufdfa", "\u0600 a", "\u0915\u094d\u0915\u0301", "\u00a9\u200d\u2764\u0301",
        "\u1100\u1161\u0301", "\u1161\u0301", "\u037a", "\u2474", "\u3000", "a \u0301b", "\u0e33", "\t", "\n", "a\nb", "12,", "1,2"]


def made_up_pieces(rng, pools, bytes_too):
    """Pieces with scores: characters, most of them, and longer ones; some twice, some with the same score."""
    pieces = [(token, 0.0) for token in SPECIAL]
    characters = sorted({c for block in pools.blocks for c in block if c.isprintable() or c == MARK})
    pieces += [(c, -rng.uniform(5, 12)) for c in characters if rng.random() < 0.8]
    pieces += [(MARK, -2.5), ("abc", -3.0), ("ab", -3.0), ("aa", -4.0), ("aaa", -6.0), ("a", -2.0), (f"{MARK}a", -2.0)]
    if bytes_too:
        pieces += [(f"<0x{byte:02X}>", 0.0) for byte in range(256)]
    letters = [c for c in characters if c.isalnum()]
    for _ in range(8000):
        pool = "abcdefghij" if rng.random() < 0.6 else letters
        piece = "".join(rng.choice(pool) for _ in range(rng.randint(1, 5)))
        pieces.append((rng.choice(("", MARK)) + piece, round(-rng.uniform(3, 15), 1)))
    return pieces


def unigram(pieces, normalizer, splitter, added=True, byte_fallback=False):
    tokenizer = Tokenizer(models.Unigram(pieces, 3, byte_fallback))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if splitter is not None:
        tokenizer.pre_tokenizer = splitter
    tokenizer.add_special_tokens(SPECIAL + [AddedToken("<mask>", lstrip=True)])
    if added:
        tokenizer.add_tokens(every_kind())
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return tokenizer


def metaspace(scheme="always", split=True):
    return pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme=scheme, split=split)


def words():
    return pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace()])


def own_map():
    """Form KC of many characters, longer texts, and what becomes blanks or nothing."""
    nfkc = normalizers.NFKC().normalize_str
    table = {chr(c): nfkc(chr(c)) for c in CODE_POINTS if c < 0x30000 and c % 3 and nfkc(chr(c)) != chr(c)}
    table.update({"A\u0302": "\u00c2", "A\u0302\u0300": "\u1ea6", "e\u0301": "\u00e9", "\t": " ", "\n": " ", "\u200b": " ", "\u00ad": "", "\u3000": " ",
                  "\u0001": "", "\u2028": " ", "'": "\u2019", "xyz": "q", "\ufeff": ""})
    return character_map(table)


def of_unigram(pools, rng, table):
    pieces, in_bytes = made_up_pieces(rng, pools, False), made_up_pieces(rng, pools, True)
    compiled = normalizers.Precompiled(table)
    blanks = normalizers.Replace(Regex(" {2,}"), " ")
    n = normalizers
    yield "XLM-R", unigram(pieces, compiled, words(), added=False)
    yield "XLM-R, added tokens", unigram(pieces, compiled, words())
    yield "bge-m3", unigram(pieces, n.Sequence([compiled, n.Strip(left=False, right=True), n.Replace(Regex(" {2,}"), MARK)]),
                            metaspace(), added=False)
    yield "ALBERT", unigram(pieces, n.Sequence([n.Replace("``", '"'), n.Replace("''", '"'), n.NFKD(), n.StripAccents(), n.Lowercase(), compiled,
                                                blanks]), metaspace())
    yield "DeBERTa", unigram(pieces, n.Sequence([n.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), n.NFC(), n.Strip(left=False, right=True)]),
                             pre_tokenizers.Sequence([pre_tokenizers.Punctuation(behavior="isolated"), metaspace("first")]), added=False)
    yield "DeBERTa, stripped", unigram(pieces, n.Sequence([n.Lowercase(), n.Strip(), compiled, blanks]), metaspace(), added=False)
    yield "bytes", unigram(in_bytes, n.NFKC(), words(), byte_fallback=True)
    yield "trained here", unigram(pieces, n.Sequence([n.Nmt(), n.NFKC()]), words(), added=False)
    yield "trained here, lower-cased", unigram(pieces, n.Sequence([n.Nmt(), n.NFKC(), n.Lowercase()]), words(), added=False)
    yield "never", unigram(in_bytes, n.Nmt(), metaspace("never"), byte_fallback=True, added=False)
    yield "first", unigram(pieces, n.Sequence([n.NFKD(), n.StripAccents()]), metaspace("first"))
    yield "first of words", unigram(pieces, n.NFD(), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace("first")]))
    yield "no splitting", unigram(pieces, n.Sequence([n.Prepend(MARK), n.Replace(" ", MARK)]), None)
    for behavior in ("removed", "merged_with_previous", "merged_with_next", "contiguous", "isolated"):
        yield f"split {behavior}", unigram(pieces, None, pre_tokenizers.Sequence([pre_tokenizers.Split("a", behavior), metaspace()]), added=False)


def random_steps(rng, table):
    """A normaliser of two to five steps, and a splitter."""
    n, p = normalizers, pre_tokenizers
    steps = (n.NFC, n.NFKC, n.NFD, n.NFKD, n.Nmt, n.Lowercase, n.StripAccents, n.Strip, lambda: n.Strip(left=False), lambda: n.Strip(right=False),
             lambda: n.Replace(Regex(" {2,}"), rng.choice((" ", MARK, ""))), lambda: n.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "),
             lambda: n.Precompiled(rng.choice(table)), lambda: n.Replace("ab", "_"), lambda: n.Replace("A", rng.choice("\u0301\u3000\u00a0")),
             lambda: n.Replace(" ", rng.choice((MARK, "_"))), lambda: n.Prepend(rng.choice((MARK, "x"))), lambda: n.Replace("B", "\u4e2da"))
    marks = lambda: p.Metaspace(rng.choice((MARK, MARK, MARK, "_")), rng.choice(("always", "first", "never")), rng.random() < 0.8)  # noqa: E731
    punctuation = lambda: p.Punctuation(rng.choice(("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")))  # noqa: E731
    splitters = ([p.WhitespaceSplit], [p.WhitespaceSplit, marks], [marks], [marks, marks], [p.WhitespaceSplit, punctuation, marks],
                 [punctuation, marks], [marks, punctuation], [p.WhitespaceSplit, marks, punctuation])
    return n.Sequence([rng.choice(steps)() for _ in range(rng.randint(1, 5))]), p.Sequence([part() for part in rng.choice(splitters)])


def of_random_steps(pools, rng, count):
    """Chains of steps that no model has: only the way for all rules may read them."""
    table = [own_map(), character_map({"a": "", "x": " ", "\u00e9": " z", "e\u0301": "E", "\u4e2d": "\u4e2d \u6587"}), character_map({" ": MARK, "b": MARK})]
    pieces = made_up_pieces(rng, pools, False)[:4] + [(c, -5 - i / 100) for i, c in enumerate(f"abcdefxyzAB_!.,#\u00e9\u4e2d{MARK}12")]
    pieces += [(MARK + c, -4 - i / 100) for i, c in enumerate("abcxyz_!")] + [("ab", -4.1), (f"{MARK}ab", -3.3), ("b_", -2.0), ("_a", -2.5), ("a!", -3.1)]
    pieces += [(f"a{MARK}b", -3.0), (MARK + MARK, -3.7), (f"x{MARK}", -3.9)]
    for number in range(count):
        normalizer, splitter = random_steps(rng, table)
        tokenizer = unigram(pieces, normalizer, splitter, added=False)
        yield f"random steps {number}", tokenizer


def short_text(rng):
    parts = ["a", "b", "ab", "x", "A", "B", " ", " ", "  ", "!", "_", MARK, "\u00e9", "e\u0301", "\u3000", "\u00a0", "\t", "\n", "\u200b", "\u4e2d", "?", "1", "\u0301"]
    return "".join(rng.choice(parts) for _ in range(rng.randint(1, 9)))


def made_up_bpe(rng, pools, bytes_too):
    vocabulary = {token: i for i, token in enumerate(SPECIAL)}
    if bytes_too:
        for byte in range(256):
            vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    characters = sorted({c for block in pools.blocks for c in block if c.isprintable()} | {MARK})
    for c in characters:
        if rng.random() < 0.6 or ord(c) < 128 or c == MARK:
            vocabulary[c] = len(vocabulary)
    merges, common = [], [*"abcdefghij", MARK]
    known = [c for c in characters if c in vocabulary and c.isalnum()]
    for _ in range(4000):
        pool = common if rng.random() < 0.7 else known
        left, right = (rng.choice([t for t in (rng.choice(pool), rng.choice(pool) + rng.choice(pool)) if t in vocabulary] or ["a"])
                       for _ in range(2))
        vocabulary.setdefault(left + right, len(vocabulary))
        merges.append((left, right))
    return vocabulary, list(dict.fromkeys(merges))


def of_bpe(pools, rng):
    replace = normalizers.Replace(" ", MARK)
    for name, normalizer, splitter, options in (
            ("Gemma", replace, pre_tokenizers.Split(" ", "merged_with_previous"), dict(fuse_unk=True)),
            ("Llama 2", normalizers.Sequence([normalizers.Prepend(MARK), replace]), None, dict(fuse_unk=True)),
            ("Llama, new", None, metaspace("first", False), dict(fuse_unk=False)),
            ("characters", replace, None, dict(byte_fallback=False, fuse_unk=True)),
            ("characters, each", None, metaspace(), dict(byte_fallback=False, fuse_unk=False)),
            ("characters, dropped", None, words(), dict(byte_fallback=False, unk_token=None)),
            ("merges ignored", None, metaspace(), dict(ignore_merges=True))):
        options = dict(dict(byte_fallback=True, unk_token="<unk>"), **options)
        vocabulary, merges = made_up_bpe(rng, pools, options["byte_fallback"] and rng.random() < 2)
        tokenizer = Tokenizer(models.BPE(vocabulary, merges, **options))
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        if splitter is not None:
            tokenizer.pre_tokenizer = splitter
        tokenizer.add_special_tokens(SPECIAL)
        if "each" in name:
            tokenizer.add_tokens(every_kind())
        yield name, tokenizer


def splits_words(tokenizer):
    def splits(part):
        if part["type"] == "Sequence":
            return any(splits(one) for one in part["pretokenizers"])
        return part["type"] not in ("Split", "Metaspace") or part.get("split", False) or part.get("pattern", {}).get("String", " ") != " "

    splitter = json.loads(tokenizer.to_str())["pre_tokenizer"]
    return splitter is not None and splits(splitter)


def text_of(pools, rng):
    text = pools.text(rng)
    for _ in range(rng.randint(0, 3)):
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(STRINGS if rng.random() < 0.4 else MORE) + text[at:]
    return text


def compare_models(sweep, folder, texts):
    """The models of SentencePiece, by the rules of XLM-R, beside `sentencepiece` itself; ids of pieces are one more. It adds
    scores in float, so that it takes another of two ways whose sums are equal. It reads the text <unk> as characters."""
    try:
        import sentencepiece
    except ImportError:
        print("without sentencepiece, which is not installed")
        return
    plain, ties = [t.replace("\t", " ").replace("\r", "").replace("<unk>", "unk") for t in texts], 0
    for path in sorted(folder.glob("*unigram*.model")):
        with tempfile.TemporaryDirectory() as own:
            copy = pathlib.Path(own) / "sentencepiece.bpe.model"
            copy.write_bytes(path.read_bytes())
            peer = sentencepiece.SentencePieceProcessor(model_file=str(path))
            for text, ids, (found, *_) in zip(plain, peer.encode(plain), sweep.answers(str(copy), [t.encode() for t in plain])):
                sweep.texts += 1
                want = [i + 1 if i else 3 for i in ids]
                if want == found:
                    continue
                score = lambda some: sum(peer.get_score(i - 1) if i != 3 else 0 for i in some)  # noqa: E731
                if want.count(3) == found.count(3) and abs(score(want) - score(found)) < 1e-3:
                    ties += 1
                    continue
                sweep.report(path.name, f"{ascii(text[:100])}\n    expected {want[:20]}\n    found    {found[:20]}")
    print(f"beside sentencepiece: {ties} ties taken otherwise")


def lines_of(folder):
    """The lines of every file, by their files."""
    return {file: file.read_bytes().decode("utf-8", "replace").split("\n") for file in sorted(folder.rglob("*")) if file.is_file()}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("helper", help="the program tokenize_lines")
    arguments.add_argument("--strings", type=int, default=1_000_000, help="random strings (default: %(default)s)")
    arguments.add_argument("--points", type=int, default=1, metavar="N", help="every Nth code point (default: all)")
    arguments.add_argument("--chains", type=int, default=200, help="random chains of steps (default: %(default)s)")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--data", type=pathlib.Path, help="compare on every line of every file in this folder, too")
    arguments.add_argument("--vocabularies", type=pathlib.Path, help="folder that vocabularies.py has filled")
    arguments.add_argument("--threads", type=int, default=2)
    options = arguments.parse_args()

    sweep, pools, rng = Sweep(options.helper, options.threads), Pools(), random.Random(options.seed)
    pools.special += ["<s>", "<mask>", " <mask>", "</s>x"]
    points = [t for c in CODE_POINTS[:: options.points] for t in (chr(c), f"ab{chr(c)}cd", f" {chr(c)} 1", f"a{chr(c)}\u0301\u0302")]
    joined = [" ".join(points[i : i + 64]) for i in range(0, len(points), 64)]
    strings = [text_of(pools, rng) for _ in range(options.strings)]
    broken = list(invalid_utf8(rng, 2000))
    data = lines_of(options.data) if options.data else {}
    real = sorted(options.vocabularies.glob("*/tokenizer.json")) if options.vocabularies else []
    maps = sorted(options.vocabularies.glob("*.bin")) if options.vocabularies else []
    with tempfile.TemporaryDirectory() as folder:
        made = [*of_unigram(pools, rng, own_map()), *of_bpe(pools, rng)]
        for path in maps:
            made += [(f"{name}, {path.name}", tokenizer) for name, tokenizer in of_unigram(pools, rng, path.read_bytes()) if name[:4] in ("XLM-", "bge-")]
        subjects = [(name, tokenizer, None) for name, tokenizer in made] + [(p.parent.name, Tokenizer.from_file(str(p)), p) for p in real]
        for name, tokenizer in of_random_steps(pools, rng, options.chains):
            path = pathlib.Path(folder) / "chain" / "tokenizer.json"
            path.parent.mkdir(exist_ok=True)
            tokenizer.save(str(path))
            sweep.checks_words = splits_words(tokenizer)
            sweep.compare(name, Tokenizer.from_file(str(path)), str(path), ["a !b", "_a", "a _a b", "x A b"] + [short_text(rng) for _ in range(200)])
        print(f"{options.chains} random chains: {sweep.differences} differences", flush=True)
        for number, (name, tokenizer, path) in enumerate(subjects):
            if path is None:
                path = pathlib.Path(folder) / str(number) / "tokenizer.json"
                path.parent.mkdir()
                tokenizer.save(str(path))
                tokenizer = Tokenizer.from_file(str(path))  # scores of a file may differ in the last bit
            before, sweep.checks_words = sweep.differences, splits_words(tokenizer)
            drawn = strings if path in real else strings[number :: len(made)]
            sweep.compare(name, tokenizer, str(path), [*(points if name == "XLM-R" else joined), *drawn, *broken])
            for file, lines in data.items() if path in real or number < 4 else ():
                sweep.compare(f"{name}, {file.name}", tokenizer, str(path), lines)
            print(f"{name}: {sweep.differences - before} differences so far in {sweep.texts} texts", flush=True)
        if options.vocabularies:
            compare_models(sweep, options.vocabularies, [line for lines in data.values() for line in lines])
    print(f"{sweep.differences} differences in {sweep.texts} texts")
    sys.exit(1 if sweep.differences else 0)


if __name__ == "__main__":
    main()
