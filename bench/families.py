#!/usr/bin/env python3
"""Takes each family of encoders through a kill and a resume, two ranks, int8 prediction and distillation.

usage: families.py FUNICULAR [--only FAMILY …]

The models are small and random; transformers makes them. Run the script with a Python that has transformers. It prints a line per family:
  resumed    a pre-training is killed after its first checkpoint and resumed: it must leave the bytes of a run that was not killed
  two ranks  the largest difference of a weight between one process and two, in float64, relative to the largest weight
  int8       the largest difference of a probability between fp32 and int8
  distilled  the loss of a student of 2 layers, first and last; its teacher is a classifier of 4 layers of the same family
Exit code 1 if a family fails: other bytes, two ranks above 1e-10, int8 equal or above 0.1, a loss that does not fall.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORDS = "the a river train boat climbs slow fast red green hill valley goes down up and very".split()
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
SIZES_OF_DISTILBERT = ("dim", "n_layers", "n_heads", "hidden_dim")
RELATIVE = {"relative_attention": True, "position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm", "pos_att_type": "p2c|c2p",
            "position_biased_input": False}
WINDOWS = {"pad_token_id": 0, "cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3, "local_attention": 8,
           "global_attn_every_n_layers": 2}
# model_type -> the name of its classes in transformers, and what its configuration has besides its sizes
FAMILIES = {
    "bert": ("Bert", {}),
    "roberta": ("Roberta", {"pad_token_id": 0}),
    "electra": ("Electra", {"embedding_size": 20}),
    "distilbert": ("DistilBert", {}),
    "modernbert": ("ModernBert", WINDOWS),
    "xlm-roberta": ("XLMRoberta", {"pad_token_id": 0}),
    "camembert": ("Camembert", {"pad_token_id": 0}),
    "ernie": ("Ernie", {}),
    "mpnet": ("MPNet", {}),
    "albert": ("Albert", {"embedding_size": 20, "hidden_dropout_prob": 0.1}),
    "deberta-v2": ("DebertaV2", RELATIVE),
    "nomic_bert": ("NomicBert", {"hidden_dropout_prob": 0.1}),
    "gte": ("Gte", {"pad_token_id": 0, "hidden_dropout_prob": 0.1}),
}
LENGTH = ["--max-length", "24", "--batch-size", "8"]
KILLED_STEPS, RANK_STEPS = 120, 4
KILLS = 3  # attempts: on a busy machine a run may end before it is killed
CHECKPOINT = "step-" + 6 * "[0-9]"  # a checkpoint that is still being written has a longer name


STEPS = ("resumed", "two_ranks", "int8", "distilled")


class Failed(Exception):
    """A command that ended with an error, or a promise that does not hold."""


def write_model(name: str, folder: Path, layers: int) -> None:
    """Writes a random model for masked tokens, with its tokeniser."""
    import torch
    import transformers
    classes, options = FAMILIES[name]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", "##ly", "!"]
    folder.mkdir()
    if name == "mpnet":
        vocabulary[:5] = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
        transformers.MPNetTokenizer({token: number for number, token in enumerate(vocabulary)}).save_pretrained(folder)
    else:
        (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
        transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    sizes = SIZES_OF_DISTILBERT if name == "distilbert" else SIZES
    torch.manual_seed(0)
    config = getattr(transformers, classes + "Config")(vocab_size=len(vocabulary), max_position_embeddings=40, initializer_range=0.3,
                                                       **dict(zip(sizes, (32, layers, 4, 48), strict=True)), **options)
    transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(folder)


class Family:
    """The models and files of one family, in a folder of their own."""

    def __init__(self, program: str, name: str, root: Path):
        self.program, self.root = program, root / name
        self.root.mkdir()
        source = random.Random(1)
        texts = [" ".join(source.choices(WORDS, k=3 + i % 9)) for i in range(120)]
        rows = [f"{'fast' if i % 3 else 'slow'}\t{text}\n" for i, text in enumerate(texts)]
        for file, text in (("text.txt", "\n\n".join(texts)), ("lines.txt", "\n".join(texts)), ("rows.tsv", "label\ttext\n" + "".join(rows))):
            (self.root / file).write_text(text.strip() + "\n", encoding="utf-8")
        write_model(name, self.root / "model", 2)
        write_model(name, self.root / "larger", 4)
        self.run("tokenize", "--tokenizer", "model", "--input", "text.txt", "--output", "text.tokens")

    def run(self, *words: str) -> str:
        done = subprocess.run([self.program, *words], cwd=self.root, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise Failed(f"funicular {' '.join(words)}: exit code {done.returncode}\n{done.stderr.strip()}")
        return done.stdout

    def json_of(self, file: str) -> dict:
        return json.loads((self.root / file).read_text(encoding="utf-8"))

    def pretrain(self, output: str, precision: str, steps: int) -> list[str]:
        return ["pretrain", "--model", "model", "--train", "text.tokens", "--output", output, "--max-steps", str(steps), "--save-steps", "4",
                "--learning-rate", "1e-3", "--precision", precision, *LENGTH]

    def kill(self, output: str) -> bool:
        """Kills a pre-training after its first checkpoint. Returns False if it has taken all its steps before."""
        process = subprocess.Popen([self.program, *self.pretrain(output, "fp32", KILLED_STEPS)], cwd=self.root, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        checkpoints = self.root / output / "checkpoints"
        while process.poll() is None and not list(checkpoints.glob(CHECKPOINT)):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        code = process.wait()
        if code not in (0, -signal.SIGKILL):
            raise Failed(f"the run that was to be killed ended with exit code {code}")
        return code != 0 and not (checkpoints / f"step-{KILLED_STEPS:06}").exists()

    def resumed(self) -> str:
        self.run(*self.pretrain("whole", "fp32", KILLED_STEPS))
        output = next((name for name in (f"killed-{number}" for number in range(KILLS)) if self.kill(name)), None)
        if output is None:
            raise Failed(f"{KILLS} runs ended before they were killed")
        self.run(*self.pretrain(output, "fp32", KILLED_STEPS))
        step = self.json_of(f"{output}/run.json")["resumed_from"]
        if not 0 < step < KILLED_STEPS:
            raise Failed(f"the second command began at step {step}")
        for file in ("model.safetensors", "optimizer.safetensors"):
            whole, killed = ((self.root / run / f"checkpoints/step-{KILLED_STEPS:06}" / file).read_bytes() for run in ("whole", output))
            if whole != killed:
                raise Failed(f"{file} of the resumed run differs")
        return f"same bytes, from step {step}"

    def two_ranks(self) -> str:
        from safetensors.torch import load_file
        self.run(*self.pretrain("one", "fp64", RANK_STEPS))
        self.run("launch", "-n", "2", *self.pretrain("two", "fp64", RANK_STEPS))
        one, two = (load_file(self.root / run / f"checkpoints/step-{RANK_STEPS:06}/model.safetensors") for run in ("one", "two"))
        largest = max(tensor.abs().max().item() for tensor in one.values())
        difference = max((one[name] - two[name]).abs().max().item() for name in one) / largest
        if not difference < 1e-10:
            raise Failed(f"two ranks differ by {difference:.1e}")
        return f"{difference:.1e}"

    def finetune(self, model: str, output: str) -> None:
        self.run("finetune", "--model", model, "--task", "custom", "--train", "rows.tsv", "--label-column", "label", "--text-column", "text",
                 "--output", output, "--max-steps", "20", "--learning-rate", "1e-3", "--precision", "fp32", *LENGTH)

    def probabilities(self, precision: str) -> list[float]:
        lines = self.run("predict", "--model", "tuned", "--input", "lines.txt", "--precision", precision).splitlines()
        return [json.loads(line)["probabilities"]["fast"] for line in lines]

    def int8(self) -> str:
        self.finetune("model", "tuned")
        difference = max(abs(a - b) for a, b in zip(self.probabilities("fp32"), self.probabilities("int8"), strict=True))
        if not 0 < difference < 0.1:
            raise Failed(f"int8 differs by {difference:.3f}")
        return f"{difference:.3f}"

    def distilled(self) -> str:
        self.finetune("larger", "teacher")
        self.run("distill", "--teacher", "teacher", "--student", "2-layer", "--stage", "prediction", "--task", "custom", "--train", "rows.tsv",
                 "--label-column", "label", "--text-column", "text", "--output", "student", "--max-steps", "30", "--logging-steps", "5",
                 "--learning-rate", "1e-3", "--precision", "fp32", *LENGTH)
        lines = (self.root / "student/metrics.jsonl").read_text(encoding="utf-8").splitlines()
        losses = [record["loss"] for record in map(json.loads, lines) if "loss" in record]
        if not losses[-1] < losses[0]:
            raise Failed(f"the student's loss goes from {losses[0]:.3f} to {losses[-1]:.3f}")
        return f"{losses[0]:.3f} to {losses[-1]:.3f}"


FAULTS = (Failed, OSError, KeyError)  # the last two: a file or a field that a command should have written


def described(failure: Exception) -> str:
    return str(failure) if isinstance(failure, Failed) else repr(failure)


def table_row(family: Family, failures: list[str]) -> list[str]:
    """Runs all steps; a step that fails leaves the other steps as they are."""
    cells = []
    for step in STEPS:
        try:
            cells.append(getattr(family, step)())
        except FAULTS as failure:
            failures.append(f"{family.root.name}, {step}: {described(failure)}")
            cells.append("FAILED")
    return cells


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("funicular", help="the program")
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    arguments = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", FUNICULAR_LOG="error")
    print("| family | resumed | two ranks | int8 | distilled | seconds |\n|---|---|---|---|---|---|")
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as root:
        for name in arguments.only:
            start = time.monotonic()
            try:
                family = Family(os.path.abspath(arguments.funicular), name, Path(root))
            except FAULTS as failure:
                failures.append(f"{name}, its models and files: {described(failure)}")
                cells = ["FAILED"] * len(STEPS)
            else:
                cells = table_row(family, failures)
            print(f"| {name} | {' | '.join(cells)} | {time.monotonic() - start:.0f} |", flush=True)
    if failures:
        print("\n".join(failures), file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
