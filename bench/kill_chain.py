#!/usr/bin/env python3
"""Kills a chain at random, in each of its steps, and shows that nothing is lost or done twice.

The chain tokenises, trains word vectors, pre-trains a teacher, fine-tunes it, augments the rows, distils in the three stages
(general, intermediate, prediction; in the second with a cache of the teacher's answers), evaluates teacher and student, shows them
beside each other in a report, and measures what the pre-trained teacher knows of the texts (compare). It is run once undisturbed.
Then it is run anew and killed (kill -9) again and again, in turn: the process of the step, the chain, and both at once; each time
in the step whose turn it is, at a random moment of the time that the step took undisturbed. After each kill the same command goes
on.

At the end every product must be the bytes of the undisturbed chain, no step may have begun again that was done, and no
training step may be recorded twice. Prints a line for each step, and exits with 1 if anything differs.

Python's standard library alone. Example: bench/kill_chain.py --program build/release/funicular --kills 50
"""
import argparse
import collections
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kill_ranks import WORDS, read, write_model

TRAINING = "batch-size = 8\nmax-length = 32\nsave-steps = 1\nlogging-steps = 1\nprecision = \"fp32\"\nlearning-rate = 0.001\n"
CHAIN = f"""[store]
command = "tokenize"
tokenizer = "model"
input = "texts.txt"
output = "texts.tokens"

[words]
command = "vectors"
input = "texts.txt"
output = "words.txt"
vector-size = 16
min-count = 1
num-train-epochs = 2

[teacher-adapted]
command = "pretrain"
model = "model"
train = "texts.tokens"
output = "runs/adapted"
max-steps = STEPS
{TRAINING}
[teacher]
command = "finetune"
model = "runs/adapted/model"
task = "custom"
train = "train.tsv"
eval = "eval.tsv"
output = "runs/teacher"
max-steps = STEPS
{TRAINING}
[more]
command = "augment"
model = "runs/adapted/model"
task = "custom"
input = "train.tsv"
output = "more.tsv"
variants = 4
precision = "fp32"

[general]
command = "distill"
stage = "general"
teacher = "runs/adapted/model"
student = "2-layer"
train = "texts.tokens"
output = "runs/general"
max-steps = STEPS
{TRAINING}
[layers]
command = "distill"
stage = "intermediate"
teacher = "runs/teacher/model"
student = "runs/general/model"
task = "custom"
train = "more.tsv"
cache-teacher = "answers"
output = "runs/layers"
max-steps = STEPS
{TRAINING}
[student]
command = "distill"
stage = "prediction"
teacher = "runs/teacher/model"
student = "runs/layers/model"
task = "custom"
train = "more.tsv"
eval = "eval.tsv"
output = "runs/student"
max-steps = STEPS
{TRAINING}
[teacher-tested]
command = "evaluate"
model = "runs/teacher/model"
input = "eval.tsv"
predictions = "teacher.jsonl"
output = "tested/teacher"

[student-tested]
command = "evaluate"
model = "runs/student/model"
input = "eval.tsv"
predictions = "student.jsonl"
output = "tested/student"

[page]
command = "report"
input = ["tested/teacher", "tested/student", "runs/teacher", "runs/student"]
output = "report.html"

[compared]
command = "compare"
models = ["runs/adapted/model"]
input = "texts.txt"
precision = "fp32"
"""
RUNS = {"teacher-adapted": "adapted", "teacher": "teacher", "general": "general", "layers": "layers", "student": "student"}
PRODUCTS = ["texts.tokens/tokens.bin", "words.txt", "more.tsv", "teacher.jsonl", "student.jsonl", "chain.state/compared.out",
            *(f"runs/{run}/model/model.safetensors" for run in RUNS.values())]


def make_inputs(folder: Path, steps: int) -> Path:
    write_model(folder / "model", layers=4, width=64)
    source = random.Random(5)
    texts = [" ".join(source.choice(WORDS) for _ in range(source.randint(8, 28))) for _ in range(600)]
    (folder / "texts.txt").write_text("\n\n".join(texts) + "\n")
    for name, count in (("train", 120), ("eval", 60)):
        rows = [f"{'pro' if 'good' in text else 'contra'}\t{text}" for text in source.sample(texts, count)]
        (folder / f"{name}.tsv").write_text("label\ttext\n" + "\n".join(rows) + "\n")
    chain = folder / "chain.toml"
    chain.write_text(CHAIN.replace("STEPS", str(steps)))
    return chain


class Call:
    """One call of the chain, whose messages go to a file."""

    def __init__(self, program: Path, chain: Path, log: Path):
        self.log = log
        with open(log, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen([program, "chain", chain], stdout=subprocess.DEVNULL, stderr=file)

    def said(self) -> str:
        return read(self.log)

    def begun(self) -> list[str]:
        return re.findall(r"\d+ of \d+: ([\w-]+): (?:run|go on|rerun)", self.said())

    def wait_for(self, step: str, later: set[str]) -> bool:
        """Until the step's command has been started; False if the chain ended first, or one of the later steps has begun."""
        while self.process.poll() is None:
            begun = self.begun()
            if later.intersection(begun):
                return False
            if step in begun and "$ funicular" in self.said().rsplit(f": {step}: ", 1)[-1]:
                return True
            time.sleep(0.002)
        return False

    def kill(self, what: str) -> bool:
        """Whether it came in time."""
        children = [int(child) for child in read(f"/proc/{self.process.pid}/task/{self.process.pid}/children").split()]
        if self.process.poll() is not None or (what != "chain" and not children):
            return False
        victims = (children if what != "chain" else []) + ([self.process.pid] if what != "step" else [])
        for victim in victims:
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                return False
        return True


def undisturbed(program: Path, folder: Path, steps: int) -> tuple[dict[str, bytes], dict[str, float]]:
    """The products, and how many seconds each step took."""
    chain = make_inputs(folder, steps)
    done = subprocess.run([program, "chain", chain], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    state = json.loads((folder / "chain.state" / "state.json").read_text())["steps"]
    took = {name: state[name]["seconds"] for name in re.findall(r"\d+ of \d+: ([\w-]+): run", done.stderr)}
    return {name: (folder / name).read_bytes() for name in PRODUCTS}, took


def steps_recorded(folder: Path) -> list[str]:
    """Runs whose metrics.jsonl tells of a training step twice, or leaves one out."""
    wrong = []
    for run in RUNS.values():
        records = map(json.loads, read(folder / "runs" / run / "metrics.jsonl").splitlines())
        steps = [record["step"] for record in records if "learning_rate" in record]
        if steps != list(range(1, len(steps) + 1)):
            wrong.append(f"runs/{run}/metrics.jsonl tells of the steps {steps}")
    return wrong


def disturbed(args, folder: Path, took: dict[str, float], counts: collections.Counter) -> list[str]:
    """One chain with up to `--per-step` kills in each step. Returns what went wrong."""
    chain = make_inputs(folder, args.steps)
    wrong, done, number = [], set(), 0
    order = list(took)
    plan = [step for step in order for _ in range(args.per_step)]
    while True:
        call = Call(args.program, chain, folder / f"call-{number}.log")
        number += 1
        killed = False
        while plan and not killed and call.process.poll() is None:
            step = plan[0]
            if step in done or not call.wait_for(step, set(order[order.index(step) + 1:])):
                plan.pop(0)
                continue
            plan.pop(0)
            time.sleep(args.source.uniform(0, took[step]))
            what = ("step", "chain", "both")[sum(counts.values()) % 3]
            if call.begun()[-1:] == [step]:
                killed = call.kill(what)
                counts[step] += killed
        code = call.process.wait()
        again = set(call.begun()) & done
        if again:
            wrong.append(f"call {number} began {', '.join(sorted(again))} again, which was done")
        done |= set(re.findall(r"([\w-]+): done in", call.said()))
        if not killed and code == 0:
            return wrong
        if not killed:
            return [*wrong, f"call {number} ended with {code}: {call.said()[-2000:]}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=Path("build/release/funicular"))
    parser.add_argument("--kills", type=int, default=50, help="at least so many")
    parser.add_argument("--per-step", type=int, default=3, help="kills of a step in one chain")
    parser.add_argument("--steps", type=int, default=12, help="training steps of each run")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.program, args.source = args.program.resolve(), random.Random(args.seed)
    with tempfile.TemporaryDirectory() as name:
        expected, took = undisturbed(args.program, Path(name) / "whole", args.steps)
        counts, wrong, chains = collections.Counter(), [], 0
        while sum(counts.values()) < args.kills and not wrong:
            folder = Path(name) / f"killed-{chains}"
            chains += 1
            wrong += disturbed(args, folder, took, counts)
            if not wrong:
                wrong += [f"{product} differs" for product in PRODUCTS if (folder / product).read_bytes() != expected[product]]
                wrong += steps_recorded(folder)
            shutil.rmtree(folder)
        for step, seconds in took.items():
            print(f"{step:16} {seconds:6.2f} s undisturbed, {counts[step]:3} kills")
        for problem in wrong:
            print(problem)
        print(f"{sum(counts.values())} kills in {chains} chains; products that differ, steps begun again, training steps recorded twice: {len(wrong)}")
        sys.exit(1 if wrong or sum(counts.values()) < args.kills else 0)


if __name__ == "__main__":
    main()
