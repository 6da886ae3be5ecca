#!/usr/bin/env python3
"""Writes the batches of a masked-language-model step that funicular and its peers are timed on.

The file is one JSON object: "batches" is a list of batches, a batch a list of rows, and a row an object with
"token_ids" (what the model sees: [CLS] … [SEP], masking done), "masked_positions" (ascending, counted from 0 in
the row) and "labels" (the token that stood at each of them). Nothing is padded. The other keys describe the file.

Every number comes from one rule, so that another program can make the same rows:

    mix(x)  = the output function of SplitMix64, x + 0x9E3779B97F4A7C15 being the state (Steele, Lea and Flood, 2014)
    draw(purpose, i) = mix(mix(mix(mix(seed) ^ batch) ^ row) ^ (purpose << 32 | i))       64 bits, without sign

with batch and row counted from 0. A row of --rows ragged has 32 + draw(0, 0) % 97 tokens (uniform in 32 … 128, the
two special ones included), one of --rows full 128. Other programs of bench/ may ask for another longest row n: ragged
rows then have n / 4 … n tokens. Token i is 1000 + draw(1, i) % (vocabulary - 1000): ordinary
tokens of BERT's vocabulary; the speed of a step does not depend on which. Of the n tokens between [CLS] and [SEP]
those (3 n + 10) // 20 (15 %, rounded) with the smallest draw(2, i) are masked: by draw(3, i) % 10 8 of 10 become
[MASK], one a random token, 1000 + draw(4, i) % (vocabulary - 1000), and one stays.
"""
import argparse
import json
from pathlib import Path

CLS, SEP, MASK, FIRST_ORDINARY = 101, 102, 103, 1000
BITS = (1 << 64) - 1
LENGTH, TOKEN, ORDER, REPLACE, SUBSTITUTE = range(5)


def mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & BITS
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & BITS
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & BITS
    return x ^ x >> 31


def row_key(seed: int, batch: int, row: int) -> int:
    return mix(mix(mix(seed) ^ batch) ^ row)


def row_length(seed: int, batch: int, row: int, rows: str, longest: int = 128) -> int:
    shortest = longest // 4
    return longest if rows == "full" else shortest + mix(row_key(seed, batch, row) ^ LENGTH << 32) % (longest - shortest + 1)


def make_row(seed: int, batch: int, row: int, rows: str, vocabulary: int, longest: int = 128) -> dict:
    key = row_key(seed, batch, row)

    def draw(purpose: int, i: int) -> int:
        return mix(key ^ (purpose << 32 | i))

    def token(purpose: int, i: int) -> int:
        return FIRST_ORDINARY + draw(purpose, i) % (vocabulary - FIRST_ORDINARY)

    length = row_length(seed, batch, row, rows, longest)
    ordinary = range(1, length - 1)
    seen = [CLS, *(token(TOKEN, i) for i in ordinary), SEP]
    masked = sorted(sorted(ordinary, key=lambda i: draw(ORDER, i))[:(3 * len(ordinary) + 10) // 20])
    labels = [seen[i] for i in masked]
    for i in masked:
        choice = draw(REPLACE, i) % 10
        if choice < 9:
            seen[i] = MASK if choice < 8 else token(SUBSTITUTE, i)
    return {"token_ids": seen, "masked_positions": masked, "labels": labels}


def make_batches(seed: int, rows: str, batches: int, batch_size: int, vocabulary: int, longest: int = 128) -> dict:
    return {"seed": seed, "rows": rows, "batch_size": batch_size, "vocabulary_size": vocabulary,
            "batches": [[make_row(seed, batch, row, rows, vocabulary, longest) for row in range(batch_size)]
                        for batch in range(batches)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--rows", choices=["ragged", "full"], default="ragged")
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vocabulary", type=int, default=30522)
    args = parser.parse_args()
    made = make_batches(args.seed, args.rows, args.batches, args.batch_size, args.vocabulary)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(made, separators=(",", ":")) + "\n")
    real = [sum(len(row["token_ids"]) for row in batch) for batch in made["batches"]]
    area = [max(len(row["token_ids"]) for row in batch) * len(batch) for batch in made["batches"]]
    print(f"{args.output}: {len(real)} batches of {args.batch_size} rows, {sum(real) / len(real):.0f} tokens each, "
          f"{100 * sum(real) / sum(area):.0f} % of the padded area")


if __name__ == "__main__":
    main()
