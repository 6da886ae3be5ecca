"""Vocabularies that `funicular vocabulary train` makes are those that the trainers of `tokenizers` make, where these are repeatable:
byte-level BPE token by token and merge by merge; WordPiece and BPE of characters, whose first tokens are given to `tokenizers` in our
order. A unigram model, which `tokenizers` makes anew in each run, explains unseen text as well. `tokenizers` and transformers'
AutoTokenizer read each folder with the ids of ours. The number of threads changes no byte of the files.

Usage: vocabulary_training.py FUNICULAR TOKENIZE_LINES
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))
import environment

environment.need("tokenizers", "transformers")

import struct

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
ODD = ["Ünïcödé e\u0301 ﬁ ① Å", "  two  blanks\tand\u00a0more \u3000 x", "don't we'll 12,345.67 [MASK] <mask> </s>", "𝔘𝔫𝔦 ▁mark ▁", "नमस्ते दुनिया ครับ", ""]
failures = []


def expect(what, fine, found=""):
    if not fine:
        failures.append(what)
        print(f"FAILED {what}: {str(found)[:600]}")


def chinese(rng, lines):
    """Sentences of made-up words of two characters, frequent ones more often, with punctuation."""
    words = ["".join(chr(rng.randint(0x4E00, 0x4FFF)) for _ in range(2)) for _ in range(300)]
    return ["".join(words[min(rng.randrange(300), rng.randrange(300))] + rng.choice(["", "", "", "，", "。"]) for _ in range(15)) for _ in range(lines)]


def corpus():
    """Lines of our documentation, Chinese and odd characters: those to learn, and others."""
    rng = random.Random(5)
    lines = [line for path in sorted((ROOT / "docs").rglob("*.md")) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    lines += chinese(rng, 400) + [line for line in ODD if line] * 3
    rng.shuffle(lines)
    return lines[:-200], lines[-200:] + ODD


def train(program, kind, source, output, size, *more):
    done = subprocess.run([program, "vocabulary", "train", "--kind", kind, "--input", source, "--output", output, "--size", str(size), *more],
                          capture_output=True, text=True)
    expect(f"{kind} {more}: trained", done.returncode == 0, done.stderr)
    return json.loads((output / "tokenizer.json").read_text(encoding="utf-8"))


def tokens_of(model):
    return sorted(model["vocab"], key=model["vocab"].get)


def pairs_of(model):
    return [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]


def peer_of_bytes(lines, size, least):
    peer = Tokenizer(models.BPE())
    peer.normalizer = normalizers.NFC()
    peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    peer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, min_frequency=least, special_tokens=BERT, show_progress=False,
                                                       initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return json.loads(peer.to_str())["model"]


def peer_of_word_piece(lines, size, least, first, lowercase):
    peer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    peer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    peer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # A character that is no token already is none of the alphabet.
    peer.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=size, min_frequency=least, special_tokens=first, show_progress=False,
                                                              limit_alphabet=0))
    return json.loads(peer.to_str())["model"]


def with_piece_rules(model):
    """The rules of bpe and unigram, and the cuts that training makes besides: no piece has letters beside digits or punctuation."""
    peer = Tokenizer(model)
    peer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    kinds = r"[\p{P}$+<=>^`|~]+|\p{N}+|[^\p{P}\p{N}$+<=>^`|~▁]+"
    peer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(),
                                                  pre_tokenizers.Split(Regex(f"▁(?:{kinds})?|{kinds}"), "isolated")])
    return peer


def peer_of_characters(lines, size, least, first):
    peer = with_piece_rules(models.BPE())
    peer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, min_frequency=least, special_tokens=first, show_progress=False))
    return json.loads(peer.to_str())["model"]


def nats(model, specials, encoding_of, lines):
    """What the best paths through these lines cost by the model's own scores; 20 for an unknown token."""
    scores = [score for _, score in model["vocab"]]
    return sum(-scores[i] if i >= specials else 20.0 for line in lines for i in encoding_of(line))


def compare_unigram(folder, lines, others, size):
    peer = with_piece_rules(models.Unigram())
    peer.train_from_iterator(lines, trainers.UnigramTrainer(vocab_size=size, special_tokens=ROBERTA, unk_token="<unk>", show_progress=False))
    costs = []
    for tokenizer in (Tokenizer.from_file(str(folder / "tokenizer.json")), peer):
        model = json.loads(tokenizer.to_str())["model"]
        costs.append(nats(model, 5, lambda line: tokenizer.encode(line, add_special_tokens=False).ids, others))
    print(f"unigram: nats of unseen text {costs[0]:.0f}, tokenizers {costs[1]:.0f}, ratio {costs[0] / costs[1]:.4f}")
    expect("unigram explains unseen text", costs[0] < 1.05 * costs[1], costs)


def ids_of(program, folder, texts):
    data = b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)
    found = subprocess.run([program, folder], input=data, capture_output=True, check=True).stdout
    result, at = [], 0
    for _ in texts:
        (count,) = struct.unpack_from("<I", found, at)
        result.append(list(struct.unpack_from(f"<{count}i", found, at + 4)))
        at += 4 + 5 * count
    return result


def check_readers(lines_program, folder, kind, texts, more=()):
    """`tokenizers` and transformers give our ids, with the special tokens in their roles."""
    ours = ids_of(lines_program, folder, texts)
    peer, loaded = Tokenizer.from_file(str(folder / "tokenizer.json")), AutoTokenizer.from_pretrained(folder)
    for text, want in zip(texts, ours, strict=True):
        for name, found in (("tokenizers", peer.encode(text, add_special_tokens=False).ids),
                            ("transformers", loaded.encode(text, add_special_tokens=False))):
            expect(f"{kind}: {name} gives the same ids", found == want, f"{text!r}: {found} instead of {want}")
    specials = BERT if kind in ("wordpiece", "byte-bpe") else ROBERTA
    roles = {loaded.pad_token, loaded.unk_token, loaded.cls_token, loaded.sep_token, loaded.mask_token}
    expect(f"{kind}: roles", roles == set(specials), roles)
    specials = [*specials, *more]
    expect(f"{kind}: special tokens first", loaded.convert_tokens_to_ids(specials) == list(range(len(specials))), specials)
    for number, token in enumerate(more, 5):
        (found,) = ids_of(lines_program, folder, [f"one{token}two {token} three"])
        expect(f"{kind}: {token} is one token", found.count(number) == 2, found)
    pair = loaded("one", "two")["input_ids"]
    expect(f"{kind}: pairs", pair.count(loaded.sep_token_id) == (2 if kind in ("wordpiece", "byte-bpe") else 3) and pair[0] == loaded.cls_token_id, pair)
    expect(f"{kind}: longest row", loaded.model_max_length == 512, loaded.model_max_length)


def main():
    program, lines_program = sys.argv[1:]
    lines, others = corpus()
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        (root / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for size, least in ((2000, 2), (6000, 0), (100_000, 3)):
            model = train(program, "byte-bpe", root / "text.txt", root / f"byte{size}", size, "--min-frequency", str(least))["model"]
            peer = peer_of_bytes(lines, size, least)
            expect(f"byte-bpe {size}: tokens", tokens_of(model) == tokens_of(peer), (len(model["vocab"]), len(peer["vocab"])))
            expect(f"byte-bpe {size}: merges", pairs_of(model) == pairs_of(peer))
        for size, least, case in ((3000, 2, "--lowercase"), (6000, 0, "--cased")):
            model = train(program, "wordpiece", root / "text.txt", root / f"words{size}", size, "--min-frequency", str(least), case, "--limit-alphabet", "600")["model"]
            tokens = tokens_of(model)
            first = tokens[:next(i for i in range(5, size) if len(tokens[i].removeprefix("##")) > 1)]
            peer = tokens_of(peer_of_word_piece(lines, size, least, first, case == "--lowercase"))
            expect(f"wordpiece {size}: tokens", tokens == peer, [pair for pair in zip(tokens, peer) if pair[0] != pair[1]][:5])
        model = train(program, "bpe", root / "text.txt", root / "characters", 4000, "--min-frequency", "0")["model"]
        tokens = tokens_of(model)
        first = tokens[:next(i for i in range(261, 4000) if len(tokens[i]) > 1)]
        peer = peer_of_characters(lines, 4000, 0, first)
        expect("bpe: tokens", tokens == tokens_of(peer), [pair for pair in zip(tokens, tokens_of(peer)) if pair[0] != pair[1]][:5])
        expect("bpe: merges", pairs_of(model) == pairs_of(peer))
        train(program, "unigram", root / "text.txt", root / "unigram", 4000)
        compare_unigram(root / "unigram", lines, others, 4000)
        for kind, folder in (("byte-bpe", "byte2000"), ("wordpiece", "words3000"), ("bpe", "characters"), ("unigram", "unigram")):
            check_readers(lines_program, root / folder, kind, lines[:3000] + others)
            for threads in (1, 3):
                train(program, kind, root / "text.txt", root / f"{kind}-{threads}", 1500, "--threads", str(threads))
            one, three = ({file.name: file.read_bytes() for file in (root / f"{kind}-{threads}").iterdir()} for threads in (1, 3))
            expect(f"{kind}: threads", one == three)
        more = ("[E1]", "<e 2>")
        limited = ("--lowercase", "--limit-alphabet", "400")
        for kind, options in (("byte-bpe", ()), ("wordpiece", limited), ("bpe", limited), ("unigram", limited)):
            train(program, kind, root / "text.txt", root / f"{kind}-marked", 1500, *options, "--special-tokens", *more)
            check_readers(lines_program, root / f"{kind}-marked", kind, lines[:300] + others + ["a[E1]B <e 2> [E1] [E2]<e 2>"], more)
    print(f"{len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
