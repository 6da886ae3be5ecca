#!/usr/bin/env python3
"""What `funicular distill --cache-teacher` is worth: seconds of the whole command without a cache, with one that it makes, and with one
that is there, as a student learns for one epoch and for more.

usage: teacher_cache.py --teacher FOLDER --train FILE --results FOLDER [--student 3-layers] [--stages prediction intermediate]
                        [--epochs 1 4] [--rows 512] [--rounds 3]

The teacher is a model that classifies; FILE has the columns label, with its classes, and text (and text2), with a header. Kinds of
runs take turns; prints medians, the ratio to the run without a cache, and the megabytes of the cache, and writes them to
FOLDER/teacher_cache.json.
"""
import argparse
import shutil
import statistics
import time
from pathlib import Path

import study_tools
from peer_sides import ROOT, write_json

KINDS = ("none", "made", "there")


def seconds(args, stage: str, epochs: int, kind: str) -> float:
    output, cache = args.results / "run", args.results / f"cache-{stage}"
    shutil.rmtree(output, ignore_errors=True)
    if kind == "made":
        shutil.rmtree(cache, ignore_errors=True)
    with open(args.results / "rows.tsv", encoding="utf-8") as file:
        columns = file.readline().rstrip("\n").split("\t")
    start = time.monotonic()
    study_tools.call(args.program, [
        "distill", "--teacher", args.teacher, "--student", args.student, "--init-layers", "even", "--stage", stage, "--task", "custom",
        "--train", args.results / "rows.tsv", "--text-column", *(name for name in columns if name.startswith("text")), "--num-train-epochs",
        epochs, "--batch-size", 32, "--max-length", 128, "--save-steps", 0, "--output", output, *(["--cache-teacher", cache] if kind != "none" else [])])
    return time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", type=Path, required=True)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--student", default="3-layers")
    parser.add_argument("--stages", nargs="+", default=["prediction", "intermediate"])
    parser.add_argument("--epochs", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    args = parser.parse_args()
    args.results.mkdir(parents=True, exist_ok=True)
    lines = args.train.read_text(encoding="utf-8").splitlines()[:args.rows + 1]
    (args.results / "rows.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    taken: dict[tuple, list[float]] = {}
    for _ in range(args.rounds):
        for stage in args.stages:
            for epochs in args.epochs:
                for kind in KINDS:
                    taken.setdefault((stage, epochs, kind), []).append(seconds(args, stage, epochs, kind))
    rows = []
    print("| stage | epochs | without, seconds | cache made | cache there | its size, MB |\n|---|---|---|---|---|---|")
    for stage in args.stages:
        size = sum(file.stat().st_size for file in (args.results / f"cache-{stage}").rglob("*") if file.is_file()) / 1e6
        for epochs in args.epochs:
            none, made, there = (statistics.median(taken[stage, epochs, kind]) for kind in KINDS)
            rows.append({"stage": stage, "epochs": epochs, "none": none, "made": made, "there": there, "megabytes": size})
            print(f"| {stage} | {epochs} | {none:.1f} | {made:.1f} ({made / none:.2f}) | {there:.1f} ({there / none:.2f}) | {size:.1f} |")
    write_json(args.results / "teacher_cache.json", {"rows": args.rows, "rounds": args.rounds, "runs": rows})


if __name__ == "__main__":
    try:
        main()
    except (study_tools.Failed, OSError) as problem:
        study_tools.stop(problem)
