#!/usr/bin/env python3
"""A tiny BERT and a tiny ModernBERT from scratch at equal tokens: the held-out loss of masked words as training goes on.

usage: from_scratch.py --data FOLDER --results FOLDER [--language english|chinese] [--tokens 3e6] [--seeds 3] [--only bert modernbert]

English is WikiText-2 (FOLDER/wikitext2/valid.txt), Chinese is People's Daily (FOLDER/peopledaily/dev.txt). A tenth of the text is
held out. Both models have the same text, vocabulary, masks (15 %), rows, number of steps and learning rate, two layers of the same
width, and layers with about as many weights: a gated feed-forward part has three matrices, so it is two thirds as wide. The
ModernBERT's first layer sees whole rows, its second layer 64 tokens on either side. Each finished run leaves a result.json and is
not repeated. table.md has the mean of the seeds and its interval of 95 % by Student's distribution.
"""
import argparse
import json
import statistics
from pathlib import Path

import objective_study
import study_tools as tools

ROOT = Path(__file__).resolve().parents[1]
FAMILIES = ("bert", "modernbert")
PROBE = 10  # steps that tell the tokens of a step
POINTS = 6  # evaluations of a run


def model_file(args: argparse.Namespace, paths: dict[str, Path], family: str) -> Path:
    config = tools.model_config(paths["tokenizer"] / "vocab.txt", args.layers, args.width, 0.0, args.max_length)
    if family == "modernbert":
        kept = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings", "pad_token_id")
        inner = round(4 * args.width * 2 / 3 / 8) * 8
        config = {"model_type": family, "architectures": ["ModernBertForMaskedLM"], "intermediate_size": inner, "local_attention": 128,
                  "cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3} | {key: config[key] for key in kept}
    path = args.results / f"inputs/{family}.json"
    tools.write_json(path, config)
    return path


def pretrain(args: argparse.Namespace, inputs: tuple, family: str, seed: int, steps: int, every: int, output: Path) -> dict:
    paths, stores = inputs
    tools.call(args.program, ["pretrain", "--model", model_file(args, paths, family), "--tokenizer", paths["tokenizer"],
                              "--train", stores["train"], "--eval", stores["eval"], "--eval-steps", every, "--output", output,
                              "--max-steps", steps, "--max-length", args.max_length, "--batch-size", args.batch_size,
                              "--learning-rate", args.learning_rate, "--warmup-ratio", 0.1, "--weight-decay", 0.01,
                              "--save-steps", 0, "--seed", seed])
    return json.loads((output / "run.json").read_text())["result"]


def run_once(args: argparse.Namespace, inputs: tuple, family: str, seed: int) -> dict:
    folder = args.results / "runs" / f"{family}-{args.learning_rate:g}-{seed}"

    def make() -> dict:
        probe = pretrain(args, inputs, family, seed, PROBE, PROBE, folder / "probe")
        every = max(1, round(args.tokens / (probe["tokens"] / PROBE) / POINTS))
        result = pretrain(args, inputs, family, seed, POINTS * every, every, folder / "run")
        losses = [record["eval_loss"] for record in tools.read_metrics(folder / "run")[1]]
        return {"family": family, "seed": seed, "steps": POINTS * every, "tokens": result["tokens"], "seconds": result["seconds"],
                "losses": losses}

    return tools.once(folder, make)


def table(args: argparse.Namespace, results: list[dict]) -> str:
    shares = [args.tokens * (point + 1) / POINTS / 1e6 for point in range(POINTS)]
    lines = ["| model | " + " | ".join(f"{share:.1f} M tokens" for share in shares) + " | steps | seeds | seconds |",
             "|---|" + (POINTS + 3) * "--:|"]
    for family in FAMILIES:
        runs = [one for one in results if one["family"] == family]
        if not runs:
            continue
        cells = [tools.spread([run["losses"][point] for run in runs]) for point in range(POINTS)]
        seconds = statistics.mean(run["seconds"] for run in runs)
        lines.append(f"| {family} | {' | '.join(cells)} | {runs[0]['steps']} | {len(runs)} | {seconds:.0f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with wikitext2 and peopledaily")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--language", choices=["english", "chinese"], default="english")
    parser.add_argument("--tokens", type=float, default=3e6, help="real tokens that each model reads")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=FAMILIES)
    args = parser.parse_args()
    args.results = args.results / args.language
    try:
        tools.keep_settings(args, "language")
        paths = objective_study.make_texts(args)
        inputs = paths, {name: tools.tokenize(args.program, paths["tokenizer"], paths[name]) for name in ("train", "eval")}
        results = []
        for seed in range(1, args.seeds + 1):
            results += [run_once(args, inputs, family, seed) for family in args.only]
            tools.write_atomically(args.results / "table.md", table(args, results))
        print(table(args, results))
    except (tools.Failed, OSError) as problem:
        tools.stop(problem)


if __name__ == "__main__":
    main()
