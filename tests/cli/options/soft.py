"""What the options do that are about labels as people and language models give them: shares, weights, folds, suspects, averages."""

import csv

from harness import *

from .answering import EVALUATE, classifier, evaluate, several_labels
from .lab import *

SOFT, LABEL_ERRORS, AVERAGE = Table(), Table(), Table()
for table in (LABEL_ERRORS, AVERAGE):
    table.row("--help", "the options are listed")(shows_help)
TEXTS = ["film", "good book", "old song", "very long film"]
SHARES = [[0.75, 0.25], [0.1, 0.9], [0.5, 0.5], [1.0, 0.0]]
CLASSES = ["contra", "pro"]


def columns(lab, name="shares.tsv", shares=SHARES, weights=(1, 2, 0.5, 4), prefix=""):
    return lab.once(name, lambda path: write_rows(path, ("text", *(prefix + one for one in CLASSES), "weight"), [
        (text, *map(repr, row), repr(weight)) for text, row, weight in zip(TEXTS, shares, weights)]))


def objects(lab, name="shares.jsonl", shares=SHARES):
    return lab.once(name, lambda path: path.write_text("".join(
        json.dumps({"text": text, "label": dict(zip(CLASSES, row))}) + "\n" for text, row in zip(TEXTS, shares))) and path)




def first(lab, train, **options):
    return lab.train(train=train, learning_rate=NOTHING, **options).each("loss")[0]


def probabilities(lab, train, **options):
    """Of the model at the start: log-probabilities of each row, as its own training would find them."""
    run = lab.train(train=train, learning_rate=NOTHING, **options)
    path = lab.folder / "texts.txt"
    path.write_text("".join(text + "\n" for text in TEXTS))
    answers = lab.succeeds("predict", "--model", run.folder / "model", "--input", path, "--precision", "fp32").out.splitlines()
    return [[json.loads(line)["probabilities"][name] for name in CLASSES] for line in answers]


def expected(found, shares, weights=(1, 1, 1, 1)):
    rows = [-sum(share * math.log(p) for share, p in zip(row, own)) for row, own in zip(shares, found)]
    return sum(weight * row for weight, row in zip(weights, rows)) / sum(weights)


@SOFT.row("--soft-columns", "the loss is the cross-entropy with the columns' shares; classes are called as the columns")
def soft_columns(lab):
    path = columns(lab)
    words = {"soft_columns": CLASSES}
    lab.assertAlmostEqual(first(lab, path, **words), expected(probabilities(lab, path, **words), SHARES), places=4)
    run = lab.train(train=columns(lab, "prefix.tsv", prefix="p_"), learning_rate=NOTHING, soft_columns="p_*")
    lab.assertEqual(json.loads((run.folder / "model" / "config.json").read_text())["id2label"], {"0": "contra", "1": "pro"})
    lab.assertAlmostEqual(run.each("loss")[0], first(lab, path, **words), places=12)
    lab.refuses_to_train('there is no column "nope"', train=path, soft_columns=["contra", "nope"])
    lab.refuses_to_train("no column begins with", train=path, soft_columns="q_*")
    wrong = columns(lab, "wrong.tsv", [[0.5, 0.4], *SHARES[1:]])
    lab.refuses_to_train("wrong.tsv:2", "the shares sum to 0.9", "--normalize-shares", train=wrong, **words)
    lab.refuses_to_train("--soft-columns and --soft-labels cannot be given", train=path, regression=True, **words)
    lab.refuses_to_train("--soft-columns and --label-column cannot be given together", train=path, label_column="weight", **words)
    none = columns(lab, "none.tsv", [[1.0, 0.0]] * 4)
    lab.refuses_to_train('--class-weights balanced: "pro" has the share 0 in all rows', train=none, class_weights="balanced", **words)


@SOFT.row("--soft-labels", "the label column holds an object with the shares")
def soft_labels(lab):
    lab.assertAlmostEqual(first(lab, objects(lab), soft_labels=True), first(lab, columns(lab), soft_columns=CLASSES), places=12)
    lab.refuses_to_train("shares.jsonl:1", "object", train=objects(lab))
    several = lab.once("several.jsonl", lambda path: path.write_text("".join(
        json.dumps({"text": text, "label": {"joy": 0.9, "love": None, **({"fear": 0.2} if text == "film" else {})}}) + "\n" for text in TEXTS)) and path)
    lab.refuses_to_train('no row has a share of "love"', "Check the spelling", train=several, soft_labels=True, multi_label=True)
    known = lab.once("known.jsonl", lambda path: path.write_text(several.read_text().replace(', "love": null', "")) and path)
    told = lab.succeeds(*lab.words(lab.folder / "known-run", {"train": known, "soft_labels": True, "multi_label": True, "max_steps": 1}))
    lab.assertIn("rows with a share of the label, of 4 rows: fear (1), joy (4)", told.err)


@SOFT.row("--normalize-shares", "shares are divided by their sum")
def normalize_shares(lab):
    votes = columns(lab, "votes.tsv", [[3, 1], [1, 9], [2, 2], [5, 0]])
    lab.assertAlmostEqual(first(lab, votes, soft_columns=CLASSES, normalize_shares=True), first(lab, columns(lab), soft_columns=CLASSES), places=12)
    lab.refuses_to_train("votes.tsv:2", "from 0 to 1", train=votes, soft_columns=CLASSES)
    lab.refuses_to_train("--normalize-shares works only with", normalize_shares=True)
    lab.refuses_to_train("--normalize-shares works only with one class per text", train=votes, soft_columns=CLASSES, normalize_shares=True, multi_label=True)


@SOFT.row("--weight-column", "rows count by it")
def weight_column(lab):
    path, words = columns(lab), {"soft_columns": CLASSES, "weight_column": "weight"}
    lab.assertAlmostEqual(first(lab, path, **words), expected(probabilities(lab, path, **words), SHARES, (1, 2, 0.5, 4)), places=4)
    lab.assertAlmostEqual(first(lab, path, micro_batch_size=1, **words), first(lab, path, **words), places=12)
    rows = [(f"{one} {two}", *map(repr, share), repr(weight)) for one in TEXTS for two, share, weight in zip(TEXTS, SHARES, (1, 2, 0.5, 4))]
    more = lab.once("more.tsv", lambda path: write_rows(path, ("text", *CLASSES, "weight"), rows))
    for windows in ({}, {"stride": 1}):  # windows count by their weights in evaluation, too
        held_out = {"train": more, "soft_columns": CLASSES, "eval_fraction": 0.5, "learning_rate": NOTHING, **windows}
        plain, weighted = (lab.train(**held_out, **given).evaluations[-1]["eval_loss"] for given in ({}, {"weight_column": "weight"}))
        lab.assertAlmostEqual(weighted, plain, places=12)
    zero = columns(lab, "zero.tsv", weights=(1, 0, 1, 1))
    lab.refuses_to_train("zero.tsv:3", "the weight is 0", train=zero, **words)


@SOFT.row("--soft-temperature", "logits and shares are made flatter, and the loss is multiplied by its square")
def soft_temperature(lab):
    path, temperature = columns(lab), 2
    words = {"soft_columns": CLASSES}

    def flat(row):
        powers = [share ** (1 / temperature) for share in row]
        return [power / sum(powers) for power in powers]
    found = [flat(row) for row in probabilities(lab, path, **words)]
    lab.assertAlmostEqual(first(lab, path, soft_temperature=temperature, **words), temperature**2 * expected(found, [flat(row) for row in SHARES]), places=4)
    lab.refuses_to_train("--soft-temperature works only with", soft_temperature=2)


@SOFT.row("--eval-label-column", "the rows to evaluate on have a label there")
def eval_label_column(lab):
    gold = lab.once("gold.tsv", lambda path: write_rows(path, ("text", "gold"), list(zip(TEXTS, ["contra", "pro", "contra", "pro"]))))
    words = {"soft_columns": CLASSES, "eval": gold, "eval_label_column": "gold"}
    run = lab.train(train=columns(lab), learning_rate=NOTHING, **words)
    found = probabilities(lab, columns(lab), **words)
    right = sum(CLASSES[row.index(max(row))] == label for row, label in zip(found, ["contra", "pro", "contra", "pro"]))
    lab.assertEqual(run.evaluations[-1]["eval_accuracy"], right / 4)
    lab.refuses_to_train("gold.tsv:1", 'there is no column "contra"', train=columns(lab), soft_columns=CLASSES, eval=gold)
    lab.refuses_to_train("--eval-label-column works only with", eval=gold, eval_label_column="gold")


FOLDED = [(name, f"{word} {letter}") for name, word in zip(CLASSES, ("dull", "fine")) for letter in "abcdef"]


def folded(lab, **options):
    rows = lab.once("folded.tsv", lambda path: write_rows(path, ("label", "text"), FOLDED))
    return lab.train(train=rows, folds=4, max_steps=2, **options)


@SOFT.row("--folds", "each row is answered by a model that has not seen it; a finished fold is not trained again")
def folds(lab):
    run = folded(lab)
    result = run.result
    lab.assertEqual(result["folds"], 4)
    values = result["accuracy"]["values"]
    lab.assertAlmostEqual(result["accuracy"]["mean"], sum(values) / 4)
    answers = [json.loads(line) for line in (run.folder / "predictions.jsonl").read_text().splitlines()]
    lab.assertEqual([(answer["label"], answer["texts"], answer["row"]) for answer in answers], [(name, [text], row) for row, (name, text) in enumerate(FOLDED, 1)])
    lab.assertEqual(sorted(answer["fold"] for answer in answers), [fold for fold in (1, 2, 3, 4) for _ in range(3)])
    constants, shares = [], []  # the class that is most frequent in the other folds, and its share of the fold
    for fold in (1, 2, 3, 4):
        own, others = ([answer["label"] for answer in answers if (answer["fold"] == fold) == held_out] for held_out in (True, False))
        constants.append(max(CLASSES, key=others.count))
        shares.append(own.count(constants[-1]) / len(own))
    lab.assertLess(sum(shares), 2, "the most frequent class of a fold would have more than half of it")
    lab.assertEqual(result["baseline"]["answers"], [f'always "{name}"' for name in constants])
    lab.assertEqual(result["baseline"]["accuracy"]["values"], shares)
    lab.assertRegex(run.err, rf"constant answer +{sum(shares) / 4:.4f}")
    stamps = {path: path.stat().st_mtime_ns for path in run.folder.glob("fold-*/model/model.safetensors")}
    (run.folder / "fold-3" / "evaluation" / "evaluation.json").unlink()
    words = lab.words(run.folder, {"train": lab.folder / "folded.tsv", "folds": 4, "max_steps": 2})
    again = lab.succeeds(*words)
    lab.assertEqual(again.json(), result)
    lab.assertNotIn("fold 1 of 4", again.err)
    lab.assertIn("fold 3 of 4", again.err)
    lab.assertEqual([path for path, stamp in stamps.items() if path.stat().st_mtime_ns != stamp and "fold-3" not in str(path)], [])
    lab.refuses([*words, "--seed", "7"], "holds folds that were trained with other options")
    lab.refuses([*words, "--eval", lab.folder / "folded.tsv"], "--folds and --eval are both given")
    whole = lab.train(max_steps=1)
    lab.refuses(lab.words(whole.folder, {"train": lab.folder / "folded.tsv", "folds": 4, "max_steps": 2}), "holds a run without folds")
    lab.assertFalse((whole.folder / "folds.json").exists())
    folds_of_shares(lab)


def folds_of_shares(lab):
    """Rows with shares and weights are split too, also if one row alone has a class as its greatest; two processes give the same."""
    shares = [(0.1, 0.2, 0.7) if row == 0 else (0.8, 0.1, 0.1) if row % 2 else (0.2, 0.6, 0.2) for row in range(12)]
    path = lab.once("folded-shares.tsv", lambda path: write_rows(path, ("text", "a", "b", "c", "weight"), [
        (f"film {letter}", *map(repr, row), repr(1 + 3 * (letter < "e"))) for letter, row in zip("abcdefghijkl", shares)]))
    found = [lab.train(ranks=ranks, train=path, soft_columns=["a", "b", "c"], weight_column="weight", folds=3, max_steps=1, precision="fp64") for ranks in (1, 2)]
    answers = [[json.loads(line) for line in (run.folder / "predictions.jsonl").read_text().splitlines()] for run in found]
    lab.assertEqual([answer["row"] for answer in answers[0]], list(range(1, 13)))
    lab.assertEqual(answers[0][0]["label"], "c")
    for one, other in zip(*answers):
        lab.assertEqual(one["fold"], other["fold"])
        for name in "abc":
            lab.assertAlmostEqual(one["probabilities"][name], other["probabilities"][name], places=6)
    for fold, loss in enumerate(found[0].result["loss"]["values"], 1):  # held-out rows are measured without their weights
        losses = [-sum(share * math.log(answer["probabilities"][name]) for name, share in zip("abc", shares[answer["row"] - 1]))
                  for answer in answers[0] if answer["fold"] == fold]
        lab.assertAlmostEqual(loss, sum(losses) / len(losses), places=5)


# ---- evaluate


def evaluated(lab, *words, data):
    return evaluate(lab, *words, data=data)


@EVALUATE.row("--soft-columns", "the loss is the cross-entropy with the shares, and a row's label its greatest share")
def evaluated_columns(lab):
    found = evaluated(lab, "--soft-columns", *CLASSES, data=columns(lab))
    path = lab.folder / "texts.txt"
    path.write_text("".join(text + "\n" for text in TEXTS))
    answers = [json.loads(line)["probabilities"] for line in lab.succeeds("predict", "--model", classifier(lab), "--input", path).out.splitlines()]
    own = [[answer[name] for name in CLASSES] for answer in answers]
    lab.assertAlmostEqual(found["loss"], expected(own, SHARES), places=4)
    right = sum(row.index(max(row)) == mine.index(max(mine)) for row, mine in zip(SHARES, own)) / 4
    lab.assertAlmostEqual(found["accuracy"], right)
    cells = lab.once("cells.tsv", lambda path: write_rows(path, ("text", *CLASSES), [("film", "0.9", ""), ("good book", "", "0.2"), ("old song", "0.1", "0.8")]))
    words = ["evaluate", "--model", several_labels(lab), "--task", "custom", "--multi-label", "--data", cells, "--soft-columns", *CLASSES]
    found = lab.succeeds(*words, "--details", "--calibrate", "--calibrated", lab.folder / "several-calibrated").json()
    for name in CLASSES:  # each label is known in two rows, and one of them has it
        lab.assertEqual([sum(counts) for counts in found["confusion_matrices"][name]], [1, 1])
    lab.assertGreater(found["reliability"]["temperature"], 0)


@EVALUATE.row("--soft-labels", "the label column holds an object with the shares")
def evaluated_objects(lab):
    lab.assertEqual(evaluated(lab, "--soft-labels", data=objects(lab))["loss"], evaluated(lab, "--soft-columns", *CLASSES, data=columns(lab))["loss"])


@EVALUATE.row("--normalize-shares", "shares are divided by their sum")
def evaluated_votes(lab):
    votes = columns(lab, "votes.tsv", [[3, 1], [1, 9], [2, 2], [5, 0]])
    found = evaluated(lab, "--soft-columns", *CLASSES, "--normalize-shares", data=votes)
    lab.assertEqual(found["loss"], evaluated(lab, "--soft-columns", *CLASSES, data=columns(lab))["loss"])


@EVALUATE.row("--calibrated", "the copy keeps the temperature, and the model stays as it is")
def evaluated_copy(lab):
    model, copy = classifier(lab), lab.folder / "calibrated"
    before = (model / "config.json").read_bytes()
    lab.succeeds("evaluate", "--model", model, "--task", "custom", "--data", lab.labelled("rows", lab.texts()), "--calibrate", "--calibrated", copy)
    lab.assertEqual((model / "config.json").read_bytes(), before)
    lab.assertIn("temperature", json.loads((copy / "config.json").read_text())["funicular"]["calibration"])
    lab.assertEqual((copy / "model.safetensors").read_bytes(), (model / "model.safetensors").read_bytes())
    other = lab.folder / "other-files"
    other.mkdir(exist_ok=True)
    (other / "notes.txt").write_text("mine")
    words = ["evaluate", "--model", model, "--task", "custom", "--data", lab.labelled("rows", lab.texts())]
    lab.refuses([*words, "--calibrate", "--calibrated", other], "holds files already; expected a folder that is new or empty")
    lab.refuses([*words, "--calibrate", "--calibrated", model], "is the model itself; expected another folder")
    lab.refuses([*words, "--calibrate", "--calibrated", model.parent], "contains the model")
    linked = lab.folder / "linked-classifier"
    if not linked.exists():
        linked.symlink_to(model)
    for inside in (model / "calibrated", linked / "deep" / "calibrated"):
        lab.refuses([*words, "--calibrate", "--calibrated", inside], "lies in the model")
        lab.assertFalse(inside.exists())
    lab.refuses([*words, "--calibrated", lab.folder / "none"], "--calibrated works only with --calibrate")
    lab.assertFalse((lab.folder / "none").exists())
    (copy / "stale.txt").write_text("of an earlier copy")  # the same command again replaces its own copy as a whole
    lab.succeeds(*words, "--calibrate", "--calibrated", copy)
    lab.assertFalse((copy / "stale.txt").exists())
    lab.refuses([*words[:2], classifier(lab, "other", seed=5), *words[3:], "--calibrate", "--calibrated", copy], "holds files already")
    lab.assertEqual(list(lab.folder.glob(".tmp-calibrated-*")), [])


# ---- label-errors


def judged(lab):
    """Row 6 is labelled contra and looks like pro, and row 12 the other way round, with less certainty."""
    def line(row):
        label, own = (row > 6) * 1, 0.9 - 0.01 * row
        own = {6: 0.05, 12: 0.2}.get(row, own)
        return {"row": row, "texts": [f"text {row}"], "label": CLASSES[label], "probabilities": dict(zip(CLASSES, (own, 1 - own) if label == 0 else (1 - own, own)))}
    return lab.once("judged.jsonl", lambda path: path.write_text("".join(json.dumps(line(row)) + "\n" for row in range(1, 13))) and path)


def suspects(lab, *words):
    output = lab.folder / f"suspects-{len(list(lab.folder.glob('suspects-*')))}.csv"
    lab.succeeds("label-errors", judged(lab), "--output", output, *words)
    with open(output, newline="") as file:
        return list(csv.DictReader(file))


@LABEL_ERRORS.row("--predictions", "a run in folds, or lines with labels and probabilities")
def label_predictions(lab):
    command, lab.command = lab.command, "finetune"
    run = folded(lab)
    lab.command = command
    result = lab.succeeds("label-errors", run.folder).json()
    lab.assertEqual(result["rows"], len(FOLDED))
    lab.assertTrue((run.folder / "suspects.csv").exists())
    lab.assertEqual(lab.succeeds("label-errors", run.folder).json(), result)  # a run's own list is made again
    lab.refuses(["label-errors", lab.folder], "holds no predictions.jsonl")
    wrong = lab.folder / "wrong.jsonl"
    wrong.write_text('{"label": "pro", "probabilities": {"pro": 0.5, "contra": 0.5}}\n{"label": "new", "probabilities": {"pro": 0.5, "contra": 0.5}}\n')
    lab.refuses(["label-errors", wrong], "wrong.jsonl:2", "has no probability")
    for values in ((0.9, 0.9), (0, 0)):
        wrong.write_text(json.dumps({"label": "pro", "probabilities": dict(zip(CLASSES, values))}) + "\n")
        lab.refuses(["label-errors", wrong], "wrong.jsonl:1", "the probabilities sum to")
    wrong.write_text('{"label": "pro", "probabilities": {"pro": 0.5, "contra": 0.5}}\n')
    lab.refuses(["label-errors", wrong], "expected two rows or more")


@LABEL_ERRORS.row("--output", "the suspects are there, the most certain one first")
def label_output(lab):
    found = suspects(lab)
    lab.assertEqual([(row["row"], row["text"], row["label"], row["suggested"]) for row in found],
                    [("6", "text 6", "contra", "pro"), ("12", "text 12", "pro", "contra")])
    lab.assertAlmostEqual(float(found[0]["certainty"]), 0.95)
    lab.assertAlmostEqual(float(found[1]["suggested_probability"]), 0.8)
    lines = [json.loads(line) for line in judged(lab).read_text().splitlines()]
    del lines[5]["texts"]  # of the first suspect
    some = lab.folder / "some-texts.jsonl"
    some.write_text("".join(json.dumps(line) + "\n" for line in lines))
    lab.succeeds("label-errors", some, "--output", lab.folder / "some-texts.csv")
    with open(lab.folder / "some-texts.csv", newline="") as file:
        lab.assertEqual([(row["row"], row["text"]) for row in csv.DictReader(file)], [("6", ""), ("12", "text 12")])
    before = judged(lab).read_bytes()
    lab.refuses(["label-errors", judged(lab), "--output", judged(lab)], "is the file that is read")
    lab.assertEqual(judged(lab).read_bytes(), before)


@LABEL_ERRORS.row("--overwrite", "a file that is there is replaced; without it, it is left")
def label_overwrite(lab):
    path, beside = lab.folder / "mine.csv", lab.folder / "suspects.csv"
    for place, words in ((path, ["--output", path]), (beside, [])):
        place.write_text("mine")
        lab.refuses(["label-errors", judged(lab), *words], "--overwrite")
        lab.assertEqual(place.read_text(), "mine")
        lab.succeeds("label-errors", judged(lab), *words, "--overwrite")
        lab.assertIn("suggested", place.read_text())
    beside.unlink()


@LABEL_ERRORS.row("--filter", "suspects are chosen by that rule")
def label_filter(lab):
    """Each filter finds other rows among these (cleanlab's, which tests/golden/label_errors.py compares)."""
    source, rows = random.Random(6), []
    for _ in range(40):
        truth, label = source.randrange(3), source.randrange(3)
        label = truth if source.random() < 0.6 else label
        powers = [math.exp(source.gauss(0, 1) + 1.5 * (truth == one)) for one in range(3)]
        rows.append({"label": "xyz"[label], "probabilities": {name: power / sum(powers) for name, power in zip("xyz", powers)}})
    path = lab.folder / "filtered.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    expected = {"prune-by-noise-rate": [3, 4, 6, 7, 14, 20, 21, 30, 31, 32, 37], "prune-by-class": [3, 4, 7, 14, 20, 21, 30, 31, 32, 36, 39],
                "both": [3, 4, 7, 14, 20, 21, 30, 31, 32], "confident-learning": [3, 6, 7, 14, 20, 21, 30, 32, 37]}
    for name, numbers in expected.items():
        output = lab.folder / f"filtered-{name}.csv"
        lab.succeeds("label-errors", path, "--output", output, "--filter", name)
        with open(output, newline="") as file:
            lab.assertEqual(sorted(int(row["row"]) for row in csv.DictReader(file)), numbers, name)


@LABEL_ERRORS.row("--rank-by", "the certainty is by that")
def label_order(lab):
    found = suspects(lab, "--rank-by", "normalized-margin")
    lab.assertAlmostEqual(float(found[0]["certainty"]), (1 - 0.05 + 0.95) / 2)


@LABEL_ERRORS.row("--config", "a file's keys are options")
def label_config(lab):
    lab.assertEqual(suspects(lab, "--config", config_file(lab, 'rank_by = "normalized-margin"\n')), suspects(lab, "--rank-by", "normalized-margin"))


# ---- average


def averaged(lab, *words):
    output = lab.folder / f"average-{len(list(lab.folder.glob('average-*')))}"
    lab.succeeds("average", *words, "--output", output)
    return output


@AVERAGE.row("--models", "each weight is the mean of theirs")
def average_models(lab):
    a, b = classifier(lab), classifier(lab, "other", seed=5)
    first_weights, second = tensors(a / "model.safetensors"), tensors(b / "model.safetensors")
    found = tensors(averaged(lab, a, b) / "model.safetensors")
    for name, values in found.items():
        lab.assertLess(max(abs(x - (y + z) / 2) for x, y, z in zip(values, first_weights[name], second[name])), 1e-7, name)
    lab.assertEqual(found, tensors(averaged(lab, "--models", a, b) / "model.safetensors"))
    wide = classifier(lab, "wide", num_hidden_layers=1)
    lab.refuses(["average", a, wide, "--output", lab.folder / "no"], "have different sizes")
    renamed = lab.once("renamed", lambda path: lab.copy_model(a, path, id2label={"0": "pro", "1": "contra"}))
    lab.refuses(["average", a, renamed, "--output", lab.folder / "no"], "have different labels")
    lab.refuses(["average", a, "--output", lab.folder / "no"], "expected two models or more")
    several = lab.once("several", lambda path: lab.copy_model(a, path, problem_type="multi_label_classification"))
    lab.refuses(["average", a, several, "--output", lab.folder / "no"], "have different problem types")
    pairs = lab.once("pairs", lambda path: lab.copy_model(a, path, funicular={"task": "custom", "text_columns": 2}))
    lab.refuses(["average", a, pairs, "--output", lab.folder / "no"], "have different inputs")
    lab.assertFalse((lab.folder / "no").exists())
    twice = lab.succeeds("average", a, a, "--output", lab.folder / "twice")
    lab.assertIn("is given twice", twice.err)


def greedy(lab, *words):
    """What --greedy chose, and the scores of models and averages."""
    models = {name: classifier(lab, name, seed=seed) for name, seed in (("soup-a", 3), ("soup-b", 5), ("soup-c", 7))}
    rows = lab.labelled("soup", [f"{a} {b}" for a in ("film", "book", "old", "good") for b in ("fine", "dull", "song")])
    output = lab.folder / f"soup-{len(list(lab.folder.glob('soup-*')))}"
    found = lab.succeeds("average", *models.values(), "--greedy", rows, *words, "--output", output).json()

    def score(model, metric):
        return lab.succeeds("evaluate", "--model", model, "--task", "custom", "--input", rows, "--precision", "fp32").json()[metric]
    return models, output, found, score


@AVERAGE.row("--greedy", "a model is kept if the average with it scores as well as without it")
def average_greedily(lab):
    models, output, found, score = greedy(lab, "--metric", "loss")
    alone = {name: score(model, "loss") for name, model in models.items()}
    kept, best = [], None
    for name in sorted(alone, key=alone.get):
        tried = alone[name] if not kept else score(averaged(lab, *kept, models[name]), "loss")
        if best is None or tried <= best:
            kept.append(models[name])
            best = tried
    lab.assertEqual(found["average_of"], [str(model) for model in kept])
    lab.assertAlmostEqual(found["loss"], best, places=6)
    lab.assertAlmostEqual(score(output, "loss"), best, places=6)


@AVERAGE.row("--metric", "it is the score")
def average_metric(lab):
    _, output, found, score = greedy(lab)
    lab.assertAlmostEqual(found["accuracy"], score(output, "accuracy"), places=6)
    models = [classifier(lab), classifier(lab, "other", seed=5)]
    lab.refuses(["average", *models, "--metric", "loss", "--output", lab.folder / "no"], "--metric works only with --greedy")
    lab.refuses(["average", *models, "--greedy", lab.labelled("soup", ["film", "book"]), "--metric", "f2", "--output", lab.folder / "no"],
                "--metric f2: the evaluation of", "accuracy, loss")
    # The output is refused before any model is measured.
    lab.refuses(["average", *models, "--greedy", lab.labelled("soup", ["film", "book"]), "--metric", "f2", "--output", output],
                "exists already")


def with_modules(lab, name, model, pooling, position):
    """A model with a sentence folder's files, weights in another form, and a tensor of whole numbers."""
    def make(path):
        lab.copy_model(model, path)
        modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
        (path / "modules.json").write_text(json.dumps([
            {"idx": number, "name": str(number), "path": place, "type": f"sentence_transformers.models.{kind}"} for number, (place, kind) in enumerate(modules)]))
        (path / "1_Pooling").mkdir()
        (path / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": HIDDEN, f"pooling_mode_{pooling}": True}))
        (path / "pytorch_model.bin").write_text("other weights")
        raw = (path / "model.safetensors").read_bytes()
        length = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:8 + length])
        end = max(entry["data_offsets"][1] for entry in header.values())
        header["embeddings.position_ids"] = {"dtype": "I64", "shape": [1], "data_offsets": [end, end + 8]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        (path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length:] + position.to_bytes(8, "little"))
        return path
    return lab.once(name, make)


def average_files(lab):
    """Files that belong to the average are copied, and models with other modules are refused."""
    a, b = classifier(lab), classifier(lab, "other", seed=5)
    first_model, second = with_modules(lab, "modules-a", a, "mean_tokens", 0), with_modules(lab, "modules-b", b, "mean_tokens", 0)
    output = averaged(lab, first_model, second)
    lab.assertEqual(json.loads((output / "1_Pooling" / "config.json").read_text())["pooling_mode_mean_tokens"], True)
    lab.assertFalse((output / "pytorch_model.bin").exists())
    lab.assertEqual(read_safetensors(output / "model.safetensors")["embeddings.position_ids"], ([1], bytes(8)))
    lab.refuses(["average", first_model, with_modules(lab, "modules-c", b, "cls_token", 0), "--output", lab.folder / "no"], "have different poolings or modules")
    lab.refuses(["average", first_model, with_modules(lab, "modules-d", b, "mean_tokens", 1), "--output", lab.folder / "no"],
                "embeddings.position_ids has the type I64 and differs")


@AVERAGE.row("--output", "the average is a model that answers")
def average_output(lab):
    a, b = classifier(lab), classifier(lab, "other", seed=5)
    output = averaged(lab, a, b)
    lab.assertIn("label", lab.succeeds("predict", "--model", output, stdin="film\n").json())
    lab.refuses(["average", a, b, "--output", output], "exists already; expected a folder that is new or empty")
    lab.assertEqual(list(lab.folder.glob(".tmp-average-*")), [])
    average_files(lab)


@AVERAGE.row("--config", "a file's keys are options")
def average_config(lab):
    output = lab.folder / "by-config"
    lab.succeeds("average", classifier(lab), classifier(lab, "other", seed=5), "--config", config_file(lab, f'output = "{output}"\n'))
    lab.assertTrue((output / "model.safetensors").exists())
