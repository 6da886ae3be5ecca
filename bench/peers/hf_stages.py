#!/usr/bin/env python3
"""The peer's pipeline: transformers' BERT cut into two stages under torch.distributed.pipelining over Gloo, on the CPU.

Started by torchrun on two ranks. Each runs on cores of its own with a thread for each, as under `funicular launch`. Each batch of the
file (make_batches.py, batch_plan.py) goes through the stages in micro-batches of --micro-batch rows, under 1F1B or GPipe, and is
padded to its longest row, since torch's stages exchange tensors of one shape. For each padded length there is a schedule of its own,
which meets its shapes before anything is timed. The two stages do not add up the gradients of the table that they share: torch's
pipelining leaves that to its user, and here it costs this side nothing. bf16 autocast, fused AdamW, dropout 0.1. Rank 0 prints one
JSON object with the time of a step, the slower rank's.
"""
import argparse
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
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


class Stage(torch.nn.Module):
    """The embeddings and the first layers of a BertForMaskedLM, or its other layers and its head."""

    def __init__(self, model, first: bool, cut: int, bf16: bool):
        super().__init__()
        self.embeddings = model.bert.embeddings if first else None
        self.layers = model.bert.encoder.layer[:cut] if first else model.bert.encoder.layer[cut:]
        self.head = None if first else model.cls
        self.bf16 = bf16

    def forward(self, x, padding):
        """ids or hidden states, and what is added to the scores of attention: 0, or the least number at padding."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            if self.embeddings is not None:
                x = self.embeddings(x)
            for layer in self.layers:
                x = layer(x, padding)
            return x if self.head is None else self.head(x)


def loss_of(logits, labels):
    return torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]).float(), labels.view(-1))


class Pipeline:
    def __init__(self, args, rank: int):
        torch.manual_seed(args.seed)
        self.args, self.rank = args, rank
        model = make_model(args)
        self.stage = Stage(model, rank == 0, args.cut, args.precision == "bf16").train()
        self.optimizer = torch.optim.AdamW(self.stage.parameters(), lr=args.learning_rate, fused=True)
        self.schedules = {}

    def schedule(self, shape, micro_batches: int):
        if shape not in self.schedules:
            stage = PipelineStage(self.stage, self.rank, 2, torch.device("cpu"))
            self.schedules[shape] = SCHEDULES[self.args.schedule](stage, micro_batches, loss_of)
        return self.schedules[shape]

    def step(self, batch: dict) -> None:
        rows = batch["input_ids"].shape[0]
        schedule = self.schedule(tuple(batch["input_ids"].shape), rows // self.args.micro_batch)
        if self.rank == 0:
            schedule.step(batch["input_ids"], padding=batch["padding"], return_outputs=False)
        else:
            schedule.step(padding=batch["padding"], target=batch["labels"], return_outputs=False)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def tensors_of(rows: list, args) -> dict:
    batch = pad(rows, args.pad_multiple)
    kind = torch.bfloat16 if args.precision == "bf16" else torch.float
    batch["padding"] = ((1 - batch["attention_mask"]) * torch.finfo(kind).min).to(kind)[:, None, None, :]
    return batch


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    declare_options_of_ranks(parser)
    parser.set_defaults(micro_batch=4, steps=3, warmup=1, pad_multiple=8)
    parser.add_argument("--cut", type=int, default=6, help="layers of the first stage")
    parser.add_argument("--schedule", choices=list(SCHEDULES), default="1f1b")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(THREADS)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if dist.get_world_size() != 2:
        sys.exit(f"hf_stages.py has two stages; found {dist.get_world_size()} ranks, expected torchrun --nproc-per-node 2")
    batches = json.loads(args.batches.read_text())["batches"][:args.warmup + args.steps]
    ready = [tensors_of(rows, args) for rows in batches]
    pipeline = Pipeline(args, rank)
    for batch in {batch["input_ids"].shape: batch for batch in ready[args.warmup:]}.values():
        pipeline.step(batch)
    seconds, tokens = [], []
    for number, batch in enumerate(ready):
        dist.barrier()
        start = time.perf_counter()
        pipeline.step(batch)
        dist.barrier()
        taken = time.perf_counter() - start
        if rank == 0:
            print(f"step {number + 1}: {taken:.2f} s", file=sys.stderr)
        if number >= args.warmup:
            seconds.append(taken)
            tokens.append(real_tokens(batches[number]))
    if rank == 0:
        print(json.dumps({
            "peer": "torch-pipelining", "precision": args.precision, "threads": torch.get_num_threads(), "batch": len(batches[0]),
            "step_seconds_median": statistics.median(seconds), "tokens_per_second": sum(tokens) / sum(seconds),
            "options": {"schedule": args.schedule, "cut": args.cut, "attention": args.attention, "pad_multiple": args.pad_multiple,
                        "environment": measure.tuning()},
            "peak_resident_bytes": measure.peak_resident_bytes(), "versions": measure.versions("torch", "transformers")}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
