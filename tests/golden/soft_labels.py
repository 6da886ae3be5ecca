"""Shares in place of labels, and rows with weights, against PyTorch: losses of evaluations, and the weights after a step.

usage: soft_labels.py FUNICULAR_PROGRAM
"""

import json
import os
import random
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from early_exit import LENGTH, made_rows, result, run, write_model

CLASSES, RATE = ["contra", "maybe", "pro"], 0.1


def made(count, independent, seed):
    """Texts, shares (None: not known) and weights."""
    source, rows = random.Random(seed), []
    for _, text in made_rows(count, seed):
        shares = [round(source.random(), 3) for _ in CLASSES]
        if independent:
            shares = [None if source.random() < 0.3 else share for share in shares]
            if all(share is None for share in shares):
                shares[0] = 0.25
        else:
            shares = [share / sum(shares) for share in shares]
        rows.append((text, shares, round(source.uniform(0.2, 3), 3)))
    return rows


def write_columns(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.write("\t".join(["text", *(f"p_{name}" for name in CLASSES), "weight"]) + "\n")
        for text, shares, weight in rows:
            file.write("\t".join([text, *("" if share is None else repr(share) for share in shares), repr(weight)]) + "\n")


def write_objects(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        for text, shares, weight in rows:
            file.write(json.dumps({"text": text, "label": {name: share for name, share in zip(CLASSES, shares) if share is not None}, "weight": weight}) + "\n")


def opened(folder):
    """In float64, with the classes of the rows."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float64)
    return model, AutoTokenizer.from_pretrained(folder)


def logits_of(model, tokenizer, rows):
    inputs = tokenizer([text for text, _, _ in rows], truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")
    return model(**inputs).logits


def losses(logits, rows, independent, temperature):
    """One per row, and what each counts in the mean."""
    shares = torch.tensor([[float("nan") if share is None else share for share in row[1]] for row in rows], dtype=torch.float64)
    if not independent:
        target = (shares.log() / temperature).softmax(-1)
        return cross_entropy(logits / temperature, target, reduction="none") * temperature**2, torch.ones(len(rows), dtype=torch.float64)
    known = ~shares.isnan()
    target = (shares.logit() / temperature).sigmoid().nan_to_num(0)
    all_labels = binary_cross_entropy_with_logits(logits / temperature, target, reduction="none") * temperature**2
    return (all_labels * known).sum(-1), known.sum(-1).to(torch.float64)


def compare_step(program, folder, independent, objects, temperature):
    """One step of plain SGD on all rows: sum of w l over sum of w."""
    name = f"{'labels' if independent else 'classes'}-{'objects' if objects else 'columns'}-{temperature}"
    rows, run_folder = made(12, independent, 5), f"{folder}/{name}"
    path = f"{folder}/{name}.{'jsonl' if objects else 'tsv'}"
    (write_objects if objects else write_columns)(path, rows)
    words = ["--soft-labels"] if objects else ["--soft-columns", "p_*"]
    words += ["--multi-label"] if independent else []
    begin = f"{folder}/three"
    run(program, "finetune", "--model", begin, "--task", "custom", "--train", path, *words, "--weight-column", "weight", "--soft-temperature", temperature,
        "--output", run_folder, "--max-length", LENGTH, "--batch-size", len(rows), "--max-steps", 1, "--optim", "sgd", "--momentum", 0, "--learning-rate", RATE,
        "--lr-scheduler-type", "constant", "--max-grad-norm", 0, "--precision", "fp64", "--save-steps", 0, "--logging-steps", 1)
    model, tokenizer = opened(begin)
    weights = torch.tensor([row[2] for row in rows], dtype=torch.float64)
    per_row, counts = losses(logits_of(model, tokenizer, rows), rows, independent, temperature)
    loss = (per_row * weights).sum() / (counts * weights).sum()
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= RATE * parameter.grad
    logged = [json.loads(line) for line in open(f"{run_folder}/metrics.jsonl")]
    assert abs(logged[0]["loss"] - float(loss)) < 1e-6, (name, logged[0]["loss"], float(loss))
    trained, _ = opened(f"{run_folder}/model")
    assert [trained.config.id2label[i] for i in range(3)] == CLASSES, trained.config.id2label
    worst = max(float((a - b).abs().max()) for a, b in zip(trained.parameters(), model.parameters()))
    assert worst < 2e-7, (name, worst)  # saved in fp32
    print(f"{name}: loss {float(loss):.6f}, weights after a step within {worst:.1e}")
    return run_folder, path


def compare_evaluation(program, run_folder, path, independent):
    """Without temperature and weights. The columns are those of the training."""
    rows = made(12, independent, 5)
    model, tokenizer = opened(f"{run_folder}/model")
    with torch.no_grad():
        logits = logits_of(model, tokenizer, rows)
    per_row, counts = losses(logits, rows, independent, 1)
    found = result(run(program, "evaluate", run_folder, path, "--precision", "fp64"))
    expected = float(per_row.sum() / counts.sum())
    assert abs(found["loss"] - expected) < 1e-6, (found, expected)
    if not independent:
        greatest = torch.tensor([row[1].index(max(row[1])) for row in rows])
        assert abs(found["accuracy"] - float((logits.argmax(-1) == greatest).double().mean())) < 1e-12, found
    print(f"evaluated: loss {expected:.6f}")


def main(program):
    with tempfile.TemporaryDirectory() as folder:
        write_model(f"{folder}/model")
        model = AutoModelForSequenceClassification.from_pretrained(f"{folder}/model", num_labels=3, ignore_mismatched_sizes=True)
        model.config.id2label = dict(enumerate(CLASSES))
        model.config.label2id = {name: number for number, name in enumerate(CLASSES)}
        model.save_pretrained(f"{folder}/three")
        AutoTokenizer.from_pretrained(f"{folder}/model").save_pretrained(f"{folder}/three")
        for independent in (False, True):
            for objects in (False, True):
                for temperature in (1, 2.5):
                    run_folder, path = compare_step(program, folder, independent, objects, temperature)
            compare_evaluation(program, run_folder, path, independent)


if __name__ == "__main__":
    main(sys.argv[1])
