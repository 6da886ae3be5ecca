"""Embedders against sentence-transformers: the loss and the gradients of a step from a layer of the real MiniLM, and the folder that is written.

usage: embedders.py FUNICULAR_PROGRAM MINILM_FOLDER

A step of plain SGD at rate 1 without clipping leaves the gradients in the difference of the weights. Dropout is off: the two programs draw other
units. The loss is that of 12 rows in one forward pass there, and in micro-batches of 4 here.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses

from small_model import small_model

ROWS, MICRO_BATCH = 12, 4
SUBJECTS = ["a river", "the old film", "her brother", "this book", "our neighbour", "the committee", "a cold wind", "my sister", "the engine",
            "that song", "the café", "a stranger"]
VERBS = ["crossed", "described", "remembered", "lost", "painted", "heard"]
OBJECTS = ["the bridge", "an unusual story", "two letters", "the city at night", "every answer", "a long winter"]


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"funicular {' '.join(map(str, arguments))}\nexit {done.returncode}\n{done.stderr}")
    return done.stderr


def sentences(count, seed):
    source = random.Random(seed)
    return [f"{SUBJECTS[i % len(SUBJECTS)]} {source.choice(VERBS)} {source.choice(OBJECTS)}" + " again" * source.randint(0, 3) for i in range(count)]


def rows_of(task):
    source = random.Random(task)
    texts = [sentences(ROWS, seed) for seed in (1, 2, 3, 4)]
    rows = []
    for number in range(ROWS):
        if task == "scores":
            rows.append({"sentence1": texts[0][number], "sentence2": texts[1][number], "score": source.randint(0, 4) / 4})
        elif task == "classes":
            rows.append({"sentence1": texts[0][number], "sentence2": texts[1][number], "score": number % 2})
        elif task == "pairs":
            rows.append({"anchor": texts[0][number], "positive": texts[1][number]})
        elif task == "margins":
            rows.append({"anchor": texts[0][number], "positive": texts[1][number], "negative": texts[2][number], "margin": source.uniform(-1, 1)})
        elif task in ("lists of margins", "lists of scores"):
            rows.append({"anchor": texts[0][number], "positive": texts[1][number], "negative": [texts[2][number], texts[3][number]],
                         "margin": [source.uniform(-1, 1) for _ in range(2 + (task == "lists of scores"))]})
        else:
            rows.append({"anchor": texts[0][number], "positive": texts[1][number], "negative": [texts[2][number], texts[3][number]][:task == "lists" and 2 or 1]})
    return rows


def columns(rows):
    """The texts column by column, and the labels."""
    first = rows[0]
    if "sentence1" in first:
        return [[row["sentence1"] for row in rows], [row["sentence2"] for row in rows]], [row["score"] for row in rows]
    texts = [[row["anchor"] for row in rows], [row["positive"] for row in rows]]
    if "negative" in first:
        lists = [row["negative"] if isinstance(row["negative"], list) else [row["negative"]] for row in rows]
        texts += [[negatives[at] for negatives in lists] for at in range(len(lists[0]))]
    return texts, [row.get("margin", 0.0) for row in rows]


CASES = [
    # rows, options here, loss there
    ("pairs", [], lambda model: losses.MultipleNegativesRankingLoss(model)),
    ("lists", [], lambda model: losses.MultipleNegativesRankingLoss(model)),
    ("pairs", ["--compare", "symmetric"], lambda model: losses.MultipleNegativesRankingLoss(
        model, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction")),
    ("lists", ["--compare", "joint", "--scale", 10], lambda model: losses.MultipleNegativesRankingLoss(
        model, scale=10, directions=("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc"))),
    ("triplets", ["--hardness", 5], lambda model: losses.MultipleNegativesRankingLoss(model, hardness_mode="hard_negatives", hardness_strength=5)),
    ("lists", ["--batch-hardness", 9], lambda model: losses.MultipleNegativesRankingLoss(
        model, hardness_mode="in_batch_negatives", hardness_strength=9)),
    ("triplets", ["--loss", "triplet", "--loss-margin", 2], lambda model: losses.TripletLoss(model, triplet_margin=2)),
    *((rows, ["--loss", "margin-mse", "--label-column", "margin"], lambda model: losses.MarginMSELoss(model))
      for rows in ("margins", "lists of margins", "lists of scores")),
    ("scores", [], lambda model: losses.CoSENTLoss(model)),
    ("scores", ["--loss", "angle"], lambda model: losses.AnglELoss(model)),
    ("scores", ["--loss", "cosine"], lambda model: losses.CosineSimilarityLoss(model)),
    ("classes", ["--loss", "contrastive"], lambda model: losses.ContrastiveLoss(model)),
    ("classes", ["--loss", "online-contrastive"], lambda model: losses.OnlineContrastiveLoss(model)),
    ("pairs", ["--matryoshka-dims", 128, 32], lambda model: losses.MatryoshkaLoss(model, losses.MultipleNegativesRankingLoss(model), [384, 128, 32])),
    ("scores", ["--matryoshka-dims", 64], lambda model: losses.MatryoshkaLoss(model, losses.CoSENTLoss(model), [384, 64])),
]


def gradients_there(folder, rows, make_loss):
    model = SentenceTransformer(str(folder), device="cpu")
    model.train()
    texts, labels = columns(rows)
    loss = make_loss(model)([model.preprocess(column) if hasattr(model, "preprocess") else model.tokenize(column) for column in texts],
                            torch.tensor(labels, dtype=torch.float32))
    loss.backward()
    encoder = model[0].auto_model if hasattr(model[0], "auto_model") else model[0].model
    return loss.item(), {name: parameter.grad for name, parameter in encoder.named_parameters() if parameter.grad is not None}


def gradients_here(program, folder, rows, options, output):
    train = output.with_suffix(".jsonl")
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = "scores" if "sentence1" in rows[0] else "triplets" if "negative" in rows[0] else "pairs"
    run(program, "finetune", "--model", folder, "--task", task, "--train", train, "--output", output, "--max-steps", 1, "--batch-size", ROWS,
        "--micro-batch-size", MICRO_BATCH, "--optim", "sgd", "--momentum", 0, "--learning-rate", 1, "--lr-scheduler-type", "constant", "--weight-decay", 0,
        "--max-grad-norm", 0, "--precision", "fp32", "--logging-steps", 1, "--no-distinct-batches" if task != "scores" and "--loss" not in options
        else "--no-shuffle", *options)
    record = json.loads((output / "metrics.jsonl").read_text().splitlines()[0])
    before = load_file(folder / "model.safetensors")
    after = {name.removeprefix("bert."): value for name, value in load_file(output / "model" / "model.safetensors").items()}
    return record["loss"], {name: before[name] - after[name] for name in before if name in after}, output / "model"


def compare(case, found, expected):
    (loss, ours), (their_loss, theirs) = found, expected
    if abs(loss - their_loss) > 2e-5 * max(1, abs(their_loss)):
        sys.exit(f"{case}: loss {loss}, sentence-transformers {their_loss}")
    whole = sum(float((value.double() ** 2).sum()) for value in theirs.values()) ** 0.5
    if whole == 0:
        sys.exit(f"{case}: sentence-transformers gives no gradient; choose other rows")
    worst = max(float((ours[name].double() - value.double()).norm()) / max(float(value.double().norm()), 1e-2 * whole) for name, value in theirs.items())
    if worst > 5e-4:
        sys.exit(f"{case}: a gradient differs by {worst:.1e} of its norm")
    return worst


def taught_rows(program, teacher, place, size):
    """Texts, and the first `size` numbers of the teacher's vectors as embed gives them."""
    texts = sentences(ROWS, 5)
    (place / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    run(program, "embed", "--model", teacher, "--input", place / "texts.jsonl", "--output", place / "teacher.npy", "--precision", "fp32", "--overwrite",
        *(["--truncate-dim", size] if size else []))
    return texts, torch.from_numpy(numpy.load(place / "teacher.npy")).double()


def taught_step(program, student, teacher, place, name, rate, *options):
    """The loss of a step of plain SGD at this rate, and the folder that it leaves."""
    output = place / name
    run(program, "finetune", "--model", student, "--task", "vectors", "--train", place / "texts.jsonl", "--teacher", teacher, "--output", output,
        "--max-steps", 1, "--batch-size", ROWS, "--micro-batch-size", MICRO_BATCH, "--optim", "sgd", "--momentum", 0, "--learning-rate", rate,
        "--lr-scheduler-type", "constant", "--weight-decay", 0, "--max-grad-norm", 0, "--precision", "fp64", "--logging-steps", 1, *options)
    return json.loads((output / "metrics.jsonl").read_text().splitlines()[0])["loss"], output / "model"


def tensors_of(folder):
    return {f"{path.parent.relative_to(folder)}/{name.removeprefix('bert.')}": value.double()
            for path in folder.rglob("model.safetensors") for name, value in load_file(path).items()}


def check_taught(program, student, teacher, place, name, distance, *options, size=None):
    """Loss and gradients of a step, written by hand in float64, and the vectors of the folder that is left."""
    texts, wanted = taught_rows(program, teacher, place, size)
    teacher = place / "teacher.npy" if size else teacher
    _, before = taught_step(program, student, teacher, place, f"{name}-before", 1e-30, *options)
    loss, after = taught_step(program, student, teacher, place, f"{name}-after", 1, *options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SentenceTransformer(str(before), device="cpu").double()
    model.train()
    features = model.preprocess(texts) if hasattr(model, "preprocess") else model.tokenize(texts)
    found = model(features)["sentence_embedding"]
    expected = distance(found, wanted)
    expected.backward()
    theirs = {}
    for at, module in enumerate(model):
        for weight, parameter in module.named_parameters():
            if parameter.grad is None:
                continue
            kind = type(module).__name__
            place_of = f"{at}_{kind}/" if kind in ("Dense", "StaticEmbedding") else "./"
            theirs[place_of + weight.removeprefix("auto_model.").removeprefix("model.")] = parameter.grad
    first, last = tensors_of(before), tensors_of(after)
    missing = theirs.keys() - first.keys()
    if missing:
        sys.exit(f"{name}: the folder lacks {sorted(missing)}")
    worst = compare(name, (loss, {key: first[key] - last[key] for key in theirs}), (expected.item(), theirs))
    kinds = [entry["type"].split(".")[-1] for entry in json.loads((after / "modules.json").read_text())]
    run(program, "embed", "--model", after, "--input", place / "texts.jsonl", "--output", place / f"{name}.npy", "--precision", "fp32")
    gap = numpy.abs(numpy.load(place / f"{name}.npy") - check_folder(after).encode(texts)).max()
    if gap > 2e-5:
        sys.exit(f"{name}: sentence-transformers gives other vectors, by {gap:.1e}")
    print(f"{name}: loss {loss:.6f}, gradients within {worst:.1e}, {', '.join(kinds)}, vectors within {gap:.1e}")


def normalised(rows):
    return torch.nn.functional.normalize(rows, dim=1)


def check_teachers(program, folder, place):
    """A student of the teacher's size and one of another; a table of static embeddings; a plain encoder."""
    def squares(found, wanted):
        return ((found - normalised(wanted)) ** 2).sum(1).mean()

    def cosines(found, wanted):
        return losses.EmbedDistillLoss(None, distance_metric="cosine").compute_loss_from_embeddings([found], [wanted])

    def peers_squares(found, wanted):
        return found.shape[1] * losses.EmbedDistillLoss(None, distance_metric="mse").compute_loss_from_embeddings([found], [normalised(wanted)])

    teacher = place / "teacher"
    run(program, "vectors", "--from", folder, "--output", teacher, "--size", 48)  # a table may teach, too
    run(program, "vectors", "--from", folder, "--output", place / "narrow", "--size", 20)
    for name, student, its_teacher, distance, options in (
            ("adapter, squared distance", folder, teacher, squares, []),
            ("adapter, sentence-transformers' mse", folder, teacher, peers_squares, []),
            ("adapter, cosine", folder, teacher, cosines, ["--loss", "cosine-distance"]),
            ("table of another size, squared distance", place / "narrow", teacher, squares, []),
            ("table of another size, cosine", place / "narrow", folder, cosines, ["--loss", "cosine-distance"])):
        check_taught(program, student, its_teacher, place, name, distance, *options)
    check_taught(program, place / "narrow", folder, place, "table of the teacher's size", squares, size=20)


def check_folder(folder):
    """No warning, the same vectors as from the weights, and the files of the older form."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SentenceTransformer(str(folder), device="cpu")
    names = [entry["type"] for entry in json.loads((folder / "modules.json").read_text())]
    if not all(name.startswith("sentence_transformers.models.") for name in names):
        sys.exit(f"modules.json names {names}; expected the older form, which every version reads")
    return model


def main():
    program, minilm = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        folder = small_model(minilm, place / "model", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        last = None
        for number, (kind, options, make_loss) in enumerate(CASES):
            rows, case = rows_of(kind), f"{kind} {' '.join(map(str, options))}"
            loss, gradients, last = gradients_here(program, folder, rows, options, place / f"run-{number}")
            worst = compare(case, (loss, gradients), gradients_there(folder, rows, make_loss))
            print(f"{case}: loss {loss:.6f}, gradients within {worst:.1e}")
        texts = sentences(ROWS, 9)
        model = check_folder(last)
        vectors = model.encode(texts)
        if vectors.shape != (ROWS, 384) or not numpy.allclose(numpy.linalg.norm(vectors, axis=1), 1, atol=1e-5):
            sys.exit("the saved folder does not normalise, as the folder that training began with did")
        check_teachers(program, folder, place)


main()
