"""What the options of early exit and of cascades do, in finetune, evaluate and predict."""

from harness import json

from .answering import EVALUATE, PREDICT, classifier, evaluate, number_model, predict
from .lab import *
from .own import FINETUNE, columns_file


def with_exits(lab):
    """Of two layers, with an exit behind the first; and its rows."""
    rows = lab.labelled("exit-rows", lab.texts([3 + number % 9 for number in range(40)], seed=8))

    def make(path):
        lab.succeeds("finetune", "--model", lab.plain_model(), "--task", "custom", "--train", rows, "--eval", rows, "--output", path, "--early-exit",
                     "two-stage", "--max-steps", 20, "--batch-size", 8, "--learning-rate", 0.01)
        return path / "model"
    return lab.once("with-exits", make), rows


def exit_curve(lab, rule="entropy"):
    return json.loads((with_exits(lab)[0] / "config.json").read_text())["funicular"]["early_exit"][rule]


def layers(lab, *words):
    """Where each row leaves, by predict; and the mean of evaluate, with the accuracy."""
    model, rows = with_exits(lab)
    text = "".join(line.split("\t")[1] + "\n" for line in rows.read_text().splitlines()[1:])
    found = evaluate(lab, *words, model=model, data=rows)
    return [answer["layer"] for answer in predict(lab, text, *words, model=model)], found["mean_layers"], found["accuracy"]


def exits_of(table):
    @table.row("--exit-threshold", "rows leave at the first exit whose entropy is below it")
    def exit_threshold(lab):
        model, rows = with_exits(lab)
        whole = evaluate(lab, model=model, data=rows)
        lab.assertEqual(layers(lab, "--exit-threshold", 2)[:2], ([1] * 40, 1))
        lab.assertEqual(layers(lab, "--exit-threshold", 0), ([2] * 40, 2, whole["accuracy"]))
        points = whole["early_exit"]["curve"]
        lab.assertEqual({point["mean_layers"] for point in points} & {1}, {1})
        for point in points:
            found, mean, accuracy = layers(lab, "--exit-threshold", point["threshold"])
            lab.assertAlmostEqual(sum(found) / 40, mean, places=9)
            lab.assertAlmostEqual(point["mean_layers"], mean, places=9)
            lab.assertAlmostEqual(point["accuracy"], accuracy, places=9)
        answers, texts = predict(lab, "film good\nbook\n", model=model), predict(lab, "film good\nbook\n", "--exit-threshold", 0, model=model)
        lab.assertEqual([{**answer, "layer": 2} for answer in answers], texts)
        words = {"evaluate": ["--task", "custom", "--data", rows], "predict": []}[lab.command]
        lab.refuses([lab.command, "--model", classifier(lab), *words, "--exit-threshold", 0.5], "has no exits; finetune --early-exit")
        lab.refuses([lab.command, "--model", number_model(lab), *words, "--exit-threshold", 0.5], "one class per text")

    @table.row("--speed", "the threshold is one at which rows took so small a part of the layers")
    def speed(lab):
        lab.assertEqual(layers(lab, "--speed", 2)[:2], ([1] * 40, 1))
        best = max(point["accuracy"] for point in exit_curve(lab))
        lab.assertAlmostEqual(layers(lab, "--speed", 1)[2], best, places=9)
        model, rows = with_exits(lab)
        words = {"evaluate": ["--task", "custom", "--data", rows], "predict": []}[lab.command]
        lab.refuses([lab.command, "--model", model, *words, "--speed", 3], "--speed 3: the fastest exits reach 2")
        lab.refuses([lab.command, "--model", model, *words, "--speed", 2, "--exit-threshold", 0.5], "give one")

    @table.row("--exit-accuracy", "the threshold is the one that reached this accuracy in the fewest layers")
    def exit_accuracy(lab):
        curve = exit_curve(lab)
        for wanted in (0, curve[len(curve) // 2]["accuracy"], max(point["accuracy"] for point in curve)):
            expected = next(point for point in curve if point["accuracy"] >= wanted)
            _, mean, accuracy = layers(lab, "--exit-accuracy", wanted)
            lab.assertAlmostEqual(mean, expected["mean_layers"], places=9)
            lab.assertAlmostEqual(accuracy, expected["accuracy"], places=9)

    @table.row("--exit-rule", "an exit is sure by its entropy, or by its calibrated confidence")
    def exit_rule(lab):
        lab.assertEqual(layers(lab, "--exit-rule", "confidence", "--exit-threshold", 0)[1], 1)
        lab.assertEqual(layers(lab, "--exit-rule", "confidence", "--exit-threshold", 1.01)[1], 2)
        lab.assertEqual(layers(lab, "--exit-rule", "entropy", "--exit-threshold", 0)[1], 2)
        best = max(point["accuracy"] for point in exit_curve(lab, "confidence"))
        lab.assertAlmostEqual(layers(lab, "--exit-rule", "confidence", "--speed", 1)[2], best, places=9)


exits_of(EVALUATE)
exits_of(PREDICT)


@PREDICT.row("--cascade", "a small model is asked first, and --model only of what it is not sure of")
def answered_cascade(lab):
    small, text = classifier(lab, "sure", bias=[0, 3]), "film good\nbook bad\n"
    lab.assertEqual(predict(lab, text, "--cascade", small, "--exit-threshold", 0.5), [{**row, "model": 1} for row in predict(lab, text, model=small)])
    lab.assertEqual(predict(lab, text, "--cascade", small, "--exit-threshold", 0.1), [{**row, "model": 2} for row in predict(lab, text)])
    lab.refuses(["predict", "--model", classifier(lab), "--cascade", small], "--cascade needs --exit-threshold")
    other = lab.once("other-names", lambda path: lab.copy_model(small, path, id2label={"0": "no", "1": "yes"}, label2id={"no": 0, "yes": 1}))
    lab.refuses(["predict", "--model", classifier(lab), "--cascade", other, "--exit-threshold", 0.5], "its classes differ from the classes of")


@EVALUATE.row("--cascade", "the curve of a small model that is asked first, and --model of what it is not sure of")
def evaluated_cascade(lab):
    small = classifier(lab, "sure", bias=[0, 3])
    found = evaluate(lab, "--cascade", small)["cascade"]
    whole, alone = evaluate(lab)["accuracy"], evaluate(lab, model=small)["accuracy"]
    lab.assertAlmostEqual(found["whole_model"]["accuracy"], whole, places=9)
    for point in found["curve"]:  # the small model's entropy is 0.276 for every row
        lab.assertEqual(point["large_share"], 0 if point["threshold"] > 0.28 else 1)
        lab.assertAlmostEqual(point["accuracy"], alone if point["threshold"] > 0.28 else whole, places=9)
        lab.assertGreater(point["rows_per_second"], 0)
    data = lab.labelled("rows", lab.texts())
    lab.refuses(["evaluate", "--model", classifier(lab), "--task", "custom", "--data", data, "--cascade", small, "--exit-threshold", 0.5], "leave out")


# ---- finetune

EXITS = {"early_exit": "two-stage", "max_steps": 2, "precision": "fp32"}


def encoder_of(folder):
    return {name: values for name, values in tensors(folder / "model.safetensors").items()}


@FINETUNE.row("--early-exit", "exits are trained, after the encoder or with it")
def early_exit(lab):
    held_out = lab.held_out()
    for training in ("two-stage", "self-distillation", "joint"):
        run = lab.train(**{**EXITS, **held_out, "early_exit": training})
        exits, model = tensors(run.folder / "model" / "exits.safetensors"), encoder_of(run.folder / "model")
        lab.assertEqual(sorted(exits), ["exits.1.dense.bias", "exits.1.dense.weight", "exits.1.output.bias", "exits.1.output.weight"])
        note = json.loads((run.folder / "model" / "config.json").read_text())["funicular"]["early_exit"]
        lab.assertEqual((note["training"], note["layers"], len(note["temperatures"])), (training, [1], 2))
        lab.assertEqual(run.result["mean_layer_accuracy"], (run.result["layer_1_accuracy"] + run.result["layer_2_accuracy"]) / 2)
        if training == "joint":
            lab.assertFalse((run.folder / "encoder").exists())
        else:
            lab.assertEqual(distance(model, encoder_of(run.folder / "encoder" / "model")), 0, "the encoder is frozen")
    one, two = (lab.train(ranks=ranks, early_exit="self-distillation", max_steps=2) for ranks in (1, 2))
    lab.assertLess(distance(*(tensors(run.folder / "model" / "exits.safetensors") for run in (one, two))), 1e-6, "whatever the ranks")
    lab.assertFalse((lab.train(max_steps=2, precision="fp32").folder / "model" / "exits.safetensors").exists(), "the default")
    numbers = columns_file(lab, "exit-numbers.tsv", "text\tlabel\nfilm\t1.5\nbook\t-2\n")
    lab.refuses_to_train("--early-exit works only with one class per text", train=numbers, regression=True, early_exit="two-stage")


@FINETUNE.row("--exit-pooling", "exits read the mean of the tokens or the first one, and config.json says which")
def exit_pooling(lab):
    mean, first = (lab.train(early_exit="joint", max_steps=2, precision="fp32", **read) for read in ({}, {"exit_pooling": "first"}))
    for run, name in ((mean, "mean"), (first, "first")):
        lab.assertEqual(json.loads((run.folder / "model" / "config.json").read_text())["funicular"]["early_exit"]["pooling"], name)
    lab.assertGreater(distance(*(tensors(run.folder / "model" / "exits.safetensors") for run in (mean, first))), 0)
    lab.refuses_to_train("--exit-pooling works only with --early-exit", exit_pooling="first")


@FINETUNE.row("--exits-only", "a fine-tuned model keeps its weights, and gets exits")
def exits_only(lab):
    tuned = lab.train(max_steps=2, precision="fp32").folder / "model"
    run = lab.train(model=tuned, exits_only=True, **EXITS)
    lab.assertFalse((run.folder / "encoder").exists())
    lab.assertEqual(distance(encoder_of(run.folder / "model"), encoder_of(tuned)), 0)
    lab.refuses_to_train("has no classifier", exits_only=True, early_exit="two-stage")
    lab.refuses_to_train("--exits-only works only with --early-exit", model=tuned, exits_only=True)
    lab.refuses_to_train("contradict", model=tuned, exits_only=True, early_exit="joint")
