"""What the options of finetune do that are for embedders."""

from harness import HIDDEN, json

from .lab import *

EMBEDDERS = Table()
PAIRS = [("good film", "a fine film"), ("old book", "the long book"), ("a song", "dull song"), ("very short", "not long")]
WRONG = ["bad film", "short book", "the old song", "very dull"]
SCORES = [1, 0, 0.5, 0]


def rows_file(lab, name, rows):
    path = lab.folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def pairs(lab, swapped=False):
    order = (1, 0) if swapped else (0, 1)
    return rows_file(lab, f"pairs-{swapped}.jsonl", [{"anchor": row[order[0]], "positive": row[order[1]]} for row in PAIRS])


def triplets(lab):
    return rows_file(lab, "triplets.jsonl", [{"anchor": a, "positive": p, "negative": n} for (a, p), n in zip(PAIRS, WRONG)])


def scores(lab, values=SCORES):
    return rows_file(lab, f"scores-{'-'.join(map(str, values))}.jsonl", [{"sentence1": a, "sentence2": b, "score": score} for (a, b), score in zip(PAIRS, values)])


def first(lab, task, train, **options):
    """The loss of the first step, of all rows."""
    return lab.train(task=task, train=train, learning_rate=NOTHING, **options).each("loss")[0]


def cosines(lab, **options):
    run = lab.train(task="scores", train=scores(lab), learning_rate=NOTHING, **options)
    path = lab.folder / "cosines.jsonl"
    lab.succeeds("evaluate", "--model", run.folder / "model", "--data", scores(lab), "--precision", "fp64", "--predictions", path,
                 "--overwrite")
    return [json.loads(line)["cosine"] for line in path.read_text().splitlines()]


def cosent(found, scale):
    return math.log(1 + sum(math.exp(scale * (low - high)) for high, a in zip(found, SCORES) for low, b in zip(found, SCORES) if a > b))


@EMBEDDERS.row("--loss", "the vectors learn by this loss")
def loss(lab):
    found = cosines(lab)
    lab.assertAlmostEqual(first(lab, "scores", scores(lab)), cosent(found, 20), places=3, msg="the default")
    lab.assertAlmostEqual(first(lab, "scores", scores(lab), loss="cosine"), sum((score - own) ** 2 for own, score in zip(found, SCORES)) / 4, places=5)


@EMBEDDERS.row("--teacher", "a text's vector becomes the teacher's")
def teacher(lab):
    path = rows_file(lab, "texts.jsonl", [{"text": text} for pair in PAIRS for text in pair])
    lab.succeeds("embed", "--model", lab.plain_model(), "--input", path, "--output", lab.folder / "theirs.npy", "--overwrite")
    for given in (lab.plain_model(), lab.folder / "theirs.npy"):
        run = lab.train(task="vectors", train=path, teacher=given, learning_rate=NOTHING, batch_size=8)
        lab.assertLess(run.each("loss")[0], 1e-9)
    other = lab.train(task="vectors", train=path, teacher=lab.teacher(), learning_rate=NOTHING, batch_size=8)
    lab.assertGreater(other.each("loss")[0], 1e-3)
    lab.refuses_to_train("--teacher works only with --task vectors", task="scores", train=scores(lab), teacher=lab.plain_model())


@EMBEDDERS.row("--scale", "cosines are multiplied by it")
def scale(lab):
    lab.assertAlmostEqual(first(lab, "scores", scores(lab), scale=3), cosent(cosines(lab), 3), places=4)


@EMBEDDERS.row("--loss-margin", "so far apart texts that are not similar must be")
def loss_margin(lab):
    labels = [1, 0, 1, 0]
    for margin, options in ((0.5, {}), (0.9, {"loss_margin": 0.9})):
        expected = sum(0.5 * (label * (1 - own) ** 2 + (1 - label) * max(0, margin - (1 - own)) ** 2) for own, label in zip(cosines(lab), labels)) / 4
        lab.assertAlmostEqual(first(lab, "scores", scores(lab, labels), loss="contrastive", **options), expected, places=5)


@EMBEDDERS.row("--compare", "anchors are compared with positives, both ways, or all in one softmax")
def compare(lab):
    one_way, back = first(lab, "pairs", pairs(lab)), first(lab, "pairs", pairs(lab, swapped=True))
    symmetric = first(lab, "pairs", pairs(lab), compare="symmetric")
    lab.assertAlmostEqual(symmetric, (one_way + back) / 2, places=6)
    lab.assertGreater(first(lab, "pairs", pairs(lab), compare="joint"), max(one_way, back))


@EMBEDDERS.row("--hardness", "a row's own negatives count more")
def hardness(lab):
    lab.assertGreater(first(lab, "triplets", triplets(lab), hardness=5), first(lab, "triplets", triplets(lab)))
    lab.assertAlmostEqual(first(lab, "pairs", pairs(lab), hardness=5), first(lab, "pairs", pairs(lab)), places=10, msg="pairs have none")


@EMBEDDERS.row("--batch-hardness", "the texts of other rows count more")
def batch_hardness(lab):
    lab.assertGreater(first(lab, "pairs", pairs(lab), batch_hardness=9), first(lab, "pairs", pairs(lab)))


@EMBEDDERS.row("--matryoshka-dims", "the loss is also that of the first numbers")
def matryoshka_dims(lab):
    whole, eight, both = (first(lab, "pairs", pairs(lab), **options) for options in ({}, {"matryoshka_dims": [8]}, {"matryoshka_dims": [8, 4]}))
    four = first(lab, "pairs", pairs(lab), matryoshka_dims=[4, HIDDEN])
    lab.assertGreater(eight, whole)
    lab.assertAlmostEqual(both, eight + four - whole, places=6)


@EMBEDDERS.row("--pooling", "tokens become a vector so, and the folder says it")
def pooling(lab):
    run = lab.train(task="scores", train=scores(lab), learning_rate=NOTHING, pooling="cls")
    lab.assertTrue(json.loads((run.folder / "model" / "1_Pooling" / "config.json").read_text())["pooling_mode_cls_token"])
    lab.assertNotEqual(run.each("loss"), [first(lab, "scores", scores(lab))])
    lab.refuses_to_train("says how to pool", task="scores", train=scores(lab), model=run.folder / "model", pooling="mean")


@EMBEDDERS.row("--distinct-batches", "rows with a common text are in different batches")
def distinct_batches(lab):
    path = rows_file(lab, "common.jsonl", [{"anchor": text, "positive": "film"} for text in ("good", "bad", "old", "dull")])
    apart, together = (lab.train(task="pairs", train=path, max_steps=None, num_train_epochs=1, batch_size=2, distinct_batches=value) for value in (True, False))
    lab.assertIn("leaves out 2 of 4 rows", apart.err)
    lab.assertIn("--no-distinct-batches trains on all rows", apart.err)
    lab.assertEqual([2 * tokens for tokens in apart.tokens], together.tokens)

