#!/usr/bin/env python3
"""How long the ranks of a pipeline stand still, as its schedule plans and as real processes do.

usage: pipeline_bubbles.py --model FOLDER --text FILE --results FOLDER [--ranks 2] [--micro-batches 4 8] [--steps 4] [--rounds 3]

Masked LM on rows of 128 tokens, four a micro-batch, cut where the measured times of the segments are most equal; each rank has its
share of the cores, and should have one at least. The schedules take turns. Of each run's last step `--record-passes` writes down when
each pass (and each update between passes) ran, and `funicular plan --measured` sets the plan with their mean times beside it.
Prints medians over the rounds: the share of the step in which a rank stands still, planned and measured, the mean of the ranks, and
the time of the step as a multiple of the planned one. Writes them to FOLDER/pipeline_bubbles.json.
"""
import argparse
import json
import shutil
import statistics
import subprocess
from pathlib import Path

from peer_sides import ROOT, write_json

SCHEDULES = ("naive", "gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-v", "v-half", "pipedream", "pipedream-vertical-sync",
             "pipedream-2bw")
ROWS = 4


def run(*words):
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measured(args, schedule: str, count: int, store: Path) -> dict:
    """One run's last step."""
    passes, output = args.results / "passes.json", args.results / "run"
    shutil.rmtree(output, ignore_errors=True)
    run(args.program, "launch", "-n", args.ranks, "--", args.program, "pretrain", "--model", args.model, "--train", store,
        "--output", output, "--pipeline-parallel", args.ranks, "--schedule", schedule, "--stages", "cost",
        "--max-length", 128, "--batch-size", count * ROWS, "--micro-batch-size", ROWS, "--max-steps", args.steps, "--record-passes", passes)
    done = subprocess.run([args.program, "plan", "--measured", passes, "--json"], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)

    def share(of: dict) -> float:
        return statistics.mean(rank["bubble"] for rank in of["ranks"]) / of["time"]

    return {"planned": share(found), "measured": share(found["measured"]), "time": found["measured"]["time"] / found["time"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a folder with weights and a tokenizer")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--schedules", nargs="+", default=SCHEDULES)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    args = parser.parse_args()
    args.results.mkdir(parents=True, exist_ok=True)
    store = args.results / "text.tokens"
    run(args.program, "tokenize", "--tokenizer", args.model, "--input", args.text, "--output", store, "--overwrite")
    runs: dict[tuple, list[dict]] = {}
    for _ in range(args.rounds):
        for count in args.micro_batches:
            for schedule in args.schedules:
                runs.setdefault((schedule, count), []).append(measured(args, schedule, count, store))
    table = [{"schedule": schedule, "micro_batches": count, **{key: round(statistics.median(one[key] for one in found), 3) for key in found[0]}}
             for (schedule, count), found in runs.items()]
    print("| schedule | micro-batches | bubble planned | measured | time, of the planned |\n|---|---|---|---|---|")
    for row in table:
        print(f"| `{row['schedule']}` | {row['micro_batches']} | {row['planned']:.1%} | {row['measured']:.1%} | {row['time']:.2f} |")
    write_json(args.results / "pipeline_bubbles.json", {"ranks": args.ranks, "rounds": args.rounds, "runs": table})


if __name__ == "__main__":
    main()
