"""What the studies of training share: text and vocabulary, small models, runs of `funicular`, their records, a plot.

Python's standard library alone. A study has a folder of results; what is made once (texts, vocabulary, stores) lies in
its `inputs`, and each finished run in a folder of its own with a `result.json`, which is never made again.
"""
import collections
import html
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import unicodedata
from pathlib import Path

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LARGEST_CHARACTERS = 256  # characters that the vocabulary holds at most; rarer ones become [UNK]
COUNTED_WORDS = 20_000  # the most frequent words, from which the vocabulary is learnt
COLOURS = ["#1b6ca8", "#d1495b", "#2e8b57", "#8e5ea2", "#c77c11", "#5a5a5a", "#00a6a6", "#a0522d"]


class Failed(Exception):
    """A command that ended with an error: its last words."""


# Text and vocabulary.


def documents_of(text: str) -> list[str]:
    """The documents: lines between blank ones (a line of spaces is blank)."""
    documents, lines = [], []
    for line in [*text.splitlines(), ""]:
        if line.strip():
            lines.append(line.strip())
        elif lines:
            documents.append("\n".join(lines))
            lines = []
    return documents


def words_of(text: str) -> list[str]:
    """The words that an uncased BERT sees: lower case, no accents, punctuation and symbols apart."""
    plain = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    return re.findall(r"[^\W_]+|[^\w\s]|_", plain)


def build_vocabulary(counts: dict[str, int], size: int) -> list[str]:
    """A WordPiece vocabulary of at most `size` pieces, learnt by joining the most frequent pair of neighbours again and
    again (byte-pair encoding of the words' characters; Sennrich, Haddow and Birch, arXiv:1508.07909, algorithm 1)."""
    characters = collections.Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    known = {c for c, _ in sorted(characters.items(), key=lambda item: (-item[1], item[0]))[:LARGEST_CHARACTERS]}
    frequent = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:COUNTED_WORDS]
    words = [([word[0]] + ["##" + c for c in word[1:]], count) for word, count in frequent if known.issuperset(word)]
    pieces = sorted({piece for parts, _ in words for piece in parts})
    vocabulary = dict.fromkeys(SPECIAL_TOKENS + pieces)
    if len(vocabulary) > size:
        raise Failed(f"a vocabulary of {size} pieces is too small for this text, whose characters alone take {len(vocabulary)}")
    pairs, places = collections.Counter(), collections.defaultdict(set)
    for i, (parts, count) in enumerate(words):
        for pair in zip(parts, parts[1:]):
            pairs[pair] += count
            places[pair].add(i)
    while len(vocabulary) < size and pairs:
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        if pairs[best] < 2:
            break
        joined = best[0] + best[1].removeprefix("##")
        vocabulary[joined] = None
        for i in places.pop(best):
            join_in_word(words, i, best, joined, pairs, places)
        pairs.pop(best, None)
    return list(vocabulary)


def join_in_word(words, i, pair, joined, pairs, places) -> None:
    """Replaces the pair in word i, and moves the word's counts of pairs along."""
    parts, count = words[i]
    for old in zip(parts, parts[1:]):
        pairs[old] -= count
        if pairs[old] <= 0:
            del pairs[old]
    made = []
    for part in parts:
        if made and (made[-1], part) == pair:
            made[-1] = joined
        else:
            made.append(part)
    words[i] = (made, count)
    for new in zip(made, made[1:]):
        pairs[new] += count
        places[new].add(i)


def write_atomically(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(file.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.rename(file)


def write_json(file: Path, value) -> None:
    write_atomically(file, json.dumps(value, indent=1) + "\n")


def keep_settings(args, *free) -> None:
    """Writes the arguments to args.results/settings.json. Raises Failed if that file has others. Those named in `free`,
    the programs and the number of runs may change."""
    free = {"results", "program", "python", "seeds", "only", *free}
    settings = {name: str(value) for name, value in vars(args).items() if name not in free}
    file = args.results / "settings.json"
    before = json.loads(file.read_text()) if file.exists() else settings
    differ = [f"--{name.replace('_', '-')} was {before.get(name)}, now {value}" for name, value in settings.items() if before.get(name) != value]
    if differ:
        raise Failed(f"{file}: the runs there had other settings: {'; '.join(differ)}. Name another folder with --results, or remove this one")
    write_json(file, settings)


def once(folder, make):
    """What `make` gives, kept in folder/result.json; a run that was stopped is made anew."""
    done = folder / "result.json"
    if done.exists():
        return json.loads(done.read_text())
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    found = make()
    write_json(done, found)
    return found


def make_inputs(folder: Path, data: Path, eval_data: Path | None, vocabulary_size: int, megabytes: float) -> dict[str, Path]:
    """Writes the two texts and the vocabulary, unless they are there. Without `eval_data` every twentieth document is
    held out. At most `megabytes` of the training text are used, from its beginning."""
    paths = {"train": folder / "train.txt", "eval": folder / "eval.txt", "tokenizer": folder / "tokenizer"}
    vocabulary = paths["tokenizer"] / "vocab.txt"
    if vocabulary.exists():
        return paths
    documents = documents_of(data.read_text(encoding="utf-8", errors="replace")[: int(megabytes * 1e6)])
    if eval_data:
        held_out = documents_of(eval_data.read_text(encoding="utf-8", errors="replace"))
    else:
        held_out = documents[19::20]
        documents = [document for i, document in enumerate(documents) if i % 20 != 19]
    if not documents or not held_out:
        raise Failed(f"{data}: expected at least 20 documents separated by blank lines, found {len(documents)}; "
                     "give a longer text, or held-out text of its own with --eval-data")
    write_atomically(paths["train"], "\n\n".join(documents) + "\n")
    write_atomically(paths["eval"], "\n\n".join(held_out) + "\n")
    counts = collections.Counter(word for document in documents for word in words_of(document))
    write_json(paths["tokenizer"] / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    write_atomically(vocabulary, "".join(f"{piece}\n" for piece in build_vocabulary(counts, vocabulary_size)))
    return paths


def model_config(vocabulary: Path, layers: int, width: int, dropout: float, max_length: int) -> dict:
    """config.json of a BERT with heads of 32 and the usual ratio of 4 in its feed-forward layers."""
    return {"model_type": "bert", "architectures": ["BertForMaskedLM"],
            "vocab_size": len(vocabulary.read_text(encoding="utf-8").splitlines()), "hidden_size": width,
            "num_hidden_layers": layers, "num_attention_heads": width // 32, "intermediate_size": 4 * width,
            "hidden_act": "gelu", "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout,
            "max_position_embeddings": max_length, "type_vocab_size": 2, "initializer_range": 0.02,
            "layer_norm_eps": 1e-12, "pad_token_id": 0}


# Runs.


def call(program: Path, words: list) -> str:
    """The output of a command of funicular; Failed with its last words if it fails."""
    command = [str(program), *map(str, words)]
    try:
        done = subprocess.run(command, text=True, capture_output=True, check=False)
    except OSError as problem:
        raise Failed(f"{program}: {problem.strerror}; build it with ./run build, or name it with --program") from None
    if done.returncode != 0:
        raise Failed(f"exit code {done.returncode} of {' '.join(command)}: {done.stderr.strip()[-1500:]}")
    return done.stdout


def tokenize(program: Path, tokenizer: Path, text: Path) -> Path:
    store = text.with_suffix(".tokens")
    if not store.exists():
        call(program, ["tokenize", "--tokenizer", tokenizer, "--input", text, "--format", "text", "--output", store])
    return store


def read_metrics(run: Path) -> tuple[list[dict], list[dict]]:
    """The records of steps, and those of evaluations, of a run's metrics.jsonl."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line], [line for line in lines if "eval_loss" in line]


def spread(values: list[float]) -> str:
    """The mean, and its interval of 95 % by Student's distribution."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    students = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}.get(len(values), 2.2)
    return f"{mean:.3f} ± {students * statistics.stdev(values) / math.sqrt(len(values)):.3f}"


def stop(problem: Exception) -> None:
    print(f"error: {problem}", file=sys.stderr)
    sys.exit(2 if isinstance(problem, (FileNotFoundError, IsADirectoryError)) else 1)


# Curves.


def smooth(values: list[float], window: int) -> list[float]:
    """The mean of each value and the up to `window` - 1 before it."""
    total, means = 0.0, []
    for i, value in enumerate(values):
        total += value
        if i >= window:
            total -= values[i - window]
        means.append(total / min(i + 1, window))
    return means


def round_ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers between low and high: steps of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / about or 1.0
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def plot(title: str, x_label: str, y_label: str, curves: dict[str, list[tuple[float, float]]], log_x: bool = False,
         marks: bool = False) -> str:
    """An SVG of the curves (points in order of x; finite), with axes, a grid and a legend."""
    width, height, left, right, top, bottom = 860, 460, 70, 230, 40, 55
    points = [point for curve in curves.values() for point in curve]
    if not points:
        raise Failed(f"{title}: there is nothing to plot")
    place = math.log10 if log_x else float
    x0, x1 = min(place(x) for x, _ in points), max(place(x) for x, _ in points)
    y0, y1 = min(y for _, y in points), max(y for _, y in points)
    x1, y1 = (x1 if x1 > x0 else x0 + 1), (y1 if y1 > y0 else y0 + 1)

    def px(x: float) -> float:
        return left + (place(x) - x0) / (x1 - x0) * (width - left - right)

    def py(y: float) -> float:
        return top + (y1 - y) / (y1 - y0) * (height - top - bottom)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>',
             f'<text x="{left}" y="22" font-size="15">{html.escape(title)}</text>']
    x_ticks = sorted({x for x, _ in points}) if log_x else round_ticks(x0, x1)
    shown = -math.inf  # ticks of measured values may lie close: their labels must not
    for x in x_ticks:
        parts.append(f'<line x1="{px(x):.1f}" y1="{top}" x2="{px(x):.1f}" y2="{height - bottom}" stroke="#e4e4e4"/>')
        if px(x) - shown > 48:
            shown = px(x)
            parts.append(f'<text x="{px(x):.1f}" y="{height - bottom + 17}" text-anchor="middle">{x:g}</text>')
    for y in round_ticks(y0, y1):
        parts.append(f'<line x1="{left}" y1="{py(y):.1f}" x2="{width - right}" y2="{py(y):.1f}" stroke="#e4e4e4"/>'
                     f'<text x="{left - 7}" y="{py(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
    for i, (name, curve) in enumerate(curves.items()):
        colour, dashes = COLOURS[i % len(COLOURS)], "" if i < len(COLOURS) else ' stroke-dasharray="5 3"'
        line = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in curve)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.4"{dashes}/>')
        if marks:
            parts += [f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="3" fill="{colour}"/>' for x, y in curve]
        y = top + 8 + 18 * i
        parts.append(f'<line x1="{width - right + 14}" y1="{y}" x2="{width - right + 38}" y2="{y}" stroke="{colour}" '
                     f'stroke-width="2"{dashes}/><text x="{width - right + 44}" y="{y + 4}">{html.escape(name)}</text>')
    parts += [f'<rect x="{left}" y="{top}" width="{width - left - right}" height="{height - top - bottom}" fill="none" '
              'stroke="#888"/>',
              f'<text x="{(left + width - right) / 2}" y="{height - 14}" text-anchor="middle">{html.escape(x_label)}</text>',
              f'<text transform="translate(18 {(top + height - bottom) / 2}) rotate(-90)" text-anchor="middle">'
              f'{html.escape(y_label)}</text>']
    return "\n".join([*parts, "</svg>"]) + "\n"
