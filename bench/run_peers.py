#!/usr/bin/env python3
"""Funicular beside its peers: the same rows, weights and threads, in turn, as ratios.

Each comparison is a row of the table. Its two sides run one after the other in processes of their own, and this is
repeated (A B A B …): a machine drifts, so only the ratio of neighbours counts, and the median of these ratios is given.

  step      one training step of a BERT with its masked-language-model head, dropout on: `funicular bench`
            beside transformers eager, under torch.compile, and in its Trainer (bench/peers/hf_step.py)
  memory    peak resident memory of that step, ours with and without recomputation
  predict   lines of text to classes: `funicular predict`, its start included, beside bench/peers/hf_pipeline.py
  tokenize  text to ids: build/release/bench/tokenizer_bench beside bench/peers/tokenizers_bench.py (needs --data)
  finetune  CoLA, 3 epochs, whole commands: `funicular finetune` and `evaluate` beside the Trainer (needs --data)

Before its first step a peer is tuned: it runs with each set of options that may help it, and keeps the fastest; the
table shows which. Nothing is tuned with --quick, nor for `trainer` (as it comes) and `memory` (options cost memory).

Each finished run leaves one JSON file in --results, and is not repeated: stop and start this at will. A side that
cannot run says why and leaves a gap in the table. Written at the end: table.md and table.json.
"""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "bench/peers"
sys.path.insert(0, str(PEERS))
import compare_finetune
import make_batches

MODELS = {"base": "BERT-base", "minilm": "MiniLM", "small": "4 × 312"}
# glibc gives every large tensor back to the system and faults its pages in again; this makes it keep them.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "4294967296",
               "MALLOC_TOP_PAD_": "67108864"}
HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}
# What may help a peer: (options, environment). The first is used where nothing is tuned.
CANDIDATES = {
    "eager": [(["--attention", "eager"], {}), (["--attention", "sdpa"], {}),
              (["--attention", "eager", "--pad-multiple", "8"], {}),
              (["--attention", "eager"], KEEP_MEMORY), (["--attention", "eager"], KEEP_MEMORY | HUGE_PAGES)],
    "compile": [(["--attention", "sdpa", "--shapes", "static", "--pad-multiple", "8"], {}),
                (["--attention", "eager", "--shapes", "static", "--pad-multiple", "8"], {}),
                (["--attention", "sdpa", "--shapes", "dynamic"], {}),
                (["--attention", "sdpa", "--shapes", "static", "--pad-multiple", "8"], KEEP_MEMORY | HUGE_PAGES)],
    "trainer": [([], {})],
}


class Failed(Exception):
    """A side that could not run, and why."""


@dataclass
class Comparison:
    name: str
    ours: Callable[[int], dict]
    peer: Callable[[int], dict]
    key: str  # the measurement that is compared
    figure: Callable[[dict], str]  # how the table shows a run
    titles: tuple[str, str, str]  # what is compared, our side, the peer
    goal: str = ""
    rows: list = field(default_factory=list)

    def ratio(self, ours: dict, peer: dict) -> float:
        """How many times as fast we are; of memory, our share in percent."""
        a, b = ours[self.key], peer[self.key]
        if self.unit == "%":
            return 100 * a / b
        return b / a if "seconds" in self.key else a / b

    @property
    def unit(self) -> str:
        return "%" if self.key == "peak_resident_bytes" else "×"


def last_json(command: list, environment: dict[str, str] | None = None) -> dict:
    """The JSON object that a command prints as its last line, or as all of its output."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, env={**os.environ, **(environment or {})}, cwd=ROOT, text=True, capture_output=True)
    except OSError as problem:
        raise Failed(f"{words[0]}: {problem.strerror}") from None
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)}\nexit code {done.returncode}: {done.stderr.strip()[-1500:]}")
    for text in (done.stdout, (done.stdout.strip().splitlines() or [""])[-1]):
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            pass
    raise Failed(f"{' '.join(words)}\nprinted no JSON object: {done.stdout.strip()[-500:]}")


class Bench:
    def __init__(self, args):
        self.args, self.results = args, args.results
        # Compiled kernels are kept between repetitions; compiling is not timed anyway.
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(self.results / "inductor"))

    # The inputs, made once.

    def batches(self, rows: str) -> Path:
        file = self.results / "inputs" / f"{rows}.json"
        if not file.exists():
            write_json(file, make_batches.make_batches(1, rows, 16, 16, 30522))
        return file

    def weights(self, model: str) -> Path:
        """A directory that both sides load: the model with random weights."""
        folder = self.results / "inputs" / model
        if not (folder / "config.json").exists():
            done = subprocess.run([self.args.python, PEERS / "hf_step.py", "--model", model, "--save-initial", folder],
                                  text=True, capture_output=True)
            if done.returncode != 0:
                raise Failed(f"cannot make the model {model}: {done.stderr.strip()[-500:]}")
        return folder

    def classifier(self) -> Path:
        folder = self.results / "inputs/classifier"
        if not (folder / "config.json").exists():
            done = subprocess.run([self.args.python, PEERS / "hf_pipeline.py", "--make-model", folder],
                                  text=True, capture_output=True)
            if done.returncode != 0:
                raise Failed(f"cannot make the classifier: {done.stderr.strip()[-500:]}")
        return folder

    def lines(self) -> Path:
        """Texts of 32 to 128 tokens: words of the vocabulary, so that each is one token."""
        file = self.results / "inputs/lines.txt"
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

    # The sides.

    def ours_step(self, model: str, rows: str, precision: str, recompute: str = "none") -> dict:
        more = [] if recompute == "none" else ["--recompute", recompute]
        return last_json([self.args.program, "bench", "--model", self.weights(model), "--rows", rows, "--batches",
                          self.batches(rows), "--precision", precision, "--steps", self.args.steps, "--json", *more])

    def peer_step(self, model: str, rows: str, precision: str, variant: str, options: list, environment: dict,
                  steps: int) -> dict:
        return last_json([self.args.python, PEERS / "hf_step.py", "--variant", variant, "--model", self.weights(model),
                          "--batches", self.batches(rows), "--precision", precision, "--steps", steps, "--scratch",
                          self.results / "scratch", *options], environment)

    def tuned(self, model: str, rows: str, precision: str, variant: str) -> tuple[list, dict]:
        candidates = CANDIDATES[variant]
        if self.args.quick or not self.args.tune or len(candidates) == 1:
            return candidates[0]
        seconds = []
        for number, (options, environment) in enumerate(candidates):
            file = self.results / "tuning" / f"{model}-{rows}-{precision}-{variant}-{number}.json"
            found = self.once(file, lambda: self.peer_step(model, rows, precision, variant, options, environment, 3))
            seconds.append(found["step_seconds_best"] if found else float("inf"))
        return candidates[seconds.index(min(seconds))]

    def ours_predict(self, precision: str) -> dict:
        output = self.results / "scratch/predicted.jsonl"
        output.parent.mkdir(parents=True, exist_ok=True)
        command = [self.args.program, "predict", "--model", self.classifier(), "--input", self.lines(), "--output", output]
        start = time.perf_counter()
        done = subprocess.run([*command, "--precision", precision], text=True, capture_output=True)
        seconds = time.perf_counter() - start
        if done.returncode != 0:
            raise Failed(f"funicular predict: exit code {done.returncode}: {done.stderr.strip()[-1000:]}")
        return {"seconds": seconds, "lines_per_second": self.args.lines / seconds, "precision": precision}

    def peer_predict(self, engine: str, precision: str, more: list) -> dict:
        python = self.args.peers_python if engine in ("onnx", "openvino") else self.args.python
        return last_json([python, PEERS / "hf_pipeline.py", "--engine", engine, "--precision", precision, "--model",
                          self.classifier(), "--input", self.lines(), "--scratch", self.results / "scratch", *more])

    def peer_tokenize(self, text: str, peer: str) -> dict:
        data = ["--data", self.args.data] if self.args.data else []
        found = last_json([self.args.peers_python, PEERS / "tokenizers_bench.py", "--texts", self.results / "texts",
                           "--only", text, "--peers", peer, *data])
        if found["missing"]:
            raise Failed(str(found["missing"]))
        return found["results"][text][0] | {"versions": found["versions"], "threads": found["threads"]}

    def ours_tokenize(self, text: str) -> dict:
        texts = self.results / "texts"
        folder = texts / "chinese-model" if text == "chinese" else self.weights("minilm")
        if not (texts / f"{text}.txt").exists() or not folder.exists():
            self.peer_tokenize(text, "tokenizers")  # writes the texts and the Chinese vocabulary
        found = last_json([self.args.tokenizer_bench, "--benchmark_filter=alphabetic.*threads:2$",
                           "--benchmark_format=json"],
                          {"FUNICULAR_BENCH_TEXT": str(texts / f"{text}.txt"), "FUNICULAR_BENCH_TOKENIZER": str(folder)})
        if not found.get("benchmarks"):
            raise Failed("tokenizer_bench ran nothing with two threads")
        return {"megabytes_per_second": found["benchmarks"][0]["bytes_per_second"] / 1e6}

    def finetune(self, side: str, seed: int) -> dict:
        args = argparse.Namespace(results=self.results / "finetune", data=self.args.data, program=self.args.program,
                                  threads=None)
        try:
            initial = compare_finetune.initial_directory(args, "cola", seed)
            return compare_finetune.SIDES[side](args, "cola", seed, "bf16", initial)
        except SystemExit as problem:
            raise Failed(str(problem)) from None

    # Running.

    def once(self, file: Path, run: Callable[[], dict]) -> dict | None:
        """The result in the file, or of the run, which then is in the file; nothing if it failed."""
        request = {"steps": self.args.steps, "lines": self.args.lines}
        if file.exists() and (found := json.loads(file.read_text()))["request"] == request:
            return found
        load, failure = os.getloadavg()[0], file.with_suffix(".failed.txt")
        name = str(file.relative_to(self.results).with_suffix(""))
        start = time.time()
        try:
            found = run() | {"load_before": load, "request": request}
        except Failed as problem:
            failure.parent.mkdir(parents=True, exist_ok=True)
            failure.write_text(f"{problem}\n")
            print(f"{name}: FAILED: {str(problem).splitlines()[-1]}", flush=True)
            return None
        failure.unlink(missing_ok=True)
        write_json(file, found)
        busy = f"; the machine was busy before it (load {load:.1f})" if load > 1.5 * os.cpu_count() else ""
        print(f"{name}: {time.time() - start:.0f} s{busy}", flush=True)
        return found

    def run(self, comparison: Comparison, repetition: int) -> None:
        folder = self.results / comparison.name
        ours = self.once(folder / f"{repetition}-ours.json", lambda: comparison.ours(repetition))
        peer = self.once(folder / f"{repetition}-peer.json", lambda: comparison.peer(repetition))
        comparison.rows.append((ours, peer))


def write_json(file: Path, value) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(value) + "\n")
    temporary.rename(file)


def step_comparison(bench: Bench, model: str, rows: str, ours: str, variant: str, precision: str, goal="") -> Comparison:
    def peer(_: int) -> dict:
        options, environment = bench.tuned(model, rows, precision, variant)
        return bench.peer_step(model, rows, precision, variant, options, environment, bench.args.steps)

    return Comparison(
        f"step-{model}-{rows}-{ours}-{variant}-{precision}", lambda _: bench.ours_step(model, rows, ours), peer,
        "step_seconds_median",
        lambda r: f"{r['step_seconds_median']:.3f} s, {r['tokens_per_second']:.0f} tokens/s",
        (f"step, {MODELS[model]}, {rows} rows", ours, f"HF {variant} {precision}"), goal)


def memory_comparison(bench: Bench, recompute: str, goal: str) -> Comparison:
    return Comparison(
        f"memory-base-ragged-bf16-{recompute}", lambda _: bench.ours_step("base", "ragged", "bf16", recompute),
        lambda _: bench.peer_step("base", "ragged", "bf16", "eager", [], {}, bench.args.steps),
        "peak_resident_bytes", lambda r: f"{r['peak_resident_bytes'] / 1e9:.2f} GB",
        ("peak memory, BERT-base, ragged rows", f"bf16, recompute {recompute}", "HF eager bf16"), goal)


def predict_comparison(bench: Bench, engine: str, precision: str, more: list, goal="") -> Comparison:
    title = {"pipeline": "HF pipeline", "loop": "HF model, sorted batches", "onnx": "onnxruntime", "openvino": "OpenVINO"}
    suffix = "-sorted" if "--sort" in more else ""
    # A peer's fp32 is beside our bf16: what each user would take for speed without loss.
    return Comparison(
        f"predict-{engine}{suffix}-{precision}", lambda _: bench.ours_predict("int8" if precision == "int8" else "bf16"),
        lambda _: bench.peer_predict(engine, precision, more),
        "lines_per_second", lambda r: f"{r['precision']}: {r['lines_per_second']:.0f} lines/s",
        ("predict, MiniLM, ragged lines", "start included", f"{title[engine]} {precision}{suffix.replace('-', ', ')}"), goal)


def tokenize_comparison(bench: Bench, text: str, peer: str, goal: str) -> Comparison:
    return Comparison(
        f"tokenize-{text}-{peer}", lambda _: bench.ours_tokenize(text), lambda _: bench.peer_tokenize(text, peer),
        "megabytes_per_second", lambda r: f"{r['megabytes_per_second']:.1f} MB/s", (f"tokenize, {text}", "two threads", peer), goal)


def comparisons(bench: Bench) -> list[Comparison]:
    goals = {("base", "ragged", "bf16", "eager", "bf16"): "≥ 4.5", ("base", "ragged", "bf16", "compile", "bf16"): "≥ 3.5",
             ("base", "ragged", "bf16", "trainer", "fp32"): "≥ 8", ("base", "full", "bf16", "eager", "bf16"): "≥ 2",
             ("base", "full", "bf16", "compile", "bf16"): "≥ 1.5", ("base", "ragged", "fp32", "eager", "fp32"): "≥ 2.2"}
    pairs = [("bf16", "eager", "bf16"), ("bf16", "compile", "bf16"), ("bf16", "trainer", "fp32"),
             ("bf16", "trainer", "bf16"), ("fp32", "eager", "fp32"), ("fp32", "compile", "fp32")]
    made = [step_comparison(bench, model, rows, *pair, goals.get((model, rows, *pair), ""))
            for model in MODELS for rows in ("ragged", "full") for pair in pairs]
    made += [memory_comparison(bench, "none", "≤ 60"), memory_comparison(bench, "full", "≤ 50")]
    made += [predict_comparison(bench, "pipeline", "fp32", [], "≥ 6"), predict_comparison(bench, "pipeline", "bf16", ["--sort"]),
             predict_comparison(bench, "loop", "bf16", [])]
    made += [predict_comparison(bench, engine, precision, [], "" if precision == "int8" else "≥ 1.5")
             for engine, precision in (("onnx", "fp32"), ("onnx", "int8"), ("openvino", "fp32"), ("openvino", "bf16"),
                                       ("openvino", "int8"))]
    for text in ("prose", "news", "chinese"):
        made.append(tokenize_comparison(bench, text, "tokenizers", "≥ 5" if text == "chinese" else "≥ 10"))
        made.append(tokenize_comparison(bench, text, "flash-tokenizer", "" if text == "chinese" else "≥ 4"))
    made.append(Comparison(
        "finetune-cola", lambda seed: bench.finetune("funicular", seed), lambda seed: bench.finetune("hf", seed),
        "wall_seconds", lambda r: f"{r['wall_seconds']:.0f} s",
        ("fine-tuning MiniLM on CoLA, whole command", "bf16", "HF Trainer bf16"), "≥ 5"))
    return made


def chosen(args, everything: list[Comparison]) -> list[Comparison]:
    names = [comparison.name for comparison in everything]
    if args.only:
        kept = [c for c in everything if any(re.search(pattern, c.name) for pattern in args.only)]
        if not kept:
            print(f"--only: nothing matches {' '.join(args.only)}; there are\n  " + "\n  ".join(names), file=sys.stderr)
            sys.exit(2)
        return kept
    kept = [c for c in everything if args.data or not c.name.startswith(("tokenize", "finetune"))]
    return [c for c in kept if c.goal and not c.name.startswith("finetune")] if args.quick else kept


def middle(comparison: Comparison, runs: list[dict]) -> str:
    """The figures of the run in the middle; of two, of the smaller."""
    ordered = sorted(runs, key=lambda run: run[comparison.key])
    return comparison.figure(ordered[(len(ordered) - 1) // 2]) if ordered else "–"


def summary(comparison: Comparison) -> dict:
    pairs = [(a, b) for a, b in comparison.rows if a and b]
    ratios = [comparison.ratio(a, b) for a, b in pairs]
    ours, peers = ([row[i] for row in comparison.rows if row[i]] for i in (0, 1))
    what, our_title, peer_title = comparison.titles
    return {"name": comparison.name, "what": what, "ours": our_title, "peer": peer_title, "pairs": len(pairs),
            "ratio": statistics.median(ratios) if ratios else None, "ratios": ratios, "unit": comparison.unit,
            "goal": comparison.goal, "our_figures": middle(comparison, ours),
            "peer_figures": middle(comparison, peers),
            "peer_options": peers[0].get("options") if peers else None,
            "versions": peers[0].get("versions") if peers else None, "our_runs": ours, "peer_runs": peers,
            "largest_load_before": max((side["load_before"] for side in ours + peers), default=None)}


def machine() -> str:
    try:
        model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1]
        memory = int(re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)[1]) / 1e6
        return f"{model}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GB"
    except (OSError, TypeError):
        return platform.processor()


def table(args, rows: list[dict]) -> str:
    lines = [f"Machine: {machine()}. Each ratio is the median of the ratios of paired runs (smallest – largest).", "",
             "| what | ours | peer | ratio | goal | our figures | the peer's | pairs |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        ratio = "–"
        if row["ratio"] is not None:
            form = "{:.0f} %" if row["unit"] == "%" else "{:.2f}×"
            ratio = f"**{form.format(row['ratio'])}** ({min(row['ratios']):.2f} – {max(row['ratios']):.2f})"
        goal = (row["goal"] + (" %" if row["unit"] == "%" else "×")) if row["goal"] else ""
        lines.append(f"| {row['what']} | {row['ours']} | {row['peer']} | {ratio} | {goal} | {row['our_figures']} | "
                     f"{row['peer_figures']} | {row['pairs']} |")
    busy = [row["name"] for row in rows if (row["largest_load_before"] or 0) > 1.5 * os.cpu_count()]
    if busy:
        lines += ["", f"The machine was busy with other work before some runs of: {', '.join(busy)}."]
    lines += ["", "Options of the peers:", ""]
    for row in rows:
        if row["peer_options"]:
            options = ", ".join(f"{name} {value}" for name, value in row["peer_options"].items() if value not in (None, {}))
            lines.append(f"- {row['what']}, {row['peer']}: {options}; "
                         + ", ".join(f"{name} {version}" for name, version in row["versions"].items()))
    return "\n".join(lines) + "\n"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    data = os.environ.get("FUNICULAR_SHARED_DATA")
    parser.add_argument("--results", type=Path, default=ROOT / "build/bench/peers")
    parser.add_argument("--only", nargs="+", metavar="REGEX", help="comparisons whose name matches (--list shows them)")
    parser.add_argument("--list", action="store_true", help="print the comparisons' names")
    parser.add_argument("--quick", action="store_true",
                        help="one repetition of 3 steps, untuned, of what has a goal, results apart")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8, help="timed steps of each run")
    parser.add_argument("--lines", type=int, default=4096, help="lines to predict")
    parser.add_argument("--no-tune", dest="tune", action="store_false", help="take the first options of each peer")
    parser.add_argument("--data", type=Path, default=Path(data) if data else None,
                        help="folder with wikitext2/, mrpc/, cola/, thucnews/, peopledaily/ [$FUNICULAR_SHARED_DATA]")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/funicular")
    parser.add_argument("--tokenizer-bench", type=Path, default=ROOT / "build/release/bench/tokenizer_bench")
    parser.add_argument("--python", type=Path, default=ROOT / ".deps/python/bin/python", help="with torch, transformers")
    parser.add_argument("--peers-python", type=Path, default=ROOT / ".deps/peers/bin/python",
                        help="with bench/peers/requirements.txt too")
    args = parser.parse_args()
    if args.quick:
        args.results, args.repetitions, args.steps, args.lines = args.results / "quick", 1, 3, 256
    args.results = args.results.resolve()
    return args


def main() -> None:
    args = arguments()
    bench = Bench(args)
    everything = comparisons(bench)
    if args.list:
        return print("\n".join(comparison.name for comparison in everything))
    selected = chosen(args, everything)
    for repetition in range(1, args.repetitions + 1):
        for comparison in selected:
            bench.run(comparison, repetition)
    rows = [summary(comparison) for comparison in selected]
    write_json(args.results / "table.json", {"machine": machine(), "rows": rows})
    (args.results / "table.md").write_text(table(args, rows))
    print(table(args, rows), end="")


if __name__ == "__main__":
    main()
