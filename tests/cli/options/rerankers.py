"""What the options of finetune do that are for rerankers."""

from harness import json

from .embedders import rows_file
from .lab import *

RERANKERS = Table()
LISTS = [("good film", ["a fine film", "bad book", "dull song"], [1, 0.5, 0]), ("old book", ["the long book", "film"], [1, 0])]


def lists(lab):
    return rows_file(lab, "lists.jsonl", [{"query": query, "text": texts, "label": labels} for query, texts, labels in LISTS])


def flat(lab):
    return rows_file(lab, "flat.jsonl", [{"query": query, "text": text, "label": label} for query, texts, labels in LISTS for text, label in zip(texts, labels)])


def first_loss(lab, train, **options):
    """The loss of the first step, of all rows."""
    return lab.train(task="reranker", train=train, learning_rate=NOTHING, batch_size=5, **options).each("loss")[0]


def logits(lab, train=None):
    """The scores of the untrained model, list by list."""
    run = lab.train(task="reranker", train=train or flat(lab), learning_rate=NOTHING, batch_size=5, activation="identity")
    path = lab.folder / "scores.jsonl"
    lab.succeeds("evaluate", "--model", run.folder / "model", "--data", flat(lab), "--precision", "fp64", "--predictions", path,
                 "--overwrite")
    scores = [json.loads(line)["score"] for line in path.read_text().splitlines()]
    return [scores[:3], scores[3:]]


def pair_loss(found, sigma, weight=lambda *_: 1, top=None):
    """The mean over pairs of texts of a query, the first of which has the greater label."""
    terms = []
    for scores, (_, _, labels) in zip(found, LISTS):
        rank = {text: place + 1 for place, text in enumerate(sorted(range(len(scores)), key=lambda text: -scores[text]))}
        for i, a in enumerate(labels):
            for j, b in enumerate(labels):
                if a > b and (top is None or min(rank[i], rank[j]) <= top):
                    terms.append(weight(labels, rank, i, j) * math.log2(1 + math.exp(-sigma * (scores[i] - scores[j]))))
    return sum(terms) / len(terms)


def lambda_rank(labels, rank, i, j):
    best = sum((2 ** label - 1) / math.log2(2 + place) for place, label in enumerate(sorted(labels, reverse=True)))
    return abs(1 / math.log2(1 + rank[i]) - 1 / math.log2(1 + rank[j])) * abs(2 ** labels[i] - 2 ** labels[j]) / best


@RERANKERS.row("--positive-weight", "positive texts count as much more")
def positive_weight(lab):
    def cross_entropy(weight):
        terms = [(label * math.log1p(math.exp(-score)) * weight + (1 - label) * math.log1p(math.exp(score)))
                 for scores, (_, _, labels) in zip(logits(lab), LISTS) for score, label in zip(scores, labels)]
        return sum(terms) / len(terms)
    lab.assertAlmostEqual(first_loss(lab, flat(lab)), cross_entropy(1), places=5)
    lab.assertAlmostEqual(first_loss(lab, flat(lab), positive_weight=3), cross_entropy(3), places=5)


@RERANKERS.row("--weighting", "pairs of texts count by it")
def weighting(lab):
    lab.assertAlmostEqual(first_loss(lab, lists(lab), loss="lambda", weighting="lambda-rank"), pair_loss(logits(lab), 1, lambda_rank), places=5)
    lab.assertNotAlmostEqual(first_loss(lab, lists(lab), loss="lambda"), pair_loss(logits(lab), 1, lambda_rank), places=3)


@RERANKERS.row("--sigma", "differences of scores are multiplied by it")
def sigma(lab):
    for value in (1, 4):
        lab.assertAlmostEqual(first_loss(lab, lists(lab), loss="rank-net", sigma=value), pair_loss(logits(lab), value), places=5)


@RERANKERS.row("--loss-top-k", "pairs without one of the best texts are left out")
def loss_top_k(lab):
    lab.assertAlmostEqual(first_loss(lab, lists(lab), loss="rank-net", loss_top_k=1), pair_loss(logits(lab), 1, top=1), places=5)
    lab.assertNotAlmostEqual(pair_loss(logits(lab), 1, top=1), pair_loss(logits(lab), 1), places=6)


@RERANKERS.row("--activation", "config.json names it, and predict gives what it makes of a logit")
def activation(lab):
    found = {}
    for name, dotted in (("sigmoid", "torch.nn.modules.activation.Sigmoid"), ("identity", "torch.nn.modules.linear.Identity")):
        model = lab.train(task="reranker", train=flat(lab), learning_rate=NOTHING, batch_size=5, activation=name).folder / "model"
        lab.assertEqual(json.loads((model / "config.json").read_text())["sentence_transformers"]["activation_fn"], dotted)
        found[name] = json.loads(lab.succeeds("predict", "--model", model, "--text", "good film", "bad book", "--precision", "fp32").out)["score"]
    lab.assertAlmostEqual(found["sigmoid"], 1 / (1 + math.exp(-found["identity"])), places=5)
