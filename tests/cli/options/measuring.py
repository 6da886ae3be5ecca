"""What the options of bench do."""

import xml.etree.ElementTree

from harness import HIDDEN, PROGRAM, VOCABULARY, json, write_model

from .lab import *

TIME, OTHERS = Table(), Table()

TIME.row("--help", "the options are listed")(shows_help)


def bench(lab, *more, mode=None, **options):
    """What funicular bench says in JSON, or, where json=False, as text."""
    values = {"model": lab.plain_model(), "rows": "full", "max_length": 48, "batch_size": 8, "json": True, **options}
    words = ["bench", *([mode] if mode else [])]
    for name, value in values.items():
        option = name.replace("_", "-")
        if value is True:
            words.append("--" + option)
        elif value is not None and value is not False:
            words += ["--" + option, *map(str, value if isinstance(value, list) else [value])]
    out = lab.once(" ".join(map(str, [*words, *more])), lambda _: lab.succeeds(*words, *more).out)
    return json.loads(out.splitlines()[-1]) if values["json"] else out


SHORT = {"steps": 2, "warmup": 0}


@TIME.row("--model", "it is what is timed")
def timed_model(lab):
    wide = lab.once("wide", lambda path: lab.copy_model(lab.plain_model(), path, hidden_size=2 * HIDDEN))
    (wide / "model.safetensors").unlink()
    lab.assertEqual(bench(lab, **SHORT)["parameters"], 23156)
    lab.assertGreater(bench(lab, model=wide, **SHORT)["parameters"], 2 * 23156)
    lab.refuses(["bench", "--model", "tiny"], "tiny")


@TIME.row("--rows", "ragged rows are of lengths from 32 to the longest, full ones are all of that")
def timed_rows(lab):
    lab.assertEqual(bench(lab, **SHORT)["tokens_per_step"], 8 * 48)
    tokens = bench(lab, rows="ragged", **SHORT)["tokens_per_step"]
    lab.assertTrue(8 * 32 < tokens < 8 * 48, tokens)


@TIME.row("--max-length", "the longest row has so many tokens")
def timed_length(lab):
    for length in (48, 32):
        lab.assertEqual(bench(lab, max_length=length, **SHORT)["tokens_per_step"], 8 * length)


@TIME.row("--batch-size", "a step has so many rows")
def timed_batch(lab):
    for size in (8, 3):
        lab.assertEqual(bench(lab, batch_size=size, **SHORT)["tokens_per_step"], 48 * size)


@TIME.row("--steps", "so many steps are timed")
def timed_steps(lab):
    for count in (2, 5):
        lab.assertEqual(len(bench(lab, steps=count, warmup=0)["losses"]), count)


@TIME.row("--warmup", "so many steps go before those that are timed")
def warmup(lab):
    for count in (0, 3):
        lab.assertEqual(len(bench(lab, steps=2, warmup=count)["losses"]), 2 + count)


@TIME.row("--cuda-graphs", "refused on the CPU, which has no kernels to record")
def timed_graphs(lab):
    lab.refuses(["bench", "--cuda-graphs"], "--cuda-graphs times steps on a GPU", "--device cuda")


@TIME.row("--precision", "the arithmetic has as many digits")
def timed_precision(lab):
    losses = {name: bench(lab, precision=name, steps=5, warmup=0)["losses"] for name in ("fp64", "fp32", "bf16", "fp16")}
    error = {name: norm(less(values, losses["fp64"])) for name, values in losses.items()}
    lab.assertTrue(0 < error["fp32"] < 1e-5, error)
    lab.assertTrue(error["fp32"] < error["fp16"] < error["bf16"] < 0.2, error)


@TIME.row("--micro-batch-size", "a pass has so many rows")
def timed_micro_batch(lab):
    def calls(**options):
        parts = {part["part"]: part.get("calls_per_step") for part in bench(lab, profile=True, **SHORT, **options)["profile"]}
        return parts["funicular::attention"]
    lab.assertEqual((calls(), calls(micro_batch_size=2)), (2, 4 * 2), "of two layers")


@TIME.row("--recompute", "layers are computed again")
def timed_recompute(lab):
    def calls(**options):
        parts = {part["part"]: part.get("calls_per_step") for part in bench(lab, profile=True, **SHORT, **options)["profile"]}
        return parts["funicular::attention"]
    lab.assertEqual((calls(), calls(recompute="full")), (2, 4), "of two layers")


@TIME.row("--batches", "its rows are what is timed")
def batches(lab):
    rows = [{"token_ids": [2, *range(10, 10 + length), 3], "masked_positions": [1], "labels": [9]} for length in (5, 7)]
    path = lab.folder / "batches.json"
    path.write_text(json.dumps({"batches": [rows] * 3}))
    lab.assertEqual(bench(lab, batches=path, **SHORT)["tokens_per_step"], 5 + 7 + 2 * SPECIAL)


@TIME.row("--floor", "the products alone are timed, too")
def floor(lab):
    lab.assertNotIn("floor", bench(lab, **SHORT))
    lab.assertGreater(bench(lab, floor=True, **SHORT)["floor"]["share"], 0)


@TIME.row("--profile", "the parts of the step are told")
def profile(lab):
    lab.assertNotIn("profile", bench(lab, **SHORT))
    lab.assertIn("funicular::optimizer", [part["part"] for part in bench(lab, profile=True, **SHORT)["profile"]])


@TIME.row("--trace", "what further steps do when is written there")
def trace(lab):
    path = lab.folder / "trace.json"
    bench(lab, trace=path, **SHORT)
    names = {event["name"] for event in json.loads(path.read_text())["traceEvents"]}
    lab.assertIn("funicular::optimizer", names)


@TIME.row("--seed", "weights, rows and dropout follow from it")
def timed_seed(lab):
    def losses(seed, *again, **options):
        return bench(lab, *again, seed=seed, **SHORT, **options)["losses"]
    lab.assertEqual(losses(1), losses(1, "--no-profile"))
    lab.assertNotEqual(losses(1), losses(2), "other rows")
    fixed = lab.folder / "fixed.json"
    fixed.write_text(json.dumps({"batches": [[{"token_ids": [2, 10, 11, 12, 3], "masked_positions": [1], "labels": [9]}]] * 2}))
    new = lab.once("new", lambda path: lab.copy_model(lab.plain_model(), path))
    (new / "model.safetensors").unlink()
    drops = lab.once("drops", lambda path: lab.copy_model(lab.plain_model(), path, hidden_dropout_prob=0.5))
    for model in (new, drops):
        lab.assertNotEqual(losses(1, model=model, batches=fixed), losses(2, model=model, batches=fixed))


@TIME.row("--json", "the answer is one JSON object")
def timed_json(lab):
    lab.assertIn("real tokens/s", bench(lab, json=False, **SHORT))
    lab.assertGreater(bench(lab, **SHORT)["tokens_per_second"], 0)


@TIME.row("--device", "cpu computes here; cuda is refused where there is none")
def timed_device(lab):
    lab.assertEqual(bench(lab, device="cpu", **SHORT)["losses"], bench(lab, **SHORT)["losses"])
    if not lab.has_gpu():
        lab.refuses(["bench", "--model", lab.plain_model(), "--device", "cuda"], "--device cuda")


@TIME.row("--threads", "LibTorch computes with so many threads")
def timed_threads(lab):
    for count in (1, 3):
        lab.assertEqual(bench(lab, threads=count, **SHORT)["threads"], count)


@TIME.row("--config", "a file's keys are options")
def timed_config(lab):
    path = config_file(lab, "warmup = 4\n")
    lab.assertEqual(len(bench(lab, config=path, steps=2)["losses"]), 6)


# ---- bench memory, bench techniques, bench ranks


@OTHERS.row("--gradient-accumulation-steps", "the batch is cut into so many parts")
def accumulation(lab):
    rows = bench(lab, mode="memory", gradient_accumulation_steps=[1, 4], precision="fp32", recompute="none")["combinations"]
    lab.assertEqual([row["micro_batch_size"] for row in rows], [8, 2])
    lab.assertGreater(rows[0]["measured"]["activations"], 3 * rows[1]["measured"]["activations"])


@OTHERS.row("--strategy", "those are compared, by what each keeps on a rank")
def strategies(lab):
    words = ["bench", "ranks", "--model", lab.plain_model(), "--max-length", 48, "--batch-size", 8, "--steps", 1, "--warmup", 0, "--json"]
    out = lab.succeeds("launch", "-n", 2, "--", PROGRAM, *words, "--strategy", "ddp", "zero1").out
    ddp, zero1 = json.loads(next(line for line in out.splitlines() if line.startswith("[{")))
    lab.assertEqual((ddp["strategy"], zero1["strategy"]), ("ddp", "zero1"))
    # The pieces of each unit are cut between blocks of 4,096 elements, which is much of a model this small.
    lab.assertLess(zero1["measured"]["optimizer"], 0.65 * ddp["measured"]["optimizer"])


@OTHERS.row("--ranks", "each of so many is told what it would need, in this process alone")
def imagined_ranks(lab):
    def state(count):
        row, = bench(lab, mode="memory", ranks=count, strategy="zero1", precision="fp32", recompute="none")["combinations"]
        lab.assertEqual((row["ranks"], len(row["predicted"])), (count, count))
        return sum(rank["optimizer"] for rank in row["predicted"])
    lab.assertEqual(state(2), state(3), "together the ranks hold what one alone would")


@OTHERS.row("--devices", "dp has so many replicas")
def bench_devices(lab):
    for count in (2, 3):
        found, = bench(lab, mode="ranks", strategy="dp", devices=count, steps=1, warmup=0)
        lab.assertEqual(len(found["devices"]), count)
    lab.refuses(["bench", "memory", "--strategy", "dp", "--devices", 2], "--devices is for funicular bench ranks --strategy dp")


FAST = {"mode": "techniques", "steps": 1, "repetitions": 1, "larger": 2, "run_steps": 6, "eval_steps": 2, "patience": 1}


def runs(lab, **options):
    """Steps with and without early stopping."""
    found = bench(lab, **{**FAST, **options})["early_stopping"]
    return found["without"]["steps"], found["with"]["steps"]


@OTHERS.row("--run-steps", "so long is the run without early stopping")
def run_steps(lab):
    for count in (6, 8):
        lab.assertEqual(runs(lab, run_steps=count, learning_rate=1e-30)[0], count)


@OTHERS.row("--eval-steps", "so many steps are between evaluations, of which the second is no better")
def bench_eval_steps(lab):
    for count in (1, 2):
        lab.assertEqual(runs(lab, eval_steps=count, learning_rate=1e-30)[1], 2 * count)


@OTHERS.row("--patience", "so many evaluations may be no better")
def bench_patience(lab):
    for count in (1, 2):
        lab.assertEqual(runs(lab, eval_steps=1, patience=count, learning_rate=1e-30)[1], 1 + count)


@OTHERS.row("--learning-rate", "at that rate it learns, or does not")
def bench_rate(lab):
    losses = {rate: bench(lab, learning_rate=rate, **FAST)["early_stopping"]["without"] for rate in (1e-30, 0.01)}
    lab.assertEqual(losses[1e-30]["loss"], losses[1e-30]["best_loss"])
    lab.assertLess(losses[0.01]["best_loss"], losses[1e-30]["loss"] - 0.01)


def store(lab, count=64):
    return lab.tokenized(f"texts-{count}", lab.texts([20] * count))


@OTHERS.row("--repetitions", "the steps of each technique are timed so often")
def repetitions(lab):
    for count in (1, 3):
        found = bench(lab, **{**FAST, "repetitions": count})
        lab.assertEqual({row["alone"]["times"] for row in found["techniques"]}, {count})


@OTHERS.row("--larger", "the larger batch is so many times larger, and takes more memory")
def larger(lab):
    def memory(count):
        rows = {row["name"]: row["alone"]["memory"] for row in bench(lab, learning_rate=1e-30, **{**FAST, "larger": count})["techniques"]}
        return rows["larger batch"]
    lab.assertGreater(memory(4), 1.5 * memory(2))


@OTHERS.row("--data", "its text is what is trained on")
def bench_data(lab):
    def loss(**options):
        return bench(lab, learning_rate=1e-30, **FAST, **options)["early_stopping"]["without"]["loss"]
    lab.assertEqual(len({loss(), loss(data=store(lab)), loss(data=store(lab, 80))}), 3)


@OTHERS.row("--tokenizer", "it is that of the text")
def bench_tokenizer(lab):
    other = lab.once("turned", lambda path: write_model(path, vocabulary=VOCABULARY[:5] + VOCABULARY[:4:-1]))
    text = lab.folder / "turned.txt"
    text.write_text("\n\n".join(lab.texts([20] * 64)) + "\n")
    lab.succeeds("tokenize", "--tokenizer", other, "--input", text, "--output", lab.folder / "turned.tokens")
    words = {"data": lab.folder / "turned.tokens", **FAST}
    lab.assertGreater(bench(lab, tokenizer=other, **words)["ordinary"]["tokens_per_second"], 0)
    lab.refuses(["bench", "techniques", "--model", lab.plain_model(), "--max-length", 48, "--data", words["data"]], "tokeniser")


@OTHERS.row("--plot", "the table is drawn there")
def plot(lab):
    path = lab.folder / "plot.svg"
    bench(lab, plot=path, **FAST)
    lab.assertTrue(xml.etree.ElementTree.fromstring(path.read_text()).tag.endswith("svg"))
