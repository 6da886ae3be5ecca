#!/usr/bin/env python3
"""The peer on several ranks: transformers' BERT under torch's DistributedDataParallel over Gloo, on the CPU.

Started by torchrun, one thread a rank (OMP_NUM_THREADS=1). Each batch of the file (make_batches.py) is the global one;
rank r of R takes rows r, r + R, …, in micro-batches of --micro-batch rows padded to the longest of each, under
no_sync() but for the last one, as its documentation advises. bf16 autocast, fused AdamW, dropout 0.1. Rank 0 prints one
JSON object with the time of a step, the slowest rank's.
"""
import argparse
import contextlib
import json
import statistics
import sys
import time
from pathlib import Path

import environment

environment.need("torch", "transformers")

import measure
import torch
import torch.distributed as dist
import transformers
from hf_step import make_model, pad, real_tokens
from torch.nn.parallel import DistributedDataParallel


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="base")
    parser.add_argument("--batches", type=Path, required=True)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--attention", default="sdpa")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    transformers.logging.set_verbosity_error()
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    batches = json.loads(args.batches.read_text())["batches"]
    model = make_model(args)
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, fused=True)
    seconds, tokens = [], []
    for number in range(args.warmup + args.steps):
        rows = batches[number % len(batches)]
        own = rows[rank::ranks]
        pieces = [pad(own[i:i + args.micro_batch], 1) for i in range(0, len(own), args.micro_batch)]
        dist.barrier()
        start = time.perf_counter()
        for i, piece in enumerate(pieces):
            last = i + 1 == len(pieces)
            with contextlib.nullcontext() if last else replica.no_sync():
                with torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16"):
                    loss = replica(**piece).loss / len(pieces)
                loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        dist.barrier()
        taken = time.perf_counter() - start
        if rank == 0:
            print(f"step {number + 1}: {taken:.2f} s", file=sys.stderr)
        if number >= args.warmup:
            seconds.append(taken)
            tokens.append(real_tokens(rows))
    if rank == 0:
        print(json.dumps({
            "peer": "hf-ddp", "precision": args.precision, "ranks": ranks, "threads": torch.get_num_threads(),
            "batch": len(batches[0]), "step_seconds_median": statistics.median(seconds),
            "tokens_per_second": statistics.median(n / s for n, s in zip(tokens, seconds)),
            "peak_resident_bytes": measure.peak_resident_bytes(), "versions": measure.versions("torch", "transformers")}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
