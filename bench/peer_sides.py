"""How each side of a comparison of ./run bench is run: its command, the inputs that both sides share, the peer's tuning."""
import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "bench/peers"
sys.path.insert(0, str(PEERS))
import batch_plan
import compare_finetune
import make_batches

WARMUP = 2  # steps before those that are timed, of both sides
# glibc gives every large tensor back to the system and faults its pages in again; this makes it keep them.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "4294967296",
               "MALLOC_TOP_PAD_": "67108864"}
HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}
# What limits both sides alike to the instructions of other processors: our kernels, LibTorch's own, oneDNN's (which
# OpenVINO has, too), and MKL's. onnxruntime cannot be limited.
LIMIT_NAMES = ("FUNICULAR_ISA", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
ISA_LIMITS = {"baseline": ("baseline", "default", "SSE41", "SSE4_2"),
              "avx2": ("avx2", "avx2", "AVX2", "AVX2"), "avx2_vnni": ("avx2_vnni", "avx2", "AVX2_VNNI", "AVX2"),
              "avx512": ("avx512", "avx512", "AVX512_CORE", "AVX512"),
              "avx512_vnni": ("avx512_vnni", "avx512", "AVX512_CORE_VNNI", "AVX512"), "native": ()}
UNLIMITED_ENGINES = {"onnx"}
# What may help a peer: (options, environment). The first is used where nothing is tuned.
STEP_CANDIDATES = {
    "eager": [(["--attention", "eager"], {}), (["--attention", "sdpa"], {}),
              (["--attention", "eager", "--pad-multiple", "8"], {}),
              (["--attention", "eager"], KEEP_MEMORY), (["--attention", "eager"], KEEP_MEMORY | HUGE_PAGES)],
    "compile": [(["--attention", "sdpa", "--shapes", "static", "--pad-multiple", "8"], {}),
                (["--attention", "eager", "--shapes", "static", "--pad-multiple", "8"], {}),
                (["--attention", "sdpa", "--shapes", "dynamic"], {}),
                (["--attention", "sdpa", "--shapes", "static", "--pad-multiple", "8"], KEEP_MEMORY | HUGE_PAGES)],
    "trainer": [([], {})],
}
PREDICT_CANDIDATES = {
    "loop": [(["--attention", "sdpa"], {}), (["--attention", "eager"], {}), (["--attention", "sdpa"], KEEP_MEMORY | HUGE_PAGES),
             (["--attention", "sdpa", "--compile"], KEEP_MEMORY | HUGE_PAGES)],
    "pipeline": [([], {})], "onnx": [([], {})], "openvino": [([], {})],
}
TUNING_STEPS = 3
TUNING_BATCH_SIZES = [8, 16, 32, 64, 128]
UNTUNED_BATCH_SIZE = 32
COMMAND_MEGABYTES = 32  # of text that whole commands tokenise
GPT2 = "gpt2-"  # before the name of a text: by byte-level BPE with GPT-2's vocabulary


class Failed(Exception):
    """A side that could not run, and why."""


def write_json(file: Path, value) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(value) + "\n")
    temporary.rename(file)


def run(command: list, environment: dict[str, str] | None = None) -> tuple[str, float]:
    """Standard output of a command that must succeed, and its seconds from start to end."""
    words = [str(word) for word in command]
    start = time.perf_counter()
    try:
        done = subprocess.run(words, env={**os.environ, **(environment or {})}, cwd=ROOT, text=True, capture_output=True)
    except OSError as problem:
        raise Failed(f"{words[0]}: {problem.strerror}") from None
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)}\nexit code {done.returncode}: {done.stderr.strip()[-1500:]}")
    return done.stdout, seconds


def json_of(command: list, environment: dict[str, str] | None = None) -> dict:
    """The JSON object that a command prints as its last line, or as all of its output; its seconds among it."""
    output, seconds = run(command, environment)
    for text in (output, (output.strip().splitlines() or [""])[-1]):
        try:
            return json.loads(text) | {"command_seconds": seconds}
        except json.JSONDecodeError:
            pass
    raise Failed(f"{' '.join(map(str, command))}\nprinted no JSON object: {output.strip()[-500:]}")


def last_json(words: list, **variables: str):
    """What a command printed as its last line of JSON, as rank 0 does under a launcher or alone; its errors are shown."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, check=True, text=True, env={**os.environ, **variables})
    return json.loads([line for line in done.stdout.splitlines() if line.endswith(("}", "]"))][-1])


def limit(isa: str) -> None:
    """From now on commands use no more than these instructions; "": what they find."""
    for name in LIMIT_NAMES:
        os.environ.pop(name, None)
    os.environ.update(zip(LIMIT_NAMES, ISA_LIMITS[isa or "native"]))


class Sides:
    def __init__(self, args, once: Callable[[Path, Callable[[], dict]], dict | None], isa: str = ""):
        self.args, self.results, self.once, self.isa = args, args.results, once, isa
        # Compiled kernels are kept between repetitions; compiling is not timed anyway.
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(self.results / "inductor"))

    # The inputs, made once.

    def batches(self, rows: str, side: str, steps: int) -> Path:
        """The warm-up's batches and those that are timed: the same rows for both sides."""
        file = self.results / "inputs" / f"{rows}-{WARMUP}-{steps}-{side}.json"
        if not file.exists():
            for each, made in batch_plan.plan(rows, WARMUP, steps).items():
                write_json(self.results / "inputs" / f"{rows}-{WARMUP}-{steps}-{each}.json", made)
        return file

    def weights(self, model: str) -> Path:
        """A directory that both sides load: the model with random weights."""
        folder = self.results / "inputs" / model
        if not (folder / "config.json").exists():
            run([self.args.python, PEERS / "hf_step.py", "--model", model, "--save-initial", folder])
        return folder

    def classifier(self) -> Path:
        folder = self.results / "inputs/classifier"
        if not (folder / "config.json").exists():
            run([self.args.python, PEERS / "hf_pipeline.py", "--make-model", folder])
        return folder

    def lines(self) -> Path:
        """Texts of 32 to 128 tokens: words of the vocabulary, so that each is one token."""
        file = self.results / "inputs" / f"lines-{self.args.lines}.txt"
        if not file.exists():
            words = [word for word in (self.classifier() / "vocab.txt").read_text(encoding="utf-8").splitlines()
                     if re.fullmatch("[a-z]+", word)]
            made = []
            for number in range(self.args.lines):
                row = make_batches.make_row(2, 0, number, "ragged", 30522)
                made.append(" ".join(words[token % len(words)] for token in row["token_ids"][1:-1]))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(made) + "\n")
        return file

    # The training step.

    def ours_step(self, model: str, rows: str, precision: str, *more) -> dict:
        steps = self.args.steps
        return json_of([self.args.program, "bench", "--model", self.weights(model), "--rows",
                        "full" if rows == "full" else "ragged", "--batches", self.batches(rows, "ours", steps),
                        "--precision", precision, "--warmup", WARMUP, "--steps", steps, "--json", *more])

    def peer_step(self, model: str, rows: str, precision: str, variant: str, chosen: tuple[list, dict], steps: int) -> dict:
        options, environment = chosen
        return json_of([self.args.python, PEERS / "hf_step.py", "--variant", variant, "--model", self.weights(model),
                        "--batches", self.batches(rows, "peer", steps), "--precision", precision, "--warmup", WARMUP,
                        "--steps", steps, "--scratch", self.results / "scratch", *options], environment)

    def fastest(self, name: str, candidates: list, measure: Callable[[tuple], dict], seconds: Callable[[dict], float]) -> tuple:
        """Of the candidates that which takes least when measured, and what was measured; the first where nothing is tuned."""
        if self.args.quick or not self.args.tune:
            return candidates[0], None
        best, least = (candidates[0], None), float("inf")
        for number, candidate in enumerate(candidates):
            found = self.once(self.results / self.isa / "tuning" / f"{name}-{number}.json", lambda: measure(candidate))
            if found and seconds(found) < least:
                best, least = (candidate, found), seconds(found)
        return best

    def tuned_step(self, model: str, rows: str, precision: str, variant: str) -> tuple[list, dict]:
        candidates = STEP_CANDIDATES[variant]
        if len(candidates) == 1:
            return candidates[0]
        return self.fastest(f"{model}-{rows}-{precision}-{variant}", candidates,
                            lambda chosen: self.peer_step(model, rows, precision, variant, chosen, TUNING_STEPS),
                            lambda found: sum(found["step_seconds"]))[0]

    # Prediction: whole commands, from their start to their end.

    def ours_predict(self, precision: str) -> dict:
        output = self.results / "scratch/predicted.jsonl"
        output.parent.mkdir(parents=True, exist_ok=True)
        output.unlink(missing_ok=True)
        _, seconds = run([self.args.program, "predict", "--model", self.classifier(), "--input", self.lines(), "--output",
                          output, "--precision", precision])
        return {"seconds": seconds, "lines_per_second": self.args.lines / seconds, "precision": precision}

    def peer_command(self, engine: str, precision: str, chosen: tuple[list, dict], *more) -> dict:
        python = self.args.peers_python if engine in ("onnx", "openvino") else self.args.python
        command = [python, PEERS / "hf_pipeline.py", "--engine", engine, "--precision", precision, "--model",
                   self.classifier(), "--input", self.lines(), "--scratch", self.results / "scratch", *chosen[0]]
        if engine in ("onnx", "openvino"):
            run([*command, "--prepare"], chosen[1])  # a graph is exported once, and so not timed
        return json_of([*command, *more], chosen[1])

    def peer_predict(self, engine: str, precision: str, sort: bool = False) -> dict:
        sorting = ["--sort"] if sort else []
        sizes = [1, *TUNING_BATCH_SIZES] if engine == "pipeline" else TUNING_BATCH_SIZES

        def whole(found: dict) -> float:
            best = min(found["probed_seconds"].values())
            return found["start_seconds"] + best * self.args.lines / found["probed_lines"]

        chosen, found = self.fastest(
            f"predict-{engine}-{precision}{'-sorted' if sort else ''}", PREDICT_CANDIDATES[engine],
            lambda chosen: self.peer_command(engine, precision, chosen, *sorting, "--batch-size", *sizes), whole)
        size = found["batch_size"] if found else UNTUNED_BATCH_SIZE
        report = self.peer_command(engine, precision, chosen, *sorting, "--batch-size", size)
        seconds = report["command_seconds"]
        return report | {"seconds": seconds, "lines_per_second": self.args.lines / seconds,
                         "lines_per_second_once_started": report["lines_per_second"]}

    # Tokenising.

    def texts(self, text: str) -> tuple[Path, Path]:
        """The file of a text and the folder of its tokeniser; the peer's script writes the texts and Chinese's vocabulary."""
        texts = self.results / "texts"
        if text.startswith(GPT2):
            folder = texts / "gpt2"
            if not folder.exists():
                self.peer_ids(text, "tokenizers")
            return self.texts(text.removeprefix(GPT2))[0], folder
        folder = texts / "chinese-model" if text == "chinese" else self.weights("minilm")
        if not (texts / f"{text}.txt").exists() or not folder.exists():
            self.peer_ids(text, "tokenizers")
        return texts / f"{text}.txt", folder

    def peer_ids(self, text: str, peer: str) -> dict:
        data = ["--data", self.args.data] if self.args.data else []
        gpt2 = ["--gpt2"] if text.startswith(GPT2) else []
        text = text.removeprefix(GPT2)
        found = json_of([self.args.peers_python, PEERS / "tokenizers_bench.py", "--texts", self.results / "texts",
                         "--only", text, "--peers", peer, *gpt2, *data])
        if found["missing"]:
            raise Failed(str(found["missing"]))
        return found["results"][text][0] | {"versions": found["versions"], "options": {"threads": found["threads"]}}

    def ours_ids(self, text: str) -> dict:
        file, folder = self.texts(text)
        found = json_of([self.args.tokenizer_bench, "--benchmark_filter=^ids_in_one_array/alphabetic", "--benchmark_format=json"],
                        {"FUNICULAR_BENCH_TEXT": str(file), "FUNICULAR_BENCH_TOKENIZER": str(folder)})
        if not found.get("benchmarks"):
            raise Failed("tokenizer_bench ran nothing")
        return {"megabytes_per_second": found["benchmarks"][0]["bytes_per_second"] / 1e6}

    def long_text(self, text: str) -> Path:
        """The text as often as it takes to make a command's start small beside its work."""
        file = self.texts(text)[0]
        long = self.results / "texts" / f"{text}-{COMMAND_MEGABYTES}.txt"
        if not long.exists():
            contents = file.read_bytes()
            temporary = long.with_suffix(".tmp")
            temporary.write_bytes(contents * -(-COMMAND_MEGABYTES * 1_000_000 // len(contents)))
            temporary.rename(long)
        return long

    def tokenize_command(self, text: str, command: Callable[[Path, Path, Path], list]) -> dict:
        file, folder = self.long_text(text), self.texts(text)[1]
        output, seconds = run(command(file, folder, self.results / "scratch/tokenized"))
        megabytes = file.stat().st_size / 1e6
        found = {"seconds": seconds, "megabytes": megabytes, "megabytes_per_second": megabytes / seconds}
        last = (output.strip().splitlines() or [""])[-1]
        return found | (json.loads(last) if last.startswith("{") else {})

    def ours_tokenize(self, text: str) -> dict:
        return self.tokenize_command(text, lambda file, folder, output: [
            self.args.program, "tokenize", "--tokenizer", folder, "--input", file, "--format", "lines", "--output",
            output.with_suffix(".tokens"), "--overwrite"])

    def peer_tokenize(self, text: str) -> dict:
        return self.tokenize_command(text, lambda file, folder, output: [
            self.args.peers_python, PEERS / "tokenize_file.py", "--tokenizer", folder, "--input", file, "--output",
            output.with_suffix(".bin")])

    # Fine-tuning.

    def finetune(self, side: str, seed: int, group_by_length: bool = False) -> dict:
        args = argparse.Namespace(results=self.results / "finetune", data=self.args.data, program=self.args.program,
                                  threads=None, group_by_length=group_by_length)
        try:
            initial = compare_finetune.initial_directory(args, "cola", seed)
            return compare_finetune.SIDES[side](args, "cola", seed, "bf16", initial)
        except SystemExit as problem:
            raise Failed(str(problem)) from None
