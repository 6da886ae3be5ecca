"""What the options of compare do."""

from harness import WORDS, json

from .answering import MEGABYTE, masked, shows_device
from .lab import *
from .vocabulary import extend

COMPARE = Table()
COMPARE.row("--help", "the options are listed")(shows_help)


def corpus(lab, name="corpus", texts=None):
    """Documents of a line each; by default of words that are one token."""
    texts = lab.texts([5 + number % 15 for number in range(30)], words=WORDS) if texts is None else texts
    path = lab.folder / f"{name}.txt"
    path.write_text("\n\n".join(texts) + "\n")
    return path


def words(lab, *more, models=None, files=None):
    return ["compare", "--models", *(models or [masked(lab)["model"]]), "--input", *(files or [corpus(lab)]), "--precision", "fp64", *more]


def compare(lab, *more, **which):
    return lab.succeeds(*words(lab, *more, "--json", **which)).json()["scores"]


@COMPARE.row("--models", "each is scored on each text, beside the first")
def models(lab):
    first = masked(lab)["model"]
    extended, _ = extend(lab, "goodfilm\n", "larger", first)
    texts = [corpus(lab), corpus(lab, "other", ["goodfilm is good goodfilm", "the goodfilm ab"])]
    scores = compare(lab, models=[first, extended], files=texts)
    lab.assertEqual([(score["text"], score["model"]) for score in scores], [(str(text), str(model)) for text in texts for model in (first, extended)])
    plain, same, cut, whole = scores
    lab.assertEqual((plain["tokens"], plain["words"]), (same["tokens"], same["words"]))
    # "goodfilm" is good ##f ##i ##l ##m, and then one token.
    lab.assertEqual((cut["tokens"], whole["tokens"], cut["words"], whole["words"]), (3 * 5 + 5, 3 + 5, 7, 7))
    lab.assertEqual(cut["change_percent"], 0)
    lab.assertAlmostEqual(whole["change_percent"], 100 * (whole["bits_per_byte"] / cut["bits_per_byte"] - 1), places=9)
    lab.refuses(["compare", "--models", lab.folder / "none", "--input", texts[0]], "--models", "none")


@COMPARE.row("--input", "the loss is that of evaluate where words are single tokens, and the units are those of the text")
def texts(lab):
    path = corpus(lab)
    store = lab.folder / "corpus.tokens"
    lab.succeeds("tokenize", "--tokenizer", lab.plain_model(), "--input", path, "--output", store)
    measured = lab.succeeds("evaluate", "--model", masked(lab)["model"], "--task", "mlm", "--data", store, "--precision", "fp64").json()
    score, = compare(lab)
    lines = [line for line in path.read_text().splitlines() if line]
    lab.assertAlmostEqual(score["loss"], measured["loss"], places=9)
    lab.assertEqual((score["documents"], score["bytes"], score["words"]), (30, sum(map(len, lines)), sum(len(line.split()) for line in lines)))
    bits = score["loss"] / math.log(2) * score["tokens"]
    lab.assertAlmostEqual(score["bits_per_byte"], bits / score["bytes"], places=9)
    lab.assertAlmostEqual(score["bits_per_word"], bits / score["words"], places=9)
    lab.assertAlmostEqual(score["perplexity"], math.exp(score["loss"]), places=6)
    unknown, = compare(lab, files=[corpus(lab, "unknown", ["good \u4e2d film", "bad"])])
    lab.assertEqual((unknown["unknown_tokens"], unknown["bytes"]), (1, len("good ... film") + 3))
    lab.assertEqual((unknown["words"], unknown["characters"]), (4, 1))
    chinese, = compare(lab, files=[corpus(lab, "chinese", ["\u6211\u4eec\u5728\u5317\u4eac\u3002good"])])
    lab.assertEqual((chinese["words"], chinese["characters"]), (6, 5))
    (lab.folder / "empty.txt").write_text("\n")
    lab.refuses(words(lab, files=[lab.folder / "empty.txt"]), "empty.txt")


@COMPARE.row("--eval-fraction", "the documents are those that pretrain holds out")
def held_out_documents(lab):
    path = corpus(lab)
    store = lab.folder / "held.tokens"
    lab.succeeds("tokenize", "--tokenizer", lab.plain_model(), "--input", path, "--output", store)
    run = lab.folder / "run"
    lab.succeeds("pretrain", "--model", masked(lab)["model"], "--train", store, "--eval-fraction", 0.3, "--output", run, "--max-steps", 1, "--max-length", 64,
                 "--learning-rate", NOTHING, "--precision", "fp64", "--seed", 5)
    evaluation = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines() if "eval_loss" in line][-1]
    score, = compare(lab, "--eval-fraction", 0.3, "--seed", 5)
    lab.assertEqual(score["documents"], json.loads((run / "run.json").read_text())["data"]["evaluation"]["samples"])
    lab.assertLess(score["documents"], 30)
    lab.assertAlmostEqual(score["loss"], evaluation["eval_loss"], places=6)


@COMPARE.row("--max-length", "longer documents are cut")
def max_length(lab):
    long, short = compare(lab)[0], compare(lab, "--max-length", 8)[0]
    lab.assertEqual(long["tokens"], short["tokens"])
    lab.assertNotEqual(long["loss"], short["loss"])
    lab.refuses(words(lab, "--max-length", 65), "--max-length 65 is more than the model's 64 positions")


@COMPARE.row("--json", "the same numbers, for programs")
def as_json(lab):
    score, = compare(lab)
    table = lab.succeeds(*words(lab)).out
    for number in (f"{score['loss']:.4f}", f"{score['bits_per_byte']:.4f}", f"{score['bits_per_word']:.3f}", f"{score['words']} words"):
        lab.assertIn(number, table)


@COMPARE.row("--micro-batch-tokens", "a pass has no more tokens than that, which bounds its memory")
def tokens(lab):
    text = corpus(lab, "many", lab.texts([20] * 600, words=WORDS))
    few, many = (lab.peak([str(word) for word in words(lab, "--micro-batch-tokens", tokens, files=[text])]) for tokens in (200, 20000))
    lab.assert_larger(many, few + 4 * MEGABYTE)
    lab.assertAlmostEqual(compare(lab, "--micro-batch-tokens", 1)[0]["loss"], compare(lab)[0]["loss"], places=9)


@COMPARE.row("--precision", "the arithmetic has as many digits")
def precision(lab):
    command = ["compare", "--models", masked(lab)["model"], "--input", corpus(lab), "--json", "--precision"]
    losses = {name: lab.succeeds(*command, name).json()["scores"][0]["loss"] for name in ("fp64", "fp32", "bf16")}
    lab.assertEqual(len(set(losses.values())), 3)
    lab.assertLess(abs(losses["fp32"] / losses["fp64"] - 1), 1e-6)
    lab.assertLess(abs(losses["bf16"] / losses["fp64"] - 1), 1e-2)


@COMPARE.row("--seed", "the masks follow from it")
def seed(lab):
    losses = [compare(lab, "--seed", number)[0]["loss"] for number in (42, 7)]
    lab.assertEqual(losses[0], compare(lab)[0]["loss"])
    lab.assertNotEqual(*losses)


@COMPARE.row("--device", "cpu computes here; cuda is refused where there is none")
def device(lab):
    shows_device(lab, words(lab))


@COMPARE.row("--threads", "more threads are there")
def threads(lab):
    text = corpus(lab, "threads", lab.texts([40] * 400, words=WORDS))
    command = [*words(lab, files=[text]), "--threads"]
    of_one = lab.most_threads([*command, 1], 0)
    lab.assertGreaterEqual(lab.most_threads([*command, 4], of_one + 3), of_one + 3)


@COMPARE.row("--config", "a file's keys are options")
def config(lab):
    path = config_file(lab, "max-length = 8\n")
    lab.assertEqual(compare(lab, "--config", path), compare(lab, "--max-length", 8))
