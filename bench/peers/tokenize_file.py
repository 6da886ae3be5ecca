#!/usr/bin/env python3
"""What a user of Hugging Face tokenizers writes to turn a file of texts, one a line, into a file of ids.

Reads --chunk lines at a time, encodes them with encode_batch_fast (no offsets, no padding, no truncation, no special
tokens), and appends their ids to --output: 16 bits each where the vocabulary allows, else 32. It starts as fast as it can:
it imports nothing but tokenizers and numpy. Beside it `funicular tokenize` also writes where rows and words begin, and
checksums. Prints one JSON object.
"""
import argparse
import itertools
import json
import os
import time
from pathlib import Path

import measure

os.environ["TOKENIZERS_PARALLELISM"] = "true"  # measure switches it off
import numpy as np
from tokenizers import Tokenizer


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, required=True, help="directory with tokenizer.json")
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--chunk", type=int, default=10_000, metavar="LINES")
    parser.add_argument("--threads", type=int, default=measure.cores())
    return parser.parse_args()


def main() -> None:
    args = arguments()
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)
    tokenizer = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    width = np.uint16 if tokenizer.get_vocab_size() <= 1 << 16 else np.uint32
    args.output.parent.mkdir(parents=True, exist_ok=True)
    tokens, start = 0, time.perf_counter()
    with open(args.input, encoding="utf-8", newline="\n") as texts, open(args.output, "wb") as output:
        while lines := [line.rstrip("\n") for line in itertools.islice(texts, args.chunk)]:
            encodings = tokenizer.encode_batch_fast(lines, add_special_tokens=False)
            ids = np.fromiter(itertools.chain.from_iterable(encoding.ids for encoding in encodings), width)
            ids.tofile(output)
            tokens += ids.size
    print(json.dumps({"tokens": tokens, "bits": 8 * np.dtype(width).itemsize, "seconds_without_start": time.perf_counter() - start,
                      "options": {"threads": args.threads, "chunk": args.chunk},
                      "versions": measure.versions("tokenizers", "numpy")}))


if __name__ == "__main__":
    main()
