"""Calibration against scikit-learn and NumPy: temperature, calibration error, Brier score, coverage, and what predict makes of them.

usage: calibration.py FUNICULAR_PROGRAM
"""

import json
import math
import os
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy
from scipy.optimize import minimize_scalar
from sklearn.metrics import brier_score_loss, log_loss
from transformers import AutoModelForSequenceClassification

from early_exit import LENGTH, made_rows, result, run, write_model, write_rows


def write_labels(path, rows):
    """Of several labels: the class, and "long" for texts of more than ten words."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("label\ttext\n" + "".join(f"{label}{',long' if len(text.split()) > 10 else ''}\t{text}\n" for label, text in rows))


def best_temperature(loss):
    return math.exp(minimize_scalar(lambda logarithm: loss(math.exp(logarithm)), bounds=(-3, 3), method="bounded", options={"xatol": 1e-10}).x)


def calibration_error(confidence, right):
    bins = numpy.clip(numpy.ceil(confidence * 15) - 1, 0, 14)
    return sum(abs(right[bins == one].mean() - confidence[bins == one].mean()) * (bins == one).mean() for one in set(bins))


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def near(found, expected, bound=1e-6):
    assert abs(found - expected) <= bound * max(1, abs(expected)), (found, expected)


def tuned(program, folder, name, *words):
    run(program, "finetune", "--model", f"{folder}/model", "--task", "custom", "--train", f"{folder}/{name}-train.tsv", "--eval", f"{folder}/{name}-eval.tsv",
        "--output", f"{folder}/run-{name}", "--max-length", LENGTH, "--learning-rate", 3e-3, "--num-train-epochs", 5, "--precision", "fp32",
        "--save-steps", 0, *words)
    return f"{folder}/run-{name}/model"


class Evaluated:
    """What evaluate prints of a model and rows, and the probability that it gives each label of each row."""

    def __init__(self, program, model, data, *words):
        predictions = f"{model}/../predictions.jsonl"
        self.found = result(run(program, "evaluate", "--model", model, "--input", data, "--precision", "fp32", "--details", "--predictions", predictions,
                                 "--overwrite", *words))
        self.rows = lines(open(predictions).read())
        self.names = list(self.rows[0]["probabilities"])
        self.probabilities = numpy.array([[row["probabilities"][name] for name in self.names] for row in self.rows])


def check_point(point, confidence, right):
    """Probabilities are printed with six digits, so rows that print as the threshold may lie on either side of it."""
    given = round(point["coverage"] * len(right))
    near(point["coverage"], given / len(right), 1e-9)
    surely, perhaps = (confidence >= point["threshold"] + by for by in (2e-6, -2e-6))
    at_threshold = right[perhaps & ~surely]
    more = given - surely.sum()
    assert 0 <= more <= len(at_threshold), (point, surely.sum(), len(at_threshold))
    hits = point["accuracy"] * given - right[surely].sum()
    assert more - (~at_threshold).sum() - 1e-6 <= hits <= min(more, at_threshold.sum()) + 1e-6, (point, hits, more)


def check_classes(program, folder, rows):
    data = f"{folder}/classes-eval.tsv"
    model = tuned(program, folder, "classes")
    raw = Evaluated(program, model, data)
    labels = numpy.array([raw.names.index(row["label"]) for row in raw.rows])
    logits = numpy.log(raw.probabilities)

    def at_temperature(temperature):
        powers = numpy.exp(logits / temperature - (logits / temperature).max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)
    temperature = best_temperature(lambda one: log_loss(labels, at_temperature(one), labels=[0, 1]))
    calibrated = Evaluated(program, model, data, "--calibrate")
    near(calibrated.found["reliability"]["temperature"], temperature, 1e-4)
    near(numpy.abs(calibrated.probabilities - at_temperature(temperature)).max(), 0, 1e-4)
    for measured, at in ((raw, raw.found["reliability"]), (raw, calibrated.found["reliability"]["before"]), (calibrated, calibrated.found["reliability"])):
        p, right = measured.probabilities, measured.probabilities.argmax(1) == labels
        near(at["ece"], calibration_error(p.max(1), right))
        near(at["brier"], brier_score_loss(labels, p[:, 1], scale_by_half=False))
        near(at["negative_log_likelihood"], log_loss(labels, p, labels=[0, 1]))
        order = numpy.argsort(-p.max(1), kind="stable")
        near(at["area_under_risk_coverage"], (numpy.cumsum(~right[order]) / numpy.arange(1, len(order) + 1)).mean(), 2e-3)  # equal confidences aside
        for point in at.get("coverage", []):
            check_point(point, p.max(1), right)
    assert calibrated.found["reliability"]["ece"] < raw.found["reliability"]["ece"], "the model is overconfident after five epochs"
    again = Evaluated(program, model, data, "--calibrate")
    near(again.found["reliability"]["temperature"], temperature, 1e-4)
    check_decisions(program, folder, model, calibrated, labels, rows)
    _, said = AutoModelForSequenceClassification.from_pretrained(model, output_loading_info=True)
    assert not said["missing_keys"] and not said["unexpected_keys"], said
    print(f"classes: temperature {temperature:.4f}, ece {raw.found['reliability']['ece']:.4f} -> {calibrated.found['reliability']['ece']:.4f}")


def check_decisions(program, folder, model, calibrated, labels, rows):
    with open(f"{folder}/texts.txt", "w") as file:
        file.write("".join(text + "\n" for _, text in rows))
    words = ["predict", "--model", model, "--input", f"{folder}/texts.txt", "--precision", "fp32"]
    plain = lines(run(program, *words))
    p = numpy.array([[row["probabilities"][name] for name in calibrated.names] for row in plain])
    near(numpy.abs(p - calibrated.probabilities).max(), 0, 1e-5)
    scores = numpy.unique(p.max(1))
    limit = float(scores[len(scores) // 2 - 1:len(scores) // 2 + 1].mean())  # no rounding decides
    for answer, before in zip(lines(run(program, *words, "--abstain", limit)), plain, strict=True):
        assert answer == {**before, "label": before["label"] if before["score"] >= limit else None}, (answer, before, limit)
    wanted = (1 + (p.argmax(1) == labels).mean()) / 2
    sure = lines(run(program, *words, "--abstain-accuracy", wanted))
    given = numpy.array([answer["label"] is not None for answer in sure])
    assert (p.argmax(1) == labels)[given].mean() >= wanted - 0.005 and 0 < given.mean() < 1, (given.mean(), wanted)


def check_labels(program, folder):
    data = f"{folder}/labels-eval.tsv"
    model = tuned(program, folder, "labels", "--multi-label")
    raw = Evaluated(program, model, data)
    truth = numpy.array([[name in row["labels"] for name in raw.names] for row in raw.rows], dtype=float)
    p = raw.probabilities.clip(1e-9, 1 - 1e-9)
    logits = numpy.log(p / (1 - p))

    def loss(temperature):
        q = 1 / (1 + numpy.exp(-logits / temperature))
        return -(truth * numpy.log(q) + (1 - truth) * numpy.log(1 - q)).mean()
    temperature = best_temperature(loss)
    calibrated = Evaluated(program, model, data, "--calibrate")
    near(calibrated.found["reliability"]["temperature"], temperature, 1e-2)  # the probabilities are printed with six digits
    near(calibrated.found["reliability"]["negative_log_likelihood"], loss(temperature), 1e-4)
    near(calibrated.found["reliability"]["brier"], ((calibrated.probabilities - truth) ** 2).mean())
    near(calibrated.found["reliability"]["ece"], calibration_error(calibrated.probabilities.ravel(), truth.ravel()), 1e-5)
    assert [row["predicted"] for row in calibrated.rows] == [row["predicted"] for row in raw.rows], "thresholds move with the probabilities"
    answers = lines(run(program, "predict", "--model", model, "--input", f"{folder}/texts.txt", "--precision", "fp32", "--threshold", 0.9))
    for answer in answers:
        assert answer["labels"] == [name for name in calibrated.names if answer["probabilities"][name] >= 0.9], answer
    print(f"labels: temperature {temperature:.4f}, ece {raw.found['reliability']['ece']:.4f} -> {calibrated.found['reliability']['ece']:.4f}")


def main(program):
    with tempfile.TemporaryDirectory() as folder:
        write_model(f"{folder}/model")
        train, evaluation = made_rows(400, 1), made_rows(300, 2)
        for write, name in ((write_rows, "classes"), (write_labels, "labels")):
            write(f"{folder}/{name}-train.tsv", train)
            write(f"{folder}/{name}-eval.tsv", evaluation)
        check_classes(program, folder, evaluation)
        check_labels(program, folder)


if __name__ == "__main__":
    main(sys.argv[1])
