#!/usr/bin/env python3
"""What masking costs beside a step of MiniLM: processor time of hiding, a row, in percent of the step's time a row.

usage: masking_share.py [--build build/release] [--rows 2048] [--repetitions 3] [--precision bf16]

Measures `masking_bench` and `funicular bench` (MiniLM, rows of 128 tokens, all processors) in turns; figures are
medians. With one loader thread the masking of a batch goes on beside the step before it, so this share is what it would take if all of
it were waited for. The goal is 2 % at most.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BATCH = 16


def output(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stderr}")
    return done.stdout


def maskings(args):
    """Kind -> microseconds a row."""
    found, language = {}, ""
    for line in output(args.build / "bench/masking_bench", args.rows).splitlines():
        if "microseconds a row" in line:
            language = line.split(",")[0]
        elif row := re.match(r"\s*(.*?)\s{2,}([0-9.]+)", line):
            found[f"{language}, {row[1]}"] = float(row[2])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16", help="of the step")
    args = parser.parse_args()
    kinds, steps = [], []
    for _ in range(args.repetitions):
        kinds.append(maskings(args))
        step = json.loads(output(args.build / "funicular", "bench", "--model", "minilm", "--precision", args.precision, "--rows", "full", "--batch-size",
                                 BATCH, "--json"))
        steps.append(1e6 * step["step_seconds_median"] / BATCH)
    row = statistics.median(steps)
    shares = {kind: round(100 * statistics.median(each[kind] for each in kinds) / row, 3) for kind in kinds[0]}
    print(json.dumps({"step_microseconds_a_row": round(row), "percent": shares, "largest": max(shares.values())}, indent=1))


if __name__ == "__main__":
    main()
