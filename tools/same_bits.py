#!/usr/bin/env python3
"""Whether two builds of the program train to the same bits: before and after a change that must not change results.

    tools/same_bits.py BEFORE AFTER [--only REGEX] [--keep FOLDER]

BEFORE and AFTER are the two programs. Each trains a tiny model under every layout and objective below, dropout on. Weights,
optimiser state and the metrics of each step and evaluation must be byte-identical; times and speeds are not compared. Then a run
that BEFORE stopped half-way is ended by AFTER, and must equal BEFORE's whole run: old checkpoints and stores go on. Of ps-async
AFTER replays the order of updates that BEFORE has recorded.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# The ranks of each layout, and its options.
LAYOUTS = {"single": (1, []), "dp": (1, []), "ddp": (2, []), "zero1": (2, []), "zero2": (2, []), "zero3": (2, []), "ps-sync": (3, []),
           "ps-async": (3, [])}
# Layouts with options of their own: "NAME: RANKS OPTIONS".
for line in """
    three-zero1: 3 zero1
    three-zero2: 3 zero2
    three-zero3: 3 zero3
    devices-of-a-pipeline: 1 pipeline --devices 2
    1f1b: 2 pipeline
    interleaved: 2 pipeline --schedule interleaved
    zb-h1: 2 pipeline --schedule zb-h1
    zb-v: 2 pipeline --schedule zb-v
    pipedream: 2 pipeline --schedule pipedream
    2bw: 2 pipeline --schedule pipedream-2bw
    two-pipelines: 4 pipeline --pipeline-parallel 2
    replicated-stage: 3 pipeline --stages 0x2,2
    1f1b-zero1: 4 pipeline --pipeline-parallel 2 --zero 1
    1f1b-zero2: 4 pipeline --pipeline-parallel 2 --zero 2
    1f1b-zero3: 4 pipeline --pipeline-parallel 2 --zero 3
    zb-h1-zero3: 4 pipeline --pipeline-parallel 2 --zero 3 --schedule zb-h1
    zb-v-zero2: 4 pipeline --pipeline-parallel 2 --zero 2 --schedule zb-v
    pipedream-zero3: 4 pipeline --pipeline-parallel 2 --zero 3 --schedule pipedream
    tensor: 2 tensor
    sequence: 2 tensor --sequence-parallel
    tensor-zero1: 4 zero1 --tensor-parallel 2
    tensor-zero3: 4 zero3 --tensor-parallel 2
    tensor-1f1b: 4 pipeline --pipeline-parallel 2 --tensor-parallel 2
    tensor-pipedream: 4 pipeline --pipeline-parallel 2 --tensor-parallel 2 --schedule pipedream
""".strip().splitlines():
    name, text = line.split(":")
    ranks, *words = text.split()
    LAYOUTS[name.strip()] = (int(ranks), ["--strategy", *words])
WAYS = {"plain": [], "accumulation": ["--micro-batch-size", "2"], "tokens": ["--micro-batch-tokens", "40"],
        "recompute": ["--recompute", "full"], "selective": ["--recompute", "selective"], "sqrt": ["--recompute", "sqrt"],
        "bf16": ["--precision", "bf16"], "fp16": ["--precision", "fp16"], "fp64": ["--precision", "fp64"], "lamb": ["--optim", "lamb"], "lars": ["--optim", "lars"],
        "adam": ["--optim", "adam"], "sgd": ["--optim", "sgd"], "sgd16": ["--optim", "sgd", "--precision", "bf16"],
        "deterministic": ["--deterministic"]}
# Every layout is trained in these ways; single in all; layouts of replicas alone in a few more.
OF_EVERY_LAYOUT = ("plain", "accumulation", "recompute", "bf16")
OF_REPLICAS = (*OF_EVERY_LAYOUT, "sqrt", "fp16", "lamb", "deterministic")
COMPARED = ("loss", "gradient_norm", "learning_rate", "epoch", "step", "loss_scale", "skipped_steps")
STEPS = 4


def cases():
    for objective in ("pretrain", "finetune"):
        for layout in LAYOUTS:
            replicas = layout in ("dp", "ddp") or layout.startswith("zero")
            for way in WAYS if layout == "single" else OF_REPLICAS if replicas else OF_EVERY_LAYOUT:
                yield f"{objective}/{layout}/{way}"


class Bench:
    """Model and data, and runs of both programs on them."""

    def __init__(self, folder, programs):
        self.folder, self.programs = folder, programs
        os.environ["FUNICULAR_BUILD_DIR"] = str(programs[0].parent)
        sys.path.insert(0, str(ROOT / "tests/cli"))
        import harness
        harness.write_model(folder / "model")
        harness.write_rows(folder / "train.tsv", ("label", "text"), harness.sentiment_rows(37, 1))
        harness.write_rows(folder / "eval.tsv", ("label", "text"), harness.sentiment_rows(11, 2))
        source = random.Random(5)
        texts = [" ".join(source.choice(harness.WORDS) for _ in range(source.randint(3, 40))) for _ in range(60)]
        (folder / "texts.txt").write_text("\n\n".join(texts) + "\n")
        self.call(programs[0], "tokenize", "--tokenizer", folder / "model", "--input", folder / "texts.txt", "--output",
                  folder / "texts.tokens")

    def call(self, program, *words):
        done = subprocess.run([str(program), *map(str, words)], capture_output=True, text=True, check=False,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode != 0:
            raise RuntimeError(f"{program} {' '.join(map(str, words))}: exit code {done.returncode}: {done.stderr[-2000:]}")

    def train(self, program, case, output, *more):
        objective, layout, way = case.split("/")
        ranks, options = LAYOUTS[layout]
        words = [objective, "--model", self.folder / "model", "--output", output, "--batch-size", 8, "--max-length", 24,
                 "--logging-steps", 1, "--eval-steps", 2, "--learning-rate", 1e-3, *(options or ["--strategy", layout]), *WAYS[way]]
        if "--precision" not in words:  # whose default depends on the processor, and on the program
            words += ["--precision", "fp32"]
        if objective == "pretrain":
            words += ["--data", self.folder / "texts.tokens", "--eval-fraction", "0.2"]
        else:
            words += ["--task", "custom", "--train", self.folder / "train.tsv", "--eval", self.folder / "eval.tsv"]
        if ranks > 1:
            words = ["launch", "-n", ranks, "--", program, *words]
        self.call(program, *words, *more)

    def differences(self, case):
        """What differs between the two programs' runs of the case."""
        runs = [self.folder / "runs" / case / name for name in ("before", "after")]
        order = [[], []]
        if "/ps-async/" in case:
            order = [["--record-interleaving", runs[0] / "order"], ["--replay-interleaving", runs[0] / "order"]]
        for program, run, more in zip(self.programs, runs, order):
            self.train(program, case, run, "--max-steps", STEPS, *more)
        return compared(*runs)

    def differences_of_resume(self, objective):
        """A checkpoint of BEFORE, gone on with by AFTER, beside BEFORE's whole run."""
        case, runs = f"{objective}/single/plain", [self.folder / "runs" / f"{objective}-resume" / name for name in ("whole", "parts")]
        more = ["--max-steps", STEPS, "--save-steps", STEPS // 2, "--save-total-limit", 0]
        self.train(self.programs[0], case, runs[0], *more)
        shutil.copytree(runs[0], runs[1])
        for step in runs[1].glob("checkpoints/step-*"):
            if int(step.name[5:]) > STEPS // 2:
                shutil.rmtree(step)
        shutil.rmtree(runs[1] / "model")
        self.train(self.programs[1], case, runs[1], *more)
        return compared(*runs)


def records(run):
    return [{name: value for name, value in json.loads(line).items() if name in COMPARED or name.startswith("eval_")}
            for line in (run / "metrics.jsonl").read_text().splitlines()]


def compared(before, after):
    problems = [] if records(before) == records(after) else ["metrics.jsonl: the metrics differ"]
    files = [sorted(str(path.relative_to(run)) for path in run.rglob("*.safetensors")) for run in (before, after)]
    if files[0] != files[1] or not files[0]:
        problems.append(f"other files: {files}")
    return problems + [f"{name}: the bytes differ" for name in files[0]
                       if name in files[1] and (before / name).read_bytes() != (after / name).read_bytes()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name OBJECTIVE/LAYOUT/WAY matches")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER", help="leave the runs there")
    args = parser.parse_args()
    folder = args.keep or pathlib.Path(tempfile.mkdtemp(prefix="funicular-bits-"))
    folder.mkdir(parents=True, exist_ok=True)
    bench, differing, count = Bench(folder.resolve(), [args.before.resolve(), args.after.resolve()]), 0, 0
    checks = {case: lambda case=case: bench.differences(case) for case in cases()}
    checks |= {f"{objective}/resume": lambda objective=objective: bench.differences_of_resume(objective)
               for objective in ("pretrain", "finetune")}
    for name, check in checks.items():
        if re.search(args.only, name):
            problems = check()
            count, differing = count + 1, differing + bool(problems)
            print(f"{'the same bits' if not problems else 'DIFFERS':14} {name}", *problems, sep="\n    " if problems else " ", flush=True)
    print(f"{count - differing} of {count} have the same bits")
    if not args.keep:
        shutil.rmtree(folder)
    return 1 if differing or not count else 0


if __name__ == "__main__":
    sys.exit(main())
