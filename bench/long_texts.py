#!/usr/bin/env python3
"""Windows against cutting: taggers of long texts with --stride and without it, on several seeds.

DATA is a file with a character and its tag per line and blank lines between sentences, such as the People's Daily corpus. --sentences
neighbouring sentences become one text, so that most texts are longer than --max-length. Both ways are trained alike for the same epochs;
cutting sees the beginning of each text only. The score is the F1 of entities over all words; a word that is cut off has no entity.

  bench/long_texts.py --model MODEL --data dev.txt --output DIR
"""
import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench/peers"))
from compare_finetune import STUDENT_T


def documents(path: Path, sentences: int, count: int) -> list[list[tuple[str, str]]]:
    blocks = [[tuple(line.split()) for line in block.splitlines() if len(line.split()) == 2] for block in path.read_text(encoding="utf-8").split("\n\n")]
    blocks = [block for block in blocks if block]
    return [sum(blocks[at:at + sentences], []) for at in range(0, len(blocks), sentences)][:count]


def write(path: Path, texts: list[list[tuple[str, str]]]) -> None:
    path.write_text("".join(json.dumps({"tokens": [word for word, _ in text], "tags": [tag for _, tag in text]}) + "\n" for text in texts), encoding="utf-8")


def entities(tags: list[str]) -> set[tuple[int, int, str]]:
    """By conlleval's rules for IOB2."""
    found, begin, kind = set(), None, None
    for place, tag in enumerate([*tags, "O"]):
        if begin is not None and not (tag.startswith("I-") and tag[2:] == kind):
            found.add((begin, place, kind))
            begin = None
        if tag != "O" and begin is None:
            begin, kind = place, tag[2:]
    return found


def f1(texts: list[list[tuple[str, str]]], answers: list[list[str]]) -> float:
    right = given = there = 0
    for text, tags in zip(texts, answers, strict=True):
        ours, theirs = entities([tag or "O" for tag in tags]), entities([tag for _, tag in text])
        right, given, there = right + len(ours & theirs), given + len(ours), there + len(theirs)
    return 2 * right / (given + there) if given + there else 0.0


def run(program: Path, *words: object) -> str:
    done = subprocess.run([program, *map(str, words)], text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"funicular {' '.join(map(str, words))}\nexit code {done.returncode}\n{done.stderr.strip()[-1500:]}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--sentences", type=int, default=5)
    parser.add_argument("--texts", type=int, default=200, help="to train on; a quarter as many are scored")
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--stride", type=int, default=16)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    texts = documents(args.data, args.sentences, args.texts + args.texts // 4)
    train, held_out = texts[:args.texts], texts[args.texts:]
    write(args.output / "train.jsonl", train)
    write(args.output / "eval.jsonl", held_out)
    lengths = [len(text) for text in texts]
    print(f"{len(train)} texts to train on, {len(held_out)} to score; words per text: median {statistics.median(lengths):.0f}, longest {max(lengths)}")
    scores: dict[str, list[float]] = {"cut": [], "windows": []}
    for seed in range(1, args.seeds + 1):
        for way in scores:
            folder = args.output / f"{way}-{seed}"
            run(args.program, "finetune", "--model", args.model, "--task", "tags", "--train", args.output / "train.jsonl", "--output", folder, "--max-length",
                args.max_length, "--num-train-epochs", args.epochs, "--batch-size", 4, "--learning-rate", 3e-4, "--seed", seed,
                *(["--stride", args.stride] if way == "windows" else []))
            lines = run(args.program, "predict", "--model", folder, "--input", args.output / "eval.jsonl").splitlines()
            scores[way].append(f1(held_out, [json.loads(line)["tags"] for line in lines]))
            print(f"seed {seed}, {way}: F1 {scores[way][-1]:.4f}", flush=True)
    differences = [b - a for a, b in zip(scores["cut"], scores["windows"])]
    half = STUDENT_T.get(len(differences) - 1, 2.262) * statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else math.nan
    print(f"windows less cut: {statistics.mean(differences):+.4f} ± {half:.4f} (95 %)")


if __name__ == "__main__":
    main()
