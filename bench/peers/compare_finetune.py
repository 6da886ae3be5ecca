#!/usr/bin/env python3
"""Fine-tunes MiniLM on MRPC and CoLA with Hugging Face's Trainer and with funicular, from the same weights.

For each task and seed both start from one directory (the new head included) and run the same recipe: 3 epochs,
batches of 32, learning rate 5e-5, 60 warm-up steps, dropout 0.1, rows cut at 128 tokens. Only the random choices
(order, dropout) differ. Nothing is saved before the end, and both evaluate in the precision of training. Writes a table: the mean of the paired difference, its 95 % interval, both wall clocks.
The two sides may differ in precision: --precision fp32 --peer-precision bf16 pairs funicular's fp32 with the
peer's bf16. Several of each are paired in their order; one peer precision stands beside each of ours.

Each run leaves one JSON file in --results, and a run whose file exists is skipped: stop and start it at will.
Wall clocks are comparable only where both sides ran with the same threads on an otherwise idle machine.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import environment

ROOT = Path(__file__).resolve().parents[2]
PEER = ROOT / "bench/peers/hf_finetune.py"
METRICS = {"mrpc": ["accuracy", "f1"], "cola": ["matthews_correlation"]}
PRECISIONS, PEER_PRECISIONS = ["fp32", "fp64", "bf16", "fp16"], ["fp32", "bf16"]
RECIPE = {"epochs": 3, "batch_size": 32, "learning_rate": 5e-5, "warmup_steps": 60}
# 97.5 % quantiles of Student's t by degrees of freedom.
STUDENT_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def run(command: list, threads: int | None) -> tuple[str, float]:
    """Standard output and wall seconds of a command that must succeed."""
    variables = dict(os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {}))
    start = time.time()
    done = subprocess.run([str(word) for word in command], env=variables, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nfailed with exit code {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout, time.time() - start


def peer_command(args, task: str, seed: int) -> list:
    return [environment.python_with("torch", "transformers"), PEER, "--task", task, "--data", args.data / task, "--seed", seed]


def initial_directory(args, task: str, seed: int) -> Path:
    directory = args.results / "initial" / f"{task}-{seed}"
    if not (directory / "config.json").exists():
        run([*peer_command(args, task, seed), "--save-initial", directory, "--max-steps", 0], args.threads)
    return directory


def run_peer(args, task: str, seed: int, precision: str, initial: Path) -> dict:
    command = [*peer_command(args, task, seed), "--init", initial, "--precision", precision, "--output", args.results / "scratch"]
    for name, value in RECIPE.items():
        command += ["--" + name.replace("_", "-"), value]
    if args.group_by_length:
        command.append("--group-by-length")
    output, seconds = run(command, args.threads)
    return {**json.loads(output.strip().splitlines()[-1]), "wall_seconds": round(seconds, 2)}


def run_funicular(args, task: str, seed: int, precision: str, initial: Path) -> dict:
    output = args.results / "runs" / f"{task}-{seed}-{precision}"
    _, seconds = run(
        [args.program, "finetune", "--model", initial, "--task", task, "--train", args.data / task / "train.tsv",
         "--output", output, "--seed", seed, "--precision", precision, "--max-length", 128, "--max-grad-norm", 1,
         "--weight-decay", 0, "--num-train-epochs", RECIPE["epochs"], "--batch-size", RECIPE["batch_size"],
         "--learning-rate", RECIPE["learning_rate"], "--warmup-steps", RECIPE["warmup_steps"], "--resume", "never",
         "--save-steps", 0],  # as the peer, which saves nothing; our model is saved at the end
        args.threads)
    metrics, more = run([args.program, "evaluate", "--model", output / "model", "--task", task, "--input",
                         args.data / task / "dev.tsv", "--precision", precision], args.threads)
    found = json.loads(metrics)
    return {"task": task, "seed": seed, "precision": precision, "wall_seconds": round(seconds + more, 2),
            **{name: found[name] for name in METRICS[task]}}


SIDES = {"hf": run_peer, "funicular": run_funicular}


def result_file(args, task: str, seed: int, side: str, precision: str) -> Path:
    return args.results / f"{task}-{seed}-{side}-{precision}.json"


def table(args) -> str:
    lines = ["| task | metric | HF in | funicular in | pairs | HF | funicular | difference (95 % interval) | HF s | funicular s |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for precisions in args.precisions:
        for task in args.tasks:
            pairs = []
            for seed in args.seeds:
                files = [result_file(args, task, seed, side, precisions[side]) for side in SIDES]
                if all(file.exists() for file in files):
                    pairs.append([json.loads(file.read_text()) for file in files])
            for metric in METRICS[task] if pairs else []:
                peer, ours = ([pair[i][metric] for pair in pairs] for i in (0, 1))
                difference = [b - a for a, b in zip(peer, ours)]
                spread = "–"
                if len(pairs) > 1:
                    half = STUDENT_T.get(len(pairs) - 1, 1.96) * statistics.stdev(difference) / math.sqrt(len(pairs))
                    spread = f"± {half:.4f}"
                seconds = [statistics.median(pair[i]["wall_seconds"] for pair in pairs) for i in (0, 1)]
                lines.append(f"| {task} | {metric} | {precisions['hf']} | {precisions['funicular']} | {len(pairs)} | "
                             f"{statistics.mean(peer):.4f} | {statistics.mean(ours):.4f} | {statistics.mean(difference):+.4f} {spread} | "
                             f"{seconds[0]:.0f} | {seconds[1]:.0f} |")
    return "\n".join(lines) + "\n"


def paired_precisions(parser, ours: list[str], peers: list[str] | None) -> list[dict]:
    """Each comparison's precision by side."""
    peers = peers or ours
    if len(peers) == 1:
        peers = peers * len(ours)
    if len(peers) != len(ours):
        parser.error(f"--peer-precision: expected 1 or {len(ours)} (as many as --precision), found {len(peers)}")
    for precision in peers:
        if precision not in PEER_PRECISIONS:
            parser.error(f"--peer-precision: the peer trains in {' or '.join(PEER_PRECISIONS)}, found {precision}")
    return [{"hf": peer, "funicular": own} for peer, own in zip(peers, ours)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with mrpc/ and cola/ (train.tsv, dev.tsv)")
    parser.add_argument("--results", type=Path, default=ROOT / "build/bench/finetune")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--tasks", nargs="+", choices=list(METRICS), default=list(METRICS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=["bf16"], help="funicular's (default bf16)")
    parser.add_argument("--peer-precision", nargs="+", choices=PEER_PRECISIONS, help="the peer's; default: the same")
    parser.add_argument("--group-by-length", action="store_true",
                        help="the peer's batches are of rows of similar length, as its sampler forms them")
    parser.add_argument("--threads", type=int, help="OMP_NUM_THREADS of both sides")
    args = parser.parse_args()
    args.precisions = paired_precisions(parser, args.precision, args.peer_precision)
    args.results.mkdir(parents=True, exist_ok=True)
    for precisions in args.precisions:
        for seed in args.seeds:
            for task in args.tasks:
                for side in args.sides:
                    file = result_file(args, task, seed, side, precisions[side])
                    if file.exists():
                        continue
                    result = SIDES[side](args, task, seed, precisions[side], initial_directory(args, task, seed))
                    file.write_text(json.dumps(result) + "\n")
                    print(side, json.dumps(result), flush=True)
    (args.results / "table.md").write_text(table(args))
    print(table(args), end="")


if __name__ == "__main__":
    main()
