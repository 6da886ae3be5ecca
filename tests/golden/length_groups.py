"""Rows grouped by length beside which we measure are grouped as transformers' own sampler groups them.

usage: length_groups.py
"""

import pathlib
import random
import sys

import torch
from transformers.trainer_pt_utils import get_length_grouped_indices

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/peers"))
import batch_plan  # noqa: E402


def main():
    source = random.Random(1)
    for rows, batch_size in ((5, 8), (37, 4), (900, 16), (1000, 4), (3200, 16), (25600, 128)):
        lengths = [source.randint(32, 128) for _ in range(rows)]
        order = torch.randperm(rows, generator=torch.Generator().manual_seed(rows)).tolist()
        theirs = get_length_grouped_indices(lengths, batch_size, generator=torch.Generator().manual_seed(rows))
        ours = batch_plan.length_grouped(lengths, batch_size, order)
        if ours != theirs:
            place = next(i for i, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1])
            sys.exit(f"{rows} rows in batches of {batch_size}: place {place} has row {ours[place]}, and transformers has row "
                     f"{theirs[place]} there")
    print("6 data sets are grouped by length as transformers groups them")


if __name__ == "__main__":
    main()
