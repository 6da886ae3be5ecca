#!/usr/bin/env python3
"""Contrastive training in sentence-transformers: one epoch of pairs in the file's order, with its Trainer's recipe.

The file has an object with anchor and positive per line. The loss is MultipleNegativesRankingLoss with its defaults.
AdamW without decay, linear warm-up and decay, gradients clipped at 1, fp32. The Trainer itself needs the package
datasets, so the loop stands here. Prints one JSON object.
"""
import argparse
import json
import math
import time
from pathlib import Path

import measure

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from transformers import get_linear_schedule_with_warmup


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--max-length", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--warmup-ratio", type=float, default=0.1)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--threads", type=int, default=measure.cores())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rows = [json.loads(line) for line in args.train.read_text(encoding="utf-8").splitlines()]
    model = SentenceTransformer(str(args.model), device="cpu")
    model.max_seq_length = args.max_length
    model.train()
    loss_of = losses.MultipleNegativesRankingLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.0)
    batches = [rows[at:at + args.batch_size] for at in range(0, len(rows), args.batch_size)]
    schedule = get_linear_schedule_with_warmup(optimizer, math.ceil(args.warmup_ratio * len(batches)), len(batches))
    start, taken = time.perf_counter(), []
    for batch in batches:
        loss = loss_of([model.preprocess([row[column] for row in batch]) for column in ("anchor", "positive")], None)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        taken.append(loss.item())
    model.save(str(args.output))
    print(json.dumps({"seconds": time.perf_counter() - start, "losses": taken,
                      "versions": measure.versions("torch", "transformers", "sentence-transformers")}))


if __name__ == "__main__":
    main()
