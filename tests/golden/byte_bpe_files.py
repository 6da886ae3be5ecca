#!/usr/bin/env python3
"""Files of byte-level BPE tokenizers go both ways: what transformers writes or reads, Funicular reads with the same ids;
what Funicular writes, transformers' AutoTokenizer loads without a warning and with the same ids, special tokens and types
included. Also beside a config.json of the families that have such tokenizers.

Usage: byte_bpe_files.py TOKENIZE_LINES
"""

import json
import logging
import pathlib
import sys
import tempfile
import warnings

import tokenizer_files
from tokenizer_files import Collect, expect, messages, run

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, GPT2Tokenizer, PreTrainedTokenizerFast, RobertaTokenizer

TEXTS = ["Hello, w\u00f6rld! it's 12 o'clock", " the  river\t<mask> climbs<mask>", "cafe\u0301 CAF\u00c9", "", "   ",
         "\u4e2d\u6587<s>river</s>", "<e1> new <e1>river", "\u3000\u200bx", "don't[MASK] we'll"]
IDS = {f"{role}_token_id": 0 for role in ("bos", "eos", "pad", "cls", "sep")}  # else a warning, for the vocabulary is small
LEARNT = ["the river climbs the hill, it's slow", "hello world, the boat goes down", "caf\u00e9 na\u00efve \u4e2d\u6587"] * 30


def learnt(specials):
    """Vocabulary and merges of a small tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(LEARNT, trainers.BpeTrainer(
        vocab_size=350, special_tokens=specials, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def folder_with_vocabulary(folder, specials, config):
    vocabulary, merges = learnt(specials)
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    lines = "".join(f"{a} {b}\n" for a, b in merges)
    (folder / "merges.txt").write_text("#version: 0.2\n" + lines, encoding="utf-8")
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def modernbert():
    specials = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    vocabulary, merges = learnt(specials)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, lstrip=t == "[MASK]") for t in specials])
    tokenizer.add_tokens([AddedToken("<e1>", lstrip=True), AddedToken("CAF\u00c9", normalized=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(t, vocabulary[t]) for t in ("[CLS]", "[SEP]")])
    names = dict(unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", mask_token="[MASK]")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"], **names)


def loaded_quietly(folder):
    messages.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = AutoTokenizer.from_pretrained(folder)
    return loaded, messages + [str(w.message) for w in caught]


def check(name, folder, peer, families):
    """Funicular reads `folder` as `peer` does, and its copy is the same to transformers beside each family's config."""
    want = [peer.encode(t, add_special_tokens=False) for t in TEXTS]
    found = ids_of(folder)
    expect(f"{name}: same ids", found == want, f"{found} instead of {want}")
    copy = pathlib.Path(str(folder) + "-copy")
    done = run("--copy", folder, copy)
    expect(f"{name}: copied", done.returncode == 0, done.stderr.decode())
    roles = ("unk_token", "pad_token", "cls_token", "sep_token", "mask_token")
    for family in families:
        if family:
            (copy / "config.json").write_text(json.dumps({"model_type": family, "vocab_size": len(peer), **IDS}))
        loaded, told = loaded_quietly(copy)
        expect(f"{name} as {family}: loaded without a warning", not told, told)
        expect(f"{name} as {family}: same size", len(loaded) == len(peer), f"{len(loaded)} instead of {len(peer)}")
        for pair in zip(TEXTS, TEXTS[1:]):
            for texts in (pair[:1], pair):
                ours, theirs = dict(loaded(*texts)), dict(peer(*texts))
                theirs.setdefault("token_type_ids", ours.get("token_type_ids"))
                ours.setdefault("token_type_ids", theirs["token_type_ids"])
                expect(f"{name} as {family}: the copy encodes {texts}", ours == theirs, f"{ours} instead of {theirs}")
        for role in roles:
            ours, theirs = getattr(loaded, role), getattr(peer, role)
            expect(f"{name} as {family}: {role}", ours == theirs, f"{ours} instead of {theirs}")
    (copy / "tokenizer.json").unlink()
    if len(peer) == len(json.loads((copy / "vocab.json").read_text(encoding="utf-8"))) and "NFC" not in name:
        again = ids_of(copy)
        expect(f"{name}: its vocab.json and merges.txt are enough", again == want, f"{again} not {want}")


def ids_of(folder):
    tokenizer_files.TEXTS[:] = TEXTS
    return tokenizer_files.ids_of(folder)


def main():
    logging.getLogger("transformers").addHandler(Collect())
    robertas = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        configs = [None, {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": True},
                   {"tokenizer_class": "RobertaTokenizer", "mask_token": {"__type": "AddedToken", "content": "<mask>",
                    "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}}]
        for number, config in enumerate(configs):
            folder = folder_with_vocabulary(root / f"roberta{number}", robertas, config)
            peer = RobertaTokenizer.from_pretrained(folder)
            check(f"vocab.json of RoBERTa with {config}", folder, peer, ["", "roberta"])
            saved = root / f"saved{number}"
            peer.save_pretrained(saved)
            check(f"tokenizer.json of RoBERTa with {config}", saved, peer, ["", "roberta", "xlm-roberta"])
        folder = folder_with_vocabulary(root / "gpt2", ["<|endoftext|>"], {"tokenizer_class": "GPT2Tokenizer"})
        check("vocab.json of GPT-2", folder, GPT2Tokenizer.from_pretrained(folder), ["", "gpt2"])
        peer = modernbert()
        peer.save_pretrained(root / "modernbert")
        check("tokenizer.json of ModernBERT (NFC)", root / "modernbert", peer, ["", "modernbert"])
    print(f"{len(tokenizer_files.failures)} failures")
    sys.exit(1 if tokenizer_files.failures else 0)


if __name__ == "__main__":
    main()
