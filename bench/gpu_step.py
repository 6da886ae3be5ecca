#!/usr/bin/env python3
"""A training step on a GPU beside transformers' on the same GPU, by turns.

usage: gpu_step.py --results FOLDER [--program FILE] [--library-path FOLDERS] [--models minilm,base] [--batch-size 256] [--rows ragged,grouped]
                   [--precision bf16|fp32] [--steps 10] [--repetitions 3] [--peers eager,compile,unpadded,layers] [--alone] [--inputs-only]

Masked LM, rows of 32 to 128 tokens: as they were drawn for both sides, or (grouped) the peer's in batches of similar
length as its Trainer groups them; or (full) rows of 128. A quarter as many rows of 512 (full-512), or of 119 to 476 (ragged-476). A model
is a name or a folder. The peer is transformers' BERT with autocast and fused AdamW:

  eager     as it is, with torch's scaled-dot-product attention
  compile   the same under torch.compile with all rows padded to 128, one graph for all batches
  unpadded  bench/peers/unpadded_step.py: no padding, FlashAttention, masked tokens alone in the decoder, torch.compile;
            only this one is like for like
  layers    the same, compiled layer by layer, which takes a tenth of the time

--alone leaves our step out, whose rows `funicular bench` makes by the same rule. --inputs-only writes the batches and stops.
Its batches lie on the GPU before the step; ours are sent within it, while a thread packs the next, and our step clips gradients
to a norm of 1. Prints medians of real tokens per second and their ratios, and writes them to FOLDER/gpu_step.json after each run.
Compiled peers run once, since compiling takes longer than all steps. A peer that fails is noted there and left out; the exit code is 1.
"""
import argparse
import statistics
import subprocess
from pathlib import Path

from peer_sides import PEERS, ROOT, last_json, write_json

import batch_plan  # in bench/peers, which peer_sides names

COMPILED = {"compile", "unpadded", "layers"}
WARMUP = 12  # each size of a batch makes cuBLAS load other kernels
PEER_WAYS = {"eager": ["hf_step.py", "--variant", "eager"], "compile": ["hf_step.py", "--variant", "compile", "--shapes", "padded"],
             "unpadded": ["unpadded_step.py", "--variant", "compile"], "layers": ["unpadded_step.py", "--variant", "layers"]}
# name: the rows of batch_plan, the longest row, and how many times fewer rows a step has
ROWS = {"ragged": ("ragged", 128, 1), "grouped": ("grouped", 128, 1), "full": ("full", 128, 1), "full-512": ("full", 512, 4),
        "ragged-476": ("ragged", 476, 4)}


def write_batches(args, rows: str) -> dict[str, Path]:
    kind, longest, fewer = ROWS[rows]
    files = {side: args.results / f"{rows}-{args.batch_size}-{args.steps}-{side}.json" for side in ("ours", "peer")}
    if not all(file.exists() for file in files.values()):
        for side, made in batch_plan.plan(kind, WARMUP, args.steps, args.batch_size // fewer, longest=longest).items():
            write_json(files[side], made)
    return files


def ours(args, model: str, batches: Path) -> dict:
    libraries = {"LD_LIBRARY_PATH": args.library_path} if args.library_path else {}
    return last_json([args.program, "bench", "--device", "cuda", "--model", model, "--precision", args.precision, "--batches", batches,
                      "--warmup", WARMUP, "--steps", args.steps, "--json"], **libraries)


def theirs(args, model: str, batches: Path, way: str) -> dict:
    script, *options = PEER_WAYS[way]
    return last_json([args.python, PEERS / script, "--device", "cuda", "--model", model, "--precision", args.precision, "--batches",
                      batches, "--warmup", WARMUP, "--steps", args.steps, *options])


def card() -> str:
    found = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], text=True, capture_output=True)
    return found.stdout.strip()


def medians(made: list[dict]) -> dict:
    return {"tokens_per_second": statistics.median(run["tokens_per_second"] for run in made),
            "device_bytes": statistics.median(run["peak_device_bytes"] for run in made)}


def compare(args, model: str, rows: str, report: dict) -> None:
    """Keeps the medians so far, and the sides that failed, in the report's file."""
    files = write_batches(args, rows)
    runs: dict[str, list[dict]] = {}
    name = f"{Path(model).name} {rows}"
    found, failed = report["found"].setdefault(name, {}), report["failed"].setdefault(name, {})
    for repetition in range(args.repetitions):
        for side in [*([] if args.alone else ["funicular"]), *args.peers]:
            if side in failed or (repetition > 0 and side in COMPILED):
                continue
            try:
                run = ours(args, model, files["ours"]) if side == "funicular" else theirs(args, model, files["peer"], side)
            except (subprocess.CalledProcessError, OSError, ValueError, IndexError) as problem:
                print(f"{side} failed: {problem}", flush=True)
                failed[side] = str(problem)
            else:
                runs.setdefault(side, []).append(run)
                found[side] = medians(runs[side])
            write_json(args.results / "gpu_step.json", report)
    print(f"\n{name} rows, {args.batch_size // ROWS[rows][2]} a step, {args.precision}")
    print(f"  {'':<12}{'tokens/s':>12}{'GB':>8}{'we make':>10}")
    for side, one in found.items():
        ratio = f"{found['funicular']['tokens_per_second'] / one['tokens_per_second']:.2f}x" if "funicular" in found else ""
        print(f"  {side:<12}{one['tokens_per_second']:>12.0f}{one['device_bytes'] / 1e9:>8.2f}{ratio:>10}", flush=True)


def main() -> int:
    words = lambda text: text.split(",")  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--library-path", default="", help="LD_LIBRARY_PATH of our program")
    parser.add_argument("--python", default="python3", help="one with torch for CUDA and transformers")
    parser.add_argument("--models", type=words, default=["minilm", "base"])
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--rows", type=words, default=["ragged", "grouped"])
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--peers", type=words, default=["eager", "compile"])
    parser.add_argument("--alone", action="store_true", help="leave our step out")
    parser.add_argument("--inputs-only", action="store_true", help="write the batches and stop")
    args = parser.parse_args()
    if unknown := set(args.peers) - set(PEER_WAYS):
        parser.error(f"--peers: unknown {', '.join(sorted(unknown))}; expected some of {', '.join(PEER_WAYS)}")
    if unknown := set(args.rows) - set(ROWS):
        parser.error(f"--rows: unknown {', '.join(sorted(unknown))}; expected some of {', '.join(ROWS)}")
    args.results = args.results.absolute()
    if args.inputs_only:
        for rows in args.rows:
            write_batches(args, rows)
        return 0
    report = {"card": card(), "precision": args.precision, "batch_size": args.batch_size, "found": {}, "failed": {}}
    for model in args.models:
        for rows in args.rows:
            compare(args, model, rows, report)
    return 1 if any(report["failed"].values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
