#!/usr/bin/env python3
"""Whether training in bf16 and fp16 follows fp32: a small BERT pre-trained on real text in each, from one start.

  fp32            the reference
  fp32-rounding   the same batches cut into smaller micro-batches: the same mathematics, other rounding
  fp32-seed       another seed from the same initial weights: other order, masks and dropout, so other batches
  bf16, fp16      the batches, masks and dropout of fp32; fp16 with its dynamic loss scale
  fp16-overflow   fp16 from a loss scale that is deliberately too large: its first steps overflow and are skipped

Each finished run leaves a result.json in its folder of --results and is not repeated; one that was stopped goes on from
its last checkpoint. Written after each run: table.md, table.json, loss.svg, difference.svg; --report-only writes them of
all runs as far as they got, and compares each with fp32 at the same steps.
"""
import argparse
import json
import shutil
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import study_tools as tools

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = "fp32"
OVERFLOW_SCALE = 2**24  # the largest that the loss scaler takes


@dataclass
class Variant:
    precision: str
    more: list = field(default_factory=list)
    seeds_on: int = 0  # added to the seed of the study
    micro_batches: int = 1  # the micro-batch's tokens are divided by it


VARIANTS = {
    REFERENCE: Variant("fp32"),
    "bf16": Variant("bf16"),
    "fp16": Variant("fp16"),
    "fp16-overflow": Variant("fp16", ["--initial-loss-scale", OVERFLOW_SCALE]),
    "fp32-seed": Variant("fp32", seeds_on=1),
    "fp32-rounding": Variant("fp32", micro_batches=4),
}


@dataclass
class Curve:
    """A run's loss, a number a step from step 1 on, and its held-out losses by step."""
    steps: list[int]
    losses: list[float]
    held_out: dict[int, float]
    skipped_steps: int = 0
    first_scale: float = 0
    last_scale: float = 0
    seconds: float = 0


def read_curve(run: Path, seconds: float) -> Curve:
    records, evaluations = tools.read_metrics(run)
    return Curve([r["step"] for r in records], [r["loss"] for r in records],
                 {e["step"]: e["eval_loss"] for e in evaluations}, records[-1].get("skipped_steps", 0),
                 records[0].get("loss_scale", 0), records[-1].get("loss_scale", 0), seconds)


def differences(curve: Curve, reference: Curve, window: int) -> list[tuple[int, float]]:
    """(step, relative difference of the smoothed losses), where the window is full and both have got to."""
    ours, theirs = tools.smooth(curve.losses, window), tools.smooth(reference.losses, window)
    return [(step, a / b - 1) for step, a, b in list(zip(reference.steps, ours, theirs))[window - 1:]]


class Study:
    def __init__(self, args):
        self.args = args
        inputs = args.results / "inputs"
        paths = tools.make_inputs(inputs, args.data, args.eval_data, args.vocabulary, args.megabytes)
        self.tokenizer = paths["tokenizer"]
        self.stores = [tools.tokenize(args.program, self.tokenizer, paths[name]) for name in ("train", "eval")]
        self.initial = self.make_initial(inputs)

    def make_initial(self, inputs: Path) -> Path:
        """The weights that all runs start from: a step at a rate that changes nothing writes random ones."""
        model = inputs / "initial" / "model"
        if not (model / "model.safetensors").exists():
            config = inputs / "config.json"
            tools.write_json(config, tools.model_config(self.tokenizer / "vocab.txt", self.args.layers, self.args.width, 0.1,
                                                        self.args.max_length))
            tools.call(self.args.program,
                       ["pretrain", "--model", config, "--tokenizer", self.tokenizer, "--train", self.stores[0],
                        "--output", inputs / "initial", "--optim", "sgd", "--learning-rate", 1e-30, "--max-steps", 1,
                        "--batch-size", 2, "--max-length", self.args.max_length, "--seed", self.args.seed,
                        "--threads", self.args.threads])
        return model

    def command(self, variant: Variant, run: Path) -> list:
        a = self.args
        return ["pretrain", "--model", self.initial, "--train", self.stores[0], "--eval", self.stores[1], "--output", run,
                "--precision", variant.precision, "--seed", a.seed + variant.seeds_on, "--batch-size", a.batch_size,
                "--micro-batch-tokens", a.micro_batch_tokens // variant.micro_batches, "--max-length", a.max_length,
                "--max-steps", a.steps, "--learning-rate", a.learning_rate, "--warmup-ratio", 0.1, "--weight-decay", 0.01,
                "--eval-steps", max(1, a.steps // 10), "--logging-steps", 1, "--save-steps", 100, "--save-total-limit", 1,
                "--threads", a.threads, *variant.more]

    def curve(self, name: str) -> Curve | None:
        """Of the finished run, or of a new one; with --report-only as far as it got, if that is enough to compare."""
        run = self.args.results / "runs" / name
        file, command = run / "result.json", self.command(VARIANTS[name], run)
        request = [str(word) for word in command if not isinstance(word, Path)]
        found = json.loads(file.read_text()) if file.exists() else {}
        same = found.get("request") == request
        if self.args.report_only:
            curve = read_curve(run, found["seconds"]) if same and (run / "metrics.jsonl").exists() else None
            return curve if curve and len(curve.losses) >= self.args.window else None
        if not same or found["seconds"] is None:
            if found and not same:
                shutil.rmtree(run)
            found = self.train(name, command, {"request": request, "seconds": None}, file)
        return read_curve(run, found["seconds"])

    def train(self, name: str, command: list, found: dict, file: Path) -> dict:
        start = time.time()
        tools.write_json(file, found)  # whose run this is, should it be stopped
        tools.call(self.args.program, command)
        found["seconds"] = time.time() - start
        tools.write_json(file, found)
        shutil.rmtree(file.parent / "checkpoints", ignore_errors=True)
        print(f"{name}: {found['seconds']:.0f} s", flush=True)
        return found


def summary(curves: dict[str, Curve], window: int) -> dict[str, dict]:
    reference, rows = curves[REFERENCE], {}
    shown = sorted({max(1, round(reference.steps[-1] * share)) for share in (0.02, 0.1, 0.25, 0.5, 0.75, 1)})
    for name, curve in curves.items():
        smoothed = dict(zip(curve.steps, tools.smooth(curve.losses, window)))
        sizes = [abs(d) for _, d in differences(curve, reference, window)]
        evaluated = max(curve.held_out.keys() & reference.held_out.keys(), default=None)
        held_out = curve.held_out.get(evaluated)
        rows[name] = {"steps": curve.steps[-1], "loss_at": {step: smoothed.get(step) for step in shown},
                      "held_out_at": evaluated, "held_out": held_out,
                      "held_out_difference": held_out / reference.held_out[evaluated] - 1 if held_out else None,
                      "largest_difference": max(sizes), "mean_difference": statistics.fmean(sizes),
                      "skipped_steps": curve.skipped_steps, "first_scale": curve.first_scale, "last_scale": curve.last_scale}
    return rows


def table(rows: dict[str, dict], window: int) -> str:
    steps = list(rows[REFERENCE]["loss_at"])
    lines = [f"Training loss in nats, mean of the last {window} steps; differences from fp32 are relative, of these means.", "",
             f"| run | {' | '.join(f'step {step}' for step in steps)} | largest difference | mean difference "
             "| last held-out loss | at step | its difference | steps skipped |",
             f"|---|{'---|' * (len(steps) + 6)}"]
    for name, row in rows.items():
        own = name == REFERENCE
        lines.append(f"| {name} | {' | '.join(map(figure, row['loss_at'].values()))} "
                     f"| {'' if own else percent(row['largest_difference'])} | {'' if own else percent(row['mean_difference'])} "
                     f"| {figure(row['held_out'])} | {row['held_out_at'] or '–'} "
                     f"| {'' if own else percent(row['held_out_difference'], sign=True)} "
                     f"| {row['skipped_steps'] if name.startswith('fp16') else ''} |")
    return "\n".join(lines) + "\n"


def figure(loss: float | None) -> str:
    return "–" if loss is None else f"{loss:.4f}"


def percent(share: float | None, sign: bool = False) -> str:
    if share is None:
        return "–"
    if 0 < abs(share) < 1e-5:
        return "< 0.001 %"
    return f"{100 * share:{'+' if sign else ''}.3g} %"


def write_report(args, curves: dict[str, Curve]) -> None:
    if REFERENCE not in curves:
        raise tools.Failed(f"{args.results}: {REFERENCE} has no {args.window} steps yet, and all is compared with it")
    rows = summary(curves, args.window)
    tools.write_atomically(args.results / "table.md", table(rows, args.window))
    tools.write_json(args.results / "table.json",
                     {"options": {key: str(value) for key, value in vars(args).items()}, "window": args.window, "runs": rows,
                      "curves": {name: curve.__dict__ for name, curve in curves.items()}})
    smoothed = {name: list(zip(curve.steps, tools.smooth(curve.losses, args.window))) for name, curve in curves.items()}
    tools.write_atomically(args.results / "loss.svg",
                           tools.plot(f"Masked-LM loss in each precision, mean of {args.window} steps", "step", "loss in nats",
                                      smoothed))
    apart = {name: [(step, 100 * d) for step, d in differences(curve, curves[REFERENCE], args.window)]
             for name, curve in curves.items() if name != REFERENCE}
    if apart:
        tools.write_atomically(args.results / "difference.svg",
                               tools.plot(f"Difference from fp32, mean of {args.window} steps", "step", "percent",
                                          apart))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="text to train on; documents are separated by blank lines")
    parser.add_argument("--eval-data", type=Path, help="held-out text [every twentieth document of --data]")
    parser.add_argument("--results", type=Path, required=True, help="folder of the inputs, runs and tables")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular", help="[build/release/funicular]")
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS),
                        help="the runs to make; fp32 is always among them [all]")
    parser.add_argument("--report-only", action="store_true", help="train nothing; tables of all runs as far as they got")
    parser.add_argument("--steps", type=int, default=1500, help="[1500]")
    parser.add_argument("--batch-size", type=int, default=32, help="sequences [32]")
    parser.add_argument("--micro-batch-tokens", type=int, default=2048, help="[2048]; fp32-rounding takes a quarter")
    parser.add_argument("--max-length", type=int, default=64, help="tokens [64]")
    parser.add_argument("--layers", type=int, default=2, help="[2]")
    parser.add_argument("--width", type=int, default=128, help="a multiple of 32 [128]")
    parser.add_argument("--vocabulary", type=int, default=4000, help="pieces [4000]")
    parser.add_argument("--megabytes", type=float, default=20, help="of the text, at most [20]")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="peak, of AdamW [0.001]")
    parser.add_argument("--window", type=int, default=50, help="steps over which losses are averaged [50]")
    parser.add_argument("--seed", type=int, default=1, help="[1]")
    parser.add_argument("--threads", type=int, default=2, help="[2]")
    args = parser.parse_args()
    if args.steps < args.window:
        parser.error(f"--steps must be at least --window, found {args.steps} and {args.window}")
    return args


def main() -> None:
    args = parse()
    try:
        study = Study(args)
        curves = {}
        for name in VARIANTS:
            if name == REFERENCE or name in args.only:
                curves[name] = study.curve(name)
                write_report(args, {name: curve for name, curve in curves.items() if curve})
        print((args.results / "table.md").read_text())
    except (tools.Failed, OSError) as problem:
        tools.stop(problem)


if __name__ == "__main__":
    main()
