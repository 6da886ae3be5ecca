#!/usr/bin/env python3
"""What answering in bf16 or in 8 bits costs in accuracy: `funicular evaluate` in each precision on the same models.

Each MODEL is a fine-tuned one, `OUTPUT/model` of `funicular finetune`. Several of one task (other seeds) tell more than
one: the table ends with the mean difference from fp32 and its 95 % interval over the models. Options after -- go to
`funicular evaluate`, for a file of one's own: -- --label-column section.

  bench/precision_accuracy.py --task cola --data dev.tsv runs/cola-1/model runs/cola-2/model
"""
import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench/peers"))
from compare_finetune import STUDENT_T

PRECISIONS = ["fp32", "bf16", "int8"]


def evaluate(args, model: Path, precision: str) -> dict:
    done = subprocess.run([args.program, "evaluate", "--model", model, "--task", args.task, "--input", args.data,
                           "--precision", precision, *args.more], text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{model} in {precision}: exit code {done.returncode}\n{done.stderr.strip()[-1500:]}")
    return json.loads(done.stdout)


def interval(differences: list[float]) -> str:
    if len(differences) < 2:
        return ""
    half = STUDENT_T.get(len(differences) - 1, 2.262) * statistics.stdev(differences) / math.sqrt(len(differences))
    return f" ± {half:.4f}"


def main() -> None:
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--task", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    args = parser.parse_args(words[:cut])
    args.more = words[cut + 1:]
    found = [{precision: evaluate(args, model, precision) for precision in PRECISIONS} for model in args.models]
    metrics = [name for name, value in found[0]["fp32"].items() if name not in ("samples", "loss") and isinstance(value, (int, float))]
    print(f"| {args.task}, {found[0]['fp32']['samples']} rows | " + " | ".join(PRECISIONS) + " | bf16 less fp32 | int8 less fp32 |\n"
          + "|---|" + "---|" * (len(PRECISIONS) + 2))
    for metric in metrics:
        values = {precision: [one[precision][metric] for one in found] for precision in PRECISIONS}
        differences = {precision: [a - b for a, b in zip(values[precision], values["fp32"])] for precision in PRECISIONS[1:]}
        for model, *row in zip(args.models, *values.values(), *differences.values()) if len(found) > 1 else []:
            cells = [f"{v:.4f}" for v in row[:3]] + [f"{v:+.4f}" for v in row[3:]]
            print(f"| {metric}, {model} | " + " | ".join(cells) + " |")
        print(f"| {metric}, mean of {len(found)} | " + " | ".join(f"{statistics.mean(values[p]):.4f}" for p in PRECISIONS) + " | "
              + " | ".join(f"{statistics.mean(d):+.4f}{interval(d)}" for d in differences.values()) + " |")


if __name__ == "__main__":
    main()
