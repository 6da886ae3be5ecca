#!/usr/bin/env python3
"""The goals for one GPU beside what the parts of bench/on_a_gpu.sh measured, and the time of a step by kind of kernel.

usage: gpu_goals.py FOLDER      the folder of JSON files that the parts wrote; what is not there is "not measured"
"""
import argparse
import json
from pathlib import Path
from typing import Callable

# Kernels of a step on an H200 on 2026-11-29, ms (docs/project/measurements): KINDS, all kernels, from the first to the last.
BEFORE = {"base-ragged": (12.7, 8.3, 1.0, 38.6, 39.7), "base-full-512": (56.7, 13.2, 1.0, 97.6, 99.0), "minilm-ragged": (4.3, 2.3, 0.2, 11.1, 16.1),
          "base-32-rows": (1.9, 1.2, 1.0, 7.3, 18.1)}
KINDS = ("attention", "normalisation, activation", "optimiser")


class Files:
    def __init__(self, folder: Path):
        self.folder = folder

    def read(self, name: str) -> dict:
        """Empty if there is none, or only a part of it."""
        try:
            return json.loads((self.folder / name).read_text())
        except (OSError, ValueError):
            return {}

    def step(self, shape: str) -> dict:
        return self.read(f"{shape}.json")

    def tokens(self, shape: str) -> float:
        return self.step(shape)["tokens_per_second"]

    def peer(self, shape: str) -> float:
        model, rows = shape.split("-", 1)
        return self.read(f"peers/{model}/gpu_step.json")["found"][f"{model} {rows}"]["layers"]["tokens_per_second"]

    def beside_peer(self, shape: str) -> float:
        return self.tokens(shape) / self.peer(shape)

    def kernels(self, shape: str) -> tuple[dict[str, float], float]:
        """Seconds of a step's kernels by kind, and of all of them, without the time between them."""
        step = self.step(shape)
        one = step["profile"][-1]
        total = one["seconds_per_step"] / one["share"] if one["share"] else sum(part["seconds_per_step"] for part in step["profile"])
        kinds = {kind["kind"]: kind["share"] * total for kind in step["work"]}
        return kinds, total - one["seconds_per_step"]

    def finetuning(self) -> float:
        """A step's time as a multiple of its kernels'."""
        return min(self.read("finetune/gpu_finetune.json")["step_seconds"].values()) / self.kernels("base-32-rows")[1]

    def prediction(self) -> float:
        seconds = self.read("predict/gpu_predict.json")["seconds"]
        runs = seconds[max(seconds, key=int)]
        return min(runs["transformers"]) / min(runs["funicular"])

    def distillation(self) -> float:
        run = self.read("distill/distillation_step.json")["runs"][0]
        return run["ours"]["intermediate"]["rows_per_second"] / run["grouped"]["intermediate"]["rows_per_second"]


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def speed(work: str, goal: float, shape: str, *share: str) -> tuple:
    return work, " ".join([f">= {number(goal)} tokens/s", *share]), lambda files: files.tokens(shape), lambda figure: figure >= goal, shape, "steps"


def ratio(work: str, shape: str) -> tuple:
    return f"{work}, beside the unpadded peer", ">= 1.35 x", lambda files: files.beside_peer(shape), lambda figure: figure >= 1.35, "", "steps, compile"


# work, goal, how the figure is read, whether it reaches the goal, the shape whose step has a share of products, parts
GOALS: list[tuple[str, str, Callable[[Files], float], Callable[[float], bool], str, str]] = [
    speed("BERT-base, 256 rows of 32-128 tokens", 800_000, "base-ragged", "(products >= 60 %)"),
    speed("BERT-base, 256 rows of 128", 870_000, "base-full"),
    speed("BERT-base, 64 rows of 512", 750_000, "base-full-512"),
    speed("BERT-large, 64 rows of 254 on average", 240_000, "large-ragged-476"),
    speed("MiniLM, 256 rows of 32-128", 2_000_000, "minilm-ragged"),
    ("fine-tuning BERT-base, 32 rows a step", "<= 1.3 x its kernels", Files.finetuning, lambda figure: figure <= 1.3, "", "finetune, steps"),
    ("prediction, BERT-base, whole command", ">= 3 x transformers", Files.prediction, lambda figure: figure >= 3, "", "predict"),
    ("distillation, intermediate stage", ">= 2 x the loop", Files.distillation, lambda figure: figure >= 2, "", "distill"),
    ratio("BERT-base 32-128", "base-ragged"),
    ratio("BERT-base 128", "base-full"),
    ratio("BERT-base 512", "base-full-512"),
    ratio("MiniLM 32-128", "minilm-ragged"),
    ratio("BERT-large 254", "large-ragged-476"),
]


def goal_rows(files: Files) -> list[tuple[str, ...]]:
    rows = []
    for work, goal, read, reaches, shape, parts in GOALS:
        try:
            figure = read(files)
            reached = "yes" if reaches(figure) else "no"
            share = files.step(shape).get("floor", {}).get("share")
            rows.append((work, goal, number(figure), reached, f"{100 * share:.0f} %" if share else "", parts))
        except (KeyError, IndexError, ValueError, ZeroDivisionError):
            rows.append((work, goal, "not measured", "", "", parts))
    return rows


def kernel_rows(files: Files) -> list[tuple[str, ...]]:
    """Milliseconds of each shape before and now. A step's own time is that without a profiler."""
    rows = []
    for shape, before in BEFORE.items():
        try:
            kinds, total = files.kernels(shape)
            found = [*(kinds[kind] for kind in KINDS), total, files.step(shape)["step_seconds_median"]]
            now = tuple(f"{1e3 * seconds:.1f}" for seconds in found)
        except (KeyError, IndexError, ZeroDivisionError):
            now = ("not measured", *[""] * 4)
        rows += [(shape, "2026-11-29", *(f"{value:.1f}" for value in before)), (shape, "now", *now)]
    return rows


def table(head: tuple[str, ...], rows: list) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    files = Files(parser.parse_args().folder)
    print(table(("work", "goal", "figure", "reached", "products' share of the step", "part"), goal_rows(files)))
    print("\nKernels of a step, ms\n" + table(("shape", "when", *KINDS, "all kernels", "step"), kernel_rows(files)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
