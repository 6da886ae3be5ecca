#!/usr/bin/env python3
"""Funicular beside its peers: the same rows, weights and threads, in turn, as ratios.

Each comparison is a row of the table. Its two sides run one after the other in processes of their own, and this is
repeated (A B A B …): a machine drifts, so only the ratio of neighbours counts, and the median of these ratios is given.

  floor     the share of the time of our step that its matrix products alone take: `funicular bench --floor`
  step      one training step of a BERT with its masked-language-model head, dropout on: `funicular bench`
            beside transformers eager, under torch.compile, and in its Trainer (bench/peers/hf_step.py)
  memory    peak resident memory of that step, ours with and without recomputation
  predict   lines of text to classes, whole commands: `funicular predict` beside bench/peers/hf_pipeline.py
  tokenize  text to one array of ids in memory: build/release/bench/tokenizer_bench beside bench/peers/tokenizers_bench.py;
            and a file to a file: `funicular tokenize` beside bench/peers/tokenize_file.py (needs --data)
  finetune  CoLA, 3 epochs, whole commands: `funicular finetune` and `evaluate` beside the Trainer (needs --data)

The table has the limit first, then what is like for like, then peers that are tuned but padded, then peers as they come
(bench/peer_report.py says what each means). Both sides of a step meet the same rows, in the warm-up and in the timed steps;
a peer whose batches are grouped by length gets them as its Trainer's sampler forms them (bench/peers/batch_plan.py).

Before its first step a peer is tuned: it runs with each set of options that may help it, and keeps the fastest; the
table shows which. Nothing is tuned with --quick, nor for `trainer` (as it comes) and `memory` (options cost memory).

With --isa LIST it is step and prediction alone, once for each set of instructions, in our precisions and beside peers
that are limited alike: `./run bench --isa avx2,avx512,native`.

`./run bench --kernels [REGEX]` measures our kernels alone instead, without any peer (bench/kernels_bench.cpp).

Each finished run leaves one JSON file in --results, and is not repeated: stop and start this at will. A side that
cannot run says why and leaves a gap in the table. Written at the end: table.md and table.json.
"""
import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Callable

import peer_report
from peer_comparisons import Comparison, comparisons, isa_comparisons
from peer_sides import ISA_LIMITS, ROOT, WARMUP, Failed, Sides, limit, write_json


class Bench:
    """Runs comparisons, and keeps what they find."""

    def __init__(self, args):
        self.args, self.results = args, args.results

    def once(self, file: Path, run: Callable[[], dict]) -> dict | None:
        """The result in the file, or of the run, which then is in the file; nothing if it failed."""
        request = {"warmup": WARMUP, "steps": self.args.steps, "lines": self.args.lines}
        if file.exists() and (found := json.loads(file.read_text()))["request"] == request:
            return found
        load, failure = os.getloadavg()[0], file.with_suffix(".failed.txt")
        name = str(file.relative_to(self.results).with_suffix(""))
        start = time.time()
        try:
            found = run() | {"load_before": load, "request": request}
        except Failed as problem:
            failure.parent.mkdir(parents=True, exist_ok=True)
            failure.write_text(f"{problem}\n")
            print(f"{name}: FAILED: {str(problem).splitlines()[-1]}", flush=True)
            return None
        failure.unlink(missing_ok=True)
        write_json(file, found)
        busy = f"; the machine was busy before it (load {load:.1f})" if load > 1.5 * os.cpu_count() else ""
        print(f"{name}: {time.time() - start:.0f} s{busy}", flush=True)
        return found

    def run(self, comparison: Comparison, repetition: int) -> None:
        if self.args.isa:
            limit(comparison.isa)
        folder = self.results / comparison.name
        ours = self.once(folder / f"{repetition}-ours.json", lambda: comparison.ours(repetition))
        peer = comparison.peer and self.once(folder / f"{repetition}-peer.json", lambda: comparison.peer(repetition))
        comparison.rows.append((ours, peer))


def chosen(args, everything: list[Comparison]) -> list[Comparison]:
    names = [comparison.name for comparison in everything]
    if args.only:
        kept = [c for c in everything if any(re.search(pattern, c.name) for pattern in args.only)]
        if not kept:
            print(f"--only: nothing matches {' '.join(args.only)}; there are\n  " + "\n  ".join(names), file=sys.stderr)
            sys.exit(2)
        return kept
    kept = [c for c in everything if args.data or not c.name.startswith(("tokenize", "finetune"))]
    return [c for c in kept if c.quick] if args.quick else kept


def instruction_sets(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in ISA_LIMITS:
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(ISA_LIMITS)}, found '{name}'")
    return names


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    data = os.environ.get("FUNICULAR_SHARED_DATA")
    parser.add_argument("--results", type=Path, default=ROOT / "build/bench/peers")
    parser.add_argument("--only", nargs="+", metavar="REGEX", help="comparisons whose name matches (--list shows them)")
    parser.add_argument("--kernels", nargs="?", const=".", metavar="REGEX",
                        help="measure our kernels alone: the rows of bench/kernels_bench.cpp that match (tools/bench.sh runs it)")
    parser.add_argument("--isa", type=instruction_sets, default=[], metavar="LIST",
                        help=f"step and prediction with each of these: {', '.join(ISA_LIMITS)} (native: all there is)")
    parser.add_argument("--list", action="store_true", help="print the comparisons' names")
    parser.add_argument("--quick", action="store_true",
                        help="one repetition of 3 steps, untuned, of what matters most, results apart")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8, help="timed steps of each run")
    parser.add_argument("--lines", type=int, default=4096, help="lines to predict")
    parser.add_argument("--no-tune", dest="tune", action="store_false", help="take the first options of each peer")
    parser.add_argument("--data", type=Path, default=Path(data) if data else None,
                        help="folder with wikitext2/, mrpc/, cola/, thucnews/, peopledaily/ [$FUNICULAR_SHARED_DATA]")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--tokenizer-bench", type=Path, default=ROOT / "build/release/bench/tokenizer_bench")
    parser.add_argument("--python", type=Path, default=ROOT / ".deps/python/bin/python", help="with torch, transformers")
    parser.add_argument("--peers-python", type=Path, default=ROOT / ".deps/peers/bin/python",
                        help="with bench/peers/requirements.txt too")
    args = parser.parse_args()
    if args.quick:
        args.results, args.repetitions, args.steps, args.lines = args.results / "quick", 1, 3, 256
    args.results = args.results.resolve()
    return args


def main() -> None:
    args = arguments()
    bench = Bench(args)
    everything = [one for isa in args.isa for one in isa_comparisons(Sides(args, bench.once, isa), isa)]
    everything = everything or comparisons(Sides(args, bench.once))
    if args.list:
        return print("\n".join(comparison.name for comparison in everything))
    selected = chosen(args, everything)
    for repetition in range(1, args.repetitions + 1):
        for comparison in selected:
            bench.run(comparison, repetition)
    rows = peer_report.in_order([peer_report.summary(comparison) for comparison in selected])
    write_json(args.results / "table.json", {"machine": peer_report.machine(), "rows": rows})
    (args.results / "table.md").write_text(peer_report.table(rows))
    print(peer_report.table(rows), end="")


if __name__ == "__main__":
    main()
