"""The peer of bench/families_step.py computes transformers' step: with the head at masked tokens alone it has the loss and the
gradients of transformers' own class, for the class of each family that is timed.

Tiny models with random weights, rows of 8 to 32 tokens, float32, no dropout. The largest difference must stay below 1e-5 of the
largest gradient.
"""
import argparse
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/peers")]
import families_step
import hf_step
import make_batches
import torch

BOUND = 1e-5
TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 2000,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
TINY_DISTILBERT = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 2000, "dropout": 0.0, "attention_dropout": 0.0}


def write_model(family: str, folder: Path) -> None:
    sizes = TINY_DISTILBERT if family == "distilbert" else TINY | {"pad_token_id": 1}
    (folder / "config.json").write_text(json.dumps({"model_type": family} | families_step.CONFIGURATIONS[family] | sizes))


def step(model, forward, batch: dict) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad()
    loss = forward(**batch).loss
    loss.backward()
    return loss.item(), {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def check(family: str, folder: Path) -> None:
    write_model(family, folder)
    model = hf_step.make_model(argparse.Namespace(model=str(folder), attention="sdpa", seed=1, dropout=0.0))
    batch = hf_step.pad(make_batches.make_batches(1, "ragged", 1, 4, 2000, 32)["batches"][0], 1)
    loss, gradients = step(model, model, batch)
    own_loss, own = step(model, hf_step.MaskedTokensInHead(model), batch)
    scale = max(gradient.abs().max().item() for gradient in gradients.values())
    differences = {name: (own[name] - gradient).abs().max().item() / scale for name, gradient in gradients.items()} | {"loss": abs(own_loss / loss - 1)}
    worst = max(differences, key=differences.get)
    if own.keys() != gradients.keys() or not differences[worst] <= BOUND:
        sys.exit(f"{family}, {worst}: expected transformers' value within {BOUND:.0e}, found a difference of {differences[worst]:.1e}")


def main() -> None:
    for family in families_step.CONFIGURATIONS:
        with tempfile.TemporaryDirectory() as folder:
            check(family, Path(folder))
    print(f"{len(families_step.CONFIGURATIONS)} families: the head at masked tokens alone has transformers' loss and gradients")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
