"""What ./run bench compares: each comparison's two sides, its measurement, its kind (peer_report.KINDS) and its goal."""
from dataclasses import dataclass, field, replace
from typing import Callable

from peer_sides import UNLIMITED_ENGINES, Sides

MODELS = {"base": "BERT-base", "minilm": "MiniLM", "small": "4 × 312"}
ROWS = {"ragged": "rows of 32–128 tokens as drawn", "full": "rows of 128 tokens",
        "grouped": "rows of 32–128 tokens, the peer's grouped by length"}


@dataclass
class Comparison:
    name: str
    kind: str
    ours: Callable[[int], dict]
    peer: Callable[[int], dict] | None  # none: ours alone says it all
    key: str  # the measurement that is compared
    figure: Callable[[dict], str]  # how the table shows a run
    titles: tuple[str, str, str]  # what is compared, our side, the peer
    goal: str = ""
    quick: bool = False  # whether --quick has it
    isa: str = ""  # the instructions that both sides are limited to
    rows: list = field(default_factory=list)

    def ratio(self, ours: dict, peer: dict | None) -> float:
        """How many times as fast we are; in percent, our share of memory or the limit's of our time."""
        if peer is None:
            return 100 * ours[self.key]
        a, b = ours[self.key], peer[self.key]
        if self.unit == "%":
            return 100 * a / b
        return b / a if "seconds" in self.key else a / b

    @property
    def unit(self) -> str:
        return "%" if self.key in ("peak_resident_bytes", "floor_share") else "×"


def floor_comparison(sides: Sides, rows: str, precision: str, goal: str) -> Comparison:
    def ours(_: int) -> dict:
        found = sides.ours_step("base", rows, precision, "--floor")
        return found | {"floor_share": found["floor"]["share"]}

    return Comparison(
        f"floor-base-{rows}-{precision}", "limit", ours, None, "floor_share",
        lambda r: f"{r['tokens_per_second']:.0f} of {r['floor']['tokens_per_second']:.0f} tokens/s, products at "
                  f"{r['floor']['flops_per_second'] / 1e9:.0f} GFLOP/s",
        (f"step, BERT-base, {ROWS[rows]}", precision, "its products alone"), goal, quick=precision == "bf16")


def kind_of_step(rows: str, ours: str, variant: str, precision: str) -> str:
    if variant == "trainer":
        return "plain"
    return "like" if rows != "ragged" and ours == precision else "tuned"


def step_comparison(sides: Sides, model: str, rows: str, ours: str, variant: str, precision: str, goal: str) -> Comparison:
    def peer(_: int) -> dict:
        chosen = sides.tuned_step(model, rows, precision, variant)
        return sides.peer_step(model, rows, precision, variant, chosen, sides.args.steps)

    # Batch by batch the sides do equal work only where they have the same batches.
    same_batches = rows != "grouped"
    kind = kind_of_step(rows, ours, variant, precision)
    return Comparison(
        f"step-{model}-{rows}-{ours}-{variant}-{precision}", kind, lambda _: sides.ours_step(model, rows, ours), peer,
        "step_seconds_median" if same_batches else "tokens_per_second",
        lambda r: (f"{r['step_seconds_median']:.3f} s, " if same_batches else "") + f"{r['tokens_per_second']:.0f} tokens/s",
        (f"step, {MODELS[model]}, {ROWS[rows]}", ours, f"HF {variant} {precision}"), goal,
        quick=bool(goal) or (model, kind, ours, variant) == ("base", "like", "bf16", "eager"))


def memory_comparison(sides: Sides, recompute: str, goal: str) -> Comparison:
    more = [] if recompute == "none" else ["--recompute", recompute]
    return Comparison(
        f"memory-base-ragged-bf16-{recompute}", "tuned", lambda _: sides.ours_step("base", "ragged", "bf16", *more),
        lambda _: sides.peer_step("base", "ragged", "bf16", "eager", ([], {}), sides.args.steps),  # options cost memory
        "peak_resident_bytes", lambda r: f"{r['peak_resident_bytes'] / 1e9:.2f} GB",
        (f"peak memory, BERT-base, {ROWS['ragged']}", f"bf16, recompute {recompute}", "HF eager bf16"), goal, quick=True)


def predict_comparison(sides: Sides, ours: str, engine: str, precision: str, sort: bool = False, goal: str = "") -> Comparison:
    titles = {"pipeline": "HF pipeline", "loop": "HF model", "onnx": "onnxruntime", "openvino": "OpenVINO"}
    is_sorted = sort or engine != "pipeline"
    kind = "plain" if not is_sorted else "like" if ours == precision else "tuned"

    def figure(r: dict) -> str:
        once_started = r.get("lines_per_second_once_started")
        return f"{r['lines_per_second']:.0f} lines/s" + (f", {once_started:.0f} once started" if once_started else "")

    return Comparison(
        f"predict-{ours}-{engine}{'-sorted' if sort else ''}-{precision}", kind, lambda _: sides.ours_predict(ours),
        lambda _: sides.peer_predict(engine, precision, sort), "lines_per_second", figure,
        ("predict, MiniLM, lines of 32–128 tokens, start included on both sides", ours,
         f"{titles[engine]} {precision}, {'sorted by length' if is_sorted else 'lines as they come'}"), goal,
        quick=bool(goal) or (engine, kind) == ("loop", "like"))


def step_comparisons(sides: Sides) -> list[Comparison]:
    goals = {("base", "ragged", "bf16", "eager", "bf16"): "≥ 4.5", ("base", "ragged", "bf16", "compile", "bf16"): "≥ 3.5",
             ("base", "ragged", "bf16", "trainer", "fp32"): "≥ 8", ("base", "full", "bf16", "eager", "bf16"): "≥ 2",
             ("base", "full", "bf16", "compile", "bf16"): "≥ 1.5", ("base", "ragged", "fp32", "eager", "fp32"): "≥ 2.2"}
    pairs = [("bf16", "eager", "bf16"), ("bf16", "compile", "bf16"), ("bf16", "trainer", "fp32"),
             ("bf16", "trainer", "bf16"), ("fp32", "eager", "fp32"), ("fp32", "compile", "fp32")]
    return [step_comparison(sides, model, rows, *pair, goals.get((model, rows, *pair), ""))
            for model in MODELS for rows in ("grouped", "full", "ragged") for pair in pairs
            if not (rows == "grouped" and "trainer" in pair)]


def predict_comparisons(sides: Sides) -> list[Comparison]:
    equal = [("loop", "bf16"), ("loop", "fp32"), ("onnx", "fp32"), ("onnx", "int8"), ("openvino", "fp32"),
             ("openvino", "bf16"), ("openvino", "int8")]
    made = [predict_comparison(sides, precision, engine, precision) for engine, precision in equal]
    # What a user of each would take for speed without loss.
    made += [predict_comparison(sides, "bf16", engine, "fp32", goal="≥ 1.5") for engine in ("onnx", "openvino")]
    made.append(predict_comparison(sides, "bf16", "pipeline", "bf16", sort=True))
    made.append(predict_comparison(sides, "bf16", "pipeline", "fp32", goal="≥ 6"))
    return made


def tokenize_comparisons(sides: Sides) -> list[Comparison]:
    def made(name: str, what: str, ours, peer, title: str, goal: str) -> Comparison:
        return Comparison(f"tokenize-{name}", "like", ours, peer, "megabytes_per_second",
                          lambda r: f"{r['megabytes_per_second']:.1f} MB/s", (what, "two threads", title), goal,
                          quick=bool(goal))

    rows = []
    for text in ("prose", "news", "chinese"):
        for peer, goal in (("tokenizers", "≥ 5" if text == "chinese" else "≥ 10"),
                           ("flash-tokenizer", "" if text == "chinese" else "≥ 4")):
            rows.append(made(f"ids-{text}-{peer}", f"tokenise {text}: text in memory to one array of ids",
                             lambda _, text=text: sides.ours_ids(text),
                             lambda _, text=text, peer=peer: sides.peer_ids(text, peer), peer, goal))
        rows.append(made(f"command-{text}", f"tokenise {text}: a file to a file, whole command",
                         lambda _, text=text: sides.ours_tokenize(text), lambda _, text=text: sides.peer_tokenize(text),
                         "a script with tokenizers", ""))
    for name in ("prose", "news", "chinese"):
        text = f"gpt2-{name}"
        rows.append(made(f"command-{text}", f"tokenise {name} by GPT-2's byte-level BPE: a file to a file, whole command",
                         lambda _, text=text: sides.ours_tokenize(text), lambda _, text=text: sides.peer_tokenize(text),
                         "a script with tokenizers", "≥ 20"))
    return rows


def finetune_comparison(sides: Sides, grouped: bool, goal: str) -> Comparison:
    return Comparison(
        f"finetune-cola{'-grouped' if grouped else ''}", "like" if grouped else "tuned",
        lambda seed: sides.finetune("funicular", seed), lambda seed: sides.finetune("hf", seed, grouped),
        "wall_seconds", lambda r: f"{r['wall_seconds']:.0f} s",
        ("fine-tuning MiniLM on CoLA, whole command", "bf16", f"HF Trainer bf16{', grouped by length' if grouped else ''}"), goal)


def comparisons(sides: Sides) -> list[Comparison]:
    made = [floor_comparison(sides, rows, precision, goal) for rows, precision, goal in
            (("ragged", "bf16", "≥ 80"), ("full", "bf16", "≥ 80"), ("ragged", "fp32", "≥ 90"), ("full", "fp32", "≥ 90"))]
    made += step_comparisons(sides)
    made += [memory_comparison(sides, "none", "≤ 60"), memory_comparison(sides, "full", "≤ 50")]
    made += predict_comparisons(sides) + tokenize_comparisons(sides)
    made += [finetune_comparison(sides, True, ""), finetune_comparison(sides, False, "≥ 5")]
    return made


def own_comparisons(sides: Sides, goals: dict[str, str]) -> list[Comparison]:
    """Ours in fewer bits beside ours in fp32."""
    def step(_: int, precision: str) -> dict:
        return sides.ours_step("minilm", "ragged", precision)

    def made(name: str, run, key: str, unit: str, what: str, precision: str) -> Comparison:
        return Comparison(f"own-{name}-{precision}", "own", lambda n: run(n, precision), lambda n: run(n, "fp32"), key,
                          lambda r: f"{r[key]:.0f} {unit}", (what, precision, "ours fp32"), goals[f"{name}-{precision}"], True)

    predict = [made("predict", lambda _, precision: sides.ours_predict(precision), "lines_per_second", "lines/s",
                    "predict, MiniLM, lines of 32–128 tokens", precision) for precision in ("bf16", "int8")]
    return [made("step", step, "tokens_per_second", "tokens/s", f"step, MiniLM, {ROWS['ragged']}", "bf16"), *predict]


def isa_comparisons(sides: Sides, isa: str) -> list[Comparison]:
    """Step and prediction with one set of instructions: our precisions, and HF and engines as they come and like for like."""
    whole = isa.endswith("vnni") or isa == "native"
    best = "fp32" if isa.startswith("avx") else "bf16"  # of ours, without a loss
    made = own_comparisons(sides, {"step-bf16": "≥ 0.95", "predict-bf16": "≥ 1", "predict-int8": "≥ 2.2" if whole else "≥ 1.6"})
    made += [step_comparison(sides, "minilm", rows, ours, variant, "fp32", goal) for rows, ours, variant, goal in
             (("ragged", best, "trainer", "≥ 3"), ("grouped", "fp32", "eager", "≥ 1.6"))]
    equal = [("loop", "fp32"), ("onnx", "fp32"), ("onnx", "int8"), ("openvino", "fp32"), ("openvino", "int8")]
    made += [predict_comparison(sides, precision, engine, precision, goal="≥ 1.3") for engine, precision in equal
             if isa == "native" or engine not in UNLIMITED_ENGINES]
    made.append(predict_comparison(sides, best, "pipeline", "fp32"))
    return [replace(one, name=f"{isa}/{one.name}", isa=isa, titles=(f"{isa}: {one.titles[0]}", *one.titles[1:])) for one in made]
