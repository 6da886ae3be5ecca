"""Suspects among labels against cleanlab: the same rows, in the same order, by each filter and each order. Rows have one label or several.

usage: label_errors.py FUNICULAR_PROGRAM [SEEDS=2]
"""

import csv
import functools
import gzip
import itertools
import json
import subprocess
import sys
import tempfile

import numpy
from cleanlab.count import compute_confident_joint
from cleanlab.filter import find_label_issues
from cleanlab.multilabel_classification import filter as several_labels
from cleanlab.multilabel_classification import get_label_quality_scores as get_row_scores
from cleanlab.rank import get_label_quality_scores

# NumPy leaves the order of equal numbers open, and cleanlab's rounding of counts depends on it.
numpy.argsort = functools.partial(numpy.argsort, kind="stable")
FILTERS = {"prune-by-noise-rate": "prune_by_noise_rate", "prune-by-class": "prune_by_class", "both": "both", "confident-learning": "confident_learning"}
ORDERS = {"self-confidence": "self_confidence", "normalized-margin": "normalized_margin"}


def made(classes, rows, noise, seed, kind):
    """Labels of which some are wrong, and probabilities of a model that knows the truth with doubts. The first classes are the most frequent.

    kind: "ties" rounds the probabilities, so that many are equal; "empty" leaves no row with the last class.
    """
    source = numpy.random.default_rng(seed)
    truth = source.choice(classes, size=rows, p=numpy.arange(classes, 0, -1) / numpy.arange(1, classes + 1).sum())
    wrong = source.random(rows) < noise
    labels = numpy.where(wrong, source.integers(classes, size=rows), truth)
    labels[:classes] = numpy.arange(classes)
    logits = source.normal(size=(rows, classes)) + 2.5 * numpy.eye(classes)[truth]
    probabilities = numpy.exp(logits)
    probabilities /= probabilities.sum(1, keepdims=True)
    if kind == "empty":
        labels[labels == classes - 1] = 0
    return labels, probabilities.round(2) if kind == "ties" else probabilities


def suspects(program, folder, names, labels, probabilities, which, order):
    with open(f"{folder}/rows.jsonl", "w") as file:
        for number, (label, row) in enumerate(zip(labels, probabilities), 1):
            values = dict(zip(names, map(float, row)))
            file.write(json.dumps({"row": number, "texts": [f"text {number}"], "label": names[label], "probabilities": values}) + "\n")
    done = subprocess.run([program, "label-errors", f"{folder}/rows.jsonl", "--output", f"{folder}/suspects.csv", "--overwrite", "--filter", which,
                           "--rank-by", order],
                          text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    with open(f"{folder}/suspects.csv", newline="") as file:
        return list(csv.DictReader(file)), json.loads(done.stdout.splitlines()[-1])


def compare(program, folder, classes, rows, noise, seed, kind):
    labels, probabilities = made(classes, rows, noise, seed, kind)
    names = [f"class {number}" for number in range(classes)]
    joint = compute_confident_joint(labels, probabilities)
    for (which, filter_by), (order, rank_by) in itertools.product(FILTERS.items(), ORDERS.items()):
        found, result = suspects(program, folder, names, labels, probabilities, which, order)
        expected = find_label_issues(labels, probabilities, filter_by=filter_by, return_indices_ranked_by=rank_by, n_jobs=1)
        assert [int(row["row"]) - 1 for row in found] == list(expected), (classes, rows, noise, seed, kind, which, order)
        assert result["suspects"] == len(expected) and result["rows"] == rows, result
        assert abs(result["wrong"] - (1 - joint.trace() / rows)) < 1e-12, (result, joint)
        quality = get_label_quality_scores(labels, probabilities, method=rank_by)
        for row, index in zip(found, expected):
            assert abs(float(row["certainty"]) - (1 - quality[index])) < 1e-5, (row, quality[index])
            others = probabilities[index].copy()
            others[labels[index]] = -1
            assert (row["label"], row["suggested"], row["text"]) == (names[labels[index]], names[others.argmax()], f"text {index + 1}"), row
    return len(expected)


def made_of_several(count, rows, noise, seed, kind):
    source = numpy.random.default_rng(seed)
    truth = source.random((rows, count)) < numpy.linspace(0.15, 0.6, count)
    given = truth ^ (source.random((rows, count)) < noise)
    given[0], given[1] = True, False
    if kind == "empty":
        given[:, -1] = False
    probabilities = 1 / (1 + numpy.exp(-source.normal(size=(rows, count)) - numpy.where(truth, 2, -2)))
    return given, probabilities.round(2) if kind == "ties" else probabilities


def compare_several(program, folder, count, rows, noise, seed, kind):
    given, probabilities = made_of_several(count, rows, noise, seed, kind)
    names = [f"label {number}" for number in range(count)]
    labels = [[int(label) for label in numpy.flatnonzero(row)] for row in given]
    with gzip.open(f"{folder}/several.jsonl.gz", "wt") as file:
        for own, row in zip(labels, probabilities):
            file.write(json.dumps({"labels": [names[label] for label in own], "probabilities": dict(zip(names, map(float, row)))}) + "\n")
    for (which, filter_by), (order, rank_by) in itertools.product(FILTERS.items(), ORDERS.items()):
        case = (count, rows, noise, seed, kind, which, order)
        done = subprocess.run([program, "label-errors", f"{folder}/several.jsonl.gz", "--output", f"{folder}/several.jsonl", "--filter", which,
                               "--rank-by", order, "--overwrite"], text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        found = [json.loads(line) for line in open(f"{folder}/several.jsonl")]
        expected = several_labels.find_label_issues(labels, probabilities, filter_by=filter_by, return_indices_ranked_by=rank_by, n_jobs=1)
        assert [row["row"] - 1 for row in found] == list(expected), case
        each = several_labels.find_multilabel_issues_per_class(labels, probabilities, filter_by=filter_by, n_jobs=1)
        quality = get_row_scores(labels, probabilities, method=rank_by)
        for row, index in zip(found, expected):
            assert row["doubtful"] == [name for name, doubts in zip(names, each[index]) if doubts], (case, row)
            assert row["suggested"] == [name for name, doubts, has in zip(names, each[index], given[index]) if doubts != has], (case, row)
            assert abs(row["certainty"] - (1 - quality[index])) < 1e-5, (case, row, quality[index])
        joint = compute_confident_joint(labels, probabilities, multi_label=True)
        for name, own in zip(names, joint):
            wrong = json.loads(done.stdout.splitlines()[-1])["wrong"][name]
            assert abs(wrong - (1 - own.trace() / rows)) < 1e-12, (case, name, wrong, own)
    return len(expected)


def main(program, seeds=2):
    with tempfile.TemporaryDirectory() as folder:
        cases = [(2, 60, 0.2), (2, 400, 0.05), (3, 300, 0.3), (5, 500, 0.15), (8, 400, 0.4), (4, 40, 0.5), (3, 200, 0.0)]
        several = [(*case, seed, "all") for case, seed in itertools.product(cases, range(int(seeds)))]
        several += [(3, 300, 0.3, 4, "ties"), (5, 500, 0.15, 5, "ties"), (4, 200, 0.2, 6, "empty")]
        for classes, rows, noise, seed, kind in several:
            count = compare(program, folder, classes, rows, noise, seed, kind)
            print(f"{classes} classes, {rows} rows, {noise:.0%} noise, seed {seed}, {kind}: the suspects of cleanlab by 4 filters and 2 orders; the last had {count}")
        for count, rows, noise, seed, kind in [(2, 80, 0.2, 1, "all"), (3, 300, 0.1, 2, "all"), (6, 400, 0.25, 3, "all"), (4, 300, 0.2, 4, "ties"),
                                               (3, 200, 0.0, 5, "all"), (4, 200, 0.2, 6, "empty")]:
            found = compare_several(program, folder, count, rows, noise, seed, kind)
            print(f"{count} labels per row, {rows} rows, {noise:.0%} noise, seed {seed}, {kind}: the rows and labels of cleanlab; the last had {found}")


if __name__ == "__main__":
    main(*sys.argv[1:])
