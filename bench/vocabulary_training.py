#!/usr/bin/env python3
"""How fast `funicular vocabulary train` makes a vocabulary, beside the trainers of Hugging Face `tokenizers`: the same file, the same
number of threads, in turns, by wall time.

Each run is a process of its own that reads the file, trains and writes the folder or the file. A table has the medians in seconds, the
peak memory in MB of each side, and the ratio of the medians. Run it on a quiet machine.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
import environment

environment.need("tokenizers")

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
KINDS = ("wordpiece", "byte-bpe", "unigram", "bpe")


def peer_of(kind, size):
    """A tokeniser with the normaliser and the splitter of ours, and its trainer."""
    if kind == "wordpiece":
        peer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        peer.normalizer, peer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        return peer, trainers.WordPieceTrainer(vocab_size=size, min_frequency=2, limit_alphabet=6000, special_tokens=BERT, show_progress=False)
    if kind == "byte-bpe":
        peer = Tokenizer(models.BPE())
        peer.normalizer, peer.pre_tokenizer = normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False)
        return peer, trainers.BpeTrainer(vocab_size=size, min_frequency=2, special_tokens=BERT, show_progress=False,
                                         initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    peer = Tokenizer(models.Unigram() if kind == "unigram" else models.BPE())
    peer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    peer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation("isolated")])
    if kind == "unigram":
        return peer, trainers.UnigramTrainer(vocab_size=size, special_tokens=ROBERTA, unk_token="<unk>", show_progress=False)
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    return peer, trainers.BpeTrainer(vocab_size=size, min_frequency=2, limit_alphabet=6000, special_tokens=ROBERTA + bytes_, show_progress=False)


def train_peer(kind, size, text, output):
    peer, trainer = peer_of(kind, size)
    peer.train([str(text)], trainer)
    peer.save(str(output))


def run(command, threads):
    """Wall time in seconds and peak memory in MB of a process."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               env={**os.environ, "RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true"})
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{command[0]} failed: {errors.decode(errors='replace')}")
    return time.perf_counter() - begin, usage.ru_maxrss / 1000


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--funicular", default="build/release/funicular", help="the program")
    arguments.add_argument("--text", type=pathlib.Path, required=True, help="a text file, a text per line")
    arguments.add_argument("--kind", nargs="+", choices=KINDS, default=KINDS)
    arguments.add_argument("--size", type=int, default=30_000)
    arguments.add_argument("--threads", type=int, default=os.cpu_count())
    arguments.add_argument("--turns", type=int, default=3)
    arguments.add_argument("--peer-output", type=pathlib.Path, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.peer_output:
        return train_peer(options.kind[0], options.size, options.text, options.peer_output)
    print(f"{options.text.name}: {options.text.stat().st_size / 1e6:.1f} MB, {options.size} tokens, {options.threads} threads, {options.turns} turns")
    print("| kind | ours, s | tokenizers, s | ratio | ours, MB | tokenizers, MB |\n|---|---|---|---|---|---|")
    for kind in options.kind:
        ours, peers = [], []
        with tempfile.TemporaryDirectory() as name:
            common = ["--kind", kind, "--size", str(options.size), "--threads", str(options.threads)]
            for turn in range(options.turns):
                ours.append(run([options.funicular, "vocabulary", "train", "--input", str(options.text), "--output", f"{name}/{turn}", *common], options.threads))
                peers.append(run([sys.executable, __file__, "--text", str(options.text), "--peer-output", f"{name}/{turn}.json", *common], options.threads))
        own, other = (statistics.median(seconds for seconds, _ in runs) for runs in (ours, peers))
        print(f"| {kind} | {own:.2f} | {other:.2f} | {other / own:.1f} | {max(mb for _, mb in ours):.0f} | {max(mb for _, mb in peers):.0f} |", flush=True)


if __name__ == "__main__":
    main()
