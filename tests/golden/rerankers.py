"""Rerankers and mined negatives against sentence-transformers: the loss and the gradients of a step from the real MiniLM with 6,000 tokens, folders
both ways, metrics of an evaluation, and mine_hard_negatives.

usage: rerankers.py FUNICULAR_PROGRAM MINILM_FOLDER

The folder of the first step is one that CrossEncoder.save_pretrained has written. A step of plain SGD at rate 1 without clipping leaves the gradients in
the difference of the weights. Dropout is off: the two programs draw other units. sentence-transformers computes all rows in one forward pass, and this
program in micro-batches of 2 lists. Texts are the pairs of MRPC where FUNICULAR_SHARED_DATA has them, else made-up sentences.
"""

import csv
import importlib.machinery
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import types
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy
import pandas
import torch
from safetensors.torch import load_file


class Columns:
    """What mine_hard_negatives asks of datasets.Dataset, which the environment lacks."""

    def __init__(self, columns):
        self.columns, self.column_names = columns, list(columns)

    @classmethod
    def from_dict(cls, columns):
        return cls(columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name):
        return self.columns[name]

    def to_pandas(self):
        return pandas.DataFrame(self.columns)


from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.cross_encoder import losses
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
from sentence_transformers.cross_encoder.losses import LambdaRankScheme, NDCGLoss1Scheme, NDCGLoss2Scheme
from sentence_transformers.util import hard_negatives

from small_model import small_model

stand_in = types.ModuleType("datasets")
stand_in.Dataset = Columns
stand_in.__spec__ = importlib.machinery.ModuleSpec("datasets", None)
sys.modules["datasets"] = stand_in
hard_negatives.is_datasets_available = lambda: True

LISTS, MICRO_BATCH = 5, 2


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"funicular {' '.join(map(str, arguments))}\nexit {done.returncode}\n{done.stderr}")
    return done.stdout


def paraphrases(count):
    """(text, another of the same meaning), each text once, and short: the peer computes for most of this test."""
    data = os.environ.get("FUNICULAR_SHARED_DATA", "")
    path = pathlib.Path(data) / "mrpc/train.tsv"
    if data and path.exists():
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = [(row[3], row[4]) for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row[0] == "1"]
        return sorted(rows, key=lambda row: sum(map(len, row)))[:count]
    source = random.Random(5)
    names = ["river", "film", "brother", "book", "neighbour", "committee", "wind", "sister", "engine", "song", "café", "stranger"]
    acts = ["crossed", "described", "remembered", "lost", "painted", "heard"]
    things = ["bridge", "story", "letters", "city", "answer", "winter", "garden"]
    rows = []
    for number in range(count):
        a, b, c = source.choice(names), source.choice(acts), source.choice(things)
        rows.append((f"the {a} {b} the {c} {number}", f"{number}: it was the {c} that the {a} {b}"))
    return rows


def lists_of(rows, seed=3):
    """Queries with two to five texts and a grade each, the own answer first."""
    source, lists = random.Random(seed), []
    for number, (query, answer) in enumerate(rows):
        others = source.sample([text for _, text in rows if text != answer], 1 + number % 4)
        lists.append({"query": query, "text": [answer, *others], "label": [3] + [source.randint(0, 2) for _ in others]})
    return lists


def case_rows(kind, rows):
    lists = lists_of(rows)
    if kind != "pairs":  # rows with one query are neighbours, and each stays a list of its own
        for first, second in zip(lists[0::3], lists[1::3]):
            second["query"] = first["query"]
    if kind == "lists":
        return lists
    source = random.Random(kind)
    if kind == "triplets":
        return [{"query": row["query"], "positive": row["text"][0], "negatives": (row["text"][1:] * 2)[:2], "margins": [source.uniform(-1, 3) for _ in range(2)]}
                for row in lists]
    return [{"query": row["query"], "text": text, "label": source.randint(0, 4) / 4} for row in lists for text in row["text"][:2]]


TRIPLET_COLUMNS = ["--text-column", "query", "positive", "negatives", "--label-column", "margins"]
CASES = [
    # rows, options here, loss there
    ("pairs", [], lambda model: losses.BinaryCrossEntropyLoss(model)),
    ("pairs", ["--positive-weight", 3], lambda model: losses.BinaryCrossEntropyLoss(model, pos_weight=torch.tensor(3.0))),
    ("pairs", ["--loss", "mse"], lambda model: losses.MSELoss(model)),
    ("triplets", ["--loss", "margin-mse", *TRIPLET_COLUMNS], lambda model: losses.MarginMSELoss(model)),
    ("lists", ["--loss", "list-net"], lambda model: losses.ListNetLoss(model)),
    ("lists", ["--loss", "rank-net", "--sigma", 2], lambda model: losses.RankNetLoss(model, sigma=2)),
    ("lists", ["--loss", "lambda"], lambda model: losses.LambdaLoss(model)),
    ("lists", ["--loss", "lambda", "--loss-top-k", 2], lambda model: losses.LambdaLoss(model, k=2)),
    ("lists", ["--loss", "lambda", "--weighting", "lambda-rank"], lambda model: losses.LambdaLoss(model, weighting_scheme=LambdaRankScheme())),
    ("lists", ["--loss", "lambda", "--weighting", "ndcg-loss1"], lambda model: losses.LambdaLoss(model, weighting_scheme=NDCGLoss1Scheme())),
    ("lists", ["--loss", "lambda", "--weighting", "ndcg-loss2"], lambda model: losses.LambdaLoss(model, weighting_scheme=NDCGLoss2Scheme())),
]


def gradients_there(folder, kind, rows, make_loss):
    model = CrossEncoder(str(folder), device="cpu")
    model.train()
    if kind == "pairs":
        inputs, labels = [[row["query"] for row in rows], [row["text"] for row in rows]], torch.tensor([row["label"] for row in rows])
    elif kind == "triplets":
        inputs = [[row["query"] for row in rows], [row["positive"] for row in rows], *([row["negatives"][at] for row in rows] for at in range(2))]
        labels = torch.tensor([row["margins"] for row in rows])
    else:
        inputs, labels = [[row["query"] for row in rows], [row["text"] for row in rows]], [torch.tensor(row["label"]).float() for row in rows]
    loss = make_loss(model)(inputs, labels)
    loss.backward()
    return loss.item(), {name: parameter.grad for name, parameter in model.model.named_parameters() if parameter.grad is not None}


def gradients_here(program, folder, rows, options, output):
    train = output.with_suffix(".jsonl")
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(program, "finetune", "--model", folder, "--task", "reranker", "--train", train, "--output", output, "--max-steps", 1, "--batch-size", len(rows),
        "--micro-batch-size", MICRO_BATCH, "--optim", "sgd", "--momentum", 0, "--learning-rate", 1, "--lr-scheduler-type", "constant", "--weight-decay", 0,
        "--max-grad-norm", 0, "--precision", "fp32", "--logging-steps", 1, "--max-length", 128, "--no-shuffle", *options)
    record = json.loads((output / "metrics.jsonl").read_text().splitlines()[0])
    before, after = load_file(folder / "model.safetensors"), load_file(output / "model" / "model.safetensors")
    return record["loss"], {name: before[name] - after[name] for name in before if name in after}, output / "model"


def compare(case, found, expected):
    (loss, ours), (their_loss, theirs) = found, expected
    if abs(loss - their_loss) > 2e-5 * max(1, abs(their_loss)):
        sys.exit(f"{case}: loss {loss}, sentence-transformers {their_loss}")
    whole = sum(float((value.double() ** 2).sum()) for value in theirs.values()) ** 0.5
    if whole == 0:
        sys.exit(f"{case}: sentence-transformers gives no gradient; choose other rows")
    worst = max(float((ours[name].double() - value.double()).norm()) / max(float(value.double().norm()), 5e-2 * whole) for name, value in theirs.items())
    if worst > 1e-3:  # fp32; gradients of positives and negatives nearly cancel
        sys.exit(f"{case}: a gradient differs by {worst:.1e} of its norm")
    return worst


def close(name, ours, theirs, bound=2e-6):
    difference = float(numpy.abs(numpy.asarray(ours, dtype=float) - numpy.asarray(theirs, dtype=float)).max())
    if difference > bound:
        sys.exit(f"{name}: found {ours}, sentence-transformers {theirs}")
    return difference


def ranked_here(program, folder, lists, place):
    """The scores of each list, in the order of its texts."""
    path = place / "asked.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in lists))
    answers = [json.loads(line) for line in run(program, "predict", "--model", folder, "--input", path, "--precision", "fp32", "--max-length", 128).splitlines()]
    found = []
    for row in lists:
        own, answers = answers[:len(row["text"])], answers[len(row["text"]):]
        if [answer["rank"] for answer in own] != list(range(1, len(own) + 1)) or [answer["score"] for answer in own] != sorted((a["score"] for a in own), reverse=True):
            sys.exit(f"predict gives ranks {own}")
        scores = [None] * len(own)
        for answer in own:
            if answer["query"] != row["query"] or answer["text"] != row["text"][answer["place"] - 1]:
                sys.exit(f"predict answers {answer} for {row}")
            scores[answer["place"] - 1] = answer["score"]
        found.append(scores)
    return found


def check_folders(program, folder, lists, place, activation, max_length=128):
    """sentence-transformers loads the folder without a warning; scores, order and activation agree. max_length None: the folder says 128."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = CrossEncoder(str(folder), device="cpu", max_length=max_length)
    if model.max_seq_length != 128:
        sys.exit(f"{folder}: sentence-transformers truncates to {model.max_seq_length} tokens; expected 128")
    if type(model.activation_fn).__name__ != activation:
        sys.exit(f"{folder}: sentence-transformers reads the activation {model.activation_fn}; expected {activation}")
    for row, ours in zip(lists, ranked_here(program, folder, lists, place)):
        close(f"scores of {folder.name}", ours, model.predict([(row["query"], text) for text in row["text"]], show_progress_bar=False), 2e-5)
    return model


def check_metrics(program, folder, lists, place):
    path = place / "judged.jsonl"
    path.write_text("".join(json.dumps({**row, "label": [int(label == 3) for label in row["label"]]}) + "\n" for row in lists))
    ours = json.loads(run(program, "evaluate", "--model", folder, "--input", path, "--precision", "fp32", "--max-length", 128).splitlines()[-1])
    samples = [{"query": row["query"], "positive": [text for text, label in zip(row["text"], row["label"]) if label == 3],
                "negative": [text for text, label in zip(row["text"], row["label"]) if label != 3]} for row in lists]
    theirs = CrossEncoderRerankingEvaluator(samples, at_k=10, write_csv=False, show_progress_bar=False)(CrossEncoder(str(folder), device="cpu", max_length=128))
    for name in ("ndcg@10", "mrr@10", "map"):
        close(name, ours[name], theirs[name])
    return ours


MINED = [
    # options here, arguments there
    ([], {}),
    (["--relative-margin", 0.05, "--negatives", 5], {"relative_margin": 0.05, "num_negatives": 5}),
    (["--absolute-margin", 0.2, "--range-min", 2, "--range-max", 20], {"absolute_margin": 0.2, "range_min": 2, "range_max": 20}),
    (["--max-score", 0.6, "--min-score", 0.2, "--output-form", "n-tuple"], {"max_score": 0.6, "min_score": 0.2, "output_format": "n-tuple"}),
    (["--output-form", "labeled-pair", "--scores"], {"output_format": "labeled-pair", "output_scores": True}),
    (["--output-form", "labeled-list", "--relative-margin", 0.1], {"output_format": "labeled-list", "relative_margin": 0.1}),
    (["--output-form", "n-tuple", "--scores", "--negatives", 2], {"output_format": "n-tuple", "output_scores": True, "num_negatives": 2}),
]


def mined_there(model, pairs, corpus, arguments):
    found = hard_negatives.mine_hard_negatives(Columns({"anchor": [pair[0] for pair in pairs], "positive": [pair[1] for pair in pairs]}), model,
                                               corpus=corpus, verbose=False, **arguments)
    return [dict(zip(found.column_names, row)) for row in zip(*(found[name] for name in found.column_names))]


def compare_mined(case, ours, theirs):
    if len(ours) != len(theirs):
        sys.exit(f"{case}: {len(ours)} rows, sentence-transformers {len(theirs)}")
    for a, b in zip(ours, theirs):
        texts = [name for name in b if name not in ("score", "scores")]
        if [a.get(name) for name in texts] != [b[name] for name in texts]:
            sys.exit(f"{case}: {a}, sentence-transformers {b}")
        for name in set(b) - set(texts):
            close(f"{case} {name}", a[name], b[name], 5e-6)


def middle_of_scores(scorer, pairs):
    """The middle of the widest gap in the middle third of the scores of each first text with each second one."""
    scores = sorted(float(score) for score in scorer.predict([(a, p) for a, _ in pairs for _, p in pairs], show_progress_bar=False))
    middle = scores[len(scores) // 3:2 * len(scores) // 3]
    below, above = max(zip(middle, middle[1:]), key=lambda two: two[1] - two[0])
    return (below + above) / 2


def check_mining(program, encoder, reranker, place, pairs):
    path, corpus_file = place / "pairs.jsonl", place / "corpus.txt"
    # The last queries have two positives each, and some texts stand twice.
    pairs = pairs + [(pairs[number][0], pairs[number + 1][1]) for number in range(5)] + pairs[:3]
    corpus = [first for first, _ in pairs[10:30]]
    corpus_file.write_text("".join(text + "\n" for text in corpus))
    model, scorer = SentenceTransformer(str(encoder), device="cpu"), CrossEncoder(str(reranker), device="cpu")
    few = pairs[:7]  # for the reranker, which reads every candidate
    most = middle_of_scores(scorer, few)
    rescored = (["--max-score", most, "--reranker", reranker], {"max_score": most, "cross_encoder": scorer})
    for number, (options, arguments) in enumerate([*MINED, rescored]):
        asked = few if "cross_encoder" in arguments else pairs
        path.write_text("".join(json.dumps({"anchor": a, "positive": p}) + "\n" for a, p in asked))
        # The rules take turns with and without other texts.
        ways = [(None, None), (corpus_file, corpus)]
        for own, there in ways if number == 0 else [ways[number % 2]]:
            output = place / f"mined-{number}-{own is not None}.jsonl"
            counts = json.loads(run(program, "mine", "--model", encoder, "--input", path, "--output", output, "--precision", "fp32",
                                    *(["--corpus", own] if own else []), *options))
            if asked is few and not counts["dropped"]["max_score"]:
                sys.exit("mine --reranker drops no candidate; expected some with a score above --max-score")
            ours = [json.loads(line) for line in output.read_text().splitlines()]
            compare_mined(f"mine {' '.join(map(str, options))}", ours, mined_there(model, asked, there, arguments))
    print(f"mine: {len(MINED) + 1} sets of rules give the same negatives")


def main():
    program = sys.argv[1]
    torch.manual_seed(7)
    pairs = paraphrases(32)
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        minilm = small_model(sys.argv[2], place / "small", layers=6)  # in fewer layers the gradients of a list's texts would cancel
        start = CrossEncoder(str(minilm), num_labels=1, device="cpu", config_kwargs={"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
        start.save_pretrained(str(place / "start"))
        made = {}
        for number, (kind, options, make_loss) in enumerate(CASES):
            rows, case = case_rows(kind, pairs[:LISTS]), f"{kind} {' '.join(map(str, options))}"
            loss, gradients, made[case] = gradients_here(program, place / "start", rows, options, place / f"run-{number}")
            worst = compare(case, (loss, gradients), gradients_there(place / "start", kind, rows, make_loss))
            print(f"{case}: loss {loss:.6f}, gradients within {worst:.1e}")
        lists = lists_of(pairs[:5])
        check_folders(program, place / "start", lists, place, "Sigmoid")
        check_folders(program, made["pairs "], lists, place, "Sigmoid", max_length=None)
        as_logits = CrossEncoder(str(place / "start"), device="cpu", activation_fn=torch.nn.Identity())
        as_logits.save_pretrained(str(place / "logits"))
        check_folders(program, place / "logits", lists, place, "Identity")
        run(program, "finetune", "--model", minilm, "--task", "reranker", "--train", place / "run-6.jsonl", "--loss", "lambda", "--output", place / "plain",
            "--max-steps", 2, "--batch-size", 3, "--max-length", 128)
        check_folders(program, place / "plain/model", lists, place, "Identity")
        print("metrics:", check_metrics(program, place / "plain/model", lists, place))
        check_mining(program, small_model(sys.argv[2], place / "encoder"), place / "start", place, pairs)


main()
