"""What the options of probe do."""

import math

from harness import LAYERS, json, write_rows

from .lab import *

PROBE = Table()


def rows_of(lab, name, count=48, seed=5):
    """Rows whose class is their first word: the embeddings know it."""
    texts = lab.texts([2 + number % 5 for number in range(count)], seed=seed)
    return lab.once(f"{name}.tsv", lambda path: write_rows(path, ("label", "text"), [("pro", "good " + text) if number % 3 else ("contra", "bad " + text)
                                                                                    for number, text in enumerate(texts)]))


def words_of(lab, output, **options):
    values = {"model": lab.plain_model(), "task": "custom", "train": rows_of(lab, "probed"), "eval": rows_of(lab, "told", 30, 6), "output": output,
              "learning_rate": 0.05, "num_train_epochs": 40, "max_length": LONGEST, "precision": "fp64", **options}
    words = ["probe"]
    for name, value in values.items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(option)
        elif value is not None:
            words += [option, *map(str, value if isinstance(value, list) else [value])]
    return words


def probe(lab, **options):
    key = f"probe {json.dumps(options, sort_keys=True, default=str)}"
    output = lab.folder / f"probe-{len(lab.made)}"
    return lab.once(key, lambda _: (lab.succeeds(*words_of(lab, output, **options)), output))


def found(lab, **options):
    return probe(lab, **options)[0].json()["probe"]


def probes(lab, **options):
    return tensors(probe(lab, **options)[1] / "model" / "probes.safetensors")


def refuses(lab, *phrases, **options):
    lab.refuses(words_of(lab, lab.folder / "refused", **options), *phrases)


PROBE.row("--help", "the options are listed")(shows_help)


@PROBE.row("--model", "its layers are what is probed, and do not learn")
def model(lab):
    before = tensors(lab.plain_model() / "model.safetensors")
    lab.assertEqual([row["layer"] for row in found(lab)["layers"]], list(range(LAYERS + 1)))
    lab.assertEqual(distance(before, tensors(lab.plain_model() / "model.safetensors")), 0)
    lab.assertNotEqual(found(lab, model=lab.teacher())["layers"], found(lab)["layers"])
    still = lab.once("without-dropout", lambda path: lab.copy_model(lab.teacher(), path, hidden_dropout_prob=0.0))
    lab.assertEqual(distance(probes(lab, model=lab.teacher()), probes(lab, model=still)), 0, "probes see what the model gives in use")


@PROBE.row("--task", "the file has the task's columns")
def task(lab):
    cola = lab.once("probed-cola.tsv", lambda path: write_rows(path, None, [("x", str(number % 2), "*", ("film", "book")[number % 2]) for number in range(24)]))
    lab.assertAlmostEqual(found(lab, task="cola", train=cola, eval=cola)["best_accuracy"], 1, places=9)
    tags = lab.once("probed.conll", lambda path: path.write_text("".join("film A\nbook B\nsong A\n\n" for _ in range(20))) and path)
    told = found(lab, task="tags", train=tags, eval=tags)
    lab.assertAlmostEqual(told["layers"][0]["accuracy"], 1, places=9)
    lab.assertAlmostEqual(told["most_frequent"], 2 / 3, places=9)
    squad = lab.once("probed.json", lambda path: path.write_text('{"data": []}') and path)
    refuses(lab, "one class per text or per word", task="spans", train=squad, eval=squad)


@PROBE.row("--train", "its rows are what the probes learn")
def train(lab):
    other = lab.once("turned.tsv", lambda path: path.write_text(rows_of(lab, "probed").read_text().replace("pro\t", "x\t").replace("contra\t", "pro\t")
                                                                .replace("x\t", "contra\t")) and path)
    lab.assertLess(found(lab, train=other)["best_accuracy"], 0.5)
    lab.assertGreater(found(lab)["best_accuracy"], 0.9)


@PROBE.row("--eval", "its rows are what the layers are compared on")
def evaluation(lab):
    one = lab.once("one-class.tsv", lambda path: write_rows(path, ("label", "text"), [("pro", "good film")] * 5))
    lab.assertEqual(found(lab, eval=one)["most_frequent"], 1)
    lab.assertAlmostEqual(found(lab)["most_frequent"], 20 / 30, places=9)


@PROBE.row("--output", "the probes, their curves and what report shows lie there")
def output(lab):
    result, folder = probe(lab)
    written = json.loads((folder / "evaluation.json").read_text())
    lab.assertEqual(written["probe"], result.json()["probe"])
    lab.assertTrue((folder / "metrics.jsonl").exists() and (folder / "run.json").exists())
    page = lab.folder / "probe.html"
    lab.succeeds("report", "--input", folder, "--output", page)
    lab.assertIn("A student needs", page.read_text())


@PROBE.row("--skip-bad-rows", "rows that cannot be read are left out; without it, the command stops there")
def skip_bad_rows(lab):
    ragged = lab.once("ragged-probe.tsv", lambda path: path.write_text(rows_of(lab, "probed").read_text() + "pro\n") and path)
    lab.assertEqual(found(lab, train=ragged, skip_bad_rows=True), found(lab))
    refuses(lab, "ragged-probe.tsv", "--skip-bad-rows", train=ragged)


@PROBE.row("--layers", "these layers have probes")
def layers(lab):
    lab.assertEqual([row["layer"] for row in found(lab, layers=["0", "2"])["layers"]], [0, 2])
    lab.assertEqual({name.split(".")[1] for name in probes(lab, layers=["0", "2"])}, {"0", "2"})
    lab.assertEqual(found(lab, layers="all"), found(lab))
    refuses(lab, "--layers 3: expected 0, for the embeddings, to 2", layers=3)
    refuses(lab, "--layers expects numbers", layers="some")


@PROBE.row("--pooling", "a probe reads the mean of a text's tokens, or the first token")
def pooling(lab):
    lab.assertEqual(found(lab, pooling="first")["layers"][0]["accuracy"], found(lab)["most_frequent"], "[CLS] is one vector, whatever the text")
    lab.assertGreater(found(lab)["layers"][0]["accuracy"], 0.9)
    lab.assertEqual(found(lab, pooling="mean"), found(lab))


@PROBE.row("--margin", "a student needs the lowest layer that is so near to the best one")
def margin(lab):
    for value in (0, 1):
        told = found(lab, pooling="first", margin=value)
        least = told["best_accuracy"] - value
        lab.assertEqual(told["student_layers"], next(row["layer"] for row in told["layers"] if row["accuracy"] >= least))
    lab.assertEqual(found(lab, margin=1)["student_layers"], 0)


@PROBE.row("--max-length", "what is longer is cut off")
def max_length(lab):
    path = lab.once("long-probe.tsv", lambda path: write_rows(path, ("label", "text"), [("pro", "old old old good"), ("contra", "old old old bad")] * 12))
    lab.assertEqual(found(lab, train=path, eval=path, max_length=5)["best_accuracy"], 0.5)
    lab.assertEqual(found(lab, train=path, eval=path, max_length=6)["best_accuracy"], 1)


def columns(lab):
    text = "one\ttwo\tthree\n" + "film\tpro\tgood\nfilm\tcontra\tbad\n" * 12
    return lab.once("columns-probe.tsv", lambda path: path.write_text(text) and path)


@PROBE.row("--text-column", "the texts are those of that column")
def text_column(lab):
    for column, accuracy in (("one", 0.5), ("3", 1)):
        lab.assertEqual(found(lab, train=columns(lab), eval=columns(lab), text_column=column, label_column="two")["best_accuracy"], accuracy)


@PROBE.row("--label-column", "the classes are those of that column")
def label_column(lab):
    lab.assertEqual(found(lab, train=columns(lab), eval=columns(lab), text_column="two", label_column="three")["best_accuracy"], 1)


@PROBE.row("--format", "the file is read as that, whatever its name")
def format_of_files(lab):
    path = lab.once("probe-lines.tsv", lambda path: path.write_text('{"label": "a", "text": "film"}\n{"label": "b", "text": "book"}\n' * 12) and path)
    lab.assertEqual(found(lab, train=path, eval=path, format="jsonl")["best_accuracy"], 1)


@PROBE.row("--header", "the first row names the columns; without it, it is data")
def header(lab):
    path = lab.once("no-header.tsv", lambda path: path.write_text("a\tfilm\nb\tbook\n" * 12) and path)
    words = words_of(lab, lab.folder / "no-header", train=path, eval=path, text_column=2, label_column=1)
    lab.assertEqual(lab.succeeds(*words, "--no-header").json()["probe"]["most_frequent"], 0.5)
    lab.refuses([*words_of(lab, lab.folder / "with-header", train=path, eval=path), "--header"], "text")


@PROBE.row("--regression", "refused: a probe is a classifier")
def regression(lab):
    refuses(lab, "one class per text or per word", regression=True)


@PROBE.row("--multi-label", "refused: a probe gives one class")
def multi_label(lab):
    refuses(lab, "one class per text or per word", multi_label=True)


@PROBE.row("--label-separator", "nothing here; with another task than custom it is refused")
def label_separator(lab):
    lab.assertEqual(found(lab, label_separator=";"), found(lab))
    refuses(lab, "--label-separator is for --task custom", task="cola", label_separator=";")


@PROBE.row("--stride", "is refused: probes read no windows")
def stride(lab):
    refuses(lab, "--stride: probe reads no windows", stride=2)


@PROBE.row("--encoding", "the input is converted from that encoding while it is read")
def encoding(lab):
    path = lab.once("wide-probe.tsv", lambda path: path.write_bytes(rows_of(lab, "probed").read_text().encode("utf-16")) and path)
    told = lab.once("wide-told.tsv", lambda path: path.write_bytes(rows_of(lab, "told", 30, 6).read_text().encode("utf-16")) and path)
    lab.assertEqual(found(lab, train=path, eval=told, encoding="UTF-16"), found(lab))
    refuses(lab, "--encoding UTF-16", train=path)


@PROBE.row("--quotes", "csv: fields in quotes are read as in CSV; none: quotes are text")
def quotes(lab):
    path = lab.once("quoted-probe.tsv", lambda path: path.write_text('label\ttext\n' + 'pro\t"film\tgood"\ncontra\tbook bad\n' * 12) and path)
    lab.assertEqual(found(lab, train=path, eval=path, quotes="csv")["best_accuracy"], 1)
    refuses(lab, "quoted-probe.tsv:2", train=path, eval=path, quotes="none")


@PROBE.row("--num-train-epochs", "so many passes over the rows")
def num_train_epochs(lab):
    for epochs in (1, 3):
        _, folder = probe(lab, num_train_epochs=epochs)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        lab.assertEqual(max(line["step"] for line in lines), epochs * math.ceil(48 / 32))


@PROBE.row("--batch-size", "so many rows go into a step")
def batch_size(lab):
    _, folder = probe(lab, batch_size=8, num_train_epochs=1)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lab.assertEqual(max(line["step"] for line in lines), 6)


@PROBE.row("--learning-rate", "the weights move as fast")
def learning_rate(lab):
    start = probes(lab, learning_rate=1e-300, num_train_epochs=1)
    slow, fast = (distance(start, probes(lab, learning_rate=rate, num_train_epochs=1)) for rate in (0.001, 0.01))
    lab.assertLess(5 * slow, fast)


@PROBE.row("--micro-batch-tokens", "a pass has no more tokens than that; the result is the same up to rounding")
def micro_batch_tokens(lab):
    lab.assertLess(distance(probes(lab), probes(lab, micro_batch_tokens=40)), 1e-6)


@PROBE.row("--precision", "the arithmetic has as many digits")
def precision(lab):
    exact = probes(lab)
    single, half = (distance(exact, probes(lab, precision=name)) for name in ("fp32", "bf16"))
    lab.assertLess(single, half)
    lab.assertLess(half, 0.2)


@PROBE.row("--seed", "the first weights and the order of the rows follow from it")
def seed(lab):
    lab.assertEqual(distance(probes(lab), probes(lab, seed=42)), 0)
    lab.assertGreater(distance(probes(lab), probes(lab, seed=7)), 0)


@PROBE.row("--device", "cpu computes here; cuda is refused where there is none")
def device(lab):
    lab.assertEqual(found(lab, device="cpu"), found(lab))
    if not lab.has_gpu():
        refuses(lab, "--device cuda", device="cuda")


@PROBE.row("--threads", "more threads are there")
def threads(lab):
    lab.assertEqual(found(lab, threads=1)["layers"], found(lab)["layers"])
    refuses(lab, "--threads", threads=0)


@PROBE.row("--config", "a file's keys are options")
def config(lab):
    path = config_file(lab, "pooling = \"first\"\n")
    lab.assertEqual(found(lab, config=path), found(lab, pooling="first"))
