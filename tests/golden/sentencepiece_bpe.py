#!/usr/bin/env python3
"""SentencePiece models of BPE give the ids, offsets and special tokens of LlamaTokenizer and GemmaTokenizer of transformers.

Models are trained here with `sentencepiece`, with and without bytes, on texts that are made up here or on the files of --text. Each
stands alone in a folder with a tokenizer_config.json. The copy that Funicular saves is compared as well. `sentencepiece` is the second
witness where the class has no rules of its own.

Usage: sentencepiece_bpe.py TOKENIZE_LINES [--text FILE] [--strings N]
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))
import environment

environment.need("transformers", "sentencepiece")

import sentencepiece
import transformers.convert_slow_tokenizer as conversion
from byte_bpe_sweep import STRINGS
from piece_sweep import MORE, text_of
from tokenizer_sweep import Pools, Sweep
from tokenizers import Tokenizer
from transformers import AutoTokenizer

CONFIGS = [{}, {"legacy": True}, {"legacy": False, "add_bos_token": True}, {"add_prefix_space": False, "add_eos_token": True},
           {"add_prefix_space": None, "add_bos_token": True, "add_eos_token": True, "pad_token": "<pad>", "unk_token": "<unk>"},
           {"bos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": False, "normalized": False, "rstrip": True, "single_word": False}},
           {"add_bos_token": True, "add_eos_token": True, "cls_token": "</s>", "sep_token": "<s>"}, {"add_bos_token": True, "add_eos_token": True, "bos_token": None},
           {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "add_eos_token": True, "eos_token": None, "bos_token": "<s>"},
           {"tokenizer_class": "GemmaTokenizer"}, {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "bos_token": "<s>", "mask_token": "<sep>"}]


NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6
OF_USER = ["<user>", "  "]


class ModelProto:
    """What transformers reads of a model with `protobuf`, which the tests do without: here `sentencepiece` reads it."""

    def ParseFromString(self, data):
        model = sentencepiece.SentencePieceProcessor(model_proto=data)

        def kind(i):
            if model.id_to_piece(i) in OF_USER:
                return USER
            return UNKNOWN if model.is_unknown(i) else CONTROL if model.is_control(i) else BYTE if model.is_byte(i) else NORMAL

        self.pieces = [types.SimpleNamespace(piece=model.id_to_piece(i), score=model.get_score(i), type=kind(i))
                       for i in range(len(model))]
        self.trainer_spec = types.SimpleNamespace(unk_id=model.unk_id(), model_type=2)
        self.normalizer_spec = types.SimpleNamespace(precompiled_charsmap=b"")


conversion.requires_backends = lambda *_: None
conversion.import_protobuf = lambda *_: types.SimpleNamespace(ModelProto=ModelProto)


def made_up_lines(rng, count):
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(1, 9))) for _ in range(400)]
    words += ["caf\u00e9", "\u4e2d\u6587", "\u0440\u0443\u0441\u0441\u043a\u0438\u0439", "12", "1999", "...", "Word", "it's"]
    return [" ".join(rng.choice(words) for _ in range(rng.randint(3, 12))) for _ in range(count)]


def trained(folder, lines, in_bytes, size):
    text = folder / "text.txt"
    text.write_text("\n".join(lines), encoding="utf-8")
    prefix = folder / f"model{int(in_bytes)}"
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(prefix), model_type="bpe", vocab_size=size, byte_fallback=in_bytes, normalization_rule_name="identity",
        remove_extra_whitespaces=False, split_digits=True, user_defined_symbols=OF_USER, control_symbols=["<sep>"],
        max_sentence_length=100_000, num_threads=1, minloglevel=2)
    return prefix.with_suffix(".model")


def compare_sequences(sweep, name, peer, tokenizer):
    """Special tokens around one text and two, as the saved copy puts them."""
    for texts in (("a b",), ("the end", "of it")):
        want = peer(*texts)["input_ids"]
        found = tokenizer.encode(*texts).ids
        sweep.texts += 1
        if want != found:
            sweep.report(name, f"{texts}: expected {want}, found {found}")


def compare_sentencepiece(sweep, model, folder, texts):
    """The peer of this comparison adds a blank to texts that begin with one, knows no special tokens in texts, and makes marks of blanks
    before it looks for the user's pieces."""
    peer = sentencepiece.SentencePieceProcessor(model_file=str(model))
    plain = [t for t in texts if t and not t.startswith((" ", "\u2581")) and "<" not in t and "  " not in t and "\x00" not in t]
    for text, ids, (found, *_) in zip(plain, peer.encode(plain), sweep.answers(str(folder), [t.encode() for t in plain])):
        sweep.texts += 1
        if ids != found:
            sweep.report("sentencepiece", f"{ascii(text[:100])}\n    expected {ids[:20]}\n    found    {found[:20]}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("helper", help="the program tokenize_lines")
    arguments.add_argument("--text", type=pathlib.Path, help="a file of lines to train on and to compare on")
    arguments.add_argument("--strings", type=int, default=2000, help="random strings (default: %(default)s)")
    arguments.add_argument("--size", type=int, default=700, help="pieces of each model (default: %(default)s)")
    options = arguments.parse_args()
    rng, pools, sweep = random.Random(7), Pools(), Sweep(options.helper, 2)
    pools.special = ["<s>", "</s>", "<unk>", "<user>", "<sep>", "<user> ", " <s>", "<0x41>"]
    lines = options.text.read_text(encoding="utf-8").split("\n") if options.text else made_up_lines(rng, 1500)
    texts = lines[:3000] + [text_of(pools, rng) for _ in range(options.strings)] + STRINGS + MORE
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for in_bytes in (True, False):
            model = trained(root, lines, in_bytes, options.size)
            for number, config in enumerate(CONFIGS):
                folder = root / f"folder{int(in_bytes)}{number}"
                folder.mkdir()
                (folder / "tokenizer.model").write_bytes(model.read_bytes())
                (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer", **config}))
                peer = AutoTokenizer.from_pretrained(folder)
                sweep.checks_words = False
                part = f"bytes {in_bytes}, {config}"
                sweep.compare(part, peer.backend_tokenizer, str(folder), texts if number < 2 else texts[-1500:])
                copy = root / (folder.name + "-copy")
                subprocess.run([options.helper, "--copy", str(folder), str(copy)], check=True)
                saved = Tokenizer.from_file(str(copy / "tokenizer.json"))
                sweep.compare(f"{part}, saved", saved, str(folder), texts[-700:])
                compare_sequences(sweep, f"{part}, sequences", peer, saved)
            if in_bytes:
                compare_sentencepiece(sweep, model, root / "folder10", texts)
    print(f"{sweep.differences} differences in {sweep.texts} texts")
    sys.exit(1 if sweep.differences else 0)


if __name__ == "__main__":
    main()
