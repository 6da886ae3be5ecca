#!/usr/bin/env python3
"""What each pre-training objective is worth at equal tokens: a small model from scratch, its held-out loss, a score downstream.

usage: objective_study.py --data FOLDER --results FOLDER [--language english|chinese] [--tokens 2e6] [--seeds 3] [--only NAME…]
                          [--task-train FILE --task-eval FILE]

English: pre-training on WikiText-2 (FOLDER/wikitext2/valid.txt), then CoLA (FOLDER/cola), Matthews correlation. Chinese:
People's Daily (FOLDER/peopledaily/dev.txt), then titles of news in ten classes (FOLDER/thucnews), accuracy. "none" is fine-tuned
without pre-training. --task-train and --task-eval take tables of label and text instead, scored by accuracy (so small a model
learns nothing of CoLA; tools/quickstart/descriptions.sh FOLDER makes descriptions of packages and their sections). Similar words are
those of vectors that are trained on the same text. Chinese words are cut by jieba's dictionary (pip install jieba). Each objective
reads as many real tokens as the others, to within a step; ELECTRA's step costs more, since its generator reads them too. Losses are
each objective's own and do not compare; scores do: the mean of --task-seeds fine-tunings of a model. Each finished pre-training leaves
a pretrained.json, each finished run a result.json, and neither is repeated; table.md is written after each.
"""
import argparse
import json
import re
import shutil
import statistics
from collections import Counter
from pathlib import Path

import study_tools as tools

ROOT = Path(__file__).resolve().parents[1]
OBJECTIVES = {
    "none": None,
    "tokens": [],
    "whole words": ["--masking", "whole-word"],
    "n-grams": ["--masking", "ngram"],
    "spans": ["--masking", "span"],
    "entities": ["--masking", "entity", "--lexicon", "LEXICON"],
    "similar words (MacBERT)": ["--objective", "mlm-sop", "--masking", "ngram", "--replacement", "similar", "--similar-words", "SIMILAR"],
    "next sentence (BERT)": ["--objective", "mlm-nsp"],
    "sentence order (ALBERT)": ["--objective", "mlm-sop", "--masking", "ngram"],
    "full sentences (RoBERTa)": ["--pack-sentences", "across"],
    "replaced tokens (ELECTRA)": ["--objective", "electra"],
}
METRICS = {"english": "matthews_correlation", "chinese": "accuracy"}
PROBE = 10  # steps that tell the tokens of a step
CHARACTERS = 5000  # of the Chinese vocabulary


# Text.


def english_documents(text):
    """Articles, a sentence a line."""
    articles = re.split(r"(?m)^ = [^=].*[^=] = *$", text)
    sentences = lambda article: [part.strip() for line in article.splitlines() if line.strip() and not line.startswith(" =")
                                 for part in re.split(r"(?<= [.?!]) ", line.strip()) if len(part.split()) > 2]
    return [found for found in map(sentences, articles) if len(found) > 3]


def chinese_documents(text):
    """Sentences in groups of eight, and the entities that are marked in them."""
    sentences, entities, entity = [[]], Counter(), ""
    for line in text.splitlines():
        character, _, tag = line.partition(" ")
        if not tag.startswith("I"):
            entities[entity] += 1
            entity = ""
        if not line.strip():
            sentences.append([])
            continue
        sentences[-1].append(character)
        if tag != "O":
            entity += character
    lines = ["".join(each) for each in sentences if each]
    return [lines[at:at + 8] for at in range(0, len(lines), 8)], [word for word in entities if len(word) > 1]


def make_texts(args):
    """Files of the text that is read and of the text that is held out, the tokenizer, and the lexicon of entities."""
    folder = args.results / "inputs"
    if args.language == "english":
        documents, entities = english_documents((args.data / "wikitext2/valid.txt").read_text(encoding="utf-8")), []
        counts = Counter(word for each in documents for line in each for word in tools.words_of(line))
        vocabulary = tools.build_vocabulary(counts, 6000)
    else:
        documents, entities = chinese_documents((args.data / "peopledaily/dev.txt").read_text(encoding="utf-8"))
        titles = (args.data / "thucnews/dev.txt").read_text(encoding="utf-8")
        counts = Counter(character for each in documents for line in each for character in line) + Counter(titles)
        vocabulary = tools.SPECIAL_TOKENS + [character for character, _ in counts.most_common(CHARACTERS) if character.strip()]
    held_out = documents[9::10]
    documents = [each for number, each in enumerate(documents) if number % 10 != 9]
    paths = {"train": folder / "train.txt", "eval": folder / "eval.txt", "tokenizer": folder / "tokenizer", "lexicon": folder / "entities.txt"}
    for name, texts in (("train", documents), ("eval", held_out)):
        tools.write_atomically(paths[name], "\n\n".join("\n".join(each) for each in texts) + "\n")
    tools.write_atomically(paths["tokenizer"] / "vocab.txt", "".join(f"{piece}\n" for piece in vocabulary))
    tools.write_atomically(paths["lexicon"], "".join(f"{word}\n" for word in sorted(entities)))
    return paths


def spread_over(lines, most):
    """At most so many, from the whole file: the classes may follow each other."""
    return [lines[number * len(lines) // most] for number in range(most)] if len(lines) > most else lines


def task_files(args):
    """Rows of label and text for training and for the score."""
    folder = args.results / "inputs"
    if args.task_train:
        header, *lines = args.task_train.read_text(encoding="utf-8").splitlines()
        tools.write_atomically(folder / "train.tsv", "\n".join([header, *spread_over(lines, args.rows)]) + "\n")
        return folder / "train.tsv", args.task_eval
    if args.language == "english":
        for name in ("train", "dev"):
            lines = (args.data / f"cola/{name}.tsv").read_text(encoding="utf-8").splitlines()
            tools.write_atomically(folder / f"{name}.tsv", "\n".join(spread_over(lines, args.rows) if name == "train" else lines) + "\n")
    else:
        for name, source, most in (("train", "dev", args.rows), ("dev", "test", 2000)):  # which share no title
            lines = (args.data / f"thucnews/{source}.txt").read_text(encoding="utf-8").splitlines()
            rows = ["\t".join(reversed(line.rsplit("\t", 1))) for line in spread_over(lines, most)]
            tools.write_atomically(folder / f"{name}.tsv", "\n".join(["label\ttext", *rows]) + "\n")
    return folder / "train.tsv", folder / "dev.tsv"


def similar_words(args, paths):
    """Word vectors of the text that is read."""
    vectors = args.results / "inputs" / "vectors.txt"
    if not vectors.exists():
        words = ["--word-dictionary", args.word_dictionary] if args.language == "chinese" else []
        tools.call(args.program, ["vectors", "--input", paths["train"], "--output", vectors, *words])
    return vectors


def dictionary_of_jieba():
    import jieba
    return Path(jieba.__file__).with_name("dict.txt")


# Runs.


def model_file(args, paths, electra):
    config = tools.model_config(paths["tokenizer"] / "vocab.txt", args.layers, args.width, args.dropout, args.max_length)
    if electra:
        config |= {"model_type": "electra", "architectures": ["ElectraForPreTraining"], "embedding_size": args.width}
    path = args.results / "inputs" / ("electra.json" if electra else "bert.json")
    tools.write_json(path, config)
    return path


def pretrain(args, paths, stores, name, seed, steps, output):
    words = [{"LEXICON": paths["lexicon"], "SIMILAR": args.similar_words}.get(word, word) for word in OBJECTIVES[name]]
    if args.word_dictionary and "--masking" in words:
        words += ["--word-dictionary", args.word_dictionary]
    tools.call(args.program, ["pretrain", "--model", model_file(args, paths, "electra" in words), "--tokenizer", paths["tokenizer"], "--train",
                              stores["train"], "--eval", stores["eval"], "--eval-steps", steps, "--output", output, "--max-steps", steps,
                              "--max-length", args.max_length, "--batch-size", args.batch_size, "--learning-rate", args.learning_rate,
                              "--warmup-ratio", 0.1, "--weight-decay", 0.01, "--save-steps", 0, "--seed", seed, *words])
    return json.loads((output / "run.json").read_text())["result"]


def metric_of(args):
    return "accuracy" if args.task_train else METRICS[args.language]


def finetune(args, task, model, seed, output):
    task_name = "cola" if metric_of(args) == "matthews_correlation" else "custom"
    printed = tools.call(args.program, ["finetune", "--model", model, "--task", task_name, "--train",
                                        task[0], "--eval", task[1], "--metric-for-best-model", "loss", "--output", output,
                                        "--num-train-epochs", args.epochs, "--batch-size", 32, "--learning-rate", args.task_learning_rate, "--warmup-ratio", 0.1, "--max-length",
                                        min(64, args.max_length), "--save-steps", 0, "--seed", seed])
    return json.loads(printed.strip().splitlines()[-1])


def run_once(args, paths, stores, task, name, seed):
    """Pre-trains once, unless that is done, and fine-tunes so many times: a fine-tuning's score depends much on its seed."""
    folder = args.results / "runs" / f"{re.sub('[^a-z]+', '-', name.lower()).strip('-')}-{seed}"
    done, pretrained = folder / "result.json", folder / "pretrained.json"
    if done.exists():
        return json.loads(done.read_text())
    if folder.exists() and not pretrained.exists():
        shutil.rmtree(folder)  # of a run that was stopped
    found, model = {"objective": name, "seed": seed}, folder / "pretrained/model"
    if OBJECTIVES[name] is None:
        model = untrained(args, paths, seed)
    elif pretrained.exists():
        found = json.loads(pretrained.read_text())
    else:
        probe = pretrain(args, paths, stores, name, seed, PROBE, folder / "probe")
        steps = max(1, round(args.tokens / (probe["tokens"] / PROBE)))
        result = pretrain(args, paths, stores, name, seed, steps, folder / "pretrained")
        found |= {"tokens": result["tokens"], "steps": steps, "seconds": result["seconds"], "eval_loss": result["best_evaluation"]["loss"]}
        tools.write_json(pretrained, found)
    scores = []
    for task_seed in range(1, args.task_seeds + 1):
        output = folder / f"tuned-{task_seed}"
        shutil.rmtree(output, ignore_errors=True)
        scores.append(finetune(args, task, model, 100 * seed + task_seed, output)[metric_of(args)])
    found["score"] = statistics.mean(scores)
    tools.write_json(done, found)
    return found


def untrained(args, paths, seed):
    """A folder of random weights: a step at a rate that moves none."""
    output = args.results / "runs" / f"random-{seed}"
    if not (output / "model").exists():
        tools.call(args.program, ["pretrain", "--model", model_file(args, paths, False), "--tokenizer", paths["tokenizer"], "--train",
                                  paths["eval"].with_suffix(".tokens"), "--output", output, "--max-steps", 1, "--learning-rate", 1e-30,
                                  "--max-length", args.max_length, "--save-steps", 0, "--seed", seed])
    return output / "model"


# Report.


def report(args, results):
    lines = [f"| objective | tokens | steps | held-out loss (its own) | {metric_of(args)}, mean and 95 % interval | seeds | seconds |",
             "|---|---|---|---|---|---|---|"]
    for name in OBJECTIVES:
        runs = [each for each in results if each["objective"] == name]
        if not runs:
            continue
        mean = lambda key, digits=0: f"{statistics.mean(each[key] for each in runs):.{digits}f}" if key in runs[0] else "–"
        lines.append(f"| {name} | {mean('tokens')} | {mean('steps')} | {mean('eval_loss', 3)} | {tools.spread([each['score'] for each in runs])} | "
                     f"{len(runs)} | {mean('seconds')} |")
    tools.write_atomically(args.results / "table.md", "\n".join(lines) + "\n")
    return "\n".join(lines)


def chosen(args):
    names = args.only or [name for name in OBJECTIVES if not ("entities" in name and args.language == "english")]
    for name in names:
        if name not in OBJECTIVES:
            raise tools.Failed(f"--only {name}: expected one of {', '.join(OBJECTIVES)}")
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with wikitext2, cola, peopledaily, thucnews")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--language", choices=METRICS, default="english")
    parser.add_argument("--tokens", type=float, default=2e6, help="real tokens that each objective reads")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=8, help="small: few tokens need many steps to teach more than frequencies")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--dropout", type=float, default=0)
    parser.add_argument("--rows", type=int, default=4000, help="of the task, to fine-tune on")
    parser.add_argument("--task-train", type=Path, help="a table of label and text to fine-tune on, with a header")
    parser.add_argument("--task-eval", type=Path, help="one to score on")
    parser.add_argument("--epochs", type=float, default=3, help="of fine-tuning")
    parser.add_argument("--task-learning-rate", type=float, default=1e-3)
    parser.add_argument("--task-seeds", type=int, default=3, help="fine-tunings of each model, whose mean is its score")
    parser.add_argument("--similar-words", type=Path, help="lexicon or word vectors, instead of those that are trained")
    parser.add_argument("--word-dictionary", type=Path, help="Chinese words in jieba's format, instead of jieba's own")
    parser.add_argument("--only", nargs="+", help="names of objectives")
    args = parser.parse_args()
    if bool(args.task_train) != bool(args.task_eval):
        parser.error("--task-train and --task-eval go together")
    try:
        tools.keep_settings(args)
        paths, task = make_texts(args), task_files(args)
        stores = {name: tools.tokenize(args.program, paths["tokenizer"], paths[name]) for name in ("train", "eval")}
        if args.language == "chinese":
            args.word_dictionary = args.word_dictionary or dictionary_of_jieba()
        args.similar_words = args.similar_words or similar_words(args, paths)
        results = []
        for seed in range(1, args.seeds + 1):
            for name in chosen(args):
                results.append(run_once(args, paths, stores, task, name, seed))
                report(args, results)
        print(report(args, results))
    except (tools.Failed, OSError) as problem:
        tools.stop(problem)


if __name__ == "__main__":
    main()
