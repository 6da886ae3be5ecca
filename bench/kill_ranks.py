#!/usr/bin/env python3
"""Kills ranks at random, and shows that nothing is lost.

For each strategy a run of several ranks under `funicular launch --max-restarts` has one rank killed (kill -9) again and
again, until all planned kills are made; then it is left to end. Its weights and optimiser state must be the bytes of a
run that was left alone. By default: ddp, zero1, zero2, zero3 and ps-sync, two ranks, 40 kills each, 200 in all.
--strategies pipelines stands for pipelines, slices and their products on two and four ranks. Of a pipeline a schedule may
be named, of all strategies further options and the number of ranks: pipeline:1f1b,tensor-parallel=2@4.

The kills are spread over the steps, so that all of them are made however fast the machine is. One of eight comes while
the ranks start. One of three is aimed at a save: it comes when the unfinished checkpoint is there. The others come at a
random time. For each kill the script notes what it interrupted: a save (the unfinished checkpoint was there before the
kill and after it), a wait for the other ranks (the process sleeps in a futex or a poll), computing, or starting; and from
the restart's first message how many steps were lost.

It prints a line of JSON for each strategy, and at the end a table. The exit code is 0 if every run made its planned
number of kills, at least a quarter of them inside saves, ended with the same bytes, and lost no more steps than there are
between two saves; else 1.

Python's standard library alone. Example: bench/kill_ranks.py --program build/release/funicular --kills 8
"""
import argparse
import collections
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORDS = "good bad film book very the is not fine dull song long short old".split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# Schedules with and without a flush, slices, and what replicas divide.
PIPELINES = ["pipeline:1f1b", "pipeline:zb-v", "pipeline:pipedream", "tensor", "pipeline:interleaved,tensor-parallel=2@4",
             "pipeline:pipedream-2bw,tensor-parallel=2@4", "pipeline-zero3:zb-h1,pipeline-parallel=2@4",
             "pipeline-zero3:pipedream,pipeline-parallel=2@4"]


def write_model(model: Path, layers: int, width: int) -> None:
    """A configuration with its vocabulary."""
    model.mkdir(parents=True)
    vocabulary = SPECIAL + WORDS
    (model / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (model / "config.json").write_text(json.dumps({
        "model_type": "bert", "vocab_size": len(vocabulary), "hidden_size": width, "num_hidden_layers": layers,
        "num_attention_heads": 4, "intermediate_size": 4 * width, "max_position_embeddings": 64}))


def make_inputs(program: str, folder: Path) -> tuple[Path, Path]:
    """A model without weights, and a token store of random words."""
    model = folder / "model"
    write_model(model, layers=3, width=128)
    source = random.Random(5)
    rows = [" ".join(source.choice(WORDS) for _ in range(source.randint(10, 40))) for _ in range(400)]
    (folder / "text.txt").write_text("\n\n".join(rows))
    store = folder / "text.tokens"
    subprocess.run([program, "tokenize", "--tokenizer", model, "--input", folder / "text.txt", "--output", store],
                   check=True, capture_output=True)
    return model, store


def read(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def ranks_of(launcher: int) -> list[int]:
    """The launcher's children that train; its helper has its own command line, with the word launch."""
    children = map(int, read(f"/proc/{launcher}/task/{launcher}/children").split())
    return [child for child in children
            if "pretrain" in (words := read(f"/proc/{child}/cmdline").split("\0")) and "launch" not in words]


def last_step(output: Path) -> int:
    """The last that metrics.jsonl tells of."""
    try:
        with open(output / "metrics.jsonl", "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            steps = re.findall(rb'"step":\s*(\d+)', file.read())
    except OSError:
        return 0
    return int(steps[-1]) if steps else 0


def saving(output: Path) -> bool:
    """Whether there is an unfinished checkpoint: ranks that train have cleared up after those before them."""
    return any((output / "checkpoints").glob(".tmp-step-*"))


def starting(log: str) -> bool:
    """`log` is what all ranks have said since they started."""
    return "training all weights" not in log


def sleeping(process: int) -> bool:
    state = read(f"/proc/{process}/stat").rsplit(")", 1)[-1].split()
    return bool(state) and state[0] in "SD"


def options_of(strategy: str, ranks: int) -> tuple[int, list[str]]:
    """How many ranks, and the words of the command line: "pipeline:1f1b,tensor-parallel=2@4"."""
    layout, _, wanted = strategy.partition("@")
    name, *options = layout.split(",")
    name, _, schedule = name.partition(":")
    words = ["--strategy", name, *(["--schedule", schedule] if schedule else [])]
    for option in options:
        key, _, value = option.partition("=")
        words += [f"--{key}", value]
    return int(wanted or ranks), words


class Plan:
    """At which steps kills come, and what each is aimed at."""

    def __init__(self, kills: int, steps: int, save_steps: int, source: random.Random):
        first, last = save_steps, steps - 3 * save_steps
        self.steps = sorted(source.uniform(first, last) for _ in range(kills))
        aims = ["starting"] * (kills // 8) + ["saving"] * (-(-kills // 3))
        self.aims = aims + ["anything"] * (kills - len(aims))
        source.shuffle(self.aims)
        self.least_saves = kills // 4


class Killing:
    """One run whose ranks are killed as planned."""

    def __init__(self, command: list[str], output: Path, log_path: Path, times: dict, seed: int):
        self.output, self.log_path, self.times = output, log_path, times
        self.source = random.Random(seed)
        with open(log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        self.kills = []  # what each interrupted, the step that was done, how long the log was
        self.doomed = set()  # the ranks that a kill ends, which live on for a moment

    def log(self) -> str:
        return read(str(self.log_path)).rsplit("starting all ranks again", 1)[-1]

    def ranks(self) -> list[int]:
        """Those that no kill has ended yet; none in the moment between two starts."""
        found = ranks_of(self.process.pid)
        return [] if self.doomed.intersection(found) else found

    def wait_for(self, condition) -> bool:
        """False if the run ended first."""
        while not condition():
            if self.process.poll() is not None:
                return False
            time.sleep(0.001)
        return True

    def make(self, plan: Plan):
        for step, aim in zip(plan.steps, plan.aims):
            if aim == "starting":
                while self.process.poll() is None and not self.kill_while_starting():
                    pass
                continue
            # The log first: metrics.jsonl tells of the steps before the restart too.
            if not self.wait_for(lambda: self.ranks() and not starting(self.log()) and last_step(self.output) >= int(step)):
                return
            if aim == "anything":
                time.sleep(self.source.uniform(0, 2 * self.times["step"]))
            while self.process.poll() is None and not (self.kill_in_a_save() if aim == "saving" else self.kill()):
                pass

    def kill_while_starting(self) -> bool:
        if not self.wait_for(self.ranks):
            return False
        time.sleep(self.source.uniform(0, 0.8 * self.times["start"]))
        return self.kill()

    def kill_in_a_save(self) -> bool:
        ranks = self.ranks()
        if not self.wait_for(lambda: saving(self.output) or self.ranks() != ranks):
            return False
        return self.kill(stop_first=True)

    def kill(self, stop_first=False) -> bool:
        """Kills one rank. With stop_first it is stopped before, and goes on where no save is under way any more."""
        ranks = self.ranks()
        if not ranks:
            time.sleep(0.01)
            return False
        victim = self.source.choice(ranks)
        try:
            if stop_first:
                os.kill(victim, signal.SIGSTOP)
                if not saving(self.output):
                    os.kill(victim, signal.SIGCONT)
                    return False
            what = "starting" if starting(self.log()) else "in a collective" if sleeping(victim) else "computing"
            in_a_save = what != "starting" and saving(self.output)
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return False
        if in_a_save and saving(self.output):
            what = "saving"
        self.doomed = set(ranks)
        self.kills.append((what, last_step(self.output), self.log_path.stat().st_size))
        return True


class Study:
    def __init__(self, arguments, folder: Path):
        self.arguments, self.folder = arguments, folder
        self.model, self.store = make_inputs(arguments.program, folder)

    def command(self, output: Path, strategy: str) -> list[str]:
        a = self.arguments
        ranks, words = options_of(strategy, a.ranks)
        return [a.program, "launch", "-n", str(ranks), "--max-restarts", "100000", "--grace", "2", "--", a.program,
                "pretrain", "--model", str(self.model), "--train", str(self.store), "--output", str(output), "--max-length", "48",
                "--max-steps", str(a.steps), "--batch-size", "16", "--micro-batch-size", "4", "--save-steps",
                str(a.save_steps), "--logging-steps", "1", "--num-workers", "0", "--precision", "fp32", *words]

    def run_whole(self, strategy: str, output: Path) -> dict:
        """Undisturbed; gives how long the ranks took to start, a step, and all."""
        log_path = self.folder / f"{strategy}-whole.log"
        begin, seen, trains = time.monotonic(), None, None
        with open(log_path, "w", encoding="utf-8") as log:
            process = subprocess.Popen(self.command(output, strategy), stdout=subprocess.DEVNULL, stderr=log)
        while process.poll() is None:
            if not seen and ranks_of(process.pid):
                seen = time.monotonic()
            if not trains and not starting(read(str(log_path))):
                trains = time.monotonic()
            time.sleep(0.002)
        end = time.monotonic()
        if process.returncode != 0 or not seen or not trains:
            raise SystemExit(f"kill_ranks.py: the undisturbed run with {strategy} failed (exit code {process.returncode}):\n" +
                             read(str(log_path))[-2000:])
        return {"start": trains - seen, "step": (end - trains) / self.arguments.steps, "whole": end - begin}

    def run(self, strategy: str) -> dict:
        a = self.arguments
        whole, killed = self.folder / f"{strategy}-whole", self.folder / f"{strategy}-killed"
        times = self.run_whole(strategy, whole)
        begin = time.monotonic()
        plan = Plan(a.kills, a.steps, a.save_steps, random.Random(a.seed))
        log_path = self.folder / f"{strategy}.log"
        killing = Killing(self.command(killed, strategy), killed, log_path, times, a.seed)
        try:
            killing.make(plan)
            code = killing.process.wait()
        finally:
            killing.process.kill()
        files = ["checkpoints/step-%06d/%s" % (a.steps, name)
                 for name in ("model.safetensors", "optimizer.safetensors")] + ["model/model.safetensors"]
        same = code == 0 and all((whole / name).read_bytes() == (killed / name).read_bytes() for name in files)
        kills = killing.kills
        return {"strategy": strategy, "planned": a.kills, "kills": len(kills), "least_saves": plan.least_saves,
                "interrupted": collections.Counter(what for what, _, _ in kills),
                "exit_code": code, "identical": same, "save_steps": a.save_steps,
                "most_steps_lost": max(self.lost_steps(kills, log_path.read_bytes()), default=0),
                "undisturbed_seconds": round(times["whole"], 1), "seconds": round(time.monotonic() - begin, 1)}

    @staticmethod
    def lost_steps(kills: list, log: bytes) -> list[int]:
        """For each kill the steps from the one that had been done to the one from which the next start went on."""
        lost = []
        for number, (_, step, begin) in enumerate(kills):
            end = kills[number + 1][2] if number + 1 < len(kills) else len(log)
            # At the beginning of a line, behind the time: the launcher repeats a dead rank's last lines.
            resumed = re.findall(rb"(?m)^\[0\] (?:[-\d]+ [:\d]+ )?resumed from .* at step (\d+) of", log[begin:end])
            if resumed:
                lost.append(max(0, step - int(resumed[0])))
        return lost


PHASES = ("computing", "saving", "in a collective", "starting")


def faults(result: dict) -> list[str]:
    """What this run did that it should not."""
    found = []
    if result["kills"] != result["planned"]:
        found.append(f"{result['kills']} kills instead of {result['planned']}")
    if result["interrupted"]["saving"] < result["least_saves"]:
        found.append(f"{result['interrupted']['saving']} kills inside saves, expected at least {result['least_saves']}")
    if not result["identical"]:
        found.append(f"other weights or optimiser state than the undisturbed run's (exit code {result['exit_code']})")
    if result["most_steps_lost"] > result["save_steps"]:
        found.append(f"{result['most_steps_lost']} steps lost, expected at most {result['save_steps']}")
    return [f"{result['strategy']}: {fault}" for fault in found]


def table(results: list[dict]) -> str:
    header = ["strategy", "kills", *PHASES, "most steps lost", "same bytes", "minutes"]
    rows = [[r["strategy"], r["kills"], *(r["interrupted"][phase] for phase in PHASES), r["most_steps_lost"],
             "yes" if r["identical"] else "NO", f"{(r['seconds'] + r['undisturbed_seconds']) / 60:.1f}"] for r in results]
    rows.append(["all", sum(r["kills"] for r in results), *(sum(r["interrupted"][phase] for r in results) for phase in PHASES),
                 max(r["most_steps_lost"] for r in results), "yes" if all(r["identical"] for r in results) else "NO",
                 f"{sum(r['seconds'] + r['undisturbed_seconds'] for r in results) / 60:.1f}"])
    lines = [header, ["---"] * len(header)] + rows
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/funicular")
    parser.add_argument("--strategies", nargs="+", default=["ddp", "zero1", "zero2", "zero3", "ps-sync"])
    parser.add_argument("--kills", type=int, default=40, help="of each strategy's run")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--save-steps", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(words)
    arguments.strategies = [each for name in arguments.strategies for each in (PIPELINES if name == "pipelines" else [name])]
    # A kill that is aimed at a save waits for the next one: so there is one for each, and some steps to spare.
    least = (arguments.kills + 5) * arguments.save_steps
    if arguments.kills < 1 or arguments.steps < least:
        parser.error(f"--kills {arguments.kills} with --save-steps {arguments.save_steps} needs --steps {least} at least, "
                     f"and one kill at least; found --steps {arguments.steps}")
    return arguments


def main() -> int:
    arguments = parse(sys.argv[1:])
    results = []
    with tempfile.TemporaryDirectory() as folder:
        study = Study(arguments, Path(folder))
        for strategy in arguments.strategies:
            results.append(study.run(strategy))
            print(json.dumps(results[-1]), flush=True)
    print(table(results))
    problems = [fault for result in results for fault in faults(result)]
    for problem in problems:
        print(f"kill_ranks.py: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
