"""Every metric equals scikit-learn's or SciPy's, on random cases and on those where definitions differ.

usage: metrics.py METRIC_VALUES_PROGRAM [RANDOM_CASES_OF_EACH_KIND=100]
"""

import json
import math
import random
import subprocess
import sys
import warnings

from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, matthews_corrcoef

TOLERANCE, CASES = 1e-12, int((sys.argv[2:] or [100])[0])


def class_cases(source):
    yield from [([1], [1]), ([0], [1]), ([0, 0], [0, 0]), ([1, 1], [0, 0]), ([1, 1, 1], [0, 1, 1]), ([2, 2], [0, 1]), ([5, 0], [0, 0])]
    for _ in range(CASES):
        size, classes = source.randint(1, 200), source.randint(1, 12)
        truth = [source.randrange(classes) for _ in range(size)]
        agree = source.random()
        yield [t if source.random() < agree else source.randrange(classes) for t in truth], truth


def value_cases(source):
    yield from [([1, 2], [2, 1]), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [0.1, 0.1, 0.1]), ([1e9, 1e9 + 1, 1e9 + 2], [1, 3, 2])]
    for _ in range(CASES):
        size, ties = source.randint(2, 200), source.random() < 0.5
        truth = [float(source.randint(0, 5)) if ties else source.gauss(0, 1) for _ in range(size)]
        yield [0.5 * t + source.gauss(0, 1) if source.random() < 0.7 else 2.5 for t in truth], truth


def expected_of_classes(predicted, truth):
    binary = f1_score([t == 1 for t in truth], [p == 1 for p in predicted], zero_division=0)
    return {"accuracy": accuracy_score(truth, predicted), "f1": binary,
            "macro_f1": f1_score(truth, predicted, average="macro", zero_division=0),
            "matthews_correlation": matthews_corrcoef(truth, predicted)}


def expected_of_values(predicted, truth):
    return {"pearson": pearsonr(predicted, truth).statistic, "spearmanr": spearmanr(predicted, truth).statistic}


def label_cases(source):
    """Scores and truths of rows with three labels, row by row."""
    yield from [([0.9, 0.1, 0.5], [1, 0, 0]), ([0.0] * 3, [0] * 3), ([1.0] * 6, [1] * 6), ([0.4] * 3, [1] * 3)]
    for _ in range(CASES):
        size, ties = 3 * source.randint(1, 60), source.random() < 0.5
        truth = [int(source.random() < 0.4) for _ in range(size)]
        scores = [min(1.0, max(0.0, 0.3 * t + 0.7 * source.random())) for t in truth]
        yield [round(score, 1) for score in scores] if ties else scores, truth


def expected_of_labels(scores, truth):
    table = lambda values: [values[row:row + 3] for row in range(0, len(values), 3)]
    predicted = table([int(score >= 0.5) for score in scores])
    return {"micro_f1": f1_score(table(truth), predicted, average="micro", zero_division=0),
            "macro_f1": f1_score(table(truth), predicted, average="macro", zero_division=0),
            "average_precision": average_precision_score(table(truth), table(scores), average="macro")}


def main():
    warnings.simplefilter("ignore")  # constants: the peers warn and give NaN
    source = random.Random(11)
    cases = [("classes", *case, expected_of_classes(*case)) for case in class_cases(source)]
    cases += [("values", *case, expected_of_values(*case)) for case in value_cases(source)]
    cases += [("labels", *case, expected_of_labels(*case)) for case in label_cases(source)]
    lines = "".join(f"{kind} {' '.join(map(repr, predicted))} | {' '.join(map(repr, truth))}\n"
                    for kind, predicted, truth, _ in cases)
    done = subprocess.run([sys.argv[1]], input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(cases), done.stderr
    largest = 0.0
    for (kind, predicted, truth, expected), found in zip(cases, answers):
        assert set(found) == set(expected), (found, expected)
        for name, value in expected.items():
            ours = math.nan if found[name] is None else found[name]
            same = math.isnan(ours) and math.isnan(value) or abs(ours - value) <= TOLERANCE
            assert same, f"{name}: {ours} instead of {value} for {kind} {predicted[:20]} | {truth[:20]}"
            if not math.isnan(value):
                largest = max(largest, abs(ours - value))
    print(f"{len(cases)} cases, largest difference {largest:.1e}")


main()
