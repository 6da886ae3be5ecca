"""The commands as functions. Options are the command's, with underscores: learning_rate=5e-5 is --learning-rate 5e-5."""

import contextlib
import json
import os
import pathlib
import tempfile

from . import _process, _tables
from ._answers import Answers

LABELLED = {2: ("text", "label"), 3: ("text_a", "text_b", "label")}
TEXTS = {1: ("text",), 2: ("text_a", "text_b")}


def words_of(options):
    """The options as words. True and False set a switch; None leaves an option out; a list gives several values."""
    words = []
    for name, value in options.items():
        name = "--" + name.strip("_").replace("_", "-")
        if value is None:
            continue
        if isinstance(value, (list, tuple)):
            words += [name, *(os.fspath(one) if isinstance(one, os.PathLike) else str(one) for one in value)]
        else:
            text = str(value).lower() if isinstance(value, bool) else os.fspath(value) if isinstance(value, os.PathLike) else str(value)
            words.append(f"{name}={text}")
    return words


def last_json(text):
    """The JSON object of the last line, or nothing."""
    lines = text.strip().split("\n")  # splitlines() cuts at U+2028, too, which JSON may hold
    return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}


def run(command, *words, progress=None, **options):
    """Runs any command: run("doctor"), run("vectors", input="texts.txt", output="vectors.txt"). Gives its standard output."""
    return _process.run([command, *words, *words_of(options)], progress)


class Run:
    """The folder of a training. path; metrics: what the command printed; model: the folder of the trained model."""

    def __init__(self, path, metrics=None):
        self.path, self.metrics = pathlib.Path(path), metrics or {}

    @property
    def model(self):
        return self.path / "model"

    @property
    def history(self):
        """The records of metrics.jsonl."""
        with (self.path / "metrics.jsonl").open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    def evaluate(self, data, **options):
        return evaluate(self, data, **options)

    def predict(self, texts, **options):
        return predict(self, texts, **options)

    def __fspath__(self):
        return str(self.path)

    def __repr__(self):
        metrics = ", ".join(f"{name}={value:.4g}" for name, value in self.metrics.items() if isinstance(value, (int, float)))
        return f"Run({str(self.path)!r}{', ' + metrics if metrics else ''})"


def new_output(command):
    """The first of runs/COMMAND-1, runs/COMMAND-2, … that is not there."""
    number = 1
    while pathlib.Path("runs", f"{command}-{number}").exists():
        number += 1
    return pathlib.Path("runs", f"{command}-{number}")


@contextlib.contextmanager
def files(options, names, **tables):
    """Puts rows that are not in a file into one, for as long as the command runs. The file's name is that of the option."""
    with tempfile.TemporaryDirectory(prefix="funicular-") as folder:
        for option, data in tables.items():
            if data is None or _tables.is_path(data):
                options[option] = data
                continue
            options[option] = pathlib.Path(folder, f"{option}.jsonl")
            named = _tables.write(data, options[option], names)
            if named:
                options.setdefault("text_column", [name for name in named if name != "label"])
                if "label" in named:
                    options.setdefault("label_column", "label")
        yield options


def train(command, options, progress, tables):
    output = options.pop("output", None) or new_output(command)
    with files(options, LABELLED, **tables):
        out = _process.run([command, *words_of({**options, "output": output})], progress)
    return Run(output, last_json(out))


def finetune(train_rows, *, model, eval=None, progress=None, **options):
    """Fine-tunes a model on rows with labels; gives a Run.

    train_rows, eval: a file's path, a data frame, a mapping of columns, or a list of rows: mappings or (text, label) tuples.
    task, text_column, label_column: guessed from the rows if they are not given. Without eval a tenth of the rows is held out.
    output: the folder of the run. To resume an interrupted run, repeat the call with the same output.
    """
    return train("finetune", {"model": model_of(model), **options}, progress, {"train": train_rows, "eval": eval})


def distill(train_rows, *, eval=None, progress=None, **options):
    """Trains a small model to answer as a large one does; gives a Run. Data as for finetune."""
    return train("distill", options, progress, {"train": train_rows, "eval": eval})


def pretrain(data, *, model, progress=None, **options):
    """Trains a masked language model on a token store (see tokenize); gives a Run."""
    return train("pretrain", {"model": model_of(model), "train": data, **options}, progress, {})


def tokenize(input, output, *, tokenizer, progress=None, **options):
    """Makes a token store of a text file, or of a list of documents; gives its path."""
    with tempfile.TemporaryDirectory(prefix="funicular-") as folder:
        if not _tables.is_path(input):
            file = pathlib.Path(folder, "documents.txt")
            # A blank line separates documents.
            file.write_text("\n\n".join("\n".join(filter(str.strip, text.splitlines())) for text in input) + "\n", encoding="utf-8")
            input = file
        options = {"tokenizer": model_of(tokenizer), "input": input, "output": output, **options}
        _process.run(["tokenize", *words_of(options)], progress)
    return pathlib.Path(output)


def model_of(model):
    return model.model if isinstance(model, Run) else model


def evaluate(model, data, *, progress=None, **options):
    """The metrics of a model, or of a Run's model, on rows with labels, as a dictionary. Data as for finetune."""
    with files({"model": model_of(model), **options}, LABELLED, input=data) as given:
        return last_json(_process.run(["evaluate", *words_of(given)], progress, quiet=True))


def predict(model, texts, *, progress=None, **options):
    """The answers of a model, or of a Run's model, in the order of the texts.

    texts: a list or an array of texts, or of (text, text) tuples; a data frame or a mapping with the columns of the fine-tuning; a
    file's path.
    """
    if _tables.is_path(texts) and not os.path.exists(texts):
        raise FileNotFoundError(f"no such file: {os.fspath(texts)}; to ask about one text, give a list: [{os.fspath(texts)!r}]")
    with files({"model": model_of(model), **options}, TEXTS, input=texts) as given:
        out = _process.run(["predict", *words_of(given)], progress, quiet=True)
    return Answers(json.loads(line) for line in out.split("\n") if line)


def embed(model, texts, *, progress=None, **options):
    """A vector for each text, in their order: an array [texts, width] if numpy is installed, else a list of lists.

    model: the folder of a sentence encoder. texts: a list or an array of texts, a data frame or a mapping with a column "text", a
    file's path.
    """
    if _tables.is_path(texts) and not os.path.exists(texts):
        raise FileNotFoundError(f"no such file: {os.fspath(texts)}; to embed one text, give a list: [{os.fspath(texts)!r}]")
    with tempfile.TemporaryDirectory(prefix="funicular-") as folder:
        output = pathlib.Path(folder, "vectors.npy")
        with files({"model": model_of(model), "output": output, **options}, {1: ("text",)}, input=texts) as given:
            _process.run(["embed", *words_of(given)], progress, quiet=True)
        return _tables.read_npy(output)
