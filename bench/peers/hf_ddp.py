#!/usr/bin/env python3
"""The peer on several ranks: transformers' BERT under torch's DistributedDataParallel over Gloo, on the CPU.

Started by torchrun. Each rank runs on cores of its own with a thread for each, as under `funicular launch`. Each batch of
the file (make_batches.py, batch_plan.py) is the global one, cut into micro-batches of --micro-batch rows that are dealt
to the ranks in turn, as accelerate deals them, and padded to the longest row of each; no_sync() but for the last one, as
its documentation advises. bf16 autocast, fused AdamW, dropout 0.1. Rank 0 prints one JSON object with the time of a step,
the slowest rank's.
"""
import argparse
import contextlib
import json
import os
import statistics
import sys
import time

import environment

environment.need("torch", "transformers")

import measure

# Before torch starts its threads.
THREADS = measure.pin(int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
os.environ["OMP_NUM_THREADS"] = str(THREADS)
import torch
import torch.distributed as dist
import transformers
from hf_step import declare_options_of_ranks, make_model, pad, real_tokens
from torch.nn.parallel import DistributedDataParallel


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    declare_options_of_ranks(parser)
    parser.add_argument("--compile", action="store_true", help="torch.compile, one graph for all lengths")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(THREADS)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    batches = json.loads(args.batches.read_text())["batches"]
    model = make_model(args)
    replica = DistributedDataParallel(torch.compile(model, dynamic=True) if args.compile else model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, fused=True)
    seconds, tokens = [], []
    for number in range(args.warmup + args.steps):
        rows = batches[number % len(batches)]
        dealt = [rows[i:i + args.micro_batch] for i in range(0, len(rows), args.micro_batch)][rank::ranks]
        pieces = [pad(piece, args.pad_multiple) for piece in dealt]
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
            "tokens_per_second": sum(tokens) / sum(seconds),
            "options": {"attention": args.attention, "pad_multiple": args.pad_multiple, "compile": args.compile,
                        "processors": sorted(os.sched_getaffinity(0)), "environment": measure.tuning()},
            "peak_resident_bytes": measure.peak_resident_bytes(), "versions": measure.versions("torch", "transformers")}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
