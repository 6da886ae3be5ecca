"""What the options of evaluate and predict do."""

import os
import pty
import select
import shutil

from harness import HIDDEN, PROGRAM, VOCABULARY, array, encoder_shapes, environment, exact, json, random_weights, read_safetensors, subprocess, write_model, write_rows, write_safetensors

from .lab import *
from .tokenizing import TABLE, tabs

EVALUATE, PREDICT = Table(), Table()
MEGABYTE = 1 << 20

for table in (EVALUATE, PREDICT):
    table.row("--help", "the options are listed")(shows_help)


def shows_device(lab, words):
    """words: of a command that prints the same each time."""
    lab.assertEqual(lab.succeeds(*words, "--device", "cpu").out, lab.succeeds(*words).out)
    if not lab.has_gpu():
        lab.refuses([*words, "--device", "cuda"], "--device cuda")


# ---- models that answer


def classifier(lab, name="classifier", seed=1, bias=None, **changes):
    """With random weights; with a bias one that answers it, whatever the text."""
    shapes = {**encoder_shapes(), "classifier.weight": [2, HIDDEN], "classifier.bias": [2]}

    def make(path):
        write_model(path, extra_shapes=shapes, id2label={"0": "contra", "1": "pro"}, label2id={"contra": 0, "pro": 1}, **changes)
        weights = random_weights(shapes, seed)
        if bias:
            weights["classifier.weight"] = ([2, HIDDEN], array.array("f", [0] * 2 * HIDDEN))
            weights["classifier.bias"] = ([2], array.array("f", bias))
        write_safetensors(path / "model.safetensors", weights)
        return path
    return lab.once(name, make)


def softmax(values):
    powers = [math.exp(value) for value in values]
    return [power / sum(powers) for power in powers]


def evaluate(lab, *words, model=None, task="custom", data=None):
    data = data or lab.labelled("rows", lab.texts())
    words = ["evaluate", "--model", model or classifier(lab), "--task", task, "--data", data, *words]
    return lab.once(" ".join(map(str, words)), lambda _: lab.succeeds(*words).json())


def masked(lab):
    """A model with a head for hidden words, and a store."""
    shapes = {**encoder_shapes(), "cls.predictions.bias": [len(VOCABULARY)], "cls.predictions.transform.dense.weight": [HIDDEN, HIDDEN],
              "cls.predictions.transform.dense.bias": [HIDDEN], "cls.predictions.transform.LayerNorm.weight": [HIDDEN],
              "cls.predictions.transform.LayerNorm.bias": [HIDDEN]}
    return {"model": lab.once("masked", lambda path: write_model(path, extra_shapes=shapes)), "task": "mlm",
            "data": lab.tokenized("rows", lab.texts())}


def answers_of_processor(lab, isa, command, *words, stdin=""):
    """What a command prints, and what it says, where the processor has no more than that instruction set."""
    limited = {**environment(), **({"FUNICULAR_ISA": isa} if isa else {})}
    result = lab.run_with(limited, command, "--model", classifier(lab), *words, stdin=stdin)
    return result.out, result.err


# ---- evaluate


@EVALUATE.row("--model", "it is what is measured")
def evaluated_model(lab):
    for number, bias in enumerate(([0, 3], [2, 0.5])):  # of 12 rows 4 are "pro"
        found = evaluate(lab, model=classifier(lab, f"bias-{number}", bias=bias))
        share = softmax(bias)
        lab.assertAlmostEqual(found["loss"], -(8 * math.log(share[0]) + 4 * math.log(share[1])) / 12, places=6)
        lab.assertAlmostEqual(found["accuracy"], (4 if bias[1] > bias[0] else 8) / 12, places=6)


@EVALUATE.row("--task", "columns and metrics are the task's")
def evaluated_task(lab):
    cola = lab.once("cola.tsv", lambda path: write_rows(path, None, [("x", "1", "*", "film"), ("x", "0", "*", "book"), ("x", "0", "*", "old")]))
    model = classifier(lab, "bias", bias=[0, 3])
    found = evaluate(lab, model=model, task="cola", data=cola)
    lab.assertEqual((set(found), found["samples"]), ({"matthews_correlation", "accuracy", "loss", "samples", "baseline"}, 3))
    lab.assertEqual(found["baseline"], {"answer": "always \"unacceptable\"", "accuracy": 2 / 3})
    lab.assertAlmostEqual(found["accuracy"], 1 / 3, places=6)
    lab.assertEqual(set(evaluate(lab, model=model)), {"accuracy", "macro_f1", "loss", "samples", "baseline"})
    # transformers' run_glue.py finds the task's classes by their names in small letters, too.
    sst2 = lab.once("sst2.tsv", lambda path: write_rows(path, ("sentence", "label"), [("film", "1"), ("book", "0"), ("old", "0")]))
    for names in (("POSITIVE", "NEGATIVE"), ("NEGATIVE", "POSITIVE")):
        capitals = lab.once("-".join(names), lambda path: lab.copy_model(model, path, id2label=dict(zip("01", names)),
                                                                        label2id={name: number for number, name in enumerate(names)}))
        lab.assertAlmostEqual(evaluate(lab, model=capitals, task="sst2", data=sst2)["accuracy"], (1 + (names[1] == "NEGATIVE")) / 3, places=6)
    # MRPC's F1 is of "equivalent", wherever the model has it; here the answer is always the second class.
    mrpc = lab.once("mrpc.tsv", lambda path: write_rows(path, ("Quality", "#1 String", "#2 String"), [("1", "a", "b"), ("1", "b", "a"), ("0", "a", "c")]))
    for names, f1 in ((("not_equivalent", "equivalent"), 0.8), (("equivalent", "not_equivalent"), 0)):
        pairs = lab.once("-".join(names), lambda path: lab.copy_model(model, path, id2label=dict(zip("01", names)),
                                                                      label2id={name: number for number, name in enumerate(names)}))
        lab.assertAlmostEqual(evaluate(lab, model=pairs, task="mrpc", data=mrpc)["f1"], f1, places=6)
    lab.assertEqual(set(evaluate(lab, **masked(lab))), {"perplexity", "loss", "samples"})


@EVALUATE.row("--input", "its rows are what it is measured on")
def evaluated_data(lab):
    model, share = classifier(lab, "bias", bias=[0, 3]), softmax([0, 3])
    for name, labels in (("a.tsv", ["pro"]), ("b.tsv", ["pro", "contra", "contra"])):
        data = lab.once(name, lambda path: write_rows(path, ("label", "text"), [(label, "film") for label in labels]))
        found = evaluate(lab, model=model, data=data)
        loss = -sum(math.log(share[label == "pro"]) for label in labels) / len(labels)
        lab.assertEqual(found["samples"], len(labels))
        lab.assertAlmostEqual(found["loss"], loss, places=6)


@EVALUATE.row("--skip-bad-rows", "rows that cannot be read are left out and counted; without it, the command stops there")
def evaluated_bad_rows(lab):
    data = many_columns(lab, "ragged.tsv", [("label", "text"), ("pro", "film"), ("contra",), ("contra", "book")])
    whole = evaluate(lab, data=many_columns(lab, "whole.tsv", [("label", "text"), ("pro", "film"), ("contra", "book")]))
    lab.assertEqual(evaluate(lab, "--skip-bad-rows", data=data), {**whole, "left_out": 1})
    lab.refuses(["evaluate", "--model", classifier(lab), "--task", "custom", "--data", data], "ragged.tsv:3")


@EVALUATE.row("--max-length", "what is longer is cut off")
def evaluated_length(lab):
    short = lab.labelled("short", [" ".join(text.split()[:4]) for text in lab.texts()])
    cut = dict(evaluate(lab, "--max-length", 4 + SPECIAL))
    lab.assertEqual(cut.pop("cut")["tokens"], sum(max(0, length - 4) for length in LENGTHS))
    lab.assertEqual(cut, evaluate(lab, data=short))
    lab.assertNotEqual(evaluate(lab)["loss"], evaluate(lab, data=short)["loss"])
    pieces = sum(math.ceil(length / 4) for length in LENGTHS)
    lab.assertEqual(evaluate(lab, "--max-length", 4 + SPECIAL, **masked(lab))["samples"], pieces)


def many_columns(lab, name, rows):
    return lab.once(name, lambda path: path.write_text(tabs(rows)) and path)


def plain_columns(lab, column):
    """A file with the texts of that column of TABLE alone."""
    rows = [(row[1], row[column]) for row in TABLE[1:]]
    return lab.once(f"column-{column}.tsv", lambda path: write_rows(path, ("label", "text"), rows))


@EVALUATE.row("--text-column", "the texts are those of that column, or of two")
def evaluated_text(lab):
    data, losses = many_columns(lab, "columns.tsv", TABLE), []
    for number, name in ((0, "one"), (2, "3")):
        found = evaluate(lab, "--text-column", name, "--label-column", "two", data=data)
        lab.assertEqual(found, evaluate(lab, data=plain_columns(lab, number)))
        losses.append(found["loss"])
    losses.append(evaluate(lab, "--text-column", "one", "three", "--label-column", "two", data=data)["loss"])
    lab.assertEqual(len(set(losses)), 3)


@EVALUATE.row("--label-column", "the labels are those of that column")
def evaluated_label(lab):
    rows = [("text", "a", "b"), ("film", "pro", "contra"), ("book", "pro", "contra")]
    data, model, share = many_columns(lab, "labels.tsv", rows), classifier(lab, "bias", bias=[0, 3]), softmax([0, 3])
    for column, label in (("a", 1), ("b", 0)):
        lab.assertAlmostEqual(evaluate(lab, "--label-column", column, model=model, data=data)["loss"], -math.log(share[label]), places=6)


def several_labels(lab):
    """A model of two labels whose probabilities are 0.05 and 0.95 whatever the text."""
    def make(path):
        model = classifier(lab, "several", bias=[-3, 3])
        shutil.copytree(model, path)
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**config, "problem_type": "multi_label_classification"}))
        return path
    return lab.once("several-labels", make)


@EVALUATE.row("--multi-label", "a row has any number of labels")
def evaluated_multi_label(lab):
    data = many_columns(lab, "several.tsv", [("text", "label"), ("film", "contra,pro"), ("book", "pro"), ("song", "")])
    found = evaluate(lab, "--multi-label", model=several_labels(lab), data=data)
    no, yes = math.log1p(math.exp(-3)), math.log1p(math.exp(3))  # of a decision that is right; of one that is wrong
    lab.assertAlmostEqual(found["loss"], (4 * no + 2 * yes) / 6, places=6)
    lab.assertAlmostEqual(found["accuracy"], 1 / 3, places=9)
    lab.refuses(["evaluate", "--model", several_labels(lab), "--task", "custom", "--data", data], "--multi-label")


def number_model(lab):
    """Of regression: its answer is 0.5 whatever the text."""
    def make(path):
        shapes = {**encoder_shapes(), "classifier.weight": [1, HIDDEN], "classifier.bias": [1]}
        write_model(path, extra_shapes=shapes, problem_type="regression", id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0})
        weights = random_weights(shapes)
        weights["classifier.weight"], weights["classifier.bias"] = ([1, HIDDEN], array.array("f", [0] * HIDDEN)), ([1], array.array("f", [0.5]))
        write_safetensors(path / "model.safetensors", weights)
        return path
    return lab.once("number", make)


@EVALUATE.row("--regression", "the labels are numbers")
def evaluated_regression(lab):
    data = many_columns(lab, "numbers.tsv", [("text", "label"), ("film", "1.5"), ("book", "-0.5"), ("song", "0.75")])
    found = evaluate(lab, "--regression", model=number_model(lab), data=data)
    lab.assertAlmostEqual(found["loss"], (1 + 1 + 0.0625) / 3, places=6)
    lab.assertAlmostEqual(found["mean_absolute_error"], (1 + 1 + 0.25) / 3, places=6)
    lab.refuses(["evaluate", "--model", number_model(lab), "--task", "custom", "--data", data], "--regression")


@EVALUATE.row("--details", "the scores of each class and the confusion matrix are there, too")
def evaluated_details(lab):
    found = evaluate(lab, "--details", model=classifier(lab, "bias", bias=[0, 3]))  # of 12 rows 4 are "pro", and all are answered so
    lab.assertEqual(found["confusion_matrix"], [[0, 8], [0, 4]])
    lab.assertEqual(found["classes"]["contra"], {"precision": 0, "recall": 0, "f1": 0, "support": 8})
    lab.assertEqual({name: round(value, 9) for name, value in found["classes"]["pro"].items()},
                    {"precision": round(1 / 3, 9), "recall": 1, "f1": 0.5, "support": 4})


@EVALUATE.row("--json", "one object where a program reads, a table with the best constant answer where a person does")
def evaluated_json(lab):
    data = many_columns(lab, "three-answers.tsv", [("text", "label"), ("film", "pro"), ("book", "contra"), ("old", "contra")])
    words = ["evaluate", "--model", classifier(lab, "bias", bias=[0, 3]), "--task", "custom", "--data", data]
    lab.assertEqual(lab.succeeds(*words, "--json").out, lab.succeeds(*words).out)
    table = lab.succeeds(*words, "--json", "false", "--details").out
    lab.assertRegex(table, r'metric +model  always "contra"\n')
    lab.assertRegex(table, r"\naccuracy +0\.3333 +0\.6667\n")
    lab.assertRegex(table, r"\nsamples +3\n")
    lab.assertRegex(table, r"\n\nclass +precision +recall +f1 +support\ncontra +0\.0000 +0\.0000 +0\.0000 +2\npro +0\.3333 +1\.0000 +0\.5000 +1\n")
    lab.assertIn("--json also shows: confusion_matrix", table)
    ours, terminal = pty.openpty()
    subprocess.run([PROGRAM, *exact(words)], stdout=terminal, stderr=subprocess.DEVNULL, env=environment(), timeout=300, check=True)
    os.close(terminal)
    lab.assertRegex(os.read(ours, 4096).decode(), r"accuracy +0\.3333 +0\.6667")
    os.close(ours)


@EVALUATE.row("--predictions", "each row's answer lies there")
def evaluated_predictions(lab):
    path = lab.folder / "answers.jsonl"
    data = many_columns(lab, "two-answers.tsv", [("text", "label"), ("film", "pro"), ("book", "contra")])
    lab.succeeds("evaluate", "--model", classifier(lab, "bias", bias=[0, 3]), "--task", "custom", "--data", data, "--predictions", path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lab.assertEqual([(line["row"], line["label"], line["predicted"]) for line in lines], [(1, "pro", "pro"), (2, "contra", "pro")])
    for line in lines:
        lab.assertAlmostEqual(line["score"], softmax([0, 3])[1], places=6)
        lab.assertEqual(line["score"], line["probabilities"]["pro"])


@EVALUATE.row("--overwrite", "a file of --predictions that is there is replaced; without it, it is left")
def evaluated_overwrite(lab):
    path = lab.folder / "mine.jsonl"
    path.write_text("mine")
    data = many_columns(lab, "two-answers.tsv", [("text", "label"), ("film", "pro"), ("book", "contra")])
    words = ["evaluate", "--model", classifier(lab, "bias", bias=[0, 3]), "--task", "custom", "--data", data, "--predictions", path]
    lab.refuses(words, "--predictions", "--overwrite")
    lab.assertEqual(path.read_text(), "mine")
    lab.succeeds(*words, "--overwrite")
    lab.assertIn("predicted", path.read_text())


@EVALUATE.row("--output", "a folder with all that a report shows: the measures, size, speed, each answer, and mistakes with their texts")
def evaluated_folder(lab):
    folder = lab.folder / "evaluations" / "one"
    data = many_columns(lab, "two-answers.tsv", [("text", "label"), ("film", "pro"), ("book", "contra")])
    words = ["evaluate", "--model", classifier(lab, "bias", bias=[0, 3]), "--task", "custom", "--data", data]
    printed = lab.succeeds(*words, "--output", folder, "--details").json()
    found = json.loads((folder / "evaluation.json").read_text())
    lab.assertEqual(found["metrics"], {name: value for name, value in printed.items() if isinstance(value, float)})
    lab.assertEqual((found["samples"], found["classes"], found["confusion_matrix"]), (2, printed["classes"], [[0, 1], [0, 1]]))
    lab.assertEqual([(wrong["row"], wrong["label"], wrong["predicted"], wrong["texts"]) for wrong in found["mistakes"]],
                    [(2, "contra", "pro", ["book"])])
    weights = lab.folder / "bias" / "model.safetensors"
    lab.assertEqual(found["bytes"], weights.stat().st_size)
    lab.assertEqual(found["parameters"], sum(len(raw) // 4 for _, raw in read_safetensors(weights).values()))
    lab.assertAlmostEqual(found["rows_per_second"] * found["seconds"], 2)
    lab.succeeds(*words, "--predictions", lab.folder / "alone.jsonl")
    lab.assertEqual((folder / "predictions.jsonl").read_bytes(), (lab.folder / "alone.jsonl").read_bytes())


@EVALUATE.row("--label-separator", "what stands between the labels of a row")
def evaluated_separator(lab):
    rows = [("text", "label"), ("film", "contra;pro"), ("book", "pro")]
    data = many_columns(lab, "separated.tsv", rows)
    words = ["--multi-label", "--label-separator", ";"]
    same = many_columns(lab, "by-commas.tsv", [(text, labels.replace(";", ",")) for text, labels in rows])
    lab.assertEqual(evaluate(lab, *words, model=several_labels(lab), data=data),
                    evaluate(lab, "--multi-label", model=several_labels(lab), data=same))
    lab.refuses(["evaluate", "--model", several_labels(lab), "--task", "custom", "--multi-label", "--data", data], "separated.tsv:2", "contra;pro")


def long_context(lab):
    """A question about a context of 30 words."""
    question = {"id": "1", "question": "film", "answers": [{"text": "book", "answer_start": 4}]}
    data = {"data": [{"paragraphs": [{"context": "the " + "book " * 28 + "old", "qas": [question]}]}]}
    return lab.once("long.json", lambda path: path.write_text(json.dumps(data)) and path)


def span_reader(lab):
    shapes = {**encoder_shapes(), "qa_outputs.weight": [2, HIDDEN], "qa_outputs.bias": [2]}
    return lab.once("spans", lambda path: write_model(path, extra_shapes=shapes, architectures=["BertForQuestionAnswering"]))


@EVALUATE.row("--stride", "two windows of a context share so many tokens")
def evaluated_stride(lab):
    model = span_reader(lab)
    for stride, windows in ((2, 3), (5, 4)):  # a window has 16 - 3 - 1 tokens
        found = evaluate(lab, "--stride", stride, "--max-length", 16, model=model, task="spans", data=long_context(lab))
        lab.assertEqual((found["samples"], found["windows"]), (1, windows))
    rows = lab.labelled("long", ["film " * 13, "book"])  # a window has 8 - 2 tokens
    for words, windows in ((["--stride", 2], 4), (["--stride", 0], 4), (["--stride", 5], 9)):
        found = evaluate(lab, "--max-length", 8, *words, data=rows)
        lab.assertEqual((found["samples"], found["windows"]), (2, windows))


@EVALUATE.row("--format", "the file is read as that, whatever its name")
def evaluated_format(lab):
    expected = evaluate(lab, data=plain_columns(lab, 0))
    lines = "".join(json.dumps({"label": row[1], "text": row[0]}) + "\n" for row in TABLE[1:])
    commas = "label,text\n" + "".join(f"{row[1]},{row[0]}\n" for row in TABLE[1:])
    for name, text in (("jsonl", lines), ("csv", commas)):
        data = lab.once(f"as-{name}.tsv", lambda path: path.write_text(text) and path)
        lab.assertEqual(evaluate(lab, "--format", name, data=data), expected)


@EVALUATE.row("--header", "the first row names the columns; without it, it is data")
def evaluated_header(lab):
    data = many_columns(lab, "rows-only.tsv", [(row[1], row[0]) for row in TABLE[1:]])
    words = ["--text-column", 2, "--label-column", 1]
    lab.assertEqual(evaluate(lab, "--no-header", *words, data=data), evaluate(lab, data=plain_columns(lab, 0)))
    lab.assertEqual(evaluate(lab, "--header", *words, data=data)["samples"], 1)


def evaluated_peak(lab, *words):
    data = lab.labelled("much", lab.texts([40] * 400))
    return lab.peak(["evaluate", "--model", classifier(lab), "--task", "custom", "--data", data, *words])


@EVALUATE.row("--eval-batch-size", "so many sequences go into a pass, which takes memory for each")
def evaluated_batch(lab):
    few, many = (evaluated_peak(lab, "--eval-batch-size", size, "--micro-batch-tokens", 0) for size in (4, 400))
    lab.assert_larger(many, few + 8 * MEGABYTE)
    lab.assertAlmostEqual(evaluate(lab, "--eval-batch-size", 1)["loss"], evaluate(lab)["loss"], places=6)


@EVALUATE.row("--micro-batch-tokens", "a pass has no more tokens than that, which bounds its memory")
def evaluated_tokens(lab):
    few, many = (evaluated_peak(lab, "--eval-batch-size", 400, "--micro-batch-tokens", tokens) for tokens in (200, 0))
    lab.assert_larger(many, few + 8 * MEGABYTE)
    lab.assertAlmostEqual(evaluate(lab, "--micro-batch-tokens", 1)["loss"], evaluate(lab)["loss"], places=6)


@EVALUATE.row("--precision", "the arithmetic has as many digits")
def evaluated_precision(lab):
    losses = {name: evaluate(lab, "--precision", name)["loss"] for name in ("fp64", "fp32", "fp16", "bf16", "int8")}
    error = {name: abs(loss / losses["fp64"] - 1) for name, loss in losses.items()}
    lab.assertEqual(len(set(losses.values())), 5, losses)
    lab.assertLess(error["fp32"], 1e-6)
    for name, bound in (("fp16", 1e-3), ("bf16", 1e-2), ("int8", 3e-2)):
        lab.assertTrue(error["fp32"] < error[name] < bound, error)
    lab.refuses(["evaluate", "--model", classifier(lab), "--task", "custom", "--data", lab.labelled("rows", lab.texts()), "--precision", "tf32"],
                "--precision tf32 is for NVIDIA GPUs", "or --precision fp32")
    exact = evaluate(lab, "--precision", "fp64", model=classifier(lab, "thirds", bias=[1 / 3, 2 / 3]))["loss"]
    share = softmax(array.array("f", [1 / 3, 2 / 3]))
    lab.assertAlmostEqual(exact, -(8 * math.log(share[0]) + 4 * math.log(share[1])) / 12, places=14)


@EVALUATE.row("--seed", "the masks of --task mlm follow from it")
def evaluated_seed(lab):
    losses = [evaluate(lab, "--seed", seed, **masked(lab))["loss"] for seed in (42, 7)]
    losses.append(evaluate(lab, "--seed", 7, "--threads", 1, **masked(lab))["loss"])  # other words are a run of its own
    lab.assertEqual((losses[0], losses[1]), (evaluate(lab, **masked(lab))["loss"], losses[2]))
    lab.assertNotEqual(losses[0], losses[1])


@EVALUATE.row("--device", "cpu computes here; cuda is refused where there is none")
def evaluated_device(lab):
    shows_device(lab, ["evaluate", "--model", classifier(lab), "--task", "custom", "--data", lab.labelled("rows", lab.texts())])


@EVALUATE.row("--share-device", "refused on the CPU, which ranks share anyway")
def evaluated_shared_device(lab):
    lab.refuses(["evaluate", "--model", classifier(lab), "--task", "custom", "--data", lab.labelled("rows", lab.texts()), "--share-device"], "--share-device is for GPUs")


@EVALUATE.row("--threads", "more threads are there")
def evaluated_threads(lab):
    data = lab.labelled("much", lab.texts([40] * 400))
    words = ["evaluate", "--model", classifier(lab), "--task", "custom", "--data", data, "--threads"]
    of_one = lab.most_threads([*words, 1], 0)
    lab.assertGreaterEqual(lab.most_threads([*words, 4], of_one + 3), of_one + 3)


@EVALUATE.row("--config", "a file's keys are options")
def evaluated_config(lab):
    path = config_file(lab, f"max-length = {4 + SPECIAL}\n")
    lab.assertEqual(evaluate(lab, "--config", path), evaluate(lab, "--max-length", 4 + SPECIAL))


# ---- predict


def predict(lab, text, *words, model=None):
    out = lab.succeeds("predict", "--model", model or classifier(lab), *words, stdin=text).out
    return [json.loads(line) for line in out.splitlines()]


@PREDICT.row("--stride", "a longer text is read in windows that share so many tokens, and its probabilities are their mean")
def answered_stride(lab):
    first, second = "film good " * 3, "book old " * 3
    probabilities = [answer["probabilities"]["pro"] for answer in predict(lab, f"{first}\n{second}\n", "--max-length", 8)]
    for words, expected in ((["--stride", 0], sum(probabilities) / 2), ([], probabilities[0])):
        answer, = predict(lab, first + second + "\n", "--max-length", 8, *words)
        lab.assertAlmostEqual(answer["probabilities"]["pro"], expected, places=5)
    lab.assertNotEqual(predict(lab, first + second + "\n", "--max-length", 8, "--stride", 3), predict(lab, first + second + "\n", "--max-length", 8, "--stride", 0))
    lab.refuses(["predict", "--model", classifier(lab), "--max-length", 8, "--stride", 6], "expected a stride from 0 to 5")


@PREDICT.row("--aggregation", "entities have characters, by transformers' strategies; the golden test of entities compares them")
def answered_aggregation(lab):
    shapes = {**encoder_shapes(), "classifier.weight": [3, HIDDEN], "classifier.bias": [3]}
    names = {"0": "B-ART", "1": "I-ART", "2": "O"}

    def make(path):
        write_model(path, extra_shapes=shapes, architectures=["BertForTokenClassification"], id2label=names, label2id={name: int(tag) for tag, name in names.items()})
        weights = random_weights(shapes)
        weights["classifier.weight"], weights["classifier.bias"] = ([3, HIDDEN], array.array("f", [0] * 3 * HIDDEN)), ([3], array.array("f", [0, 2, 0]))
        write_safetensors(path / "model.safetensors", weights)
        return path
    model = lab.once("tagger", make)
    score = round(softmax([0, 2, 0])[1], 4)
    short = lambda answer: [(entity.get("entity_group", entity.get("entity")), round(entity["score"], 4), entity["start"], entity["end"], entity["word"])
                            for entity in answer["entities"]]
    for name in ("simple", "first", "average", "max"):
        answer, = predict(lab, "old  films\n", "--aggregation", name, model=model)
        lab.assertEqual(short(answer), [("ART", score, 0, 10, "old  films")])
    answer, = predict(lab, "old  film\n", "--aggregation", "none", model=model)
    lab.assertEqual(short(answer), [("I-ART", score, 0, 3, "old"), ("I-ART", score, 5, 9, "film")])
    lab.assertEqual([entity["index"] for entity in answer["entities"]], [1, 2])
    answer, = predict(lab, "film " * 20 + "\n", "--aggregation", "none", "--max-length", 8, "--stride", 3, model=model)
    lab.assertEqual([entity["start"] for entity in answer["entities"]], list(range(0, 100, 5)))
    lab.refuses(["predict", "--model", classifier(lab), "--aggregation", "simple"], "--aggregation works only with a tag for each word")


@PREDICT.row("--n-best", "each answer of spans lists so many candidates; the golden test of spans compares them")
def answered_candidates(lab):
    model, data = span_reader(lab), long_context(lab)
    words = ["predict", "--model", model, "--input", data, "--max-length", 16, "--stride", 2]
    for count in (1, 4):
        answer, = [json.loads(line) for line in lab.succeeds(*words, "--n-best", count).out.splitlines()]
        lab.assertEqual(len(answer["n_best"]), count)
        lab.assertEqual(answer["n_best"][0]["answer"], answer["answer"])
    lab.refuses(["predict", "--model", classifier(lab), "--n-best", 2], "--n-best works only with spans of a context")


@PREDICT.row("--model", "it is what answers")
def answering_model(lab):
    for number, bias in enumerate(([0, 3], [2, 0.5])):
        answer, = predict(lab, "film\n", model=classifier(lab, f"bias-{number}", bias=bias))
        for name, share in zip(("contra", "pro"), softmax(bias)):
            lab.assertAlmostEqual(answer["probabilities"][name], share, places=6)
        lab.assertEqual(answer["label"], "pro" if bias[1] > bias[0] else "contra")


@PREDICT.row("--input", "its lines are answered")
def answered_input(lab):
    path = lab.folder / "lines.txt"
    path.write_text("film\nbook\nsong\n")
    lab.assertEqual(predict(lab, "", "--input", path), predict(lab, path.read_text()))


@PREDICT.row("--output", "the answers are there")
def answers_output(lab):
    path = lab.folder / "answers.jsonl"
    expected = lab.succeeds("predict", "--model", classifier(lab), stdin="film\n").out
    lab.assertEqual(lab.succeeds("predict", "--model", classifier(lab), "--output", path, stdin="film\n").out, "")
    lab.assertEqual(path.read_text(), expected)


@PREDICT.row("--overwrite", "a file that is there is replaced; without it, it is left")
def answers_overwrite(lab):
    path = lab.folder / "there.jsonl"
    path.write_text("mine")
    lab.refuses(["predict", "--model", classifier(lab), "--output", path], "--overwrite", stdin="film\n")
    lab.assertEqual(path.read_text(), "mine")
    lab.succeeds("predict", "--model", classifier(lab), "--output", path, "--overwrite", stdin="film\n")
    lab.assertIn("label", path.read_text())


@PREDICT.row("--pairs", "a line is two texts; without it, one")
def pairs(lab):
    two, one = predict(lab, "film\tbook\n", "--pairs"), predict(lab, "film\tbook\n", "--no-pairs")
    lab.assertEqual(one, predict(lab, "film book\n"))
    lab.assertNotEqual(one, two)
    lab.refuses(["predict", "--model", classifier(lab), "--pairs"], "two texts separated by a tab", stdin="film book\n")


def table_answers(lab, name, text, *words):
    path = lab.folder / name
    path.write_text(text)
    return predict(lab, "", "--input", path, *words)


@PREDICT.row("--format", "the input is read as that, whatever its name")
def answered_format(lab):
    expected = predict(lab, "film\nbook\n")
    for name, text in {"jsonl": '{"text": "film"}\n{"text": "book"}\n', "csv": "a,text\n1,film\n2,book\n", "tsv": "a\ttext\n1\tfilm\n2\tbook\n"}.items():
        lab.assertEqual(table_answers(lab, "table.data", text, "--format", name), expected)
        lab.assertEqual(table_answers(lab, f"table.{name}", text), expected)
        lab.assertEqual(predict(lab, text, "--format", name), expected)
    lab.assertEqual(table_answers(lab, "film.csv", "film\nbook\n", "--format", "lines"), expected)


@PREDICT.row("--text-column", "the texts are those of that column, or of two")
def answered_column(lab):
    text = "one,two\nfilm,book\nsong,old\n"
    lab.assertEqual(table_answers(lab, "table.csv", text, "--text-column", "two"), predict(lab, "book\nold\n"))
    lab.assertEqual(table_answers(lab, "table.csv", text, "--text-column", "1", "2"), predict(lab, "film\tbook\nsong\told\n", "--pairs"))


@PREDICT.row("--header", "the first row names the columns; without it, it is data")
def answered_header(lab):
    lab.assertEqual(table_answers(lab, "table.csv", "1,film\n2,book\n", "--no-header", "--text-column", "2"), predict(lab, "film\nbook\n"))
    lab.assertEqual(table_answers(lab, "table.csv", "1,film\n2,book\n", "--header", "--text-column", "2"), predict(lab, "book\n"))


@PREDICT.row("--skip-bad-rows", "a row that cannot be read has an error for an answer; without it, the command stops there")
def answered_bad_rows(lab):
    answers = table_answers(lab, "ragged.csv", "a,text\n1,film\n2\n3,book\n", "--skip-bad-rows")
    lab.assertEqual(answers[::2], predict(lab, "film\nbook\n"))
    lab.assertEqual(answers[1], {"error": f"{lab.folder / 'ragged.csv'}:3: expected 2 comma-separated columns as in the header, found 1"})
    lab.refuses(["predict", "--model", classifier(lab), "--input", lab.folder / "ragged.csv"], "ragged.csv:3")


@PREDICT.row("--max-length", "what is longer is cut off")
def answered_length(lab):
    text = "good film very old book"
    lab.assertEqual(predict(lab, text, "--max-length", 2 + SPECIAL), predict(lab, "good film"))
    lab.assertNotEqual(predict(lab, text), predict(lab, "good film"))


@PREDICT.row("--precision", "the arithmetic has as many digits")
def answering_precision(lab):
    text = "".join(line + "\n" for line in lab.texts())
    found = {name: [answer["probabilities"]["pro"] for answer in predict(lab, text, "--precision", name)]
             for name in ("fp32", "fp16", "bf16", "int8")}
    for name, least, most in (("fp16", 1e-7, 1e-3), ("bf16", 1e-6, 1e-2), ("int8", 1e-6, 3e-2)):
        lab.assertTrue(least < max(map(abs, less(found[name], found["fp32"]))) < most, name)
    lab.assertEqual(len(set(map(tuple, found.values()))), 4)
    lab.refuses(["predict", "--model", classifier(lab), "--input", lab.labelled("rows", lab.texts()), "--precision", "tf32"],
                "--precision tf32 is for NVIDIA GPUs")
    for isa, chosen in (("avx2", "fp32"), (None, fastest_precision())):
        out, err = answers_of_processor(lab, isa, "predict", "--precision", "auto", stdin=text)
        lab.assertIn(f"precision: {chosen}", err)
        if isa is None:
            lab.assertEqual([json.loads(line)["probabilities"]["pro"] for line in out.splitlines()], found[chosen])


@PREDICT.row("--micro-batch-tokens", "a pass has no more tokens than that, which bounds its memory")
def answering_tokens(lab):
    path = lab.folder / "much.txt"
    path.write_text("".join(line + "\n" for line in lab.texts([40] * 400)))
    few, many = (lab.peak(["predict", "--model", classifier(lab), "--input", path, "--overwrite", "--output", lab.folder / "answers",
                           "--micro-batch-tokens", tokens]) for tokens in (200, 100000))
    lab.assert_larger(many, few + 8 * MEGABYTE)


@PREDICT.row("--window", "answers come when so many lines are there")
def window(lab):
    for lines in (1, 3):
        process = lab.begin(["predict", "--model", classifier(lab), "--window", lines], stdin=subprocess.PIPE)
        for is_up in (False, True):  # an answer that comes early can be seen once the first answers have come
            for number in range(lines):
                early, _, _ = select.select([process.stdout], [], [], 0.2 if is_up and number else 0)
                lab.assertFalse(early, f"an answer after {number} of {lines} lines")
                process.stdin.write("film\n")
                process.stdin.flush()
            for _ in range(lines):
                lab.assertIn("label", json.loads(process.stdout.readline()))
        process.stdin.close()
        lab.assertEqual(process.wait(timeout=60), 0)


@PREDICT.row("--device", "cpu computes here; cuda is refused where there is none")
def answering_device(lab):
    path = lab.folder / "line.txt"
    path.write_text("film\n")
    shows_device(lab, ["predict", "--model", classifier(lab), "--input", path])


def refuses_graphs(lab, words):
    """words: of a command that has --cuda-graphs."""
    lab.refuses([*words, "--cuda-graphs"], "--cuda-graphs is for one process with a GPU", "--device cuda")


@PREDICT.row("--cuda-graphs", "refused where passes cannot be repeated: on the CPU, and with early exit")
def answering_graphs(lab):
    words = ["predict", "--model", classifier(lab), "--text", "film"]
    refuses_graphs(lab, words)
    lab.refuses([*words, "--cuda-graphs", "--device", "cuda", "--exit-threshold", 0.5], "--cuda-graphs does not go with early exit", "leave out --cuda-graphs")


@EVALUATE.row("--cuda-graphs", "refused where passes cannot be repeated: on the CPU, and with a cascade")
def evaluating_graphs(lab):
    words = ["evaluate", "--model", classifier(lab), "--input", lab.labelled("rows", lab.texts())]
    refuses_graphs(lab, words)
    lab.refuses([*words, "--cuda-graphs", "--device", "cuda", "--cascade", classifier(lab)], "--cuda-graphs does not go with early exit")


@PREDICT.row("--share-device", "refused on the CPU, which ranks share anyway")
def answering_shared_device(lab):
    lab.refuses(["predict", "--model", classifier(lab), "--text", "film", "--share-device"], "--share-device is for GPUs")


@PREDICT.row("--threads", "more threads are there")
def answering_threads(lab):
    path = lab.folder / "much.txt"
    path.write_text("".join(line + "\n" for line in lab.texts([40] * 400)))
    words = ["predict", "--model", classifier(lab), "--input", path, "--overwrite", "--output", lab.folder / "answers", "--threads"]
    of_one = lab.most_threads([*words, 1], 0)
    lab.assertGreaterEqual(lab.most_threads([*words, 4], of_one + 3), of_one + 3)


@PREDICT.row("--config", "a file's keys are options")
def answering_config(lab):
    path = config_file(lab, "pairs = true\n")
    lab.assertEqual(predict(lab, "film\tbook\n", "--config", path), predict(lab, "film\tbook\n", "--pairs"))
