#!/usr/bin/env python3
"""Whether two builds of the program are equally fast: before and after a change that must not cost time.

    tools/same_speed.py BEFORE AFTER --model DIR [--rounds N] [--only REGEX]

BEFORE and AFTER are the two programs, DIR the folder of a pre-trained model (./run setup fetches one below .deps/model). They run
by turns, and the one that begins changes with each round. Of each case: the median of each, and of the rounds' ratios AFTER :
BEFORE, with the smallest and the largest, above 1 where AFTER is faster. A machine drifts within minutes, so that only the ratios
count; the second ratio, of BEFORE beside itself a round earlier, tells how much it drifts.
"""

import argparse
import functools
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

TEXTS = 1500


def step(model, precision, steps):
    words = ["bench", "--model", model, "--precision", precision, "--steps", steps, "--warmup", "2", "--json"]
    return lambda program: json.loads(call(program, *words).splitlines()[-1])["tokens_per_second"]


def two_ranks(program):
    """Real tokens a second of both ranks, under data parallelism."""
    answer = call(program, "launch", "-n", "2", "--", program, "bench", "ranks", "--model", "minilm", "--steps", "6", "--strategy",
                  "ddp", "--json")
    return json.loads(answer[answer.index("[{"):])[0]["tokens_per_second"]  # older programs put the rank's number before it


def prediction(make_classifier, precision):
    """Lines a second, the program's start included."""
    def measure(program):
        classifier, texts = make_classifier()
        start = time.monotonic()
        call(program, "predict", "--model", classifier, "--input", texts, "--precision", precision)
        return TEXTS / (time.monotonic() - start)
    return measure


def call(program, *words):
    done = subprocess.run([str(program), *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{program} {' '.join(map(str, words))}: exit code {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def classifier_of(program, model, folder):
    """A classifier of three steps, made by `program`, and texts of all lengths for it."""
    source = random.Random(1)
    words = "the of a film story with good bad actor and music very not never always old new scene people".split()
    texts = [" ".join(source.choice(words) for _ in range(source.randint(3, 100))) for _ in range(TEXTS)]
    (folder / "texts.txt").write_text("\n".join(texts) + "\n")
    (folder / "train.tsv").write_text("label\ttext\n" + "".join(f"{i % 2}\t{text}\n" for i, text in enumerate(texts[:64])))
    call(program, "finetune", "--model", model, "--task", "custom", "--train", folder / "train.tsv", "--eval", folder / "train.tsv",
         "--output", folder / "run", "--max-steps", "3", "--batch-size", "8", "--max-length", "128")
    return folder / "run/model", folder / "texts.txt"


def cases(program, model, folder):
    classifier = functools.cache(lambda: classifier_of(program, model, folder))
    return {"step, MiniLM, fp32": step("minilm", "fp32", 8), "step, MiniLM, bf16": step("minilm", "bf16", 12),
            "step, BERT-base, fp32": step("base", "fp32", 2), "step, BERT-base, bf16": step("base", "bf16", 3),
            "predict, MiniLM, bf16": prediction(classifier, "bf16"), "predict, MiniLM, int8": prediction(classifier, "int8"),
            "two ranks, MiniLM, fp32": two_ranks}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path, required=True, metavar="DIR", help="a pre-trained model's folder")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="runs of each program and case [5]")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name matches")
    args = parser.parse_args()
    before, after = args.before.resolve(), args.after.resolve()
    with tempfile.TemporaryDirectory(prefix="funicular-speed-") as name:
        measures = {case: measure for case, measure in cases(before, args.model.resolve(), pathlib.Path(name)).items()
                    if re.search(args.only, case)}
        if not measures:
            parser.error(f"--only {args.only} matches no case")
        seen = {case: ([], []) for case in measures}
        for turn in range(args.rounds):
            for case, measure in measures.items():
                for which in ((0, 1) if turn % 2 == 0 else (1, 0)):
                    seen[case][which].append(measure((before, after)[which]))
            print(f"round {turn + 1} of {args.rounds}", file=sys.stderr, flush=True)
    print(table(seen))


def table(seen):
    """seen: of each case the speeds of BEFORE and of AFTER, a round each."""
    lines = ["| case (tokens/s, lines/s) | before | after | after : before | before : before |", "|---|---|---|---|---|"]
    for case, (before, after) in seen.items():
        ratios, drift = [b / a for a, b in zip(before, after)], [b / a for a, b in zip(before, before[1:])]
        lines.append(f"| {case} | {statistics.median(before):.0f} | {statistics.median(after):.0f} | {spread(ratios)} | "
                     f"{spread(drift)} |")
    return "\n".join(lines)


def spread(ratios):
    if not ratios:
        return "-"
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


if __name__ == "__main__":
    main()
