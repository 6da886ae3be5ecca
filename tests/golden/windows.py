"""Windows of long texts against transformers: their ids and offsets, and answers from their scores.

usage: windows.py FUNICULAR_PROGRAM WINDOW_IDS MODEL

MODEL is a folder with a real tokenizer. The ids are those of return_overflowing_tokens; classes, labels, numbers and tags are combined
here by their definitions (docs/how_to/long_texts.md) from the logits of transformers' models with random weights.
"""

import json
import os
import random
import struct
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, BertForTokenClassification

LENGTH, STRIDE = 24, 7
WORDS = ["river", "old", "film", "caf\u00e9", "bookkeeping", ",", "U.S.", "\u4e2d\u6587", "antidisestablishmentarianism", "\U0001f600", "e\u0301t\u00e9", "it's",
         "x" * 130]


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"funicular {' '.join(map(str, arguments))}\nexit {done.returncode}\n{done.stderr}")
    return done.stdout


def texts(count, seed):
    source = random.Random(seed)
    return [" ".join(source.choice(WORDS) for _ in range(source.randint(0, 60))) for _ in range(count)]


def our_windows(program, folder, length, stride, given):
    payload = b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in given)
    raw = subprocess.run([program, folder, str(length), str(stride)], input=payload, capture_output=True, check=True).stdout
    values, at = struct.unpack(f"<{len(raw) // 4}i", raw), 0
    for _ in given:
        windows, at, count = [], at + 1, values[at]
        for _ in range(count):
            size = values[at]
            ids, places = values[at + 1:at + 1 + size], values[at + 1 + size:at + 1 + 3 * size]
            at += 1 + 3 * size
            windows.append((list(ids), list(zip(places[::2], places[1::2]))))
        yield windows


def compare_ids(program, folder, tokenizer):
    given, compared, different = texts(300, 1), 0, 0
    for length, stride in ((24, 7), (16, 0), (16, 13), (512, 128), (3, 0)):
        for text, ours in zip(given, our_windows(program, folder, length, stride, given), strict=True):
            theirs = tokenizer(text, truncation=True, max_length=length, stride=stride, return_overflowing_tokens=True, return_offsets_mapping=True)
            expected = list(zip(theirs["input_ids"], theirs["offset_mapping"]))
            compared += len(expected)
            different += ours != expected
    print(f"{compared} windows, {different} texts differ")
    assert different == 0 and compared > 10000, (compared, different)


def windows_of(tokenizer, model, text, **more):
    """Of each window: its logits, and how many of its tokens no earlier one has."""
    found = tokenizer(text, truncation=True, max_length=LENGTH, stride=STRIDE, return_overflowing_tokens=True, **more)
    known, windows = 0, []
    for number, ids in enumerate(found["input_ids"]):
        end = number * (LENGTH - 2 - STRIDE) + len(ids) - 2
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0].double()
        windows.append((logits, max(end - known, 1)))
        known = end
    return windows


def combined(windows, how, kind):
    logits = torch.stack([logits for logits, _ in windows])
    weights = torch.tensor([new for _, new in windows], dtype=torch.double).unsqueeze(1)
    scores = {"softmax": lambda x: x.softmax(-1), "sigmoid": torch.sigmoid, "number": lambda x: x}[kind]
    if how == "mean-logits":
        return scores((logits * weights).sum(0) / weights.sum())
    if how == "mean-probabilities":
        return (scores(logits) * weights).sum(0) / weights.sum()
    best = scores(logits).max(0).values
    return best / best.sum() if kind == "softmax" else best


def made_model(folder, tokenizer, kind, note, **more):
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=40,
                        initializer_range=0.3, **more)
    model = kind(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        saved = json.load(file)
    saved["funicular"] = {"max_length": LENGTH, "columns": {"text": ["text"], "label": "label", "header": True, "label_separator": ",", "stride": STRIDE}, **note}
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(saved, file)
    return model


def compare_answers(program, scratch, tokenizer):
    given = [text or "film" for text in texts(15, 2)]
    with open(f"{scratch}/texts.txt", "w", encoding="utf-8") as file:
        file.write("\n".join(given) + "\n")
    names = {"id2label": {0: "a", 1: "b", 2: "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}
    for kind, more in (("softmax", {**names, "problem_type": "single_label_classification"}), ("sigmoid", {**names, "problem_type": "multi_label_classification"}),
                       ("number", {"num_labels": 1, "problem_type": "regression"})):
        for how in ("mean-probabilities", "mean-logits", "maximum"):
            folder = f"{scratch}/{kind}-{how}"
            model = made_model(folder, tokenizer, BertForSequenceClassification, {"windows": how}, **more)
            lines = run(program, "predict", "--model", folder, "--input", f"{scratch}/texts.txt", "--precision", "fp32").splitlines()
            for text, line in zip(given, lines, strict=True):
                answer, expected = json.loads(line), combined(windows_of(tokenizer, model, text), how, kind)
                found = [answer["value"]] if kind == "number" else [answer["probabilities"][name] for name in "abc"]
                assert all(abs(a - b) < 2e-5 for a, b in zip(found, expected.tolist(), strict=True)), (kind, how, text, found, expected)
    print(f"{len(given)} texts, three kinds of scores, three combinations: answers are those of transformers' logits")


def compare_tags(program, scratch, tokenizer):
    folder = f"{scratch}/tags"
    names = {0: "O", 1: "B-X", 2: "I-X"}
    model = made_model(folder, tokenizer, BertForTokenClassification, {}, id2label=names, label2id={name: tag for tag, name in names.items()})
    given = [text.split() or ["film"] for text in texts(20, 3)]
    with open(f"{scratch}/words.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"tokens": words}) + "\n" for words in given)
    lines = run(program, "predict", "--model", folder, "--input", f"{scratch}/words.jsonl", "--text-column", "tokens", "--precision", "fp32").splitlines()
    near = 0
    for words, line in zip(given, lines, strict=True):
        whole = tokenizer(words, is_split_into_words=True, add_special_tokens=False).word_ids()
        windows, step = windows_of(tokenizer, model, words, is_split_into_words=True), LENGTH - 2 - STRIDE
        best = []
        for number in range(len(words)):
            first = whole.index(number)
            inside = [(min(first - at * step, size - 1 - (first - at * step)), -at, logits[1 + first - at * step])
                      for at, (logits, _) in enumerate(windows) for size in [len(logits) - 2] if at * step <= first < at * step + size]
            best.append(max(inside, key=lambda each: each[:2])[2])
        answer = json.loads(line)
        assert len(answer["tags"]) == len(words)
        for number, tag in enumerate(answer["tags"]):
            scores = best[number].softmax(-1)
            top = scores.topk(2).values
            if top[0] - top[1] < 1e-4:
                near += 1
                continue
            assert tag == names[int(scores.argmax())], (words, number, tag, scores)
    print(f"{len(given)} texts: the tag of each word is that of the window with most context ({near} ties left out)")


def main():
    program, window_ids, folder = sys.argv[1:]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    compare_ids(window_ids, folder, tokenizer)
    with tempfile.TemporaryDirectory() as scratch:
        compare_answers(program, scratch, tokenizer)
        compare_tags(program, scratch, tokenizer)


if __name__ == "__main__":
    main()
