"""What the tables of options stand on: short runs of a tiny model, and what they leave, read back as numbers."""

import math
import os
import shutil
import time
from typing import NamedTuple

from harness import *

LENGTHS = [3 + 5 * number % 12 for number in range(12)]  # words of each row of the data, no two alike
LONGEST = 24  # tokens of a sequence
SPECIAL = 2  # [CLS] and [SEP]
LETTERS = VOCABULARY[5:31]
NOTHING = 1e-300  # a rate at which no weight moves


class Row:
    def __init__(self, does, show):
        self.does, self.show = does, show


class Table(dict):
    """Option -> what it does, and the function that shows it."""

    def row(self, option, does):
        def add(show):
            if option in self:
                raise ValueError(f"two rows for {option}")
            self[option] = Row(does, show)
            return show
        return add


def tensors(path):
    """name -> numbers"""
    found = {}
    for name, (shape, raw) in read_safetensors(path).items():
        width = len(raw) // max(1, math.prod(shape))
        found[name] = array.array("d" if width == 8 else "f")
        # Of bfloat16, the first half of a float.
        found[name].frombytes(b"".join(b"\0\0" + raw[at:at + 2] for at in range(0, len(raw), 2)) if width == 2 else raw)
    return found


def norm(values):
    return math.sqrt(sum(value * value for value in values))


def less(a, b):
    return [x - y for x, y in zip(a, b, strict=True)]


def distance(a, b):
    """The largest difference of two sets of tensors."""
    if a.keys() != b.keys():
        raise ValueError(f"other tensors: {sorted(a.keys() ^ b.keys())}")
    return max(max(map(abs, less(a[name], b[name])), default=0) for name in a)


def is_matrix(name):
    """Whether weight decay and trust ratios are for it."""
    return name.endswith(".weight") and "LayerNorm" not in name


class Run:
    """A training that has ended."""

    def __init__(self, folder, result):
        self.folder, self.code, self.out, self.err = folder, result.code, result.out, result.err

    @property
    def lines(self):
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    @property
    def records(self):
        return [line for line in self.lines if "loss" in line]

    @property
    def evaluations(self):
        return [line for line in self.lines if "eval_loss" in line]

    def each(self, name):
        return [record[name] for record in self.records]

    @property
    def tokens(self):
        """Of each step, where each is recorded."""
        return [round(record["tokens_per_second"] * record["step_seconds"]) for record in self.records]

    @property
    def file(self):
        return json.loads((self.folder / "run.json").read_text())

    @property
    def result(self):
        """What rank 0 printed."""
        line = [line for line in self.out.splitlines() if "{" in line][-1]
        return json.loads(line[line.index("{"):])

    @property
    def steps(self):
        """Those of which there is a checkpoint."""
        return sorted(int(path.name[5:]) for path in (self.folder / "checkpoints").glob("step-*"))

    def read(self, name):
        """Tensors of the last checkpoint."""
        return tensors(self.folder / "checkpoints" / f"step-{self.steps[-1]:06}" / f"{name}.safetensors")

    @property
    def weights(self):
        return self.read("model")

    def state(self, name):
        """Of the optimiser: parameter -> numbers."""
        return {key[len(name) + 1:]: values for key, values in self.read("optimizer").items() if key.startswith(name + "/")}


class Alive(NamedTuple):
    """Of a process that trains."""
    threads: int
    maps: str


class Lab(ProgramTest):
    """Trains with the command `self.command`; runs that several rows need are done once."""

    BASE = {"max_length": LONGEST, "batch_size": 4, "max_steps": 1, "logging_steps": 1, "learning_rate": 0.01, "max_grad_norm": 0,
            "precision": "fp64", "shuffle": False}

    def setUp(self):
        super().setUp()
        self.command, self.done, self.made = None, {}, {}

    def check(self, command, table):
        self.command = command
        for option, row in table.items():
            with self.subTest(f"funicular {command} {option}: {row.does}"):
                row.show(self)

    @property
    def thorough(self):
        """Whether all values of an option are tried: the others read what they share with pretrain by the same code."""
        return self.command == "pretrain"

    @property
    def cuts_its_own_model(self):
        """Whether a pipeline cuts another list of segments than finetune's: distill's begins with the teacher's."""
        return self.thorough or self.command == "distill"

    def run_with(self, variables, *words, stdin=""):
        """A command that succeeds in that environment."""
        result = run(*words, stdin=stdin, env=variables)
        self.assertEqual(result.code, 0, result.err)
        return result

    def few(self, values):
        return values if self.thorough else values[:1]

    def once(self, name, make):
        """What `make` gives for a path of this name in the folder, the first time."""
        if name not in self.made:
            self.made[name] = make(self.folder / name)
        return self.made[name]

    def plain_model(self):
        """Without dropout."""
        return self.once("plain", lambda path: write_model(path, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))

    def teacher(self, **changes):
        """A classifier of the rows of `labelled`, twice as large."""
        def make(path):
            shapes = {"classifier.weight": [2, HIDDEN], "classifier.bias": [2]}
            write_model(path, extra_shapes=shapes, hidden_dropout_prob=0.5, id2label={"0": "contra", "1": "pro"},
                        label2id={"contra": 0, "pro": 1}, architectures=["BertForSequenceClassification"], **changes)
            weights = random_weights({**encoder_shapes(), **shapes}, seed=11)
            for name, (shape, values) in weights.items():
                if "LayerNorm" not in name:
                    weights[name] = (shape, array.array("f", [10 * value for value in values]))
            write_safetensors(path / "model.safetensors", weights)
            return path
        return self.once("teacher" + "".join(f"-{name}" for name in changes), make)

    def texts(self, lengths=tuple(LENGTHS), words=WORDS + LETTERS, seed=3):
        source = random.Random(seed)
        return [" ".join(source.choice(words) for _ in range(length)) for length in lengths]

    def tokenized(self, name, texts):
        """A store in which each text is a document."""
        def make(path):
            path.with_suffix(".txt").write_text("\n\n".join(texts) + "\n")
            self.succeeds("tokenize", "--tokenizer", self.plain_model(), "--input", path.with_suffix(".txt"), "--output", path)
            return path
        return self.once(name + ".tokens", make)

    def labelled(self, name, texts):
        """A file of rows of two classes."""
        rows = [("pro" if number % 3 == 0 else "contra", text) for number, text in enumerate(texts)]
        return self.once(name + ".tsv", lambda path: write_rows(path, ("label", "text"), rows))

    def data(self, name="rows", texts=None):
        texts = self.texts() if texts is None else texts
        return self.tokenized(name, texts) if self.command == "pretrain" else self.labelled(name, texts)

    def held_out(self, count=8):
        """Options that give something to evaluate on."""
        data = self.data(f"held_out_{count}", self.texts([5 + number % 15 for number in range(count)], seed=4))
        return {"eval": data}

    def words(self, output, options):
        own = {"train": self.data(), **({} if self.command == "pretrain" else {"task": "custom"})}
        if self.command == "distill":
            own.update(teacher=self.teacher(), stage="prediction", student=options.pop("model", self.plain_model()))
        else:
            own["model"] = self.plain_model()
        values = {"output": output, **own, **self.BASE, **options}
        words = [self.command]
        for name, value in values.items():
            option = name.replace("_", "-")
            if isinstance(value, bool):
                words.append(("--" if value else "--no-") + option)
            elif value is not None:
                words += ["--" + option, *map(str, value if isinstance(value, list) else [value])]
        return words

    def launched(self, ranks, words):
        return words if ranks == 1 else ["launch", "-n", ranks, "--", PROGRAM, *words]

    def train(self, ranks=1, **options):
        """A run that succeeds. BASE holds where the options do not say otherwise; None leaves an option out."""
        key = json.dumps([ranks, options], sort_keys=True, default=str)
        if key not in self.done:
            output = pathlib.Path(options.pop("output", self.folder / f"run-{len(self.done)}"))
            self.done[key] = Run(output, self.succeeds(*self.launched(ranks, self.words(output, options))))
        return self.done[key]

    def trains_without_update(self, **options):
        """A run in which every step overflows: it ends with an error, and its records stay."""
        output = self.folder / f"without-{len(list(self.folder.glob('without-*')))}"
        return Run(output, self.refuses(self.words(output, options), "steps were skipped, so that no weight was updated", code=1))

    def refuses_to_train(self, *phrases, ranks=1, **options):
        return self.refuses(self.launched(ranks, self.words(self.folder / "refused", options)), *phrases)

    def measured_training(self, **options):
        """A run, with the most memory that it had, in bytes, as `peak`."""
        output = self.folder / f"measured-{len(list(self.folder.glob('measured-*')))}"
        peak = self.peak(self.words(output, options))
        run = Run(output, Result(0, "", ""))
        run.peak = peak
        return run

    def peak(self, words):
        """The most memory that the command had, in bytes."""
        process = self.begin(words)
        process.stdout.read()
        message = process.stderr.read()
        _, status, use = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, message)
        return use.ru_maxrss * 1024

    def assert_larger(self, peak, other):
        """Of memory, which sanitizers take as they like."""
        if not SANITIZED:
            self.assertGreater(peak, other)

    def begin(self, words, **streams):
        process = subprocess.Popen([PROGRAM, *exact(words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=environment(), **streams)
        self.addCleanup(lambda: [stream.close() for stream in (process.stdout, process.stderr)])
        return process

    def most_threads(self, words, expected):
        """The most threads that the command was seen to have at a time, in some runs where one does not show what is expected."""
        most = 0
        for _ in range(5):
            most = max(most, self.most_threads_once(words))
            if most >= expected:
                break
        return most

    def most_threads_once(self, words):
        """The command has to take some tenths of a second, and to say little."""
        process, most = self.begin(words), 0
        while process.poll() is None:
            try:
                most = max(most, len(os.listdir(f"/proc/{process.pid}/task")))
            except OSError:  # it has just ended
                pass
            time.sleep(0.0005)
        self.assertEqual(process.returncode, 0, process.stderr.read())
        return most

    def alive(self, **options):
        """Of a process that has done its first step. It is interrupted then."""
        key = json.dumps(["alive", options], sort_keys=True, default=str)
        if key not in self.done:
            output = self.folder / f"alive-{len(self.done)}"
            process = self.begin(self.words(output, {"max_steps": 10 ** 7, "save_steps": 0, **options}))
            metrics, deadline = output / "metrics.jsonl", time.monotonic() + 120
            while not (metrics.exists() and metrics.read_bytes()) and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            of_process = pathlib.Path(f"/proc/{process.pid}")
            self.done[key] = Alive(len(list((of_process / "task").iterdir())), (of_process / "maps").read_text())
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=120), 75, process.stderr.read())
        return self.done[key]

    def has_gpu(self):
        return "--device cuda" in self.succeeds("doctor", "--output", self.folder).out

    def copy_model(self, source, target, **changes):
        """The folder of a model with other values in its config.json."""
        shutil.copytree(source, target)
        values = json.loads((target / "config.json").read_text())
        (target / "config.json").write_text(json.dumps({**values, **changes}))
        return target

    def start(self):
        """The weights that training starts from."""
        return self.train(learning_rate=NOTHING).weights

    def gradient(self):
        """Of the first step."""
        return self.train(optim="sgd").state("momentum_buffer")

    def moved(self, **options):
        """What the first step adds to the weights."""
        after, before = self.train(**options).weights, self.start()
        return {name: less(after[name], before[name]) for name in before}

    def assert_near(self, found, expected, relative=1e-6):
        """Of sets of tensors: the largest difference, as a share of the largest number."""
        largest = max(max(map(abs, values)) for values in expected.values())
        self.assertGreater(largest, 0)
        self.assertLess(distance(found, expected), relative * largest)


def fastest_precision(isa=os.environ.get("FUNICULAR_ISA", "native")):
    """What --precision auto is on this processor with the instructions that FUNICULAR_ISA leaves it: Intel's multiply bf16
    faster than fp32 by AMX alone."""
    if isa not in ("native", "avx512_bf16", "amx"):
        return "fp32"
    processor = pathlib.Path("/proc/cpuinfo").read_text()
    flags = set(next((line.split() for line in processor.splitlines() if line.startswith("flags")), []))
    slow = "GenuineIntel" in processor and "avx512_fp16" in flags and not {"amx_tile", "amx_bf16", "amx_int8"} <= flags
    return "bf16" if "avx512_bf16" in flags and not slow else "fp32"


def scaled(values, factor):
    return {name: [factor * value for value in numbers] for name, numbers in values.items()}


def config_file(lab, text):
    path = lab.folder / "options.toml"
    path.write_text(text)
    return path


def shows_help(lab):
    text = lab.succeeds(lab.command, "--help").out
    lab.assertIn(f"Usage: funicular {lab.command}", text)
    lab.assertIn("--config FILE", text)


__all__ = ["LENGTHS", "LONGEST", "SPECIAL", "LETTERS", "NOTHING", "Lab", "Run", "Table", "config_file", "distance", "fastest_precision", "is_matrix",
           "less", "math", "norm", "scaled", "shows_help", "tensors"]
