#!/usr/bin/env python3
"""Steps of fine-tuning BERT-base on a GPU, or of its distillation, 32 rows each, with and without recorded passes.

usage: gpu_finetune.py --results FOLDER --model FOLDER [--work finetune|distill] [--program FILE] [--library-path FOLDERS] [--device cuda] [--steps 120]

Made-up texts of 32 to 128 tokens, in bf16. `funicular bench` has no class for a row, so its kernels of a step of masked words
with 32 such rows stand beside these steps. The decoder's products, a few hundredths of those kernels, are then too many.
With --work distill, TinyBERT's student of 4 layers learns layers of that BERT-base, which runs in each step.
Prints the median of the mean steps between two records, from the second half of the run on, and writes it when a run ends.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
from pathlib import Path

from gpu_predict import words
from peer_sides import ROOT, write_json

BATCH_SIZE, LOGGED = 32, 10  # rows a step, steps a record
WAYS: dict[str, list] = {"plain": [], "recorded": ["--cuda-graphs"]}


def make_rows(path: Path, rows: int) -> None:
    source, known = random.Random(7), words()
    lines = [f"{row % 2}\t{' '.join(source.choices(known, k=source.randint(30, 126)))}" for row in range(rows)]
    path.write_text("\n".join(["label\ttext", *lines]) + "\n", encoding="utf-8")


def step_seconds(metrics: Path) -> float:
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    found = [record["step_seconds"] for record in records if "step_seconds" in record]
    return statistics.median(found[len(found) // 2:])


def train(args, way: str, rows: Path) -> float:
    output = args.results / "runs" / way
    libraries = {"LD_LIBRARY_PATH": args.library_path} if args.library_path else {}
    work = {"finetune": ["--model", args.model], "distill": ["--teacher", args.model, "--student", "tinybert4", "--stage", "intermediate"]}[args.work]
    command = [args.program, args.work, *work, "--task", "custom", "--train", rows, "--text-column", "text", "--output", output,
               "--device", args.device, "--precision", "bf16", "--batch-size", BATCH_SIZE, "--max-length", args.max_length, "--max-steps", args.steps,
               "--logging-steps", LOGGED, "--save-steps", 0, *WAYS[way]]
    subprocess.run(list(map(str, command)), check=True, env={**os.environ, **libraries})
    return step_seconds(output / "metrics.jsonl")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, help="a folder of gpu_predict.py --make-model")
    parser.add_argument("--work", choices=["finetune", "distill"], default="finetune")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--library-path", default="", help="LD_LIBRARY_PATH of our program")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--max-length", type=int, default=128)
    args = parser.parse_args()
    args.results.mkdir(parents=True, exist_ok=True)
    rows = args.results / "rows.tsv"
    make_rows(rows, BATCH_SIZE * args.steps)
    report = {"batch_size": BATCH_SIZE, "step_seconds": {}, "failed": {}}
    for way in WAYS:
        try:
            report["step_seconds"][way] = train(args, way, rows)
            print(f"{way}: step {1e3 * report['step_seconds'][way]:.2f} ms", flush=True)
        except (subprocess.CalledProcessError, OSError, statistics.StatisticsError) as problem:
            report["failed"][way] = str(problem)
            print(f"{way} failed: {problem}", flush=True)
        write_json(args.results / f"gpu_{args.work}.json", report)
    return 1 if report["failed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
