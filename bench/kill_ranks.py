#!/usr/bin/env python3
"""Kills ranks at random, and shows that nothing is lost.

A run of several ranks under `funicular launch --max-restarts` has one rank killed (kill -9) again and again, at times
that are uniform, until so many kills have been made; then it is left to end. Its weights and optimiser state must be
the bytes of a run that was left alone. For each kill the script notes what it interrupted: a save (the unfinished
checkpoint is there), a wait for the other ranks (the process sleeps in a futex or a poll), or computing; and from the
restart's first message how many steps were lost.

Python's standard library alone. Example: bench/kill_ranks.py --program build/release/funicular --kills 50
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


def make_inputs(program: str, folder: Path) -> tuple[Path, Path]:
    """A configuration with its vocabulary, and a token store of random words."""
    model = folder / "model"
    model.mkdir()
    vocabulary = SPECIAL + WORDS
    (model / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (model / "config.json").write_text(json.dumps({
        "model_type": "bert", "vocab_size": len(vocabulary), "hidden_size": 128, "num_hidden_layers": 3,
        "num_attention_heads": 4, "intermediate_size": 512, "max_position_embeddings": 64}))
    source = random.Random(5)
    rows = [" ".join(source.choice(WORDS) for _ in range(source.randint(10, 40))) for _ in range(400)]
    (folder / "text.txt").write_text("\n\n".join(rows))
    store = folder / "text.tokens"
    subprocess.run([program, "tokenize", "--tokenizer", model, "--input", folder / "text.txt", "--output", store],
                   check=True, capture_output=True)
    return model, store


def ranks_of(launcher: int) -> list[int]:
    listing = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(launcher)], capture_output=True, text=True, check=False)
    return [int(line.split(None, 1)[0]) for line in listing.stdout.splitlines() if "pretrain" in line and " launch " not in line]


def read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def last_step(output: Path) -> int:
    """The last that metrics.jsonl tells of."""
    steps = re.findall(r'"step":\s*(\d+)', read(str(output / "metrics.jsonl")))
    return int(steps[-1]) if steps else 0


def doing(process: int, ranks: list[int], output: Path, log: str) -> str:
    """What a rank is about; `log` is what all have said since they started."""
    if "training all weights" not in log:
        return "starting"
    if any(int(path.name.rsplit("-", 1)[1]) in ranks for path in (output / "checkpoints").glob(".tmp-step-*")):
        return "saving"
    state = read(f"/proc/{process}/stat").rsplit(")", 1)[-1].split()
    return "in a collective" if state and state[0] in "SD" else "computing"


class Study:
    def __init__(self, arguments, folder: Path):
        self.arguments, self.folder = arguments, folder
        self.model, self.store = make_inputs(arguments.program, folder)

    def command(self, output: Path, strategy: str) -> list[str]:
        a = self.arguments
        return [a.program, "launch", "-n", str(a.ranks), "--max-restarts", "100000", "--grace", "2", "--", a.program,
                "pretrain", "--model", str(self.model), "--data", str(self.store), "--output", str(output), "--max-length", "48",
                "--max-steps", str(a.steps), "--batch-size", "16", "--micro-batch-size", "4", "--save-steps",
                str(a.save_steps), "--logging-steps", "1", "--strategy", strategy, "--num-workers", "0"]

    def run(self, strategy: str) -> dict:
        whole, killed = self.folder / f"{strategy}-whole", self.folder / f"{strategy}-killed"
        start = time.monotonic()
        subprocess.run(self.command(whole, strategy), check=True, capture_output=True)
        undisturbed = time.monotonic() - start
        source = random.Random(self.arguments.seed)
        log_path = self.folder / f"{strategy}.log"
        with open(log_path, "w", encoding="utf-8") as log:
            process = subprocess.Popen(self.command(killed, strategy), stdout=subprocess.DEVNULL, stderr=log)
        kills = []  # what each interrupted, the step that was done, how long the log was
        doomed = set()  # the ranks that a kill ends, which live on for a moment
        while process.poll() is None and len(kills) < self.arguments.kills:
            time.sleep(source.uniform(0.05, self.arguments.longest_wait))
            ranks = ranks_of(process.pid)
            if not ranks or doomed.intersection(ranks):
                continue
            victim = source.choice(ranks)
            doomed = set(ranks)
            what = doing(victim, ranks, killed, read(str(log_path)).rsplit("starting all ranks again", 1)[-1])
            try:
                os.kill(victim, signal.SIGKILL)
                kills.append((what, last_step(killed), log_path.stat().st_size))
            except ProcessLookupError:
                pass
        code = process.wait()
        files = ["checkpoints/step-%06d/%s" % (self.arguments.steps, name)
                 for name in ("model.safetensors", "optimizer.safetensors")] + ["model/model.safetensors"]
        same = code == 0 and all((whole / name).read_bytes() == (killed / name).read_bytes() for name in files)
        return {"strategy": strategy, "kills": len(kills), "interrupted": collections.Counter(what for what, _, _ in kills),
                "exit_code": code, "identical": same, "save_steps": self.arguments.save_steps,
                "most_steps_lost": max(self.lost_steps(kills, log_path.read_bytes()), default=0),
                "undisturbed_seconds": round(undisturbed, 1), "seconds": round(time.monotonic() - start - undisturbed, 1)}

    @staticmethod
    def lost_steps(kills: list, log: bytes) -> list[int]:
        """For each kill the steps from the one that had been done to the one from which the next start went on."""
        lost = []
        for number, (_, step, begin) in enumerate(kills):
            end = kills[number + 1][2] if number + 1 < len(kills) else len(log)
            # At the beginning of a line: the launcher repeats a dead rank's last lines.
            resumed = re.findall(rb"(?m)^\[0\] resumed from .* at step (\d+) of", log[begin:end])
            if resumed:
                lost.append(max(0, step - int(resumed[0])))
        return lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/funicular")
    parser.add_argument("--strategies", nargs="+", default=["ddp", "zero1", "zero2", "zero3"])
    parser.add_argument("--kills", type=int, default=50, help="of each strategy's run")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--save-steps", type=int, default=3)
    parser.add_argument("--longest-wait", type=float, default=3, help="seconds between two kills, at most")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder:
        study = Study(arguments, Path(folder))
        for strategy in arguments.strategies:
            result = study.run(strategy)
            print(json.dumps(result), flush=True)
            good = (good and result["identical"] and result["kills"] == arguments.kills and
                    result["most_steps_lost"] <= arguments.save_steps)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
