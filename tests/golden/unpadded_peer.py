"""The unpadded peer of bench/peers/unpadded_step.py computes transformers' padded step: its loss and its gradients.

A tiny BERT with random weights, rows of 32 to 128 tokens, float32, no dropout. The largest difference must stay below 1e-5 of
the largest gradient. One compiled graph serves all layers.
"""
import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/peers"))
import hf_step
import make_batches
import torch
import unpadded_step
from transformers import BertConfig, BertForMaskedLM

LONGEST, BOUND = 128, 1e-5


def check(name: str, ours: torch.Tensor, theirs: torch.Tensor, scale: float) -> None:
    difference = (ours - theirs).abs().max().item()
    if not difference <= BOUND * scale:
        sys.exit(f"{name}: expected transformers' value within {BOUND * scale:.1e}, found a difference of {difference:.1e}")


def gradients(model: BertForMaskedLM, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def check_filling(rows: list[dict], flat: dict[str, torch.Tensor]) -> None:
    """Filled sequences are no longer than the longest row, and empty ones follow them."""
    lengths = flat["offsets"].diff().tolist()
    expected = [len(row["token_ids"]) for row in rows]
    filling = lengths[len(rows):]
    assert lengths[:len(rows)] == expected, lengths
    assert flat["ids"].numel() % unpadded_step.TOKENS == 0 and sum(lengths) == flat["ids"].numel(), lengths
    assert max(filling) <= LONGEST and filling == sorted(filling, reverse=True), filling


def check_shared_graph(model: BertForMaskedLM, batch: dict[str, torch.Tensor]) -> None:
    """Attention is left out: on a CPU it is a loop that no graph holds."""
    graphs: list = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    unpadded_step.attend = lambda query, key, value, *rest: query + key + value
    step = unpadded_step.UnpaddedStep(model, LONGEST)
    plain = step(**batch)
    step.compile_parts(dynamic=False, backend=backend)
    check("loss of compiled parts", step(**batch), plain, plain.item())
    assert len(graphs) == 3, f"expected graphs of the embeddings, a layer and the head, found {len(graphs)}"


def main() -> None:
    torch.manual_seed(1)
    model = BertForMaskedLM(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=2000,
                                       hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)).train()
    batches = make_batches.make_batches(1, "ragged", 2, 8, 2000)["batches"]
    filled = [unpadded_step.flatten(rows, LONGEST) for rows in batches]
    unpadded_step.even_masked(filled)
    assert filled[0]["masked"].shape == filled[1]["masked"].shape, "both batches have 1,024 tokens"
    for rows, batch in zip(batches, filled):
        check_filling(rows, batch)
        padded = gradients(model, loss := model(**hf_step.pad(rows, 1)).loss)
        own_loss = unpadded_step.UnpaddedStep(model, LONGEST)(**batch)
        flat = gradients(model, own_loss)
        check("loss", own_loss, loss, loss.item())
        if flat.keys() != padded.keys():
            sys.exit(f"expected gradients of the same weights, found a difference in {sorted(flat.keys() ^ padded.keys())}")
        scale = max(gradient.abs().max().item() for gradient in padded.values())
        for name, gradient in padded.items():
            check(name, flat[name], gradient, scale)
    check_shared_graph(model, filled[0])
    print("the unpadded step has transformers' loss and gradients")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
