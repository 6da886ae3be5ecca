"""Writes what transformers computes for BERT models on ragged batches: logits, loss and the gradient of every parameter.

usage: make_references.py MINILM_DIR OUTPUT_DIR

Each case is a folder: model/ (as save_pretrained writes it), batch.safetensors (packed: token_ids, token_type_ids,
lengths, and the targets), expected_fp32.safetensors and expected_fp64.safetensors (logits, loss, grad.NAME).
"""

import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining, BertForSequenceClassification

LONG = [512, 257, 256, 255, 300, 1]
SMALL = dict(vocab_size=211, max_position_embeddings=160, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
# Sizes that are no multiple of any register, lengths around the kernels' blocks, and up to BERT's 512.
CASES = {
    "tiny_masked_lm": (BertForMaskedLM, dict(SMALL, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                                             intermediate_size=40), [5, 1, 130, 64, 65, 17]),
    "odd_masked_lm": (BertForMaskedLM, dict(SMALL, hidden_size=39, num_hidden_layers=3, num_attention_heads=3,
                                            intermediate_size=61, hidden_act="gelu_new", layer_norm_eps=1e-5),
                      [3, 160, 31, 33]),
    "relu_masked_lm": (BertForMaskedLM, dict(SMALL, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
                                             intermediate_size=48, hidden_act="relu"), [9, 12, 40]),
    "pairs_classification": (BertForSequenceClassification, dict(SMALL, hidden_size=36, num_hidden_layers=2,
                                                                 num_attention_heads=3, intermediate_size=50,
                                                                 num_labels=3, hidden_act="silu"), [7, 29, 128, 2]),
    "regression": (BertForSequenceClassification, dict(SMALL, hidden_size=16, num_hidden_layers=2, num_attention_heads=1,
                                                       intermediate_size=20, num_labels=1, problem_type="regression"),
                   [4, 11, 100]),
    "pretraining": (BertForPreTraining, dict(SMALL, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                                             intermediate_size=40), [5, 31, 130, 2]),
    "multi_label": (BertForSequenceClassification, dict(SMALL, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                                                        intermediate_size=32, num_labels=5,
                                                        problem_type="multi_label_classification"), [6, 31, 90, 1]),
    "long_masked_lm": (BertForMaskedLM, dict(SMALL, max_position_embeddings=512, hidden_size=32, num_hidden_layers=2,
                                             num_attention_heads=2, intermediate_size=48), LONG),
    "long_classification": (BertForSequenceClassification, dict(SMALL, max_position_embeddings=512, hidden_size=64,
                                                                num_hidden_layers=2, num_attention_heads=1,
                                                                intermediate_size=64, num_labels=3), LONG),
    "minilm_masked_lm": (BertForMaskedLM, None, [128, 37, 64, 91, 15, 3]),
    "minilm_classification": (BertForSequenceClassification, None, [128, 45, 66, 12]),
}


def make_model(model_class, options, minilm):
    if options is None:
        extra = {} if model_class is BertForMaskedLM else {"num_labels": 2}
        return model_class.from_pretrained(minilm, attn_implementation="eager", dtype=torch.float32, **extra)
    model = model_class(BertConfig(**options, attn_implementation="eager"))
    with torch.no_grad():  # far from the initial state, so that every part of the network matters
        for name, parameter in model.named_parameters():
            parameter.add_(torch.randn_like(parameter) * (0.1 if "LayerNorm" in name or "bias" in name else 0.2))
            if parameter.dim() == 2:  # bfloat16 holds them as they are, so that its results can be compared too
                parameter.copy_(parameter.bfloat16())
    return model


def make_batch(model, lengths, is_masked_lm, generator):
    config = model.config
    longest = max(lengths)
    ids = torch.randint(0, min(config.vocab_size, 3000), (len(lengths), longest), generator=generator)
    mask = torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]
    types = torch.zeros_like(ids)
    ids[0, 1] = config.pad_token_id  # inside a sequence: its embedding gets no gradient
    for row, length in enumerate(lengths):
        types[row, length // 2 : length] = 1
    ids[~mask] = 0
    types[~mask] = 0
    if is_masked_lm:
        chosen = (torch.rand(ids.shape, generator=generator) < 0.2) & mask
        chosen[:, 0] = not isinstance(model, BertForPreTraining)  # which reads the first tokens as they are
        labels = torch.where(chosen, torch.randint(0, config.vocab_size, ids.shape, generator=generator), -100)
    elif config.problem_type == "multi_label_classification":
        labels = torch.randint(0, 2, (len(lengths), config.num_labels), generator=generator).float()
    elif config.num_labels == 1:
        labels = torch.randn(len(lengths), generator=generator)
    else:
        labels = torch.randint(0, config.num_labels, (len(lengths),), generator=generator)
    if isinstance(model, BertForPreTraining):
        labels = labels, torch.randint(0, 2, (len(lengths),), generator=generator)
    return ids, types, mask, labels


def packed(ids, types, mask, labels, lengths, is_masked_lm):
    batch = {"token_ids": ids[mask], "token_type_ids": types[mask], "lengths": torch.tensor(lengths)}
    if isinstance(labels, tuple):
        labels, batch["next_sentence_labels"] = labels
    if is_masked_lm:
        flat = labels[mask]
        batch["mlm_rows"] = torch.nonzero(flat != -100).flatten()
        batch["mlm_labels"] = flat[flat != -100]
    else:
        batch["labels"] = labels
    return {name: value.contiguous() for name, value in batch.items()}


def expected(model, ids, types, mask, labels, is_masked_lm):
    model.zero_grad()
    both = isinstance(labels, tuple)
    labels, more = (labels[0], {"next_sentence_label": labels[1]}) if both else (labels, {})
    real_labels = labels.to(model.dtype) if labels.is_floating_point() else labels
    out = model(input_ids=ids, token_type_ids=types, attention_mask=mask.long(), labels=real_labels, **more)
    out.loss.backward()
    logits = out.prediction_logits if both else out.logits
    logits = logits[mask][labels[mask] != -100] if is_masked_lm else logits
    result = {"logits": logits.detach().clone(), "loss": out.loss.detach().clone()}
    if both:
        result["next_sentence_logits"] = out.seq_relationship_logits.detach().clone()
    for name, parameter in model.named_parameters():
        result["grad." + name] = parameter.grad.clone()
    return {name: value.contiguous() for name, value in result.items()}


def main():
    minilm, output = sys.argv[1:3]
    for index, (name, (model_class, options, lengths)) in enumerate(CASES.items()):
        torch.manual_seed(1000 + index)
        generator = torch.Generator().manual_seed(2000 + index)
        is_masked_lm = model_class in (BertForMaskedLM, BertForPreTraining)
        model = make_model(model_class, options, minilm).eval()
        folder = os.path.join(output, name)
        os.makedirs(folder, exist_ok=True)
        model.save_pretrained(os.path.join(folder, "model"))
        ids, types, mask, labels = make_batch(model, lengths, is_masked_lm, generator)
        save_file(packed(ids, types, mask, labels, lengths, is_masked_lm), os.path.join(folder, "batch.safetensors"))
        for suffix, dtype in (("fp32", torch.float32), ("fp64", torch.float64)):
            result = expected(model.to(dtype), ids, types, mask, labels, is_masked_lm)
            save_file(result, os.path.join(folder, f"expected_{suffix}.safetensors"))
        print("wrote", name)


if __name__ == "__main__":
    main()
