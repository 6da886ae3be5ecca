#!/usr/bin/env python3
"""Two ranks of one thread beside one process of two threads, and beside torch's DistributedDataParallel.

BERT-base, masked LM in bf16 on ragged rows, for each global batch: funicular under `launch -n 2` (ddp), funicular in one
process, and transformers under torch DDP with the same ranks, micro-batches, warm-up steps and rows (bench/peers/hf_ddp.py),
in turn, several times. All ranks are bound to cores of their own. With --rows grouped (like for like) the peer's
micro-batches are of rows of similar length, as its Trainer forms them; ragged: as they were drawn. Before its first run
the peer is tuned: it runs with each set of options that may help it, and keeps the fastest. Prints the medians of real
tokens a second and their ratios.

Example: bench/ranks_beside_ddp.py --batches 32 256 --repetitions 3
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from peer_sides import HUGE_PAGES, KEEP_MEMORY, PEERS, ROOT, STEP_CANDIDATES, last_json

import batch_plan  # in bench/peers, which peer_sides names

RANKS, WARMUP, TUNING_STEPS = 2, 1, 2
CANDIDATES = [*STEP_CANDIDATES["eager"], (["--attention", "sdpa", "--compile"], KEEP_MEMORY | HUGE_PAGES)]


def write_plan(folder: Path, rows: str, batch: int, steps: int) -> dict[str, Path]:
    """The files of batches of both sides."""
    files = {}
    for side, made in batch_plan.plan(rows, WARMUP, steps, batch, RANKS).items():
        files[side] = folder / f"{rows}-{batch}-{steps}-{side}.json"
        files[side].write_text(json.dumps(made))
    return files


def ours(args, ranks: int, rows: Path, steps: int) -> float:
    bench = [args.program, "bench", "ranks", "--model", args.model, "--strategy", "ddp" if ranks > 1 else "single",
             "--precision", "bf16", "--batches", rows, "--micro-batch-size", args.micro_batch, "--warmup", WARMUP,
             "--steps", steps, "--json"]
    found = last_json([args.program, "launch", "-n", ranks, "--", *bench] if ranks > 1 else bench)
    return found[0]["tokens_per_second"]


def theirs(args, rows: Path, steps: int, chosen: tuple[list, dict]) -> float:
    options, variables = chosen
    found = last_json([Path(args.python).parent / "torchrun", "--nproc-per-node", RANKS, PEERS / "hf_ddp.py", "--model",
                       args.model, "--batches", rows, "--micro-batch", args.micro_batch, "--steps", steps, "--warmup",
                       WARMUP, *options], OMP_NUM_THREADS="1", **variables)
    return found["tokens_per_second"]


def tuned(args, rows: Path) -> tuple[list, dict]:
    if not args.tune:
        return CANDIDATES[0]
    speeds = []
    for chosen in CANDIDATES:
        try:
            speeds.append(theirs(args, rows, TUNING_STEPS, chosen))
        except subprocess.CalledProcessError as problem:  # an option that this version lacks
            print(f"{' '.join(chosen[0])}: {problem}", file=sys.stderr)
            speeds.append(0.0)
        print(f"torch DDP with {' '.join(chosen[0])} {chosen[1] or ''}: {speeds[-1]:.0f} tokens/s", file=sys.stderr)
    return CANDIDATES[speeds.index(max(speeds))]


def compare(args, folder: Path, rows: str, batch: int) -> str:
    files = write_plan(folder, rows, batch, args.steps)
    options = None if args.without_peer else tuned(args, write_plan(folder, rows, batch, TUNING_STEPS)["peer"])
    figures: dict[str, list[float]] = {"two ranks": [], "one process": [], "torch DDP": []}
    for _ in range(args.repetitions):
        figures["two ranks"].append(ours(args, RANKS, files["ours"], args.steps))
        figures["one process"].append(ours(args, 1, files["ours"], args.steps))
        if options:
            figures["torch DDP"].append(theirs(args, files["peer"], args.steps, options))
        print({name: [round(x) for x in values] for name, values in figures.items()}, file=sys.stderr)

    def ratio(other: str) -> str:
        return f"{statistics.median(a / b for a, b in zip(figures['two ranks'], figures[other])):.2f}"

    speeds = ", ".join(f"{name} {statistics.median(values):.0f} tokens/s" for name, values in figures.items() if values)
    peer = f", / torch DDP {ratio('torch DDP')} ({' '.join(options[0])} {options[1] or ''})" if options else ""
    return f"batch {batch}, {rows} rows: {speeds}; two ranks / one process {ratio('one process')}{peer}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build/release/funicular")
    parser.add_argument("--python", default=ROOT / ".deps/python/bin/python", help="with torch and transformers")
    parser.add_argument("--model", choices=["base", "minilm", "small"], default="base")
    parser.add_argument("--rows", nargs="+", choices=["grouped", "ragged"], default=["grouped", "ragged"])
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--micro-batch", type=int, default=16, help="rows of a forward pass, of all sides")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--no-tune", dest="tune", action="store_false", help="the peer takes the first options")
    parser.add_argument("--without-peer", action="store_true")
    args = parser.parse_args()
    for batch in args.batches:
        if batch % (RANKS * args.micro_batch):
            parser.error(f"--batches {batch}: expected a multiple of {RANKS * args.micro_batch}, a micro-batch for each rank")
    with tempfile.TemporaryDirectory() as folder:
        for rows in args.rows:
            for batch in args.batches:
                print(compare(args, Path(folder), rows, batch), flush=True)


if __name__ == "__main__":
    main()
