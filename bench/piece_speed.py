#!/usr/bin/env python3
"""How fast Unigram and BPE with byte fallback read text, beside Hugging Face `tokenizers`: one thread each, in turns, by processor time.

Both go from the same texts in memory to ids: Funicular to one array, as for training, `tokenizers` to an Encoding for each text. Both
read the texts once before they are timed, so the caches of both know the words. Run it on a quiet machine.
"""

import argparse
import os
import pathlib
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
import environment

environment.need("tokenizers")
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer

OURS, PEERS = 30_000_000, 1_500_000  # bytes that are read, at least, and bytes of text, at most


def lines_of(path):
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return [line for file in files for line in file.read_bytes().decode("utf-8", "replace").split("\n") if line]


def seconds_of(helper, path, payload, times):
    done = subprocess.run([helper, "--seconds", str(path), str(times)], input=payload, stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


def first_bytes(lines, limit):
    taken, size = [], 0
    for line in lines:
        if taken and size + len(line.encode()) > limit:
            break
        taken.append(line)
        size += len(line.encode())
    return taken, size


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("helper", help="the program tokenize_lines")
    arguments.add_argument("--tokenizer", type=pathlib.Path, nargs="+", required=True, help="files tokenizer.json")
    arguments.add_argument("--text", type=pathlib.Path, nargs="+", required=True, help="files or folders of text")
    arguments.add_argument("--turns", type=int, default=5)
    options = arguments.parse_args()
    for text in options.text:
        lines, size = first_bytes(lines_of(text), PEERS)
        payload = b"".join(struct.pack("<I", len(line.encode())) + line.encode() for line in lines)
        times = max(1, OURS // size)
        for path in options.tokenizer:
            peer, turns = Tokenizer.from_file(str(path)), []
            peer.encode_batch(lines, add_special_tokens=False)
            for _ in range(options.turns):
                own = seconds_of(options.helper, path, payload, times + 1) - seconds_of(options.helper, path, payload, 1)
                begin = time.process_time()
                peer.encode_batch(lines, add_special_tokens=False)
                turns.append((size * times / own / 1e6, size / (time.process_time() - begin) / 1e6))
            turns.sort(key=lambda turn: turn[0] / turn[1])
            own, other = turns[len(turns) // 2]
            print(f"{text.name}, {path.parent.name}: {own:.1f} MB/s, tokenizers {other:.2f} MB/s, median ratio {own / other:.1f}", flush=True)


if __name__ == "__main__":
    main()
