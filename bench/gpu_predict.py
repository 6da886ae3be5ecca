#!/usr/bin/env python3
"""Prediction with BERT-base on a GPU beside transformers on the same GPU: whole commands, by turns.

usage: gpu_predict.py --results FOLDER [--program FILE] [--library-path FOLDERS] [--device cuda] [--rows 20000,40000]
                      [--repetitions 2] [--make-model FOLDER] [--recorded]

A classifier with random weights of BERT-base's sizes labels made-up texts of 16 to 96 words, in bf16. The peer is the loop of
bench/peers/hf_pipeline.py: all rows tokenised at once by the tokenizers library, sorted by length, padded to the longest of a batch,
its answers read at the end. Both sides begin with a text file. Prints the seconds of whole commands, the fastest of the repetitions, for two numbers
of rows, and the rows per second between the two, in which the start of a program does not count.

--make-model writes the classifier alone, for other scripts, and stops. --recorded runs our side alone, once in passes of 1,024 tokens
and once in such passes that --cuda-graphs records.
"""
import argparse
import os
import random
import subprocess
import time
from pathlib import Path

from peer_sides import PEERS, ROOT, last_json, write_json  # which names bench/peers, too

WORDS = 30_000


def words() -> list[str]:
    """Made-up words of two to five syllables, each one piece of the vocabulary."""
    source, found = random.Random(3), {}
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    while len(found) < WORDS:
        found["".join(source.choices(syllables, k=source.choice([2, 3, 3, 4, 5])))] = None
    return list(found)


def make_model(folder: Path, size: str) -> None:
    import measure
    import transformers
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words()]) + "\n", encoding="utf-8")
    config = transformers.BertConfig(vocab_size=WORDS + 5, num_labels=2, **measure.SIZES[size])
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)


def make_text(path: Path, rows: int) -> None:
    source, known = random.Random(5), words()
    path.write_text("".join(" ".join(source.choices(known, k=source.randint(16, 96))) + "\n" for _ in range(rows)), encoding="utf-8")


def ours(args, model: Path, text: Path, *options) -> float:
    begin = time.monotonic()
    libraries = {"LD_LIBRARY_PATH": args.library_path} if args.library_path else {}
    command = [args.program, "predict", "--model", model, "--input", text, "--output", text.with_suffix(".ours.jsonl"), "--device", args.device,
               "--precision", "bf16", "--max-length", 128, "--overwrite", *options]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, env={**os.environ, **libraries})
    return time.monotonic() - begin


def theirs(args, model: Path, text: Path) -> float:
    begin = time.monotonic()
    last_json([args.python, PEERS / "hf_pipeline.py", "--engine", "loop", "--precision", "bf16", "--model", model, "--input", text, "--device",
               args.device, "--batch-size", 256, "--scratch", args.results], TOKENIZERS_PARALLELISM="true")
    return time.monotonic() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--library-path", default="", help="LD_LIBRARY_PATH of our program")
    parser.add_argument("--python", default="python3", help="one with torch for CUDA and transformers")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=["base", "minilm", "small"], default="base")
    parser.add_argument("--rows", type=lambda text: [int(number) for number in text.split(",")], default=[20_000, 40_000])
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--make-model", type=Path)
    parser.add_argument("--recorded", action="store_true")
    args = parser.parse_args()
    if args.make_model:
        make_model(args.make_model, args.size)
        return 0
    args.results = args.results.absolute()
    args.results.mkdir(parents=True, exist_ok=True)
    model = args.results / args.size
    if not (model / "model.safetensors").exists():
        subprocess.run([args.python, __file__, "--results", args.results, "--make-model", model, "--size", args.size], check=True)
    report: dict = {"rows": args.rows, "seconds": {}}
    for rows in args.rows:
        text = args.results / f"{rows}.txt"
        make_text(text, rows)
        if args.recorded:
            small = ["--micro-batch-tokens", 1024]
            made = {"plain": [ours(args, model, text, *small)], "recorded": [ours(args, model, text, *small, "--cuda-graphs")]}
            report["seconds"][rows] = made
            print(f"{rows} rows in passes of 1,024 tokens: {made['plain'][0]:.2f} s, recorded {made['recorded'][0]:.2f} s", flush=True)
            write_json(args.results / "gpu_predict_recorded.json", report)
            continue
        runs: dict[str, list[float]] = {"funicular": [], "transformers": []}
        for _ in range(args.repetitions):
            runs["funicular"].append(ours(args, model, text))
            runs["transformers"].append(theirs(args, model, text))
        report["seconds"][rows] = runs
        fastest = {side: min(made) for side, made in runs.items()}
        print(f"{rows} rows: funicular {fastest['funicular']:.2f} s, transformers {fastest['transformers']:.2f} s, "
              f"{fastest['transformers'] / fastest['funicular']:.2f} x", flush=True)
        write_json(args.results / "gpu_predict.json", report)
    if len(args.rows) > 1 and not args.recorded:
        few, many = args.rows[0], args.rows[-1]
        rates = {side: (many - few) / (min(report["seconds"][many][side]) - min(report["seconds"][few][side])) for side in runs}
        report["rows_per_second"] = rates
        print({side: round(rate) for side, rate in rates.items()}, f"{rates['funicular'] / rates['transformers']:.2f} x", flush=True)
        write_json(args.results / "gpu_predict.json", report)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
