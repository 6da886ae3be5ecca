#!/usr/bin/env python3
"""Rows a second of funicular augment, beside TinyBERT's procedure and beside a batched version of it in transformers.

usage: augmentation.py PROGRAM MODEL [--rows N] [--rounds N] [--data cola.tsv] [--threads N] [--base] [--processor-time]

MODEL is a folder of a BERT; its head for hidden words is made at random where it has none, which costs the same. --base takes random
weights of BERT-base's sizes with MODEL's vocabulary instead. Without --data sentences are made up of the vocabulary's words.

The three take turns. Of Funicular the whole command counts, from its start to the file; of the others only the rows: their model is
loaded, and their first pass is over. What the others do:

published   a sentence and a word at a time, float32, the head over all positions, all words of the vocabulary sorted
batched     all words of 64 rows, sorted by length, padded to the longest of a batch of 4,096 tokens, in bfloat16 where that is faster
            (--peer-dtype), the head over the hidden positions only, topk

Vectors are left out: all three multiply matrices for them, and they are a small part.
"""

import argparse
import os
import pathlib
import random
import re
import resource
import statistics
import subprocess
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

M, P, N = 15, 0.4, 30
STOP = set("a an the and or of in on at to is are was it he she they i you we that this with for not be".split())


def make_rows(arguments, tokenizer):
    if arguments.data:
        rows = [line.split("\t")[3] for line in open(arguments.data, encoding="utf-8").read().splitlines()]
        return random.Random(1).sample(rows, min(arguments.rows, len(rows)))
    words = [token for token in tokenizer.get_vocab() if re.fullmatch("[a-z]{3,9}", token)]
    source = random.Random(1)
    words = source.sample(sorted(words), 2000)
    return [" ".join(source.choice(words) if source.random() < 0.6 else source.choice(sorted(STOP)) for _ in range(source.randint(4, 14)))
            for _ in range(arguments.rows)]


class Peer:
    def __init__(self, folder, dtype):
        self.tokenizer = BertTokenizerFast.from_pretrained(folder)
        self.model = BertForMaskedLM.from_pretrained(folder).to(dtype).eval()

    def words(self, text):
        """(words of the text, its pieces, places of the words of one piece that may give way)"""
        words, pieces, places = re.findall(r"\w+|[^\w\s]", text.lower()), [], []
        for number, word in enumerate(words):
            found = self.tokenizer.tokenize(word)
            if len(found) == 1 and word.isalpha() and word not in STOP:
                places.append((number, len(pieces)))
            pieces += found
        return words, pieces, places

    def sequence(self, pieces, place):
        ids = self.tokenizer.convert_tokens_to_ids(["[CLS]"] + pieces + ["[SEP]"] + pieces + ["[SEP]"])
        ids[place + 1] = self.tokenizer.mask_token_id
        return ids, [0] * (len(pieces) + 2) + [1] * (len(pieces) + 1)

    def draw(self, words, candidates):
        found = {" ".join(words)}
        for _ in range(N):
            new = list(words)
            for number, words_there in candidates.items():
                word = random.choice(words_there)
                if random.random() < P:
                    new[number] = word
            found.add(" ".join(new))
        return found

    @torch.inference_mode()
    def published(self, rows):
        written = 0
        for text in rows:
            words, _, _ = self.words(text)
            candidates = {}
            for number, _ in self.words(text)[2]:
                _, pieces, places = self.words(text)  # the published program tokenises the sentence for each word, too
                ids, types = self.sequence(pieces, dict(places)[number])
                logits = self.model(torch.tensor([ids]), token_type_ids=torch.tensor([types])).logits
                best = torch.argsort(logits[0, dict(places)[number] + 1], descending=True)[:M].tolist()
                candidates[number] = [token for token in self.tokenizer.convert_ids_to_tokens(best) if not token.startswith("##")] or [words[number]]
            written += len(self.draw(words, candidates))
        return written

    @torch.inference_mode()
    def batched(self, rows, tokens=4096):
        written = 0
        for begin in range(0, len(rows), 64):
            divided = [self.words(text) for text in rows[begin:begin + 64]]
            asked = [(row, number, *self.sequence(pieces, place), place + 1) for row, (_, pieces, places) in enumerate(divided) for number, place in places]
            asked.sort(key=lambda one: -len(one[2]))
            candidates = [{} for _ in divided]
            while asked:
                count = max(1, tokens // len(asked[0][2]))
                batch, asked = asked[:count], asked[count:]
                self.guess(batch, candidates)
            written += sum(len(self.draw(words, found)) for (words, _, _), found in zip(divided, candidates))
        return written

    def guess(self, batch, candidates):
        longest = len(batch[0][2])
        pad = lambda values: torch.tensor([value + [0] * (longest - len(value)) for value in values])
        ids, types = pad([one[2] for one in batch]), pad([one[3] for one in batch])
        mask = pad([[1] * len(one[2]) for one in batch])
        hidden = self.model.bert(ids, attention_mask=mask, token_type_ids=types).last_hidden_state
        logits = self.model.cls(hidden[torch.arange(len(batch)), torch.tensor([one[4] for one in batch])])
        for one, best in zip(batch, torch.topk(logits, M).indices.tolist()):
            words = [token for token in self.tokenizer.convert_ids_to_tokens(best) if not token.startswith("##")]
            candidates[one[0]][one[1]] = words or ["[UNK]"]


def processor_seconds():
    """Of this process and of those that it has waited for."""
    return sum(use.ru_utime + use.ru_stime for use in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def timed(work, clock):
    begin = clock()
    result = work()
    return clock() - begin, result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--peer-dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--base", action="store_true")
    parser.add_argument("--processor-time", action="store_true", help="with one thread: processor time instead of the clock, for a busy machine")
    arguments = parser.parse_args()
    if arguments.processor_time:
        arguments.threads = 1
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tokenizer = BertTokenizerFast.from_pretrained(arguments.model)
        model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer))) if arguments.base else BertForMaskedLM.from_pretrained(arguments.model)
        model.save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
        rows = make_rows(arguments, tokenizer)
        (folder / "rows.tsv").write_text("".join(f"x\t{row}\n" for row in rows), encoding="utf-8")
        (folder / "stop.txt").write_text("\n".join(STOP) + "\n")
        published, batched = Peer(folder / "model", torch.float32), Peer(folder / "model", getattr(torch, arguments.peer_dtype))
        few = rows[:max(4, len(rows) // 20)]  # the published procedure is slow

        def ours(turn):
            subprocess.run([arguments.program, "augment", "--model", folder / "model", "--task", "custom", "--no-header", "--text-column", "2", "--input",
                            folder / "rows.tsv", "--output", folder / f"out-{turn}.tsv", "--stop-words", folder / "stop.txt", "--threads",
                            str(arguments.threads)], check=True, capture_output=True)
            return sum(1 for _ in open(folder / f"out-{turn}.tsv", encoding="utf-8"))

        published.published(rows[:2]), batched.batched(rows[:8]), ours("first")
        times = {"funicular": [], "published": [], "batched": []}
        for turn in range(arguments.rounds):
            for who, work, count in (("funicular", lambda: ours(turn), len(rows)), ("published", lambda: published.published(few), len(few)),
                                     ("batched", lambda: batched.batched(rows), len(rows))):
                seconds, written = timed(work, processor_seconds if arguments.processor_time else time.perf_counter)
                times[who].append(count / seconds)
                print(f"turn {turn + 1}: {who}: {count / seconds:.1f} rows/s ({written} lines of {count} rows)", flush=True)
        for who in ("published", "batched"):
            ratios = [a / b for a, b in zip(times["funicular"], times[who])]
            print(f"funicular / {who}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}); {arguments.threads} threads, "
                  f"{statistics.median(times['funicular']):.1f} and {statistics.median(times[who]):.1f} rows/s")


if __name__ == "__main__":
    main()
