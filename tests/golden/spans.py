"""Span answers against transformers: the same answers, scores and measures from its folders and from ours.

usage: spans.py FUNICULAR_PROGRAM

The windows are those of the fast tokenizer, the logits those of BertForQuestionAnswering; candidates, exact match and F1 are written here
by their definitions (docs/how_to/spans.md).
"""

import json
import os
import random
import re
import string
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer, BertConfig, BertForQuestionAnswering, BertTokenizerFast

WORDS = ["river", "cold", "the", "old", "film", "is", "an", "caf\u00e9", "book", ",", ".", "U.S.", "\u4e2d\u6587", "unseen"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ri", "##ver", "cold", "the", "old", "fi", "##lm", "is", "an", "ca", "##fe", "book", ",", ".",
              "u", "s", "\u4e2d", "\u6587", "what", "who"]
LENGTH, STRIDE, LISTED = 32, 6, 5


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"funicular {' '.join(map(str, arguments))}\nexit {done.returncode}\n{done.stderr}")
    return done.stdout


def made_file(path, count, seed):
    source, paragraphs = random.Random(seed), []
    for number in range(count):
        words = [source.choice(WORDS) for _ in range(source.randint(1, 60))]
        context = " ".join(words) + source.choice(["", " ", "\u0301 x"])
        begin = source.randrange(len(words))
        text = " ".join(words[begin:begin + source.randint(1, 4)])
        question = {"id": f"q{number}", "question": source.choice(["  what is", "who"]) + " the " + source.choice(WORDS), "is_impossible": number % 3 == 0,
                    "answers": [] if number % 3 == 0 else [{"text": text, "answer_start": len(" ".join(words[:begin])) + (begin > 0)}]}
        paragraphs.append({"context": context, "qas": [question]})
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"version": "2.0", "data": [{"title": "", "paragraphs": paragraphs}]}, file)


def answer(model, tokenizer, question, context, candidates=None):
    """(answer, start, end, score, null score). candidates: gets the best score of each (start, end)."""
    candidates = {} if candidates is None else candidates
    windows = tokenizer(question.lstrip(), context, truncation="only_second", max_length=LENGTH, stride=STRIDE, return_overflowing_tokens=True,
                        return_offsets_mapping=True)
    best, null = (-float("inf"), 0, 0), float("inf")
    for at, ids in enumerate(windows["input_ids"]):
        with torch.no_grad():
            out = model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([windows["token_type_ids"][at]]))
        starts, ends = out.start_logits[0].double().numpy(), out.end_logits[0].double().numpy()
        null = min(null, starts[0] + ends[0])
        inside = [number == 1 for number in windows.sequence_ids(at)]
        offsets = windows["offset_mapping"][at]
        for start in numpy.argsort(starts)[::-1][:20]:
            for end in numpy.argsort(ends)[::-1][:20]:
                if not (inside[start] and inside[end] and start <= end < start + 30):
                    continue
                place, score = (offsets[start][0], offsets[end][1]), starts[start] + ends[end]
                candidates[place] = max(score, candidates.get(place, score))
                if score > best[0]:
                    best = (score, *place)
    return context[best[1]:best[2]], best[1], best[2], best[0], null


def words_of(text):
    text = "".join(character for character in text.lower() if character not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def scores(given, gold):
    pairs = []
    for right in [text for text in gold if words_of(text)] or [""]:
        a, b = words_of(given), words_of(right)
        exact = float(a == b)
        common = sum(min(a.count(word), b.count(word)) for word in set(a))
        pairs.append((exact, exact if not a or not b else 2 * common / (len(a) + len(b))))
    return tuple(max(pair[column] for pair in pairs) for column in (0, 1))


def best_threshold(points, column):
    """The best mean over thresholds: each question's null odds, scores if it is answered, scores if not."""
    limits = [-float("inf"), *sorted({odds for odds, _, _ in points})]
    return max(sum((yes if odds <= limit else no)[column] for odds, yes, no in points) / len(points) for limit in limits)


def compare_candidates(model, tokenizer, lines, paragraphs, threshold):
    for line, paragraph in zip(lines, paragraphs):
        [question] = paragraph["qas"]
        found = {}
        null = answer(model, tokenizer, question["question"], paragraph["context"], found)[4]
        best = sorted(((score, *place) for place, score in found.items()), reverse=True)[:LISTED]
        if threshold is not None:
            best = sorted([*best, (null, 0, 0)], reverse=True)
        shares = numpy.exp([score - best[0][0] for score, _, _ in best])
        assert [(each["start"], each["end"]) for each in line["n_best"]] == [(start, end) for _, start, end in best], line
        for each, (score, start, end), share in zip(line["n_best"], best, shares / shares.sum()):
            assert each["answer"] == paragraph["context"][start:end], each
            assert abs(each["score"] - score) < 1e-3 and abs(each["probability"] - share) < 1e-3, (each, score, share)


def compare(program, folder, path, threshold):
    model, tokenizer = AutoModelForQuestionAnswering.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    options = ["--model", folder, "--max-length", LENGTH, "--precision", "fp32"]
    lines = [json.loads(line) for line in run(program, "predict", *options, "--input", path).splitlines()]
    with open(path, encoding="utf-8") as file:
        paragraphs = json.load(file)["data"][0]["paragraphs"]
    assert len(lines) == len(paragraphs)
    compare_candidates(model, tokenizer, [json.loads(line) for line in run(program, "predict", *options, "--input", path, "--n-best", LISTED).splitlines()],
                       paragraphs, threshold)
    points, total = [], [0, 0]
    for line, paragraph in zip(lines, paragraphs):
        [question] = paragraph["qas"]
        text, start, end, score, null = answer(model, tokenizer, question["question"], paragraph["context"])
        odds = null - score
        if threshold is not None and odds > threshold:
            text, start, end = "", 0, 0
        assert (line["id"], line["answer"], line["start"], line["end"]) == (question["id"], text, start, end), (line, text, start, end, score, null)
        assert abs(line["score"] - score) < 1e-3 and abs(line["null_score"] - null) < 1e-3, (line, score, null)
        gold = [each["text"] for each in question["answers"]]
        whole = answer(model, tokenizer, question["question"], paragraph["context"])[0]
        points.append((odds, scores(whole, gold), scores("", gold)))
        given = scores(whole if odds <= (threshold or 0) else "", gold)
        total = [total[0] + given[0], total[1] + given[1]]
    found = json.loads(run(program, "evaluate", *options, *(["--task", "spans", "--stride", STRIDE] if threshold is None else []), "--data", path))
    for column, name in enumerate(("exact", "f1")):
        assert abs(found[name] - total[column] / len(lines)) < 1e-9, (name, found, total)
        assert abs(found["best_" + name] - best_threshold(points, column)) < 1e-9, (name, found)
    print(f"{folder}: {len(lines)} answers are transformers'; f1 {found['f1']:.4f}, best {found['best_f1']:.4f}")


def main():
    [program] = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        folder = f"{scratch}/theirs"
        os.makedirs(folder)
        with open(f"{folder}/vocab.txt", "w", encoding="utf-8") as file:
            file.write("\n".join(VOCABULARY) + "\n")
        BertTokenizerFast(f"{folder}/vocab.txt").save_pretrained(folder)
        torch.manual_seed(0)
        model = BertForQuestionAnswering(BertConfig(vocab_size=len(VOCABULARY), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                                                    max_position_embeddings=40, initializer_range=0.3))
        torch.nn.init.normal_(model.qa_outputs.bias)
        model.save_pretrained(folder)
        made_file(f"{scratch}/train.json", 40, 1)
        made_file(f"{scratch}/eval.json", 60, 2)
        with open(f"{folder}/config.json", encoding="utf-8") as file:
            config = json.load(file)
        config["funicular"] = {"columns": {"text": [], "label": "", "header": True, "label_separator": ",", "stride": STRIDE}}
        with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        compare(program, folder, f"{scratch}/eval.json", None)
        run(program, "finetune", "--model", folder, "--task", "spans", "--train", f"{scratch}/train.json", "--eval", f"{scratch}/eval.json", "--output",
            f"{scratch}/run", "--max-length", LENGTH, "--stride", STRIDE, "--num-train-epochs", 2, "--batch-size", 8, "--learning-rate", 1e-3)
        ours = f"{scratch}/run/model"
        with open(f"{ours}/config.json", encoding="utf-8") as file:
            threshold = json.load(file)["funicular"]["null_threshold"]
        _, info = AutoModelForQuestionAnswering.from_pretrained(ours, output_loading_info=True)
        assert not any(info.values()), info
        compare(program, ours, f"{scratch}/eval.json", threshold)


if __name__ == "__main__":
    main()
