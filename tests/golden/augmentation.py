"""funicular augment against TinyBERT's procedure written out in PyTorch and transformers: a word at a time, in float64, with the
same random decisions. Whole output files are compared, for what is published (--compat tinybert) and for what is the default.

usage: augmentation.py FUNICULAR_PROGRAM [MODEL_FOLDER]
The encoder is two layers of the one of MODEL_FOLDER where that is there, else a small random one; its head for hidden words is made here.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy
import torch
from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast
from transformers.models.bert.tokenization_bert_legacy import BasicTokenizer

from small_model import small_model

M, P, N, SEED, LIMIT = 4, 0.4, 5, 7, 512
NEAR = 2e-4  # logits or cosines that are nearer could change places by rounding
MASK64 = (1 << 64) - 1


# ---- the random decisions, written from the definitions in funicular/base/random.h


def mixed(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK64
    return x ^ (x >> 31)


def philox(key, counter):
    (low, high), (a, b, c, d) = key, counter
    for _ in range(10):
        x, y = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (y >> 32) ^ b ^ low, y & 0xFFFFFFFF, (x >> 32) ^ d ^ high, x & 0xFFFFFFFF
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


def decision(row, column, attempt, word, size):
    """(the number that is compared with p, which of `size` candidates)"""
    bits = mixed((mixed((SEED + 0x9E3779B97F4A7C15) & MASK64) + (20 << 32 | column)) & MASK64)
    a, b, c, d = philox((bits & 0xFFFFFFFF, bits >> 32), (word, attempt, row & 0xFFFFFFFF, row >> 32))
    return ((a << 21) ^ (b >> 11)) * 2.0 ** -53, (c << 32 | d) * size >> 64


# ---- words


STOP = set("the a of is was to and in it not he she they this that very".split())


def basic_tokens(text):
    return BasicTokenizer(do_lower_case=True).tokenize(text)


def is_letters(text):
    kinds = [unicodedata.category(c) for c in text]
    return any(kind[0] == "L" for kind in kinds) and all(kind[0] == "L" or kind == "Mn" for kind in kinds)


def punctuation(c):
    return unicodedata.category(c)[0] == "P" or (ord(c) < 128 and c.isprintable() and not c.isalnum() and c != " ")


def raw_words(text):
    """(begin, end) of words and marks of the text as it stands."""
    spans, begin = [], None
    for at, c in enumerate(text + " "):
        alone = at < len(text) and (punctuation(c) or "\u4e00" <= c <= "\u9fff")
        if (c.isspace() or alone) and begin is not None:
            spans.append((begin, at))
            begin = None
        if alone:
            spans.append((at, at + 1))
        elif not c.isspace() and begin is None:
            begin = at
    return spans


class NearTie(Exception):
    pass


def ordered(scores, allowed, count):
    """Indices of the `count` largest; near ties among them are refused."""
    order = [int(i) for i in numpy.argsort(-scores, kind="stable") if allowed[i]][:count + 1]
    if any(scores[a] - scores[b] < NEAR for a, b in zip(order, order[1:])):
        raise NearTie
    return order[:count]


class Reference:
    def __init__(self, folder, vectors, published):
        self.tokenizer = BertTokenizerFast.from_pretrained(folder)
        self.model = BertForMaskedLM.from_pretrained(folder).double().eval()
        self.vocabulary = self.tokenizer.convert_ids_to_tokens(list(range(len(self.tokenizer))))
        self.special = set(self.tokenizer.all_special_tokens)
        self.published, self.known = published, {}
        lines = [line.split() for line in open(vectors, encoding="utf-8")]
        self.words = [line[0] for line in lines]
        matrix = numpy.array([[float(value) for value in line[1:]] for line in lines])
        self.matrix = matrix / numpy.linalg.norm(matrix, axis=1, keepdims=True)

    def near(self, word):
        name = word if word in self.words or self.published else word.lower()
        if name not in self.words:
            return []
        own = self.words.index(name)
        allowed = [i != own and (other != "<unk>" if self.published else is_letters(other)) for i, other in enumerate(self.words)]
        return [self.words[i] for i in ordered(self.matrix @ self.matrix[own], allowed, M)]

    def sequence(self, pieces, place):
        hidden = pieces[:place] + ["[MASK]"] + pieces[place + 1:]
        if self.published:
            tokens = ["[CLS]"] + hidden + ["[SEP]"] + pieces + ["[SEP]"]
            types = [0] * (len(pieces) + 2) + [1] * (len(pieces) + 1)
            return tokens[:LIMIT], types[:LIMIT], place + 1
        if 2 * len(pieces) + 3 > LIMIT:  # a window of which the word is the middle, where there is room
            size = (LIMIT - 3) // 2
            begin = min(max(place - size // 2, 0), len(pieces) - size)
            pieces, hidden, place = pieces[begin:begin + size], hidden[begin:begin + size], place - begin
        return ["[CLS]"] + hidden + ["[SEP]"] + pieces + ["[SEP]"], [0] * (len(pieces) + 2) + [1] * (len(pieces) + 1), place + 1

    def guessed(self, pieces, place):
        if self.published and place + 1 >= LIMIT:
            return []
        tokens, types, row = self.sequence(pieces, place)
        with torch.no_grad():
            logits = self.model(torch.tensor([self.tokenizer.convert_tokens_to_ids(tokens)]), token_type_ids=torch.tensor([types])).logits
        scores = logits[0, row, :len(self.vocabulary)].numpy()
        if self.published:
            best = [self.vocabulary[i] for i in ordered(scores, [True] * len(scores), M)]
            return [token for token in best if not token.startswith("##")]
        allowed = [token not in self.special and is_letters(token) and token != pieces[place] for token in self.vocabulary]
        return [self.vocabulary[i] for i in ordered(scores, allowed, M)]

    def in_case(self, word, candidate):
        if self.published or not word[0].isupper() or not word.isascii() or not (candidate.isascii() and candidate.islower()):
            return candidate
        if len(word) > 1 and word.isupper():
            return candidate.upper()
        return candidate[0].upper() + candidate[1:] if word[1:] == "" or word[1:].islower() else candidate

    def divided(self, text):
        """(the text that words are replaced in, spans of its words)"""
        if not self.published:
            return text, raw_words(text)
        tokens, spans, at = basic_tokens(text), [], 0
        for token in tokens:
            spans.append((at, at + len(token)))
            at += len(token) + 1
        return " ".join(tokens), spans

    def candidates(self, text, spans):
        if text not in self.known:
            self.known[text] = self.candidates_of(text, spans)
        return self.known[text]

    def candidates_of(self, text, spans):
        pieces = [self.tokenizer.tokenize(text[begin:end]) for begin, end in spans]
        whole = [piece for word in pieces for piece in word]
        found = {}
        for number, (begin, end) in enumerate(spans):
            word = text[begin:end]
            letters = word.isascii() and word.isalpha() if self.published else is_letters(word)
            if not letters or word.lower() in STOP:
                continue
            first = sum(map(len, pieces[:number]))
            near = self.near(word) if len(pieces[number]) > 1 else self.guessed(whole, first)
            found[number] = [self.in_case(word, candidate) for candidate in near] or ([word] if self.published else [])
        return {number: words for number, words in found.items() if words}

    def variants(self, text, row, column):
        base, spans = self.divided(text)
        found = self.candidates(base, spans)
        made = [text]
        for attempt in range(N if self.published else 10 * N if found else 0):
            words, at = [], 0
            for number, (begin, end) in enumerate(spans):
                words.append(base[at:begin])
                words.append(base[begin:end])
                at = end
                if number in found:
                    uniform, chosen = decision(row, column, attempt, number, len(found[number]))
                    if uniform < P:
                        words[-1] = found[number][chosen]
            variant = "".join(words) + base[at:]
            if variant not in made:
                made.append(variant)
            if len(made) == N + 1:
                break
        return made

    def rows(self, texts, row):
        """What is written for a row of one or two texts."""
        if not self.published:
            written = [texts]
            for column, text in enumerate(texts):
                written += [texts[:column] + [variant] + texts[column + 1:] for variant in self.variants(text, row, column)[1:]]
            return written
        written, texts = [], list(texts)
        for column in range(len(texts)):
            for variant in self.variants(texts[column], row, column):
                texts[column] = variant
                written.append(list(texts))
        return written


# ---- a model, vectors and rows


def make_model(folder, source):
    torch.manual_seed(3)
    if source and (pathlib.Path(source) / "config.json").exists():
        source = small_model(source, folder.parent / "small", layers=2)
        model, tokenizer = BertForMaskedLM.from_pretrained(source), BertTokenizerFast.from_pretrained(source)
    else:
        words = "good bad film book very the is not fine dull song long short old river train boat climbs".split()
        vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz.,'!", *words]
        vocabulary += ["##" + letter for letter in "abcdefghijklmnopqrstuvwxyz"]
        (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
        tokenizer = BertTokenizerFast(str(folder / "vocab.txt"))
        model = BertForMaskedLM(BertConfig(vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                           intermediate_size=48, initializer_range=0.3))
    with torch.no_grad():
        model.cls.predictions.bias.normal_(0, 0.2)
        model.cls.predictions.transform.LayerNorm.weight.fill_(8)
        model.cls.predictions.transform.dense.weight.normal_(0, 0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_texts():
    source = random.Random(5)
    words = "film book river train boat song story music garden teacher Berlin winter small strange climbs writes sees the a of is very not".split()
    rare = "antidisestablishment Quixotically zymurgy floccinaucinihil".split()
    texts = ["The Film, isn't it?", "A naïve café's CHARGE: 3 books!", "zymurgy", "the of a", "电影 is good .", "  two  blanks  here "]
    while len(texts) < 13:
        chosen = [source.choice(words) for _ in range(source.randint(2, 7))]
        if source.random() < 0.6:
            chosen.insert(source.randrange(len(chosen)), source.choice(rare))
        texts.append(" ".join(chosen).capitalize() + source.choice([".", "!", ""]))
    return texts


def long_text():
    """More than 512 pieces, of which few may be replaced."""
    words = ["the"] * 700
    for place in (300, 699):
        words[place] = "river"
    return " ".join(words)


def make_vectors(path):
    source = numpy.random.default_rng(2)
    words = ["<unk>", "--", "zymurgy", "brewing", "antidisestablishment", "quixotically", "naive", "Paris", "beer", "uk-based", "hop", "malt", "quaint"]
    path.write_text("".join(f"{word} {' '.join(f'{value:.4f}' for value in source.normal(size=12))}\n" for word in words))
    return path


def run(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"funicular {' '.join(map(str, words))}\nexit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def kept_without_ties(reference, candidates):
    kept = []
    for texts in candidates:
        try:
            for text in texts:
                reference.candidates(*reference.divided(text))
            kept.append(texts)
        except NearTie:
            pass
    if len(kept) < len(candidates) // 2:
        sys.exit(f"only {len(kept)} of {len(candidates)} rows are without near ties")
    return kept


def compare(program, folder, reference, rows, columns, compat):
    source, output = folder / "rows.tsv", folder / "out.tsv"
    source.write_text("".join("\t".join(["x", *texts, str(number)]) + "\n" for number, texts in enumerate(rows)), encoding="utf-8")
    expected = "".join("\t".join(["x", *texts, str(number)]) + "\n"
                       for number, row in enumerate(rows) for texts in reference.rows(list(row), number))
    (folder / "stop.txt").write_text("\n".join(sorted(STOP)) + "\n")
    counts = run(program, "augment", "--model", folder / "model", "--input", source, "--output", output, "--task", "custom", "--no-header",
                 "--text-column", *columns, "--vectors", folder / "vectors.txt", "--candidates", M, "--probability", P, "--variants", N,
                 "--seed", SEED, "--compat", compat, "--stop-words", folder / "stop.txt", "--precision", "fp32")
    found = output.read_text(encoding="utf-8")
    for line, (a, b) in enumerate(zip(found.splitlines(), expected.splitlines()), 1):
        if a != b:
            sys.exit(f"--compat {compat}, {len(columns)} columns, line {line}: found\n{a}\nexpected\n{b}")
    if found != expected:
        sys.exit(f"--compat {compat}: {len(found.splitlines())} lines, expected {len(expected.splitlines())}")
    print(f"--compat {compat}, {len(columns)} text(s) a row: {len(expected.splitlines())} equal lines of {len(rows)} rows; {counts}")


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "model").mkdir()
        make_model(folder / "model", sys.argv[2] if len(sys.argv) > 2 else None)
        make_vectors(folder / "vectors.txt")
        texts = make_texts()
        for compat, published in (("tinybert", True), ("none", False)):
            reference = Reference(folder / "model", folder / "vectors.txt", published)
            single = kept_without_ties(reference, [[text] for text in texts] + [[long_text()]])
            compare(sys.argv[1], folder, reference, single, [2], compat)
            flat = [text for [text] in single[:-1]]
            compare(sys.argv[1], folder, reference, [list(pair) for pair in zip(flat[::2], flat[1::2])], [2, 3], compat)


if __name__ == "__main__":
    main()
