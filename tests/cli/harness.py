"""What the tests of the program share: running it, and tiny models and data made on the spot."""

import array
import json
import os
import pathlib
import random
import re
import shutil
import signal
import string
import subprocess
import tempfile
import time
import unittest
import unittest.mock

PROGRAM = str(pathlib.Path(os.environ["FUNICULAR_BUILD_DIR"]) / "funicular")
SANITIZED = "san.so" in subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=False).stdout
# Runs it in a fork of one that has loaded LibTorch already; sanitizers have to be loaded first.
FORKED = pathlib.Path(os.environ["FUNICULAR_BUILD_DIR"]) / "tests" / "forked"
WORDS = ["good", "bad", "film", "book", "very", "the", "is", "not", "fine", "dull", "song", "long", "short", "old"]
VOCABULARY = (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list(string.ascii_lowercase) +
              ["##" + letter for letter in string.ascii_lowercase] + list(string.digits) + [".", ",", "'"] + WORDS)
HIDDEN, FEED_FORWARD, LAYERS, HEADS, POSITIONS = 32, 64, 2, 2, 64


def config(**changes):
    values = {"model_type": "bert", "architectures": ["BertModel"], "vocab_size": len(VOCABULARY), "hidden_size": HIDDEN,
              "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": FEED_FORWARD,
              "max_position_embeddings": POSITIONS, "type_vocab_size": 2, "hidden_dropout_prob": 0.1,
              "attention_probs_dropout_prob": 0.1, "layer_norm_eps": 1e-12, "hidden_act": "gelu",
              "initializer_range": 0.02, "pad_token_id": 0}
    return {**values, **changes}


def encoder_shapes():
    shapes = {"embeddings.word_embeddings.weight": [len(VOCABULARY), HIDDEN],
              "embeddings.position_embeddings.weight": [POSITIONS, HIDDEN],
              "embeddings.token_type_embeddings.weight": [2, HIDDEN],
              "embeddings.LayerNorm.weight": [HIDDEN], "embeddings.LayerNorm.bias": [HIDDEN],
              "pooler.dense.weight": [HIDDEN, HIDDEN], "pooler.dense.bias": [HIDDEN]}
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}."
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes[prefix + name + ".weight"], shapes[prefix + name + ".bias"] = [HIDDEN, HIDDEN], [HIDDEN]
        shapes[prefix + "intermediate.dense.weight"] = [FEED_FORWARD, HIDDEN]
        shapes[prefix + "intermediate.dense.bias"] = [FEED_FORWARD]
        shapes[prefix + "output.dense.weight"] = [HIDDEN, FEED_FORWARD]
        shapes[prefix + "output.dense.bias"] = [HIDDEN]
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[prefix + name + ".weight"], shapes[prefix + name + ".bias"] = [HIDDEN], [HIDDEN]
    return shapes


def write_safetensors(path, tensors):
    """tensors: name -> (shape, array of floats)."""
    header, data = {}, b""
    for name, (shape, values) in sorted(tensors.items()):
        raw = values.tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def read_safetensors(path):
    """name -> (shape, bytes)"""
    raw = pathlib.Path(path).read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (entry["shape"], raw[8 + length + entry["data_offsets"][0]:8 + length + entry["data_offsets"][1]])
            for name, entry in header.items()}


def random_weights(shapes, seed=1):
    source = random.Random(seed)
    result = {}
    for name, shape in shapes.items():
        count = 1
        for size in shape:
            count *= size
        norm = name.endswith("LayerNorm.weight")
        result[name] = (shape, array.array("f", [1.0 if norm else source.gauss(0, 0.05) for _ in range(count)]))
    return result


def write_model(folder, vocabulary=None, extra_shapes=None, **changes):
    """A BERT encoder with random weights and its tokeniser, as a Hugging Face folder."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config(**changes)))
    (folder / "vocab.txt").write_text("\n".join(vocabulary or VOCABULARY) + "\n")
    write_safetensors(folder / "model.safetensors", random_weights({**encoder_shapes(), **(extra_shapes or {})}))
    return folder


def write_rows(path, header, rows):
    lines = ["\t".join(header)] if header else []
    path.write_text("\n".join(lines + ["\t".join(row) for row in rows]) + "\n")
    return path


def sentiment_rows(count, seed=0):
    """Rows (label, text) whose label is whether "good" is in the text."""
    source = random.Random(seed)
    rows = []
    for number in range(count):
        words = [source.choice(["film", "book", "very", "the", "a", "is", "song", "old"]) for _ in range(source.randint(2, 9))]
        good = number % 2 == 0
        words[source.randrange(len(words))] = "good" if good else "bad"
        rows.append(("pro" if good else "contra", " ".join(words)))
    return rows


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def json(self):
        return json.loads(self.out.strip().splitlines()[-1])


# Of tests that count tensors: under AddressSanitizer the program does so only where it is asked to take their memory itself.
counting = unittest.mock.patch.dict(os.environ, {"FUNICULAR_ALLOCATOR": "caching"})


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def exact(words):
    """The words of a command, which computes in fp32 where they leave the precision to the processor: what tests compare is then
    the same on all of them."""
    words = [str(word) for word in words]
    precise = {"--precision", "--bf16", "--fp16", "--help"}
    # Behind "launch -n 2 -- PROGRAM", perhaps.
    own = words[words.index(PROGRAM) + 1:] if PROGRAM in words else words
    if not own or own[0] not in ("pretrain", "finetune", "augment", "evaluate", "predict", "embed", "search", "mine") or precise & {word.split("=")[0] for word in own}:
        return words
    file = pathlib.Path(own[own.index("--config") + 1]) if "--config" in own[:-1] else None
    if file and file.is_file() and re.search(b"precision|bf16|fp16", file.read_bytes()):
        return words
    return [*words, "--precision", "fp32"]


def in_forks(words):
    """The words of a command that starts the program, and its ranks, in forks."""
    ranks = words.index("--") + 1 if words[1:2] == ["launch"] and "--" in words else len(words)
    return [FORKED, *words[:ranks], *([FORKED] if words[ranks:ranks + 1] == [PROGRAM] else []), *words[ranks:]]


def run(*words, stdin="", timeout=300, **more):
    """Runs the program to its end, at most `timeout` seconds. stdin: text or bytes. more: for subprocess.run."""
    data = stdin if isinstance(stdin, bytes) else stdin.encode()
    # Libraries read variables as they are loaded: with others than usual the program is started as people start it.
    variables = more.get("env", environment())
    changed = {name for name, _ in variables.items() ^ environment().items()}
    usual = more.keys() <= {"env"} and all(name == "PATH" or name.startswith("FUNICULAR_") for name in changed)
    words = [PROGRAM, *exact(words)]
    done = subprocess.run(in_forks(words) if usual and not SANITIZED else words, input=data, capture_output=True, timeout=timeout, check=False,
                          **{"env": environment(), **more})
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def run_and_interrupt(path, lines, number, *words):
    """Starts the program and sends it the signal `number` once the file `path` has that many lines."""
    process = subprocess.Popen([PROGRAM, *exact(words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=environment())
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b"\n") >= lines:
            process.send_signal(number)
            break
        time.sleep(0.002)
    out, err = process.communicate(timeout=300)
    return Result(process.returncode, out.decode(), err.decode())


def run_and_interrupt_when_it_says(phrase, number, *words):
    """Starts the program and sends it the signal `number` as soon as a line of its messages holds the phrase."""
    process = subprocess.Popen([PROGRAM, *exact(words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=environment())
    err = b""
    for line in process.stderr:
        err += line
        if phrase.encode() in line:
            process.send_signal(number)
            break
    out, rest = process.communicate(timeout=300)
    return Result(process.returncode, out.decode(), (err + rest).decode())


class ProgramTest(unittest.TestCase):
    """Each test has a folder of its own, self.folder."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="funicular-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def succeeds(self, *words, stdin=""):
        result = run(*words, stdin=stdin)
        self.assertEqual(result.code, 0, result.err)
        return result

    def refuses(self, words, *phrases, code=2, stdin="", **more):
        """The command exits with `code`, prints no result, and says each of the phrases. more: for run()."""
        result = run(*words, stdin=stdin, **more)
        self.assertEqual(result.code, code, result.err)
        self.assertEqual(result.out, "")
        for phrase in phrases:
            self.assertIn(phrase, result.err)
        return result

    def model(self, name="model", **arguments):
        return write_model(self.folder / name, **arguments)

    def custom_files(self, train=64, held_out=32):
        return (write_rows(self.folder / "train.tsv", ("label", "text"), sentiment_rows(train, 1)),
                write_rows(self.folder / "eval.tsv", ("label", "text"), sentiment_rows(held_out, 2)))

    def finetune_words(self, model, output="run", **options):
        """The words of a short fine-tuning; options by name, with underscores."""
        train, held_out = self.custom_files()
        values = {"model": model, "task": "custom", "train": train, "eval": held_out, "output": self.folder / output,
                  "batch_size": 8, "learning_rate": 5e-3, "num_train_epochs": 3, "max_length": 16, **options}
        return ["finetune"] + [word for name, value in values.items() if value is not None
                               for word in ("--" + name.replace("_", "-"), str(value))]

    def store(self, model, text=None, name="text.tokens"):
        source = random.Random(5)
        if text is None:
            text = "\n\n".join(" ".join(source.choice(WORDS) for _ in range(source.randint(3, 40))) for _ in range(60))
        (self.folder / (name + ".txt")).write_text(text)
        self.succeeds("tokenize", "--tokenizer", model, "--input", self.folder / (name + ".txt"), "--output",
                      self.folder / name)
        return self.folder / name


__all__ = ["ProgramTest", "Result", "VOCABULARY", "WORDS", "array", "config", "encoder_shapes", "environment", "exact", "json", "pathlib", "random",
           "random_weights", "read_safetensors", "run", "run_and_interrupt", "run_and_interrupt_when_it_says",
           "counting", "sentiment_rows", "signal", "subprocess", "unittest", "write_model", "write_rows", "write_safetensors", "PROGRAM", "HIDDEN", "SANITIZED"]
