"""Writes what the published losses of distillation are on models of transformers: terms, and the gradient of every
parameter of the student.

usage: make_references.py OUTPUT_DIR

Each case is a folder: student/ and teacher/ (as save_pretrained writes them), case.json, batch.safetensors (packed),
projection.safetensors, expected_fp32.safetensors and expected_fp64.safetensors (term.NAME, total, grad.NAME).

The losses are written here as their authors' programs have them, on padded rows; where a row is padded, means run over
its real entries, which on full rows is the published mean.
"""

import json
import math
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel

SIZES = dict(vocab_size=211, max_position_embeddings=160, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
             attn_implementation="eager")
FULL, RAGGED = [33] * 4, [5, 1, 70, 33]
UNIFORM, LAST, OTHER = [(1, 2), (2, 4)], [(1, 3), (2, 4)], [(2, 3)]
CASES = {
    "tinybert": dict(model=BertModel, lengths=FULL, map=UNIFORM, terms={"attention": 1, "hidden": 1}),
    "tinybert_ragged": dict(model=BertModel, lengths=RAGGED, map=LAST, terms={"attention": 0.5, "hidden": 2}),
    "tinybert_some_layers": dict(model=BertModel, lengths=RAGGED, map=OTHER, terms={"attention": 3, "hidden": 1}),
    "relations": dict(model=BertModel, lengths=RAGGED, map=[], terms={"relations": 1}, heads=(4, 2), relation_heads=6,
                      relation_layer=3),
    "cosine": dict(model=BertModel, lengths=RAGGED, map=[], terms={"cosine": 2}, hidden=(24, 24)),
    "prediction": dict(model=BertForSequenceClassification, lengths=RAGGED, map=[], terms={"soft": 1}, temperature=1),
    "prediction_hard": dict(model=BertForSequenceClassification, lengths=RAGGED, map=[], rows=True,
                            terms={"soft": 0.7, "hard": 0.3}, temperature=3),
    "regression": dict(model=BertForSequenceClassification, lengths=RAGGED, map=[], terms={"soft": 1, "hard": 0.25}, labels=1),
    "logits": dict(model=BertForSequenceClassification, lengths=RAGGED, map=[], terms={"logits": 2, "soft": 0.5, "hard": 1}, temperature=2),
    "patient": dict(model=BertForSequenceClassification, lengths=RAGGED, map=UNIFORM, terms={"soft": 1, "patient": 10},
                    hidden=(24, 24), temperature=2),
    "distilbert": dict(model=BertForMaskedLM, lengths=RAGGED, map=[], terms={"all-tokens": 5, "mlm": 2, "cosine": 1},
                       hidden=(24, 24), temperature=2),
    "distilbert_hidden_words": dict(model=BertForMaskedLM, lengths=RAGGED, map=[], terms={"tokens": 5, "mlm": 2, "cosine": 1},
                                    hidden=(24, 24), temperature=2),
}


def make_model(case, size, heads, layers):
    model = case["model"](BertConfig(**SIZES, hidden_size=size, num_hidden_layers=layers, num_attention_heads=heads,
                                     intermediate_size=2 * size, num_labels=case.get("labels", 3)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(torch.randn_like(parameter) * (0.1 if "LayerNorm" in name or "bias" in name else 0.2))
    return model.eval()


class Seen:
    """What a forward pass makes: hidden states from the embeddings on, and queries, keys and values of each layer."""

    def __init__(self, model, batch):
        encoder = model.bert if hasattr(model, "bert") else model
        self.heads = encoder.config.num_attention_heads
        self.parts, hooks = [], []
        for layer in encoder.encoder.layer:
            row = {}
            self.parts.append(row)
            for name in ("query", "key", "value"):
                module = getattr(layer.attention.self, name)
                hooks.append(module.register_forward_hook(lambda _, __, out, row=row, name=name: row.__setitem__(name, out)))
        out = model(input_ids=batch["ids"], token_type_ids=batch["types"], attention_mask=batch["mask"].long(),
                    output_hidden_states=True)
        for hook in hooks:
            hook.remove()
        self.hidden, self.logits = out.hidden_states, getattr(out, "logits", None)

    def split(self, layer, name, heads):
        values = self.parts[layer - 1][name]
        rows, length, width = values.shape
        return values.view(rows, length, heads, width // heads).transpose(1, 2)

    def scores(self, layer, mask):
        q, k = self.split(layer, "query", self.heads), self.split(layer, "key", self.heads)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        return scores + (1 - mask[:, None, None, :].to(scores.dtype)) * -10000.0

    def relation(self, layer, name, heads, mask):
        x = self.split(layer, name, heads)
        scores = x @ x.transpose(-1, -2) / math.sqrt(x.shape[-1])
        return scores.masked_fill(~mask[:, None, None, :], -torch.inf)


def attention(own, theirs, pairs, mask):
    """As in task_distill.py: masked scores become 0 on both sides."""
    loss = 0
    real = (mask[:, None, :, None] & mask[:, None, None, :]).expand(-1, own.heads, -1, -1)
    for student, teacher in pairs:
        s, t = own.scores(student, mask), theirs.scores(teacher, mask)
        s, t = torch.where(s <= -1e2, torch.zeros_like(s), s), torch.where(t <= -1e2, torch.zeros_like(t), t)
        loss = loss + (F.mse_loss(s, t) if mask.all() else F.mse_loss(s[real], t[real]))
    return loss


def hidden(own, theirs, pairs, mask, projection):
    loss = 0
    for student, teacher in [(0, 0), *pairs]:
        projected = F.linear(own.hidden[student], *projection)
        loss = loss + F.mse_loss(projected[mask], theirs.hidden[teacher][mask])
    return loss


def relations(own, theirs, case, mask):
    total, heads = 0, case["relation_heads"]
    for name in ("query", "key", "value"):
        s, t = own.relation(2, name, heads, mask), theirs.relation(case["relation_layer"], name, heads, mask)
        for row, length in enumerate(mask.sum(1)):
            one = F.kl_div(s[row, :, :length, :length].log_softmax(-1), t[row, :, :length, :length].softmax(-1), reduction="sum")
            total = total + one
    return total / (heads * mask.sum())


def terms_of(case, own, theirs, batch, projection):
    mask, temperature, terms = batch["mask"], case.get("temperature", 1), {}
    regression = case.get("labels") == 1
    for name in case["terms"]:
        if name == "attention":
            terms[name] = attention(own, theirs, case["map"], mask)
        if name == "hidden":
            terms[name] = hidden(own, theirs, case["map"], mask, projection)
        if name == "relations":
            terms[name] = relations(own, theirs, case, mask)
        if name == "cosine":
            s, t = own.hidden[-1][mask], theirs.hidden[-1][mask]
            terms[name] = torch.nn.CosineEmbeddingLoss(reduction="mean")(s, t, torch.ones(len(s)))
        if name == "soft" and regression:
            terms[name] = F.mse_loss(own.logits, theirs.logits)
        elif name == "soft":  # soft_cross_entropy of task_distill.py
            each = -F.softmax(theirs.logits / temperature, -1) * F.log_softmax(own.logits / temperature, -1)
            terms[name] = each.sum(-1).mean() if case.get("rows") else each.mean()
        if name == "logits":  # Keras and transformers' examples call it so: mse_loss of both models' logits
            terms[name] = F.mse_loss(own.logits, theirs.logits)
        if name == "hard":
            labels = batch["labels"]
            terms[name] = F.mse_loss(own.logits.squeeze(1), labels.to(own.logits.dtype)) if regression else \
                F.cross_entropy(own.logits, labels)
        if name == "patient":  # layers but the student's last
            pairs = [pair for pair in case["map"] if pair[0] < 2]
            s = torch.stack([F.normalize(own.hidden[a][:, 0], p=2, dim=-1) for a, _ in pairs])
            t = torch.stack([F.normalize(theirs.hidden[b][:, 0], p=2, dim=-1) for _, b in pairs])
            terms[name] = F.mse_loss(s, t)
        if name in ("tokens", "all-tokens", "mlm"):
            chosen = batch["chosen"] if name != "all-tokens" else mask  # with and without restrict_ce_to_mask
            s, t = own.logits[chosen], theirs.logits[chosen]
            if name == "mlm":
                terms[name] = F.cross_entropy(s, batch["hidden_words"])
            else:  # of distiller.py
                terms[name] = torch.nn.KLDivLoss(reduction="batchmean")(
                    F.log_softmax(s / temperature, -1), F.softmax(t / temperature, -1)) * temperature**2
    return terms


def make_batch(case, generator):
    lengths = case["lengths"]
    shape = len(lengths), max(lengths)
    mask = torch.arange(shape[1])[None, :] < torch.tensor(lengths)[:, None]
    ids = torch.randint(1, SIZES["vocab_size"], shape, generator=generator) * mask
    types = torch.stack([(torch.arange(shape[1]) >= length // 2).long() for length in lengths]) * mask
    batch = {"ids": ids, "types": types, "mask": mask}
    labels = case.get("labels", 3)
    if case["model"] is BertForSequenceClassification:
        batch["labels"] = torch.randn(shape[0], generator=generator).double() if labels == 1 else \
            torch.randint(0, labels, shape[:1], generator=generator)
    if case["model"] is BertForMaskedLM:
        batch["chosen"] = (torch.rand(shape, generator=generator) < 0.2) & mask
        batch["chosen"][0, 0] = True
        batch["hidden_words"] = torch.randint(0, SIZES["vocab_size"], (int(batch["chosen"].sum()),), generator=generator)
    return batch


def packed(batch, lengths):
    mask = batch["mask"]
    result = {"token_ids": batch["ids"][mask], "token_type_ids": batch["types"][mask], "lengths": torch.tensor(lengths)}
    if "labels" in batch:
        result["labels"] = batch["labels"]
    if "chosen" in batch:
        result["mlm_rows"] = torch.nonzero(batch["chosen"][mask]).flatten()
        result["mlm_labels"] = batch["hidden_words"]
    return {name: value.contiguous() for name, value in result.items()}


def main():
    output = sys.argv[1]
    for index, (name, case) in enumerate(CASES.items()):
        torch.manual_seed(100 + index)
        (small, large), (few, many) = case.get("hidden", (24, 36)), case.get("heads", (3, 3))
        student, teacher = make_model(case, small, few, 2), make_model(case, large, many, 4)
        projection = torch.randn(large, small) * 0.2, torch.randn(large) * 0.1
        folder = os.path.join(output, name)
        os.makedirs(folder, exist_ok=True)
        student.save_pretrained(os.path.join(folder, "student"))
        teacher.save_pretrained(os.path.join(folder, "teacher"))
        batch = make_batch(case, torch.Generator().manual_seed(index))
        save_file(packed(batch, case["lengths"]), os.path.join(folder, "batch.safetensors"))
        save_file({"weight": projection[0], "bias": projection[1]}, os.path.join(folder, "projection.safetensors"))
        described = {key: case.get(key, default) for key, default in (
            ("terms", None), ("map", None), ("temperature", 1), ("relation_heads", 1), ("relation_layer", 0), ("rows", False))}
        with open(os.path.join(folder, "case.json"), "w", encoding="utf-8") as file:
            json.dump(described, file)
        for suffix, dtype in (("fp32", torch.float32), ("fp64", torch.float64)):
            student.to(dtype).zero_grad()
            learned = [torch.tensor(value.tolist(), dtype=dtype).requires_grad_() for value in projection]
            with torch.no_grad():
                theirs = Seen(teacher.to(dtype), batch)
            terms = terms_of(case, Seen(student, batch), theirs, batch, learned)
            total = sum(case["terms"][term] * value for term, value in terms.items())
            total.backward()
            result = {"term." + term: value.detach().clone() for term, value in terms.items()}
            result["total"] = total.detach().clone()
            for parameter, value in student.named_parameters():
                if value.grad is not None:
                    result["grad." + parameter] = value.grad.clone()
            if "hidden" in case["terms"]:
                result["grad.projection.weight"], result["grad.projection.bias"] = (value.grad.clone() for value in learned)
            save_file({key: value.contiguous() for key, value in result.items()},
                      os.path.join(folder, f"expected_{suffix}.safetensors"))
        print("wrote", name)


if __name__ == "__main__":
    main()
