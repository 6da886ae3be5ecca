#!/usr/bin/env python3
"""Makes rows with soft labels of real texts, for docs/how_to/llm_labels.md: descriptions of Debian packages, and shares of their sections.

usage: tools/llm_labels/rows.py FOLDER [--rows N]

The descriptions come from tools/quickstart/descriptions.sh, into FOLDER/sections. FOLDER gets
  rows.csv    N texts (10,000) with a share of each section: p_fonts, p_games, …
  hard.csv    the same texts with the section that has the greatest share
  eval.csv    texts with the section that their authors gave
  test.csv    the same, of other source packages

No language model runs here. A rule takes its place, which is as wrong and as unsure as one: a naive Bayes classifier of words that is fitted
to other 2,000 texts with their sections. Its log-likelihoods are divided by the square root of the number of words, since words are
not independent. Nothing of the texts' own sections is in their shares.
"""

import argparse
import collections
import csv
import hashlib
import math
import pathlib
import re
import subprocess

SECTIONS = ["fonts", "games", "haskell", "java", "net", "perl", "python", "ruby", "rust", "science", "sound", "x11"]
FITTED, HELD_OUT = 2000, 1000


def read(path):
    """Rows (section, text) in an order that depends on the texts alone."""
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t", 1) for line in file]
    rows = [row for row in rows if row[0] in SECTIONS]
    return sorted(rows, key=lambda row: hashlib.sha256(row[1].encode()).digest())


def words(text):
    return re.findall(r"[a-z][a-z0-9+-]+", text.lower())


class Annotator:
    def __init__(self, rows):
        self.counts = {section: collections.Counter() for section in SECTIONS}
        for section, text in rows:
            self.counts[section].update(set(words(text)))
        self.known = set().union(*self.counts.values())
        self.totals = {section: sum(counts.values()) + 0.05 * len(self.known) for section, counts in self.counts.items()}

    def shares(self, text):
        found = [word for word in words(text) if word in self.known]
        scores = [sum(math.log((self.counts[section][word] + 0.05) / self.totals[section]) for word in found) for section in SECTIONS]
        scores = [score / math.sqrt(max(1, len(found))) for score in scores]
        powers = [math.exp(score - max(scores)) for score in scores]
        return [power / sum(powers) for power in powers]


def write(path, header, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("output", metavar="FOLDER", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=10000)
    options = parser.parse_args()
    sections = options.output.resolve() / "sections"
    if not (sections / "sections-train.tsv").exists():
        subprocess.run(["bash", "tools/quickstart/descriptions.sh", sections], cwd=pathlib.Path(__file__).resolve().parents[2], check=True)
    train = read(sections / "sections-train.tsv")
    annotator = Annotator(train[:FITTED])
    rows = train[FITTED:FITTED + options.rows]
    if len(rows) < options.rows:
        parser.error(f"there are {len(rows)} texts besides the {FITTED} that the rule is fitted to; expected {options.rows}")
    options.output.mkdir(parents=True, exist_ok=True)
    shares = [annotator.shares(text) for _, text in rows]
    write(options.output / "rows.csv", ["text", *(f"p_{section}" for section in SECTIONS)],
          [[text, *(f"{share:.6f}" for share in own)] for (_, text), own in zip(rows, shares)])
    write(options.output / "hard.csv", ["label", "text"], [[SECTIONS[own.index(max(own))], text] for (_, text), own in zip(rows, shares)])
    for name in ("eval", "test"):
        held_out = read(sections / f"sections-{name}.tsv")[:HELD_OUT]
        write(options.output / f"{name}.csv", ["label", "text"], held_out)
        right = sum(SECTIONS[(own := annotator.shares(text)).index(max(own))] == section for section, text in held_out)
        print(f"{name}.csv: {len(held_out)} rows; the rule is right for {right / len(held_out):.1%}")
    sure = sum(max(own) for own in shares) / len(shares)
    right = sum(SECTIONS[own.index(max(own))] == section for own, (section, _) in zip(shares, rows)) / len(rows)
    print(f"rows.csv: {len(rows)} rows; the rule is right for {right:.1%}, and its greatest share is {sure:.3f} in the mean")


if __name__ == "__main__":
    main()
