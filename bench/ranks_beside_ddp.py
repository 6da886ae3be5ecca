#!/usr/bin/env python3
"""Two ranks of one thread beside one process of two threads, and beside torch's DistributedDataParallel.

BERT-base, masked LM in bf16 on ragged rows, for each global batch: funicular under `launch -n 2` (ddp), funicular in one
process, and transformers under torch DDP with the same ranks, batch and micro-batches (bench/peers/hf_ddp.py), in turn,
several times. Prints the medians of real tokens a second and their ratios.

Example: bench/ranks_beside_ddp.py --program build/release/funicular --batches 32 256 --repetitions 3
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "bench/peers"


def last_json(words: list, **variables: str):
    """The last line, as rank 0 prints it under a launcher or alone."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, check=True, text=True,
                          env={**os.environ, **variables})
    line = [line for line in done.stdout.splitlines() if line.endswith(("}", "]"))][-1]
    return json.loads(line.removeprefix("[0] "))


def ours(args, ranks: int, batch: int) -> float:
    bench = [args.program, "bench", "ranks", "--strategy", "ddp" if ranks > 1 else "single", "--precision", "bf16",
             "--batch-size", batch, "--micro-batch-size", 16, "--warmup", 1, "--steps", args.steps, "--json"]
    found = last_json([args.program, "launch", "-n", ranks, "--", *bench] if ranks > 1 else bench)
    return found[0]["tokens_per_second"]


def theirs(args, rows: Path) -> float:
    found = last_json([Path(args.python).parent / "torchrun", "--nproc-per-node", 2, PEERS / "hf_ddp.py", "--batches", rows,
                       "--steps", args.steps, "--warmup", 1], OMP_NUM_THREADS="1")
    return found["tokens_per_second"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build/release/funicular")
    parser.add_argument("--python", default=ROOT / ".deps/python/bin/python", help="with torch and transformers")
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--without-peer", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for batch in args.batches:
            rows = Path(folder) / f"{batch}.json"
            subprocess.run([sys.executable, PEERS / "make_batches.py", rows, "--batch-size", str(batch), "--batches",
                            str(args.steps + 1)], check=True, stdout=subprocess.DEVNULL)
            figures: dict[str, list[float]] = {"two ranks": [], "one process": [], "torch DDP": []}
            for _ in range(args.repetitions):
                figures["two ranks"].append(ours(args, 2, batch))
                figures["one process"].append(ours(args, 1, batch))
                if not args.without_peer:
                    figures["torch DDP"].append(theirs(args, rows))
                print({name: [round(x) for x in values] for name, values in figures.items()}, file=sys.stderr)
            middle = {name: statistics.median(values) for name, values in figures.items() if values}
            print(f"batch {batch}: " + ", ".join(f"{name} {value:.0f} tokens/s" for name, value in middle.items()) +
                  f"; two ranks / one process {statistics.median(a / b for a, b in zip(figures['two ranks'], figures['one process'])):.2f}" +
                  ("" if args.without_peer else f", / torch DDP {statistics.median(a / b for a, b in zip(figures['two ranks'], figures['torch DDP'])):.2f}"))


if __name__ == "__main__":
    main()
