#!/usr/bin/env python3
"""What older weights cost a pipeline that updates them while it is full: its loss on held-out text beside that of a pipeline that waits.

usage: stale_weights.py --data FOLDER --results FOLDER [--ranks 2] [--steps 600] [--seeds 3] [--rates 3e-4 1e-3]

A small BERT learns hidden words of WikiText-2 (FOLDER/wikitext2/valid.txt, a tenth of its articles held out) from random weights, cut
into --ranks stages on as many processes, under 1f1b, pipedream, pipedream with vertical sync and pipedream-2bw: the same rows,
masks and rates, so that only the age of the weights differs. A step has as many micro-batches as ranks; pipedream updates after
each micro-batch, so that it gets the same rows in one. Finished runs leave a result.json and are not repeated; table.md, and
loss.svg of the first seed and rate, are written at the end.
"""
import argparse
import json
import statistics
from collections import Counter
from pathlib import Path

import objective_study
import study_tools as tools

ROOT = Path(__file__).resolve().parents[1]
SCHEDULES = ["1f1b", "pipedream", "pipedream-vertical-sync", "pipedream-2bw"]


def make_inputs(args):
    """The stores of the text that is read and of what is held out, and the model."""
    folder = args.results / "inputs"
    documents = objective_study.english_documents((args.data / "wikitext2/valid.txt").read_text(encoding="utf-8"))
    counts = Counter(word for each in documents for line in each for word in tools.words_of(line))
    tools.write_atomically(folder / "tokenizer/vocab.txt", "".join(f"{piece}\n" for piece in tools.build_vocabulary(counts, 4000)))
    for name, texts in (("train", [each for number, each in enumerate(documents) if number % 10 != 9]), ("eval", documents[9::10])):
        tools.write_atomically(folder / f"{name}.txt", "\n\n".join("\n".join(each) for each in texts) + "\n")
    config = tools.model_config(folder / "tokenizer/vocab.txt", 2 * args.ranks, args.width, 0.1, 64)
    tools.write_json(folder / "bert.json", config)
    return {name: tools.tokenize(args.program, folder / "tokenizer", folder / f"{name}.txt") for name in ("train", "eval")}


def run_once(args, stores, schedule, rate, seed):
    """Evaluations by step."""
    folder = args.results / "runs" / f"{schedule}-{rate:g}-{seed}"
    done = folder / "result.json"
    if done.exists():
        return json.loads(done.read_text())
    micro_batches = 1 if schedule in ("pipedream", "pipedream-vertical-sync") else args.ranks
    inputs = args.results / "inputs"
    tools.call(args.program, ["launch", "-n", args.ranks, "--", args.program, "pretrain", "--model", inputs / "bert.json", "--tokenizer",
                              inputs / "tokenizer", "--train", stores["train"], "--eval", stores["eval"], "--output", folder / "run",
                              "--pipeline-parallel", args.ranks, "--schedule", schedule, "--max-steps", args.steps, "--max-length", 64,
                              "--batch-size", args.batch_size, "--micro-batch-size", args.batch_size // micro_batches, "--learning-rate", rate,
                              "--warmup-ratio", 0.1, "--weight-decay", 0.01, "--eval-steps", max(1, args.steps // 6), "--save-steps", 0,
                              "--precision", "fp32", "--seed", seed])
    _, evaluations = tools.read_metrics(folder / "run")
    found = [[line["step"], line["eval_loss"]] for line in evaluations]
    tools.write_json(done, found)
    return found


def table(args, results):
    """One row a schedule and rate: the loss held out at three times, and its distance from that of 1f1b with the same seed."""
    lines = ["| learning rate | schedule | held-out loss after a third | two thirds | all steps, mean and 95 % interval | above 1f1b, by seed |",
             "|---|---|---|---|---|---|"]
    for rate in args.rates:
        for schedule in SCHEDULES:
            runs = [results[schedule, rate, seed] for seed in range(1, args.seeds + 1)]
            base = [results["1f1b", rate, seed] for seed in range(1, args.seeds + 1)]
            at = lambda share: statistics.mean(run[round(share * len(run)) - 1][1] for run in runs)
            above = "–" if schedule == "1f1b" else tools.spread([run[-1][1] - other[-1][1] for run, other in zip(runs, base)])
            lines.append(f"| {rate:g} | `{schedule}` | {at(1 / 3):.3f} | {at(2 / 3):.3f} | {tools.spread([run[-1][1] for run in runs])} | {above} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with wikitext2")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=[3e-4, 1e-3])
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()
    if args.batch_size % args.ranks:
        parser.error(f"--batch-size {args.batch_size}: expected a multiple of --ranks {args.ranks}")
    try:
        stores = make_inputs(args)
        results = {(schedule, rate, seed): run_once(args, stores, schedule, rate, seed)
                   for seed in range(1, args.seeds + 1) for rate in args.rates for schedule in SCHEDULES}
        tools.write_atomically(args.results / "table.md", table(args, results) + "\n")
        curves = {schedule: results[schedule, args.rates[0], 1] for schedule in SCHEDULES}
        tools.write_atomically(args.results / "loss.svg", tools.plot("Loss on held-out text", "steps", "loss", curves, marks=True))
        print(table(args, results))
    except (tools.Failed, OSError) as problem:
        tools.stop(problem)


if __name__ == "__main__":
    main()
