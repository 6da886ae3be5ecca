#!/usr/bin/env python3
"""Large batches: AdamW beside LAMB at equal epochs over real text, each with its own sweep of the learning rate.

A small BERT is pre-trained from the same random weights with batches of 256 to 4,096 sequences: the same number of
epochs, the same share of warm-up, the same schedule, weight decay, dropout and clipping. For every batch each optimiser
has as many rates, a factor of two apart; the middle one is that for 256 sequences times sqrt(batch / 256). Where the best
rate lies at an edge of its sweep, the sweep is continued on that side until it does not (--extend times at most).
What is compared is the masked-LM loss on held-out text after the last step.

Each finished run leaves a result file in --results and is not repeated: stop and start this at will. A run that diverges
is a result, too. Written after every run: table.md, table.json, loss.svg, rates.svg.
"""
import argparse
import json
import math
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import study_tools as tools

ROOT = Path(__file__).resolve().parents[1]
SMALLEST_BATCH = 256  # sequences; the middle rates are given for it


@dataclass(frozen=True)
class Optimizer:
    title: str
    middle_rate: float  # for SMALLEST_BATCH sequences
    options: tuple


OPTIMIZERS = {
    "adamw": Optimizer("AdamW", 4e-3, ("--optim", "adamw")),
    "lamb": Optimizer("LAMB", 4e-2, ("--optim", "lamb", "--trust-ratio", "apex")),
    "lamb-paper": Optimizer("LAMB, ratio of all layers", 4e-2, ("--optim", "lamb", "--trust-ratio", "paper")),
}


@dataclass(frozen=True)
class Point:
    optimizer: str
    batch: int
    place: int  # in the sweep: the rate is the middle one times 2^place

    @property
    def rate(self) -> float:
        rate = OPTIMIZERS[self.optimizer].middle_rate * math.sqrt(self.batch / SMALLEST_BATCH) * 2.0**self.place
        return float(f"{rate:.3g}")

    @property
    def name(self) -> str:
        return f"{self.optimizer}-{self.batch}-{self.rate:g}"


def first_places(rates: int) -> list[int]:
    """The sweep around its middle, which comes first."""
    return sorted(range(-((rates - 1) // 2), rates // 2 + 1), key=lambda place: (abs(place), place))


def best_place(losses: dict[int, float]) -> int | None:
    """The place of the lowest loss; nothing where every run diverged."""
    finite = {place: loss for place, loss in losses.items() if math.isfinite(loss)}
    return min(finite, key=lambda place: (finite[place], place)) if finite else None


def next_place(losses: dict[int, float]) -> int | None:
    """Where a finished sweep must go on: beside its best, if that lies at an edge, or below, if everything diverged."""
    best = best_place(losses)
    if best is None or best == min(losses):
        return min(losses) - 1
    return max(losses) + 1 if best == max(losses) else None


class Study:
    def __init__(self, args):
        self.args, self.inputs = args, args.results / "inputs"
        paths = tools.make_inputs(self.inputs, args.data, args.eval_data, args.vocabulary, args.megabytes)
        self.tokenizer, self.config = paths["tokenizer"], self.inputs / "config.json"
        self.stores = [tools.tokenize(args.program, self.tokenizer, paths[name]) for name in ("train", "eval")]
        config = tools.model_config(self.tokenizer / "vocab.txt", args.layers, args.width, 0.1, args.max_length)
        tools.write_json(self.config, config)

    def request(self, point: Point) -> list[str]:
        """The options of the run's command that decide its result."""
        a = self.args
        words = ["--batch-size", point.batch, "--learning-rate", f"{point.rate:g}", *OPTIMIZERS[point.optimizer].options,
                 "--num-train-epochs", a.epochs, "--warmup-ratio", a.warmup_ratio, "--lr-scheduler-type", "linear",
                 "--weight-decay", 0.01, "--max-grad-norm", 1, "--max-length", a.max_length, "--precision", a.precision,
                 "--seed", a.seed]
        return [str(word) for word in words]

    def result(self, point: Point) -> dict:
        """Of the finished run, or of a new one."""
        file, request = self.args.results / "runs" / f"{point.name}.json", self.request(point)
        if file.exists() and (found := json.loads(file.read_text()))["request"] == request:
            return found
        found = self.run(point, request)
        tools.write_json(file, found)
        loss = f"held-out loss {found['held_out_loss']:.4f}" if "failure" not in found else found["failure"]
        print(f"{point.name}: {loss}, {found['seconds']:.0f} s", flush=True)
        return found

    def run(self, point: Point, request: list[str]) -> dict:
        folder, start = self.args.results / "running", time.time()
        shutil.rmtree(folder, ignore_errors=True)
        found = {"optimizer": point.optimizer, "batch": point.batch, "rate": point.rate, "request": request,
                 "held_out_loss": None}
        try:
            tools.call(self.args.program,
                       ["pretrain", "--model", self.config, "--tokenizer", self.tokenizer, "--train", self.stores[0],
                        "--eval", self.stores[1], "--output", folder, "--save-steps", 0, "--logging-steps", 1,
                        "--micro-batch-tokens", self.args.micro_batch_tokens, "--threads", self.args.threads, *request])
        except tools.Failed as problem:
            if " not finite" not in str(problem) and "the training diverges" not in str(problem):
                raise
            found["failure"] = "diverged"
            found["message"] = str(problem)
        records, evaluations = tools.read_metrics(folder)
        found |= {"seconds": time.time() - start, "steps": records[-1]["step"] if records else 0,
                  "train_losses": [record["loss"] for record in records],
                  "held_out_losses": {e["step"]: e["eval_loss"] for e in evaluations}}
        if "failure" not in found:
            found["held_out_loss"] = evaluations[-1]["eval_loss"]
        shutil.rmtree(folder)
        return found


class Sweeps:
    """The losses found so far: of (optimizer, batch), by place."""

    def __init__(self, study: Study):
        self.study, self.results = study, {}

    def losses(self, optimizer: str, batch: int) -> dict[int, float]:
        return {point.place: math.inf if found["held_out_loss"] is None else found["held_out_loss"]
                for point, found in self.results.items() if (point.optimizer, point.batch) == (optimizer, batch)}

    def add(self, point: Point) -> None:
        self.results[point] = self.study.result(point)
        write_report(self.study.args, self)

    def sweep(self, optimizer: str, batch: int) -> None:
        for place in first_places(self.study.args.rates):
            self.add(Point(optimizer, batch, place))
        for _ in range(self.study.args.extend):
            place = next_place(self.losses(optimizer, batch))
            if place is None:
                break
            self.add(Point(optimizer, batch, place))


def best_row(sweeps: Sweeps, optimizer: str, batch: int) -> dict | None:
    losses = sweeps.losses(optimizer, batch)
    place = best_place(losses)
    if place is None:
        return None
    point = Point(optimizer, batch, place)
    return {"optimizer": optimizer, "batch": batch, "rate": point.rate, "held_out_loss": losses[place],
            "steps": sweeps.results[point]["steps"], "runs": len(losses), "diverged": sum(map(math.isinf, losses.values())),
            "at_edge": place in (min(losses), max(losses)), "complete": len(losses) >= sweeps.study.args.rates}


def write_report(args, sweeps: Sweeps) -> None:
    pairs = [(o, b) for b in sorted(args.batches) for o in args.optimizers if sweeps.losses(o, b)]
    best = [row for row in (best_row(sweeps, *pair) for pair in pairs) if row]
    tools.write_atomically(args.results / "table.md", tables(args, sweeps, pairs, best))
    tools.write_json(args.results / "table.json",
                     {"options": {key: str(value) for key, value in vars(args).items()}, "best": best,
                      "runs": [found for _, found in sorted(sweeps.results.items(), key=lambda item: item[0].name)]})
    curves = {OPTIMIZERS[o].title: [(row["batch"], row["held_out_loss"]) for row in best if row["optimizer"] == o]
              for o in args.optimizers if any(row["optimizer"] == o for row in best)}
    if curves:
        tools.write_atomically(args.results / "loss.svg",
                               tools.plot("Best held-out loss of each sweep", "sequences a batch", "loss in nats", curves,
                                          log_x=True, marks=True))
    rates = {f"{OPTIMIZERS[o].title}, {b:,}": sorted((Point(o, b, place).rate, loss)
                                                     for place, loss in sweeps.losses(o, b).items() if math.isfinite(loss))
             for o, b in pairs}
    rates = {name: curve for name, curve in rates.items() if curve}
    if rates:
        tools.write_atomically(args.results / "rates.svg",
                               tools.plot("Held-out loss by peak learning rate", "peak learning rate", "loss in nats", rates,
                                          log_x=True, marks=True))


def tables(args, sweeps: Sweeps, pairs: list, best: list[dict]) -> str:
    lines = ["Held-out loss in nats after the last step, at the best rate of each sweep; the rate; runs made (diverged).", "",
             f"| batch | steps | {' | '.join(f'{OPTIMIZERS[o].title} | rate | runs' for o in args.optimizers)} |",
             f"|---|---|{'---|---|---|' * len(args.optimizers)}"]
    for batch in sorted(args.batches):
        rows = {row["optimizer"]: row for row in best if row["batch"] == batch}
        if rows:
            steps = max(row["steps"] for row in rows.values())
            lines.append(f"| {batch:,} | {steps:,} | {' | '.join(cells(rows.get(o)) for o in args.optimizers)} |")
    lines += ["", "Every run:", "", "| batch | optimiser | rate: held-out loss |", "|---|---|---|"]
    for optimizer, batch in pairs:
        shown = [f"{Point(optimizer, batch, place).rate:g}: {f'{loss:.4f}' if math.isfinite(loss) else 'diverged'}"
                 for place, loss in sorted(sweeps.losses(optimizer, batch).items())]
        lines.append(f"| {batch:,} | {OPTIMIZERS[optimizer].title} | {', '.join(shown)} |")
    return "\n".join(lines) + "\n"


def cells(row: dict | None) -> str:
    if row is None:
        return "– | – | –"
    note = "" if row["complete"] else ", sweep not complete"
    edge = " (edge)" if row["at_edge"] else ""
    return f"{row['held_out_loss']:.4f} | {row['rate']:g}{edge} | {row['runs']} ({row['diverged']}){note}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="text to train on; documents are separated by blank lines")
    parser.add_argument("--eval-data", type=Path, help="held-out text [every twentieth document of --data]")
    parser.add_argument("--results", type=Path, required=True, help="folder of the inputs, results and tables")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular", help="[build/release/funicular]")
    parser.add_argument("--optimizers", nargs="+", choices=list(OPTIMIZERS), default=["adamw", "lamb"], help="[adamw lamb]")
    parser.add_argument("--batches", nargs="+", type=int, default=[4096, 256, 1024, 2048, 512],
                        help="sequences, in the order of the sweeps [4096 256 1024 2048 512]")
    parser.add_argument("--rates", type=int, default=5, help="rates of each sweep [5]")
    parser.add_argument("--extend", type=int, default=4, help="more rates at an edge, at most [4]")
    parser.add_argument("--epochs", type=int, default=3, help="[3]")
    parser.add_argument("--warmup-ratio", type=float, default=0.2, help="share of the steps [0.2]")
    parser.add_argument("--max-length", type=int, default=64, help="tokens [64]")
    parser.add_argument("--micro-batch-tokens", type=int, default=8192, help="[8192]")
    parser.add_argument("--layers", type=int, default=2, help="[2]")
    parser.add_argument("--width", type=int, default=64, help="a multiple of 32 [64]")
    parser.add_argument("--vocabulary", type=int, default=4000, help="pieces [4000]")
    parser.add_argument("--megabytes", type=float, default=10, help="of the text, at most [10]")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="[fp32]")
    parser.add_argument("--seed", type=int, default=1, help="[1]")
    parser.add_argument("--threads", type=int, default=2, help="[2]")
    return parser.parse_args()


def main() -> None:
    args = parse()
    try:
        sweeps = Sweeps(Study(args))
        for batch in args.batches:
            for optimizer in args.optimizers:
                sweeps.sweep(optimizer, batch)
        print((args.results / "table.md").read_text())
    except (tools.Failed, OSError) as problem:
        tools.stop(problem)


if __name__ == "__main__":
    main()
