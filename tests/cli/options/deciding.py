"""What the options do that decide about answers: calibration, abstention, thresholds, and what stands beside an answer."""

import shutil

from harness import json

from .answering import EVALUATE, PREDICT, classifier, evaluate, many_columns, number_model, predict, several_labels, softmax
from .lab import *


def skewed(lab):
    """A copy of a model that says 0.95 of each row; and rows of which it is right about 8 in 10."""
    data = many_columns(lab, "eight-of-ten.tsv", [("text", "label"), *[("film", "pro")] * 8, *[("book", "contra")] * 2])
    model = lab.folder / f"skewed-{lab.command}"
    if not model.exists():
        shutil.copytree(classifier(lab, "bias", bias=[0, 3]), model)
    return model, data


def calibrated(lab):
    model, data = skewed(lab)
    return model, lab.succeeds("evaluate", "--model", model, "--task", "custom", "--data", data, "--calibrate").json()["reliability"]


@EVALUATE.row("--calibrate", "the probability becomes the share of right answers, and stays so")
def evaluated_calibration(lab):
    weights = (skewed(lab)[0] / "model.safetensors").read_bytes()
    model, found = calibrated(lab)
    lab.assertAlmostEqual(found["temperature"], 3 / math.log(4), places=5)
    lab.assertAlmostEqual(found["before"]["ece"], softmax([0, 3])[1] - 0.8, places=6)
    lab.assertAlmostEqual(found["ece"], 0, places=6)
    lab.assertEqual(found["coverage"], [{"threshold": found["coverage"][0]["threshold"], "coverage": 1, "accuracy": 0.8}])
    lab.assertEqual((model / "model.safetensors").read_bytes(), weights, "the weights stay")
    for _, words in (("again", ["--calibrate"]), ("later", ["--details"])):
        again = lab.succeeds("evaluate", "--model", model, "--task", "custom", "--data", skewed(lab)[1], *words).json()
        lab.assertAlmostEqual(again["reliability"]["temperature"], found["temperature"], places=5)
    lab.assertAlmostEqual(predict(lab, "film\n", model=model)[0]["score"], 0.8, places=5)
    lab.assertNotIn("reliability", evaluate(lab))
    linked = lab.folder / "linked"
    if not linked.exists():
        shutil.copytree(model, linked)
        (linked / "config.json").rename(linked / "blob.json")
        (linked / "config.json").symlink_to("blob.json")
    before = (linked / "blob.json").read_bytes()
    lab.refuses(["evaluate", "--model", linked, "--task", "custom", "--input", skewed(lab)[1], "--calibrate"], "is a link into a cache")
    lab.assertEqual((linked / "blob.json").read_bytes(), before)
    numbers = many_columns(lab, "numbers.tsv", [("text", "label"), ("film", "1.5"), ("book", "-0.5")])
    lab.refuses(["evaluate", "--model", number_model(lab), "--task", "custom", "--regression", "--data", numbers, "--calibrate"], "--calibrate works only with")


@PREDICT.row("--keep", "columns of the table stand before each answer")
def answered_keep(lab):
    rows = many_columns(lab, "keep.tsv", [("id", "text", "label"), ("7", "film", "pro"), ('a "b"', "book", "contra")])
    plain = predict(lab, "", "--input", rows)
    lab.assertEqual(predict(lab, "", "--input", rows, "--keep", "id", "label"),
                    [{"id": "7", "input_label": "pro", **plain[0]}, {"id": 'a "b"', "input_label": "contra", **plain[1]}])
    path = lab.folder / "kept.csv"
    lab.succeeds("predict", "--model", classifier(lab), "--input", rows, "--keep", "id", "--output", path)
    lines = path.read_text().splitlines()
    lab.assertEqual((lines[0], lines[1][:2], lines[2][:10]), ("id,label,score,probabilities_contra,probabilities_pro", "7,", '"a ""b""",'))
    bare = many_columns(lab, "bare.tsv", [("7", "film")])
    lab.assertEqual(list(predict(lab, "", "--input", bare, "--no-header", "--text-column", 2, "--keep", 1)[0])[:2], ["1", "label"])
    repeated = predict(lab, "", "--input", rows, "--keep", "text", "1")
    lab.assertEqual([(answer["text"], answer["1"]) for answer in repeated], [("film", "7"), ("book", 'a "b"')])
    ids = [7, True, None, [1, {"a": 2}], "7"]
    objects = lab.once("kept.jsonl", lambda path: path.write_text("".join(
        json.dumps({"text": "film", "id": value}) + "\n" for value in ids) + '{"text": "film"}\n') and path)
    lab.assertEqual([json.dumps(answer["id"]) for answer in predict(lab, "", "--input", objects, "--keep", "id")],
                    [json.dumps(value) for value in [*ids, None]])
    words = ["predict", "--model", classifier(lab), "--input", rows]
    lab.refuses([*words, "--keep", "number"], "number")
    lab.refuses([*words, "--keep", "label", "input_label"], '--keep input_label: two columns would have the key "input_label"')
    lab.refuses([*words, "--format", "lines", "--keep", "id"], "--keep is for tables")


@PREDICT.row("--text", "the text or pair on the command line is answered")
def answered_text(lab):
    lab.assertEqual(predict(lab, "", "--text", "film good"), predict(lab, "film good\n"))
    lab.refuses(["predict", "--model", classifier(lab), "--text", "film", "book"], "found 2")
    lab.refuses(["predict", "--model", classifier(lab), "--text", "film", "--format", "tsv"], "--text is one row")


@PREDICT.row("--output-format", "answers have this form, whatever the file is called")
def answered_form(lab):
    words = ["predict", "--model", classifier(lab), "--text", "film"]
    found = lab.succeeds(*words, "--output-format", "tsv").out.splitlines()
    lab.assertEqual((len(found), found[0].split("\t")[:2]), (2, ["label", "score"]))
    lab.assertEqual(len(json.loads(lab.succeeds(*words, "--output-format", "json").out)), 1)
    lab.assertEqual(lab.succeeds(*words, "--output-format", "jsonl").out, lab.succeeds(*words).out)


@PREDICT.row("--abstain", "a row that is less sure gets no label")
def answered_abstain(lab):
    model = classifier(lab, "bias", bias=[0, 3])
    sure = predict(lab, "film\n", model=model)
    lab.assertEqual(predict(lab, "film\n", "--abstain", 0.95, model=model), sure)
    lab.assertEqual(predict(lab, "film\n", "--abstain", 0.96, model=model), [{**sure[0], "label": None}])
    lab.refuses(["predict", "--model", number_model(lab), "--abstain", 0.5], "one class per text")


@PREDICT.row("--abstain-accuracy", "rows get a label from the probability on that reached this accuracy")
def answered_abstain_accuracy(lab):
    model, _ = calibrated(lab)
    words = ["predict", "--model", model, "--abstain-accuracy"]
    lab.assertEqual(predict(lab, "film\n", "--abstain-accuracy", 0.8, model=model)[0]["label"], "pro")
    lab.refuses([*words, 0.9], "the surest answers of the calibration reached 0.8")
    lab.refuses([*words, 0.8, "--abstain", 0.5], "give one")
    lab.refuses([*words, 0.8, "--cascade", model, "--exit-threshold", 0.5], "was measured on the whole model")
    lab.refuses(["predict", "--model", classifier(lab), "--abstain-accuracy", 0.5], "has not been calibrated")


@PREDICT.row("--threshold", "a label is given from this probability on")
def answered_threshold(lab):
    model = several_labels(lab)
    for threshold, labels in ((0.96, []), (0.9, ["pro"]), (0.01, ["contra", "pro"])):
        lab.assertEqual(predict(lab, "film\n", "--threshold", threshold, model=model)[0]["labels"], labels)
    lab.refuses(["predict", "--model", classifier(lab), "--threshold", 0.5], "--threshold works only with several labels")
