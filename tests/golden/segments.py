#!/usr/bin/env python3
"""Chinese words are those of jieba.lcut(text, HMM=False), with jieba's own dictionary: of all Chinese text in FUNICULAR_SHARED_DATA
where there is some, and of random strings.

Usage: segments.py SEGMENT_LINES [--strings N] [--speed]   (--speed also prints how much faster it is)
"""

import argparse
import importlib.util
import os
import pathlib
import random
import struct
import subprocess
import sys
import time

if importlib.util.find_spec("jieba") is None:
    print(f"skipped: {sys.prefix} has no jieba; ./run setup puts it there")
    sys.exit(77)

import jieba

jieba.setLogLevel("ERROR")
DICTIONARY = pathlib.Path(jieba.__file__).parent / "dict.txt"


def segments(program, texts, *words):
    payload = b"".join(struct.pack("<I", len(t.encode())) + t.encode() for t in texts)
    return subprocess.run([program, *words, DICTIONARY], input=payload, capture_output=True, check=True).stdout


def words_of(program, texts):
    found, at = segments(program, texts), 0
    for text in texts:
        (count,) = struct.unpack_from("<I", found, at)
        lengths = struct.unpack_from(f"<{count}I", found, at + 4)
        at += 4 + 4 * count
        raw, begin, words = text.encode(), 0, []
        for length in lengths:
            words.append(raw[begin:begin + length].decode())
            begin += length
        yield words + ([raw[begin:].decode()] if begin < len(raw) else [])


def texts_of(folder):
    """Lines with an ideograph of every file below."""
    for path in sorted(folder.rglob("*.t*")) + sorted(folder.rglob("*dev*")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
        if path.parent.name == "peopledaily":  # a character a line, a blank line between sentences
            lines = "\n".join(line.split(" ")[0] for line in lines).replace("\n\n", "\0").replace("\n", "").split("\0")
        yield from (line for line in lines if any("\u4e00" <= c <= "\u9fff" for c in line))


def random_strings(count):
    source = random.Random(5)
    entries = [line.split(" ")[0] for line in DICTIONARY.read_text(encoding="utf-8").splitlines()]
    common = [line.split(" ")[0] for line in DICTIONARY.read_text(encoding="utf-8").splitlines() if int(line.split(" ")[1]) > 500]
    singles = list("abcXYZ0129 .,+#&_%-\t\n\r\u3000\u00a0\u2028，。！？ｅ１\u9fd5\u9fd6\u3400\U00020000\u4dff\u0301é")
    for _ in range(count):
        parts = source.choice([entries, common, singles, "ideographs"])
        pieces = []
        for _ in range(source.randrange(1, 12)):
            chosen = source.choice([parts, entries, common, singles, "ideographs"])
            if chosen == "ideographs":
                pieces.append(chr(source.randrange(0x4E00, 0x9FD6)))
            else:
                word = source.choice(chosen)
                pieces.append(word[source.randrange(len(word)):] if source.random() < 0.3 else word)
        yield "".join(pieces)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program")
    options.add_argument("--strings", type=int, default=20000)
    options.add_argument("--speed", action="store_true")
    options = options.parse_args()
    texts = list(random_strings(options.strings)) + ["", "\r\n", "\n\r", "a", "1b", "\r"]
    data = os.environ.get("FUNICULAR_SHARED_DATA", "")
    if data:
        texts += texts_of(pathlib.Path(data))
    different = 0
    for text, words in zip(texts, words_of(options.program, texts), strict=True):
        wanted = jieba.lcut(text, HMM=False)
        if words != wanted:
            different += 1
            if different < 10:
                print(f"{text!r}: {words} instead of {wanted}")
    print(f"{different} of {len(texts)} texts differ")
    if options.speed:
        size = sum(len(text.encode()) for text in texts)
        start = time.perf_counter()
        for text in texts:
            jieba.lcut(text, HMM=False)
        theirs = time.perf_counter() - start
        ours = float(segments(options.program, texts, "--speed"))
        print(f"{size / ours / 1e6:.1f} against {size / theirs / 1e6:.2f} MB/s: {theirs / ours:.1f} times")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
