#!/usr/bin/env python3
"""The fastest training step that PyTorch gives without kernels of one's own: transformers' BERT without padding.

The model and its weights are those of hf_step.py. The rows of a batch lie end to end. Attention is FlashAttention-2 for
sequences of different lengths (aten::_flash_attention_forward), with dropout. The decoder computes the masked tokens alone.
torch.compile compiles the forward pass (--variant compile), or the embeddings, one layer for all layers, and the head (--variant layers),
which takes a tenth of the time. A batch is filled up to a multiple of 1,024 tokens: few shapes. The filling lies behind the rows, in
sequences of its own that no label belongs to. Batches of one size have as many places for masked tokens.

On a CPU, attention runs row by row through scaled_dot_product_attention: for tests of the logic, not for speed. Batches come
from make_batches.py or batch_plan.py and lie on the device before the step. Prints one JSON object, as hf_step.py does.
"""
import argparse
import json
import time
from pathlib import Path

import hf_step
import measure
import torch
import torch.nn.functional as F
import transformers
from transformers import BertForMaskedLM

TOKENS = 1024  # a batch is filled up to a multiple of these
NO_LABEL = -100


def flatten(rows: list[dict], longest: int) -> dict[str, torch.Tensor]:
    """A batch end to end. Its offsets have one length for all batches of as many rows: unused sequences are empty."""
    lengths = [len(row["token_ids"]) for row in rows]
    real = sum(lengths)
    total = -(-real // TOKENS) * TOKENS
    for _ in range(-(-TOKENS // longest)):
        lengths.append(min(longest, total - sum(lengths)))
    ids, positions = torch.zeros(total, dtype=torch.long), torch.zeros(total, dtype=torch.long)
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist()):
        positions[begin:end] = torch.arange(end - begin)
    ids[:real] = torch.tensor([token for row in rows for token in row["token_ids"]])
    masked = [begin + place for begin, row in zip(offsets.tolist(), rows) for place in row["masked_positions"]]
    found = [label for row in rows for label in row["labels"]]
    return {"ids": ids, "positions": positions, "offsets": offsets.to(torch.int32), "masked": torch.tensor(masked), "labels": torch.tensor(found)}


def even_masked(flat: list[dict[str, torch.Tensor]]) -> None:
    """Fills the masked tokens up, so that batches of as many tokens have as many of them."""
    most: dict[int, int] = {}
    for batch in flat:
        size = batch["ids"].numel()
        most[size] = max(most.get(size, 0), batch["masked"].numel())
    for batch in flat:
        filling = (0, most[batch["ids"].numel()] - batch["masked"].numel())
        batch["masked"], batch["labels"] = F.pad(batch["masked"], filling), F.pad(batch["labels"], filling, value=NO_LABEL)


def attend(query, key, value, offsets, longest: int, dropout: float):
    """Query, key and value are [tokens, heads, head size]; so is the result."""
    if query.is_cuda:
        return torch.ops.aten._flash_attention_forward(query, key, value, offsets, offsets, longest, longest, dropout, False, False)[0]
    places = offsets.tolist()
    parts = [F.scaled_dot_product_attention(*(part[begin:end].transpose(0, 1) for part in (query, key, value)), dropout_p=dropout)
             for begin, end in zip(places[:-1], places[1:]) if end > begin]
    return torch.cat(parts, dim=1).transpose(0, 1)


class UnpaddedStep(torch.nn.Module):
    """BertForMaskedLM's forward pass and loss on a flat batch."""

    def __init__(self, model: BertForMaskedLM, longest: int):
        super().__init__()
        self.model, self.longest = model, longest

    def layer(self, block, hidden, offsets):
        own = block.attention.self
        shape = (hidden.size(0), own.num_attention_heads, own.attention_head_size)
        parts = [product(hidden).view(shape) for product in (own.query, own.key, own.value)]
        dropout = own.dropout.p if self.training else 0.0
        context = attend(*parts, offsets, self.longest, dropout).reshape(hidden.shape)
        hidden = block.attention.output(context, hidden)
        return block.output(block.intermediate(hidden), hidden)

    def embed(self, ids, positions):
        tables = self.model.bert.embeddings
        hidden = tables.word_embeddings(ids) + tables.position_embeddings(positions) + tables.token_type_embeddings.weight[0]
        return tables.dropout(tables.LayerNorm(hidden))

    def loss(self, hidden, masked, labels):
        logits = self.model.cls(hidden.index_select(0, masked))
        return F.cross_entropy(logits.float(), labels, ignore_index=NO_LABEL)

    def compile_parts(self, **how):
        self.embed, self.layer, self.loss = (torch.compile(part, **how) for part in (self.embed, self.layer, self.loss))

    def forward(self, ids, positions, offsets, masked, labels):
        hidden = self.embed(ids, positions)
        for block in self.model.bert.encoder.layer:
            hidden = self.layer(block, hidden, offsets)
        return self.loss(hidden, masked, labels)


def run(args, report: hf_step.Report) -> None:
    batches = args.batches_file["batches"]
    longest = max(len(row["token_ids"]) for rows in batches for row in rows)
    flat = [flatten(rows, longest) for rows in batches]
    even_masked(flat)
    flat = [{name: value.to(args.device) for name, value in batch.items()} for batch in flat]
    step_of = UnpaddedStep(hf_step.make_model(args).to(args.device), longest).train()
    optimizer = torch.optim.AdamW(step_of.parameters(), lr=args.learning_rate, fused=True)
    forward = step_of
    torch._dynamo.config.recompile_limit = 128
    if args.variant == "compile":
        forward = torch.compile(step_of, dynamic=False, mode=args.compile_mode)
    if args.variant == "layers":
        step_of.compile_parts(dynamic=False, mode=args.compile_mode)

    def step(batch: dict[str, torch.Tensor]) -> float:
        with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "bf16"):
            loss = forward(**batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    if args.variant != "eager":
        shapes = {batch["ids"].numel(): batch for batch in flat}
        before = {name: value.clone() for name, value in step_of.state_dict().items()}
        for batch in shapes.values():
            step(batch)
        step_of.load_state_dict(before)
    for number in range(args.warmup + args.steps):
        batch, rows = flat[number % len(flat)], batches[number % len(batches)]
        start = time.perf_counter()
        loss = step(batch)
        report.step(time.perf_counter() - start, loss, rows, batch["ids"].numel())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    hf_step.declare_options_of_ranks(parser)
    parser.add_argument("--variant", choices=["eager", "compile", "layers"], default="compile")
    parser.add_argument("--compile-mode", default="default")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    args = parser.parse_args()
    if args.precision == "fp32" and args.device == "cuda":
        parser.error("--precision fp32: FlashAttention computes in 16 bits on a GPU; expected bf16")
    args.batches_file = json.loads(Path(args.batches).read_text())
    args.shapes = "filled up"
    return args


def main() -> None:
    args = arguments()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(measure.cores())
    report = hf_step.Report(args)
    run(args, report)
    print(json.dumps(report.as_dict() | {"peer": "unpadded"}))


if __name__ == "__main__":
    main()
