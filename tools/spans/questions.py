#!/usr/bin/env python3
"""Makes questions whose answers are spans of real texts, in SQuAD 2.0's form, for docs/how_to/spans.md: descriptions of Debian packages.

usage: tools/spans/questions.py FOLDER [--texts N]

The descriptions come from tools/quickstart/descriptions.sh, into FOLDER/sections. FOLDER gets
  train.json  questions about N texts (4,000)
  eval.json   questions about 500 texts of other source packages
  test.json   the same

The rule: an answer is a number or a run of capitalised words within a sentence, and stands once in its text. The question is the sentence with
"which" in the answer's place and without four tenths of its other words. A text has up to three questions from sentences of their own. Every third
text also has a question about another text, which it does not answer. A hash of the text decides all that is drawn.
"""

import argparse
import hashlib
import json
import pathlib
import random
import re
import subprocess

HELD_OUT = 500
QUESTIONS = 3  # of a text
SENTENCES, WORDS = 3, 300  # the fewest sentences and the most words of a text
ANSWER = re.compile(r"(?<![\w.,-])(?:\d[\d.,]*\d|\d|[A-Z][\w+-]+(?: [A-Z][\w+-]+)*)(?![\w-])")


def drawing(text):
    return random.Random(hashlib.sha256(text.encode()).digest())


def read(path):
    """Texts in an order that depends on them alone."""
    with open(path, encoding="utf-8") as file:
        texts = {line.rstrip("\n").split("\t", 1)[1] for line in file}
    return sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())


def sentences(text):
    """(place, sentence), in order."""
    ends = [match.start() for match in re.finditer(r"(?<=[.!?]) (?=[A-Z])", text)]
    return [(begin, text[begin:end]) for begin, end in zip([0, *(end + 1 for end in ends)], [*ends, len(text)])]


def question(sentence, begin, end, source):
    kept = [" ".join(word for word in part.split() if source.random() >= 0.4) for part in (sentence[:begin], sentence[end:])]
    return " which ".join(kept).strip()


def questions(text):
    """(question, answer, place) of up to three sentences; none of a text that is too short or too long."""
    found, source = [], drawing(text)
    parts = sentences(text)
    if len(parts) < SENTENCES or len(text.split()) > WORDS:
        return []
    # The first sentence stands behind a title without a full stop, and lists have none either.
    for place, sentence in source.sample(parts[1:], len(parts) - 1):
        # The first word of a sentence is capitalised whatever it is.
        answers = [match for match in ANSWER.finditer(sentence) if match.start() > 0 and text.count(match[0]) == 1]
        if not answers or len(sentence.split()) < 6 or "* " in sentence:
            continue
        answer = source.choice(answers)
        found.append((question(sentence, *answer.span(), source), answer[0], place + answer.start()))
        if len(found) == QUESTIONS:
            break
    return found


def squad(texts):
    """The file's content, and how many of its questions have an answer and how many have none."""
    able = [(text, own) for text in texts if (own := questions(text))]
    data, counts = [], [0, 0]
    for number, (text, own) in enumerate(able):
        asked = [{"question": words, "answers": [{"text": answer, "answer_start": place}], "is_impossible": False} for words, answer, place in own]
        words, answer, _ = able[number - 1][1][0]
        if number % 3 == 0 and answer not in text:
            asked.append({"question": words, "answers": [], "is_impossible": True})
        for at, one in enumerate(asked):
            one["id"] = f"{number}-{at}"
            counts[one["is_impossible"]] += 1
        data.append({"title": f"{number}", "paragraphs": [{"context": text, "qas": asked}]})
    return {"version": "v2.0", "data": data}, counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("output", metavar="FOLDER", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=4000)
    options = parser.parse_args()
    sections = options.output.resolve() / "sections"
    if not (sections / "sections-train.tsv").exists():
        subprocess.run(["bash", "tools/quickstart/descriptions.sh", sections], cwd=pathlib.Path(__file__).resolve().parents[2], check=True)
    for name, most in (("train", options.texts), ("eval", HELD_OUT), ("test", HELD_OUT)):
        texts = [text for text in read(sections / f"sections-{name}.tsv") if questions(text)][:most]
        content, (answered, unanswered) = squad(texts)
        (options.output / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        print(f"{name}.json: {len(texts)} texts, {answered} questions with an answer, {unanswered} without")


if __name__ == "__main__":
    main()
