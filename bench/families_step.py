#!/usr/bin/env python3
"""A training step of each family's base model beside transformers' and beside the limit, by turns.

usage: families_step.py --results FOLDER [--only NAME …] [--precision fp32|bf16] [--repetitions 3] [--steps 2]
                        [--peer-options "--attention sdpa"] [--layers N] [--profile]

Masked LM with random weights at the published sizes, on rows from a quarter of the longest length up to it: 128 tokens, and for
ModernBERT 1,024 and 4,096, too. Ours are shuffled. The peer's are in batches of similar length, as its Trainer groups them, and
padded to the longest of the batch; steps of one row have no padding. The peer takes scaled-dot-product attention, a fused AdamW and
memory that is kept. Two peers:

  as it is  transformers' own class, whose head computes the logits of all tokens; it runs once
  masked    the same with the head at the masked tokens alone, as ours: the peer at its best

The limit is the time of the products of weights alone, from the same run of ours (funicular bench --floor). Products of attention
between tokens take long at many tokens; the last column adds them to the limit at the speed of the other products. --tune
first tries both kinds of attention and both precisions on one step of each model, and takes the fastest. Prints a table and
writes it to FOLDER/families_step.md; runs that are there already are not repeated. --profile prints where the time of our step goes.
"""
import argparse
import json
import statistics
from pathlib import Path

from peer_sides import HUGE_PAGES, KEEP_MEMORY, PEERS, ROOT, Failed, json_of, write_json

import batch_plan  # in bench/peers, which peer_sides names
import study_tools

WARMUP = 1
ROBERTA = {"type_vocab_size": 1, "max_position_embeddings": 514, "layer_norm_eps": 1e-5}
BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 30522}
CONFIGURATIONS = {
    "bert": BASE,
    "roberta": BASE | ROBERTA | {"vocab_size": 50265, "pad_token_id": 1},
    "distilbert": {"dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072, "vocab_size": 30522},
    "xlm-roberta": BASE | ROBERTA | {"vocab_size": 250002, "pad_token_id": 1},
    "modernbert": {"hidden_size": 768, "num_hidden_layers": 22, "num_attention_heads": 12, "intermediate_size": 1152, "vocab_size": 50368,
                   "max_position_embeddings": 8192, "local_attention": 128, "global_attn_every_n_layers": 3}}
# name: family, longest row, rows of a step
CASES = {family: (family, 128, 16) for family in CONFIGURATIONS} | {
    "modernbert-1024": ("modernbert", 1024, 2), "modernbert-4096": ("modernbert", 4096, 1)}
HEADS = {"as it is": "all", "masked": "masked"}
CANDIDATES = [(precision, ["--attention", attention]) for precision in ("fp32", "bf16") for attention in ("sdpa", "eager")]


def configuration(args, family: str) -> dict:
    config = {"model_type": family} | CONFIGURATIONS[family]
    if args.layers:
        config["n_layers" if family == "distilbert" else "num_hidden_layers"] = args.layers
    return config


def attention_flops(config: dict, rows: list[dict]) -> float:
    """Operations of attention's products between tokens, forward and backward, without what is computed twice. Six products
    have 2 · width operations for each pair of tokens that see each other. In the last layer masked tokens alone ask."""
    layers = config.get("num_hidden_layers") or config["n_layers"]
    width, every = config.get("hidden_size") or config["dim"], config.get("global_attn_every_n_layers", 1)
    side = config.get("local_attention", 0) // 2
    pairs = 0
    for row in rows:
        length = len(row["token_ids"])
        for layer in range(layers):
            asking = row["masked_positions"] if layer == layers - 1 else range(length)
            pairs += len(asking) * length if layer % every == 0 else sum(min(length - 1, i + side) - max(0, i - side) + 1 for i in asking)
    return 12.0 * width * pairs


class Case:
    """One model at one length: its inputs and the runs of each side."""

    def __init__(self, args, name: str):
        self.args, self.name = args, name
        self.family, self.longest, self.rows = CASES[name]
        self.folder = args.results / (name if not args.layers else f"{name}-{args.layers}")
        self.config = configuration(args, self.family)
        write_json(self.folder / "model/config.json", self.config)
        made = batch_plan.plan("grouped", WARMUP, args.steps, self.rows, vocabulary=self.config["vocab_size"], longest=self.longest)
        self.batches = {side: self.folder / f"{side}-{args.steps}.json" for side in made}
        for side, plan in made.items():
            write_json(self.batches[side], plan)
        timed = made["peer"]["batches"][WARMUP:]
        self.attention = sum(attention_flops(self.config, batch) for batch in timed) / args.steps
        self.runs: dict[str, list[dict]] = {"ours": [], **{way: [] for way in HEADS}}
        padded = sum(len(batch) * max(len(row["token_ids"]) for row in batch) for batch in timed)
        self.real_share = sum(len(row["token_ids"]) for batch in timed for row in batch) / padded

    def once(self, name: str, command: list, environment: dict | None = None) -> dict:
        file = self.folder / f"{name}.json"
        if not file.exists():
            write_json(file, json_of(command, environment))
        return json.loads(file.read_text())

    def ours(self, name: str, *more) -> dict:
        return self.once(f"ours-{self.args.precision}-{self.args.steps}-{name}", [
            self.args.program, "bench", "--model", self.folder / "model", "--batches", self.batches["ours"],
            "--precision", self.args.precision, "--warmup", WARMUP, "--steps", self.args.steps, "--json", *more])

    def peer(self, name: str, chosen: tuple[str, list], head: str, steps: int) -> dict:
        precision, options = chosen
        return self.once(f"peer-{head}-{precision}-{steps}-{name}", [
            self.args.python, PEERS / "hf_step.py", "--model", self.folder / "model", "--batches", self.batches["peer"], "--precision", precision,
            "--warmup", WARMUP, "--steps", steps, "--head", head, *options], KEEP_MEMORY | HUGE_PAGES)

    def fastest(self) -> tuple[str, list]:
        if not self.args.tune:
            return self.args.precision, self.args.peer_options.split()
        return min(CANDIDATES, key=lambda one: self.peer(f"tuning-{one[1][-1]}", one, "masked", 1)["step_seconds_best"])

    def compare(self, number: int) -> None:
        """Repetition `number` of both sides."""
        self.chosen = self.fastest()
        self.runs["ours"].append(self.ours(str(number), "--floor"))
        for way, head in HEADS.items():
            if way in self.args.peers and (number == 0 or head == "masked"):
                self.runs[way].append(self.peer(str(number), self.chosen, head, self.args.steps))

    def summary(self) -> dict:
        ours = self.runs["ours"]
        found = {"case": self.name, "longest": self.longest, "rows": self.rows, "tokens": ours[0]["tokens_per_step"],
                 "precision": self.args.precision, "peer": f"{self.chosen[0]}, {' '.join(self.chosen[1]).removeprefix('--attention ') or 'as it is'}", "real_share": self.real_share,
                 "share": statistics.median(run["floor"]["share"] for run in ours),
                 "share_with_attention": statistics.median(self.share_with_attention(run["floor"]) for run in ours)}
        for side, made in self.runs.items():
            if not made:
                continue
            speeds = [run["tokens_per_second"] for run in made]
            found[side] = {"tokens_per_second": speeds, "median": statistics.median(speeds),
                           "ratio": statistics.median(a["tokens_per_second"] / b for a, b in zip(ours, speeds))}
        return found

    def share_with_attention(self, floor: dict) -> float:
        return floor["share"] * (1 + self.attention / floor["flops_per_second"] / floor["seconds"])


def table(found: list[dict]) -> str:
    lines = ["| model | longest row | rows per step | tokens per step | ours, tokens/s | share of the limit, % | with attention, % | "
             "transformers as it is, tokens/s | ours beside it, × | head at masked tokens, tokens/s | ours beside it, × | peer's real tokens, % |",
             "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for one in found:
        peers = " | ".join(f"{one[way]['median']:.0f} | {one[way]['ratio']:.2f}" if way in one else "– | –" for way in HEADS)
        lines.append(f"| {one['case'].rsplit('-', 1)[0] if one['longest'] > 128 else one['case']} | {one['longest']} | {one['rows']} | {one['tokens']:.0f} | "
                     f"{one['ours']['median']:.0f} | {100 * one['share']:.0f} | {100 * one['share_with_attention']:.0f} | {peers} | "
                     f"{100 * one['real_share']:.0f} |")
    return "\n".join(lines) + "\n"


def profile(case: Case) -> str:
    """Shares of the kinds of work of our step, and its largest parts."""
    found = case.ours("profile", "--profile")
    kinds = "".join(f"| {one['kind']} | {100 * one['share']:.1f} |\n" for one in found["work"])
    parts = "".join(f"| {one['part']} | {100 * one['share']:.1f} |\n" for one in found["profile"][:12])
    return f"{case.name}\n\n| work or part | share, % |\n|---|--:|\n{kinds}{parts}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="folder for inputs, runs and the table")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--python", type=Path, default=ROOT / ".deps/python/bin/python", help="with torch and transformers")
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES), metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="of ours, and of the peer unless it is tuned")
    parser.add_argument("--peer-options", default="--attention sdpa", help="of bench/peers/hf_step.py")
    parser.add_argument("--peers", nargs="+", choices=list(HEADS), default=list(HEADS), metavar="WAY", help=" or ".join(HEADS))
    parser.add_argument("--tune", action="store_true", help="find the peer's fastest precision and kind of attention first")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="that are timed, of each run")
    parser.add_argument("--layers", type=int, help="of all models, to try the script out")
    parser.add_argument("--profile", action="store_true", help="show where the time of our step goes, and run no peer")
    args = parser.parse_args()
    args.results = args.results.absolute()
    try:
        study_tools.keep_settings(args, "precision", "peers", "repetitions", "steps", "profile")
        cases = [Case(args, name) for name in args.only]
        if args.profile:
            print("\n".join(profile(case) for case in cases))
            return 0
        for number in range(args.repetitions):
            for case in cases:
                case.compare(number)
                found = [one.summary() for one in cases if one.runs["ours"]]
                (args.results / "families_step.md").write_text(table(found))
                write_json(args.results / "families_step.json", found)
                print(table(found), flush=True)
    except (Failed, study_tools.Failed) as problem:
        print(f"error: {problem}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
