#!/usr/bin/env python3
"""A tokenizer's folder in every layout of transformers 2 to 5 gives the ids of AutoTokenizer: which of the files hold, in which
order added tokens get their ids, and what survives when the tokenizer is saved.

Usage: tokenizer_layouts.py TOKENIZE_LINES [--count N] [--seed S]
"""

import argparse
import json
import logging
import pathlib
import random
import shutil
import sys
import tempfile

import tokenizer_files
from tokenizer_files import expect, run

from transformers import AutoTokenizer, BertTokenizer, MPNetTokenizer, RobertaTokenizer

from byte_bpe_files import learnt

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[M]", "a", "b", "e", "film", "good", "Good", "caf\u00e9", "cafe", "##s", "##d",
         "\u4e2d", "\u56fd", "e1", "!", "[", "]", "<", ">", "[unused1]"]
TEXTS = ["a [E1] Good films[/E1] !", "Caf\u00e9 [MASK] good [mask]", "<new> \u4e2d\u56fd <NEW>e1 [e1]", "a  [MASK]  b[SEP]<x>",
         "[unused1] [M] [UNK] <mask> </s>", "gooD <extra>film [X]s", "the  <mask>  hello <new>river</s>"]
ADDED = ["[E1]", "[/E1]", "<new>", "<x>", "[unused1]", "<extra>", "[X]"]
ROLES = ["unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]


def flags(source, content, special=None, dtype=False):
    token = {"content": content, "lstrip": source.random() < 0.3, "rstrip": source.random() < 0.2,
             "normalized": source.random() < 0.5, "single_word": source.random() < 0.2}
    if source.random() < 0.3:
        del token["normalized"]
    if special is not None and source.random() < 0.8:
        token["special"] = special
    return {"__type": "AddedToken", **token} if dtype else token


def some(source, items, most):
    return source.sample(items, source.randint(0, most))


def role_values(source, names, typed):
    """The roles as tokenizer_config.json (typed) or special_tokens_map.json has them."""
    values = {}
    for role in ROLES:
        if source.random() < 0.7:
            values[role] = flags(source, names[role], None, typed) if source.random() < 0.4 else names[role]
    return values


def write_settings(source, folder, names, size, tokens):
    """Random settings beside the vocabulary of `size` tokens; returns tokenizer_config.json."""
    config = {}
    if source.random() < 0.8:
        config.update(role_values(source, names, True))
        if source.random() < 0.5:
            config[source.choice(["additional_special_tokens", "extra_special_tokens"])] = some(source, ADDED, 3)
        if source.random() < 0.2:
            config["extra_special_tokens"] = {"image_token": "<x>"}
        if source.random() < 0.1:
            config["mask_token"] = None
        if source.random() < 0.3:
            decoder = {str(tokens[name]): flags(source, name, True) for name in some(source, [t for t in names.values() if t in tokens], 4)}
            for number, name in enumerate(some(source, [t for t in ADDED if t not in tokens], 3)):
                decoder[str(size + number)] = flags(source, name, source.random() < 0.5)
            config["added_tokens_decoder"] = decoder
    if source.random() < 0.4:
        extra = {"additional_special_tokens": some(source, ADDED, 2)} if source.random() < 0.5 else {}
        (folder / "special_tokens_map.json").write_text(json.dumps({**role_values(source, names, False), **extra}))
    if source.random() < 0.4:
        start = size + (2 if source.random() < 0.1 else 0)
        names = some(source, [token for token in ADDED if token not in tokens], 4)
        (folder / "added_tokens.json").write_text(json.dumps({name: start + i for i, name in enumerate(names)}))
    return config


def mpnet_folder(source, folder):
    word_piece_folder(source, folder, ["[UNK]", "</s>", "<pad>", "<s>", source.choice(["<mask>", "<mask>", "[M]"])],
                      ["<s>", "<pad>", "</s>", "<mask>", *WORDS], ["MPNetTokenizer", "MPNetTokenizerFast"], MPNetTokenizer, ["mpnet"])


def word_piece_folder(source, folder, roles=None, words=WORDS, classes=("BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "ElectraTokenizerFast"),
                      peer_class=BertTokenizer, types=("bert", "electra")):
    names = dict(zip(ROLES, roles or ["[UNK]", "[SEP]", "[PAD]", "[CLS]", source.choice(["[MASK]", "[MASK]", "[M]"])]))
    folder.mkdir()
    lines = list(words)
    if source.random() < 0.1:
        lines.remove("[MASK]" if roles is None else "<mask>")
    has_json = source.random() < 0.5
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n")
    tokens = {token: i for i, token in enumerate(lines)}
    config = write_settings(source, folder, names, len(lines), tokens)
    for key, values in (("do_lower_case", [True, False]), ("strip_accents", [None, True, False]), ("tokenize_chinese_chars", [True, False])):
        if source.random() < 0.5:
            config[key] = source.choice(values)
    if source.random() < 0.6:
        config["tokenizer_class"] = source.choice([*classes] + ["PreTrainedTokenizerFast", "OwnTokenizer"] * has_json)
    if has_json:
        vocabulary = tokens if peer_class is MPNetTokenizer else str(folder / "vocab.txt")
        peer = peer_class(vocabulary, do_lower_case=source.random() < 0.5, strip_accents=source.choice([None, True, False]))
        peer.add_tokens(some(source, ADDED, 3), special_tokens=source.random() < 0.5)
        peer.backend_tokenizer.save(str(folder / "tokenizer.json"))
        if source.random() < 0.5:
            (folder / "vocab.txt").unlink()
    if config or source.random() < 0.5:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"model_type": source.choice(types)}))


def byte_bpe_folder(source, folder):
    names = dict(zip(ROLES, ["<unk>", "</s>", "<pad>", "<s>", "<mask>"]))
    vocabulary, merges = learnt(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges), encoding="utf-8")
    config = write_settings(source, folder, names, len(vocabulary), vocabulary)
    for key in ("add_prefix_space", "trim_offsets"):
        if source.random() < 0.4:
            config[key] = source.random() < 0.5
    has_json = source.random() < 0.5
    if source.random() < 0.6:
        config["tokenizer_class"] = source.choice(["RobertaTokenizer", "RobertaTokenizerFast", "BartTokenizer"] +
                                                  ["PreTrainedTokenizerFast"] * has_json)
    if has_json:
        peer = RobertaTokenizer(vocab=vocabulary, merges=merges, add_prefix_space=source.random() < 0.5)
        peer.add_tokens(some(source, ADDED, 3), special_tokens=source.random() < 0.5)
        peer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    if config or source.random() < 0.5:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"model_type": "roberta", "vocab_size": len(vocabulary), "pad_token_id": 1}))


def compare(name, folder, peer):
    """The ids of the folder, and of what is saved of it."""
    tokenizer_files.TEXTS[:] = TEXTS
    want = [peer.encode(text, add_special_tokens=False) for text in TEXTS]
    found = tokenizer_files.ids_of(folder)
    holds = found == want
    expect(f"{name}: same ids", holds, f"{found} instead of {want}")
    copy = pathlib.Path(f"{folder}-copy")
    done = run("--copy", folder, copy)
    expect(f"{name}: copied", done.returncode == 0, done.stderr.decode())
    if done.returncode:
        return False
    again = AutoTokenizer.from_pretrained(copy)
    texts = [again.encode(text, add_special_tokens=False) for text in TEXTS]
    holds &= texts == want and len(again) == len(peer) and tokenizer_files.ids_of(copy) == want
    expect(f"{name}: the copy has the same ids and added tokens", holds, f"{texts} and {len(again)} instead of {want} and {len(peer)}")
    around = again(TEXTS[0], TEXTS[1])["input_ids"], peer(TEXTS[0], TEXTS[1])["input_ids"]
    expect(f"{name}: the copy puts a pair together as before", around[0] == around[1], around)
    # Without tokenizer.json the older files have to say it all.
    (copy / "tokenizer.json").unlink()
    if again.__class__.__name__ in ("BertTokenizer", "MPNetTokenizer"):
        expect(f"{name}: vocab.txt and tokenizer_config.json are enough", tokenizer_files.ids_of(copy) == want)
    return holds


def show(folder):
    for file in sorted(folder.glob("*.json")):
        text = file.read_text(encoding="utf-8")
        print("   ", file.name, text if file.name != "tokenizer.json" else json.loads(text)["added_tokens"])


def sweep(root, make, kind, count, seed):
    loaded = 0
    for number in range(count):
        source = random.Random(f"{seed} {kind} {number}")
        folder = root / f"{kind}{number}"
        make(source, folder)
        try:
            peer = AutoTokenizer.from_pretrained(folder)
        except (TypeError, ValueError) as error:  # transformers cannot read what it wrote; reading it is no fault
            print(f"     {kind} {number}: transformers refuses it: {error}")
            continue
        loaded += 1
        if not compare(f"{kind} {number}", folder, peer):
            show(folder)
        shutil.rmtree(folder)
    expect(f"{kind}: transformers reads most layouts", loaded > count // 2, loaded)


def saved_by_transformers(root):
    """What transformers 5 writes itself, after the changes that people make."""
    for number, change in enumerate([lambda t: None, lambda t: t.add_tokens(["[E1]", "<new>"]),
                                     lambda t: t.add_special_tokens({"additional_special_tokens": ["[E1]", "[unused1]"]}),
                                     lambda t: t.add_special_tokens({"mask_token": "<mask>", "cls_token": "[M]"})]):
        folder = root / f"saved{number}"
        folder.mkdir()
        (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
        peer = BertTokenizer.from_pretrained(folder, do_lower_case=number % 2 == 0)
        change(peer)
        peer.save_pretrained(folder)
        for beside in (True, False):
            if not beside:
                (folder / "vocab.txt").unlink(missing_ok=True)
            compare(f"saved by transformers, {number}, vocab.txt {beside}", folder, AutoTokenizer.from_pretrained(folder))


def repeated_tokens(root):
    folder = root / "repeated"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join([*WORDS, "film", "good", "last"]) + "\n")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    peer = AutoTokenizer.from_pretrained(folder)
    tokenizer_files.TEXTS[:] = ["a good film last Good"]
    want = [peer.encode(tokenizer_files.TEXTS[0], add_special_tokens=False)]
    expect("a token on two lines has the last line's id", tokenizer_files.ids_of(folder) == want)
    peer.save_pretrained(folder)  # leaves ids out of tokenizer.json
    expect("so it has in the tokenizer.json that is saved of it", tokenizer_files.ids_of(folder) == want)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument("--seed", default="1")
    arguments = parser.parse_args()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        saved_by_transformers(root)
        repeated_tokens(root)
        sweep(root, word_piece_folder, "WordPiece", arguments.count, arguments.seed)
        sweep(root, mpnet_folder, "MPNet's WordPiece", arguments.count // 2, arguments.seed)
        sweep(root, byte_bpe_folder, "byte-level BPE", arguments.count // 2, arguments.seed)
    print(f"{len(tokenizer_files.failures)} failures")
    sys.exit(1 if tokenizer_files.failures else 0)


if __name__ == "__main__":
    main()
