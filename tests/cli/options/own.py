"""What the options do that only pretrain or only finetune has, and those that they read in their own ways."""

from harness import HIDDEN, VOCABULARY, WORDS, encoder_shapes, json, random_weights, write_model, write_rows, write_safetensors

from . import answering
from .lab import *

PRETRAIN, FINETUNE = Table(), Table()
WORD_ROWS = "bert.embeddings.word_embeddings.weight"
POSITION_ROWS = "bert.embeddings.position_embeddings.weight"


def touched(run, name=WORD_ROWS):
    """The rows of an embedding that have a gradient after a step of sgd."""
    gradient = run.state("momentum_buffer")[name]
    return {row for row in range(len(gradient) // HIDDEN) if any(gradient[row * HIDDEN:(row + 1) * HIDDEN])}


def read_words(run):
    """The words that a classifier was trained on."""
    return {VOCABULARY[row] for row in touched(run)} - {"[CLS]", "[SEP]"}


def other_weights(lab):
    def make(path):
        write_model(path, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        write_safetensors(path / "model.safetensors", random_weights(encoder_shapes(), seed=7))
        return path
    return lab.once("other", make)


def shows_its_model(lab):
    for folder in (lab.plain_model(), other_weights(lab)):
        start = lab.train(model=folder, learning_rate=NOTHING).weights
        lab.assertGreater(sum("bert." + name in start for name in tensors(folder / "model.safetensors")), 20)
        for name, values in tensors(folder / "model.safetensors").items():
            if "bert." + name in start:
                lab.assertLess(max(map(abs, less(start["bert." + name], values))), 1e-200, name)


def shows_its_output(lab):
    output = lab.folder / "a" / "b"
    lab.train(output=output, max_steps=2)
    lab.assertLessEqual({"run.json", "metrics.jsonl", "model", "checkpoints"}, {path.name for path in output.iterdir()})


def best_by(run, metric, sign):
    """The step of the best evaluation; of equal ones that of the smaller loss."""
    key = lambda line: (sign * line["eval_" + metric], line["eval_loss"])
    return min(run.evaluations, key=key)["step"]


# ---- pretrain


PRETRAIN.row("--model", "training starts from its weights")(shows_its_model)
PRETRAIN.row("--output", "what the run leaves lies there")(shows_its_output)


@PRETRAIN.row("--train", "its documents are what is trained on")
def data(lab):
    other = [20, 19, 18, 17, 16]
    run = lab.train(train=lab.data("other_rows", lab.texts(other)), batch_size=1, max_steps=5)
    lab.assertEqual(run.tokens, [length + SPECIAL for length in other])
    lab.assertNotIn("corpora", run.file["data"]["train"])
    # Of two stores all sequences come equally often.
    both = lab.train(train=[lab.data(), lab.data("other_rows")], batch_size=1, max_steps=17, save_steps=0)
    lab.assertEqual(sorted(both.tokens), sorted(length + SPECIAL for length in [*LENGTHS, *other]))
    lab.assertEqual(both.file["steps_per_epoch"], 17)
    lab.refuses_to_train("hold the same; give it once", train=[lab.data(), lab.data()])


def mixed(lab):
    """Stores of sequences of 5 and of 11 tokens."""
    return [lab.data("short_rows", lab.texts([5] * 7)), lab.data("long_rows", lab.texts([11] * 3, seed=5))]


@PRETRAIN.row("--data-weights", "each store has that share of every batch, and is read again when it has been used up")
def data_weights(lab):
    run = lab.train(train=mixed(lab), data_weights=["0.75", "0.25"], max_steps=4)
    lab.assertEqual(run.tokens, [3 * (5 + SPECIAL) + 11 + SPECIAL] * 4)
    corpora = run.file["data"]["train"]["corpora"]
    lab.assertEqual([(part["samples"], part["weight"], part["draws"]) for part in corpora], [(7, 0.75, 12), (3, 0.25, 4)])
    lab.assertAlmostEqual(corpora[0]["epochs"], 12 / 7, places=12)
    lab.assertIn("short_rows.tokens: 7 sequences, weight 0.75: 12 draws, 1.71 epochs", run.err)
    state = json.loads((run.folder / "checkpoints" / "step-000004" / "state.json").read_text())
    lab.assertEqual(state["drawn"], [12, 4])
    joined = lab.train(train=mixed(lab), data_weights="0.75,0.25", max_steps=4)
    path = config_file(lab, "data = [" + ", ".join(f'"{store}"' for store in mixed(lab)) + "]\ndata-weights = [0.75, 0.25]\n")
    filed = lab.train(config=path, train=None, max_steps=4)
    lab.assertEqual(run.weights, joined.weights)
    lab.assertEqual(run.weights, filed.weights)
    other = lab.train(train=mixed(lab), data_weights=["0.5", "0.5"], max_steps=4)
    lab.assertEqual(other.tokens, [2 * (5 + 11 + 2 * SPECIAL)] * 4)
    lab.refuses([*lab.words(run.folder, {"train": mixed(lab), "data_weights": ["0.5", "0.5"], "max_steps": 4})], "data_weights", "0.75 0.25", "0.5 0.5")
    for weights, *phrases in ((["0.7", "0.2"], "sum to 0.9, not to 1", "0.777777778 0.222222222"), (["1"], "has 1 numbers, and --train 2 stores"),
                              (["0.5", "0.3", "0.2"], "has 3 numbers"), (["0.7", "x"], 'found "x"'), (["1.5", "-0.5"], "weight above 0"),
                              (["0.7,"], 'found ""')):
        lab.refuses_to_train(*phrases, train=mixed(lab), data_weights=weights)
    lab.refuses_to_train("for one store, whose weight is 1", data_weights="0.5")


@PRETRAIN.row("--recipe", "published values stand for the options that are not written")
def recipe(lab):
    for name, batch, rate, length in (("dapt", 2048, 5e-4, "12500 steps"), ("tapt", 256, 1e-4, "100 epochs")):
        run = lab.train(recipe=name, batch_size=None, learning_rate=None, max_steps=2)
        lab.assertEqual((run.file["batch"]["batch_size"], run.file["recipe"]), (batch, name))
        found = run.file["optimizer"]
        lab.assertEqual([found[key] for key in ("learning_rate", "beta1", "beta2", "epsilon", "weight_decay")], [rate, 0.9, 0.98, 1e-6, 0.01])
        own = lab.train(recipe=name, adam_beta2=0.9, weight_decay=0)
        lab.assertEqual(own.file["batch"]["batch_size"], 4)
        lab.assertEqual([own.file["optimizer"][key] for key in ("learning_rate", "beta2", "weight_decay")], [0.01, 0.9, 0])
        lab.refuses_to_train(f"{length}, a batch of {batch}, learning rate {rate:g}", "has no weights; leave it out", recipe=name, batch_size=None,
                             learning_rate=None, max_steps=None, model=lab.plain_model() / "config.json", tokenizer=lab.plain_model())
    warmed = lab.train(recipe="tapt", max_steps=50, lr_scheduler_type=None)
    lab.assertEqual(warmed.file["schedule"], {"name": "linear", "warmup_steps": 3})


@PRETRAIN.row("--tokenizer", "its tokens are those of the data and of the trained model")
def tokenizer(lab):
    words = VOCABULARY[:5] + VOCABULARY[:4:-1]
    other = lab.once("other_words", lambda path: write_model(path, vocabulary=words))
    (lab.folder / "turned.txt").write_text("\n\n".join(lab.texts()) + "\n")
    store = lab.folder / "turned.tokens"
    lab.succeeds("tokenize", "--tokenizer", other, "--input", lab.folder / "turned.txt", "--output", store)
    run = lab.train(train=store, tokenizer=other)
    lab.assertEqual((run.folder / "model" / "vocab.txt").read_text().split(), words)
    lab.refuses_to_train("tokeni", train=store)
    config = lab.plain_model() / "config.json"
    lab.assertEqual(lab.train(model=config, tokenizer=lab.plain_model()).tokens, lab.train().tokens)


@PRETRAIN.row("--eval", "evaluations are of it, with the loss that funicular evaluate finds")
def eval_data(lab):
    for count in (8, 40):
        held_out = lab.held_out(count)
        run = lab.train(precision="fp32", learning_rate=1e-30, **held_out)
        found = lab.succeeds("evaluate", "--model", run.folder / "model", "--task", "mlm", "--data", held_out["eval"],
                             "--max-length", LONGEST).json()
        lab.assertEqual(found["samples"], count)
        lab.assertAlmostEqual(run.evaluations[-1]["eval_loss"], found["loss"], places=6)
    both = lab.train(eval=[lab.held_out(count)["eval"] for count in (8, 40)])
    lab.assertEqual(both.file["data"]["evaluation"]["samples"], 48)


@PRETRAIN.row("--eval-fraction", "about that share of the documents is evaluated on, and the rest is trained on")
def eval_fraction(lab):
    rows = lab.data("fraction", lab.texts([3 + number % 9 for number in range(400)]))
    for share in (0.25, 0.75):
        found = lab.train(train=rows, eval_fraction=share).file["data"]
        held_out, trained = found["evaluation"]["samples"], found["train"]["samples"]
        lab.assertEqual(held_out + trained, 400)
        lab.assertAlmostEqual(held_out / 400, share, delta=0.1)  # four standard deviations of a draw


@PRETRAIN.row("--metric-for-best-model", "a better one by it is what patience waits for")
def metric_for_best_model(lab):
    # Every loss is finite and the next one smaller; every perplexity overflows.
    def make(path):
        shapes = {**encoder_shapes(), "cls.predictions.bias": [len(VOCABULARY)]}
        write_model(path, extra_shapes=shapes)
        weights = random_weights(shapes)
        weights["cls.predictions.bias"][1][VOCABULARY.index("0")] = 5000
        write_safetensors(path / "model.safetensors", weights)
        return path
    model = lab.once("certain", make)
    words = {"model": model, "optim": "sgd", "learning_rate": 20, "max_grad_norm": 1, "max_steps": 4, "eval_steps": 1, "patience": 1,
             "lr_scheduler_type": "constant", **lab.held_out()}
    lab.assertEqual(lab.train(metric_for_best_model="loss", **words).result["steps"], 4)
    lab.assertEqual(lab.train(metric_for_best_model="perplexity", **words).result["steps"], 2)
    lab.refuses_to_train("expects loss or perplexity", metric_for_best_model="accuracy", **lab.held_out())


@PRETRAIN.row("--objective", "masked language modelling is learnt, and next sentences too")
def objective(lab):
    run = lab.train(objective="mlm")
    written = json.loads((run.folder / "model" / "config.json").read_text())
    lab.assertEqual((written["architectures"], run.weights), (["BertForMaskedLM"], lab.train().weights))
    both = lab.train(objective="mlm-nsp")
    written = json.loads((both.folder / "model" / "config.json").read_text())
    lab.assertEqual(written["architectures"], ["BertForPreTraining"])
    lab.assertIn("cls.seq_relationship.weight", both.weights)
    order = lab.train(objective="mlm-sop")
    lab.assertIn("cls.seq_relationship.weight", order.weights)
    lab.assertNotEqual(order.each("loss"), both.each("loss"))
    lab.refuses_to_train("--objective expects one of mlm", objective="clm")
    replaced = lab.train(objective="electra", model=electra(lab))
    written = json.loads((replaced.folder / "model" / "config.json").read_text())
    lab.assertEqual((written["architectures"], written["model_type"]), (["ElectraForPreTraining"], "electra"))
    lab.assertIn("discriminator_predictions.dense.weight", tensors(replaced.folder / "model" / "model.safetensors"))
    starts_electra_from_bert(lab)


def starts_electra_from_bert(lab):
    bert = lab.plain_model()
    lab.refuses_to_train("is ELECTRA's; found a bert", objective="electra", model=bert / "config.json", tokenizer=bert)
    run = lab.train(objective="electra", model=bert, learning_rate=NOTHING, keep_generator=True)
    lab.assertIn("is a BERT: its embeddings and layers are the start of an ELECTRA", run.err)
    written = json.loads((run.folder / "model" / "config.json").read_text())
    lab.assertEqual((written["architectures"], written["model_type"], written["embedding_size"]), (["ElectraForPreTraining"], "electra", HIDDEN))
    left = tensors(run.folder / "model" / "model.safetensors")
    start = {name.removeprefix("bert."): values for name, values in tensors(bert / "model.safetensors").items()}
    encoder = {name: values for name, values in start.items() if name.startswith(("encoder.", "embeddings."))}
    lab.assertGreater(len(encoder), 30)
    for name, values in encoder.items():
        lab.assertLess(max(map(abs, less(left["electra." + name], values))), 1e-200, name)
    words = lab.train(objective="mlm", model=bert, learning_rate=NOTHING).folder / "model"
    both = lab.train(objective="electra", model=bert, generator=words, learning_rate=NOTHING).weights
    name = "encoder.layer.0.output.dense.weight"
    lab.assertLess(max(map(abs, less(both["generator.electra." + name], start[name]))), 1e-200)


def electra(lab):
    """Without dropout, with the weights of an encoder."""
    return lab.once("electra", lambda path: write_model(path, model_type="electra", embedding_size=HIDDEN, hidden_dropout_prob=0.0,
                                                        attention_probs_dropout_prob=0.0))


def modern(lab):
    """The config.json of a ModernBERT for rows of 16 tokens at most."""
    values = {"model_type": "modernbert", "vocab_size": len(VOCABULARY), "pad_token_id": 0, "hidden_size": HIDDEN, "num_hidden_layers": 4,
              "num_attention_heads": 2, "intermediate_size": HIDDEN, "max_position_embeddings": 16, "local_attention": 8}
    return lab.once("modern.json", lambda path: path.write_text(json.dumps(values)) and path)


def rotary(lab, **options):
    """A run of a ModernBERT, and the rotary bases and positions in what it leaves."""
    run = lab.train(**{"model": modern(lab), "tokenizer": lab.plain_model(), "max_length": 16, **options})
    written = json.loads((run.folder / "model" / "config.json").read_text())
    bases = {kind.split("_")[0]: values["rope_theta"] for kind, values in written["rope_parameters"].items()}
    return run, bases, written["max_position_embeddings"]


@PRETRAIN.row("--rope-theta", "full layers turn by that base, and the positions reach as far as --max-length")
def rope_theta(lab):
    first, bases, positions = rotary(lab)
    lab.assertEqual((bases, positions), ({"full": 160000, "sliding": 10000}, 16))
    lab.refuses_to_train("--max-length 24 is more than the model's 16 positions", model=first.folder, max_length=24)
    second, bases, positions = rotary(lab, model=first.folder, tokenizer=None, rope_theta=320000, max_length=24)
    lab.assertEqual((bases, positions), ({"full": 320000, "sliding": 10000}, 24))
    lab.assertIn("rotary positions: base 320000, 24 positions instead of 16", second.err)
    same = rotary(lab, model=first.folder, tokenizer=None, rope_theta=160000, max_length=24)[0]
    lab.assertNotEqual(second.each("loss"), same.each("loss"))
    longer = {"model": first.folder, "max_length": 24, "rope_theta": 2e5}
    lab.refuses(lab.words(second.folder, longer), "rotary was 320000, local the model's and is 200000")
    lab.refuses_to_train("is a BERT without rotary positions in layers that see all tokens", rope_theta=160000)


@PRETRAIN.row("--local-rope-theta", "layers with a window turn by that base")
def local_rope_theta(lab):
    run, bases, positions = rotary(lab, local_rope_theta=160000)
    lab.assertEqual((bases, positions), ({"full": 160000, "sliding": 160000}, 16))
    lab.assertNotEqual(run.each("loss"), rotary(lab)[0].each("loss"))
    lab.refuses_to_train("--local-rope-theta 5000: ", "is a BERT", local_rope_theta=5000)


@PRETRAIN.row("--generator-size", "the generator's layers have that share of the width")
def generator_size(lab):
    for size, width in ((None, HIDDEN // 4), (0.5, HIDDEN // 2), (1, HIDDEN)):
        weights = lab.train(objective="electra", model=electra(lab), generator_size=size).weights
        lab.assertEqual(len(weights["generator.electra.encoder.layer.0.attention.output.dense.weight"]), width * width)
        lab.assertEqual(len(weights["electra.encoder.layer.0.attention.output.dense.weight"]), HIDDEN * HIDDEN)
    lab.refuses_to_train("at most 1, found 1.5", objective="electra", model=electra(lab), generator_size=1.5)
    lab.refuses_to_train("--generator-size is for --objective electra", generator_size=0.5)


@PRETRAIN.row("--generator-layers", "a new generator has so many layers")
def generator_layers(lab):
    for layers in (None, 1, 5):
        weights = lab.train(objective="electra", model=electra(lab), generator_layers=layers).weights
        numbers = {int(name.split("layer.")[1].split(".")[0]) for name in weights if name.startswith("generator.electra.encoder.layer.")}
        of_model = {int(name.split("layer.")[1].split(".")[0]) for name in weights if name.startswith("electra.encoder.layer.")}
        lab.assertEqual(len(numbers), layers or len(of_model))
    lab.refuses_to_train("--generator-layers is for --objective electra", generator_layers=1)


@PRETRAIN.row("--discriminator-weight", "the loss is the generator's and so often the model's")
def discriminator_weight(lab):
    for weight in (None, 2, 0.5):
        first = lab.train(objective="electra", model=electra(lab), discriminator_weight=weight, logging_steps=1).records[0]
        lab.assertAlmostEqual(first["loss"], first["loss_mlm"] + (weight or 50) * first["loss_replaced"], delta=1e-4 * first["loss"])
    lab.refuses_to_train("--discriminator-weight is for --objective electra", discriminator_weight=1)


@PRETRAIN.row("--generator", "it is gone on with: that in the model's folder, or another; or a new one begins")
def generator(lab):
    kept = lab.train(objective="electra", model=electra(lab), keep_generator=True).folder / "model"
    before = {"generator." + name: values for name, values in tensors(kept / "generator" / "model.safetensors").items()
              if "embeddings." not in name}
    lab.assertGreater(len(before), 20)
    start = lambda **options: lab.train(**{"objective": "electra", "model": kept, "learning_rate": NOTHING, **options})
    own, other, new = start(), start(model=electra(lab), generator=kept / "generator"), start(generator="random")
    for run in (own, other):
        for name, values in before.items():
            lab.assertLess(max(map(abs, less(run.weights[name], values))), 1e-200, name)
        lab.assertNotIn("generator.electra", run.err)  # none of it is new
    lab.assertIn(f"going on with the generator in {kept / 'generator'}; --generator random begins a new one", own.err)
    matrix = "generator.electra.encoder.layer.0.attention.output.dense.weight"
    lab.assertNotEqual(list(new.weights[matrix]), list(own.weights[matrix]))
    lab.assertNotIn("going on with the generator", new.err)
    refuses = lambda *phrases, **options: lab.refuses_to_train(*phrases, **{"objective": "electra", "model": kept, **options})
    refuses("--generator-size is for a new generator", "give --generator random", generator_size=0.5)
    refuses("--generator-layers is for a new generator", "give --generator random", generator_layers=1)
    refuses("expected a generator (ElectraForMaskedLM)", "--generator random", generator=electra(lab))
    refuses("has no weights; give the folder of the model", model=kept / "config.json", tokenizer=kept, generator=kept / "generator")
    another = lab.once("another", lambda path: write_model(path, vocabulary=[*VOCABULARY[:-1], "more"], model_type="electra",
                                                           embedding_size=HIDDEN))
    refuses("the generator's tokeniser is not the model's", "--generator random", generator=another)
    rows = len(VOCABULARY) + 1
    longer = lab.once("longer", lambda path: write_model(path, model_type="electra", embedding_size=HIDDEN, vocab_size=rows,
                                                         extra_shapes={"embeddings.word_embeddings.weight": [rows, HIDDEN]}))
    refuses("so both tables need one size", "vocabulary extend keeps it", "--generator random", generator=longer)
    lab.refuses_to_train("--generator is for --objective electra", generator="random")


@PRETRAIN.row("--keep-generator", "the generator lies beside the model that is left, with the embeddings of both")
def keep_generator(lab):
    without = lab.train(objective="electra", model=electra(lab)).folder / "model"
    kept = lab.train(objective="electra", model=electra(lab), keep_generator=True).folder / "model"
    lab.assertFalse((without / "generator").exists())
    lab.assertEqual(tensors(without / "model.safetensors"), tensors(kept / "model.safetensors"))
    lab.assertEqual(json.loads((kept / "generator" / "config.json").read_text())["architectures"], ["ElectraForMaskedLM"])
    generator, discriminator = tensors(kept / "generator" / "model.safetensors"), tensors(kept / "model.safetensors")
    shared = {name for name in generator if name.startswith("electra.embeddings.")}
    lab.assertEqual(len(shared), 5)
    for name in shared:
        lab.assertEqual(generator[name], discriminator[name])
    lab.assertFalse([name for name in discriminator if "generator" in name])
    measured = ["evaluate", "--task", "mlm", "--data", lab.data(), "--max-length", 16, "--model"]
    lab.refuses([*measured, kept], "an ELECTRA's discriminator, which guesses no words", f"give {kept / 'generator'}")
    lab.refuses([*measured, without], "guesses no words, and pretrain keeps the generator only with --keep-generator")
    lab.succeeds(*measured, kept / "generator")
    lab.refuses_to_train("--keep-generator is for --objective electra", keep_generator=True)


@PRETRAIN.row("--static-masks", "the same tokens are hidden again every so many epochs")
def static_masks(lab):
    store = lab.data("one-sample", lab.texts([20]))

    def hidden(masks, epochs):
        """By the losses of plain descent that moves nothing: each epoch is a step."""
        run = lab.train(train=store, static_masks=masks, batch_size=1, max_steps=epochs, learning_rate=NOTHING, model=lab.plain_model())
        return run.each("loss")
    again = hidden(2, 4)
    lab.assertEqual((again[0], again[1]), (again[2], again[3]))
    lab.assertEqual(len(set(again)), 2)
    lab.assertEqual(len(set(hidden(0, 4))), 4)


@PRETRAIN.row("--max-length", "longer documents are cut into pieces, none of more tokens")
def max_length(lab):
    store = lab.data("long", lab.texts([40, 30]))
    for longest, tokens in ((64, [42, 32]), (22, [22, 22, 17, 17]), (12, [12, 12, 12, 12, 12, 12, 12])):
        run = lab.train(train=store, max_length=longest, batch_size=1, max_steps=len(tokens), optim="sgd", momentum=0.5)
        lab.assertEqual(run.tokens, tokens)
        lab.assertEqual(touched(run, POSITION_ROWS), set(range(max(tokens))))


def hidden_tokens(lab, name, text, **options):
    """Those that a step on this text had to predict: the bias of each has a gradient below 0, that of each other one above."""
    run = lab.train(train=lab.data(name, [text]), max_length=64, optim="sgd", max_steps=1, **options)
    gradient = run.state("momentum_buffer")["cls.predictions.bias"]
    return {VOCABULARY[row] for row, value in enumerate(gradient) if value < 0}


@PRETRAIN.row("--mlm-probability", "that share of the tokens is predicted")
def mlm_probability(lab):
    words = WORDS + LETTERS
    for share, count in ((None, 6), (0.05, 2), (0.5, 20), (0.9, 36)):
        hidden = hidden_tokens(lab, "forty", " ".join(words[:40]), mlm_probability=share)
        lab.assertEqual(len(hidden), count, share)
        lab.assertLessEqual(hidden, set(words[:40]))


@PRETRAIN.row("--whole-words", "all pieces of a word are hidden, or none")
def whole_words(lab):
    pairs = [(letter, "##" + other) for letter, other in zip(LETTERS[:20], LETTERS[1:])]
    text = " ".join(first + second[2:] for first, second in pairs)
    halves = {}
    for whole in (True, False):
        hidden = hidden_tokens(lab, "pieces", text, whole_words=whole, mlm_probability=0.5)
        lab.assertEqual(len(hidden), 20)
        halves[whole] = [pair for pair in pairs if len(hidden & set(pair)) == 1]
    lab.assertEqual(halves[True], [])
    lab.assertGreater(len(halves[False]), 2)


@PRETRAIN.row("--freeze-encoder-steps", "first so many steps change the head alone")
def freeze_encoder_steps(lab):
    run = lab.train(freeze_encoder_steps=3, learning_rate=NOTHING)
    head = [json.loads(line) for line in (run.folder / "head" / "metrics.jsonl").read_text().splitlines()]
    lab.assertEqual([line["step"] for line in head], [1, 2, 3])
    before, after = lab.start(), run.weights
    for name, values in before.items():
        moved = max(map(abs, less(after[name], values)))
        lab.assertTrue(moved > 1e-5 if name.startswith("cls.") else moved < 1e-200, name)


@PRETRAIN.row("--head-learning-rate", "the peak of the rates of those steps")
def head_learning_rate(lab):
    for rate in (None, 0.25):
        run = lab.train(freeze_encoder_steps=3, head_learning_rate=rate, learning_rate=NOTHING)
        lines = [json.loads(line) for line in (run.folder / "head" / "metrics.jsonl").read_text().splitlines()]
        for line, share in zip(lines, (0, 1, 0.5), strict=True):  # a step of warm-up, then linear
            lab.assertAlmostEqual(line["learning_rate"], share * (rate or 1e-3), places=12)


# ---- finetune


FINETUNE.row("--model", "training starts from its weights")(shows_its_model)
FINETUNE.row("--output", "what the run leaves lies there")(shows_its_output)


@FINETUNE.row("--task", "the file has the task's columns, and the classes their names")
def task(lab):
    rows = [("book", str(number % 2), "*", "film") for number in range(4)]
    path = lab.once("four.tsv", lambda path: write_rows(path, None, rows))
    run = lab.train(task="cola", train=path, optim="sgd")
    lab.assertEqual(read_words(run), {"film"})
    written = json.loads((run.folder / "model" / "config.json").read_text())
    lab.assertEqual(written["id2label"], {"0": "unacceptable", "1": "acceptable"})
    named = lab.once("named.tsv", lambda path: write_rows(path, ("sentence", "label"), [("song", "0"), ("old", "1")]))
    run = lab.train(task="sst2", train=named, batch_size=2, optim="sgd")
    lab.assertEqual(read_words(run), {"song", "old"})
    lab.assertEqual(json.loads((run.folder / "model" / "config.json").read_text())["id2label"], {"0": "negative", "1": "positive"})


@FINETUNE.row("--train", "its rows are what is trained on")
def train(lab):
    path = lab.data("few", ["film good", "book bad"])
    run = lab.train(train=path, batch_size=2, optim="sgd")
    lab.assertEqual((read_words(run), run.tokens), ({"film", "good", "book", "bad"}, [8]))


@FINETUNE.row("--skip-bad-rows", "rows that cannot be read are left out; without it, the command stops there")
def skip_bad_rows(lab):
    path = lab.once("ragged.tsv", lambda path: path.write_text("label\ttext\npro\tfilm good\npro\ncontra\tbook bad\n") and path)
    lab.assertEqual(read_words(lab.train(train=path, batch_size=2, optim="sgd", skip_bad_rows=True)), {"film", "good", "book", "bad"})
    lab.refuses_to_train("ragged.tsv:3", "--skip-bad-rows", train=path)


@FINETUNE.row("--eval-fraction", "that share of each label's rows is evaluated on, and the rest is trained on")
def eval_fraction_of_rows(lab):
    rows = lab.labelled("fraction", lab.texts([3 + number % 9 for number in range(300)]))
    for share in (0.2, 0.5):
        run = lab.train(train=rows, eval_fraction=share, eval=None)
        stores = {path.name.split("-")[0]: json.loads((path / "meta.json").read_text())["rows"] for path in (run.folder / "data").iterdir()}
        lab.assertEqual(stores["train"] + stores["eval"], 300)
        lab.assertAlmostEqual(stores["eval"] / 300, share, delta=0.02)
    lab.assertFalse(lab.train(train=rows, eval=None).evaluations)


@FINETUNE.row("--mistakes", "so many are shown")
def mistakes(lab):
    rows = lab.labelled("mistaken", lab.texts([3 + number % 9 for number in range(60)]))
    for count in (0, 2):
        words = ["finetune", "--model", lab.plain_model(), "--task", "custom", "--train", rows, "--eval", rows, "--output", lab.folder / f"mistakes-{count}",
                 "--max-steps", 1, "--learning-rate", 1e-30, "--max-length", 16, "--mistakes", count]
        lab.assertEqual(lab.succeeds(*words).err.count(", and the model says "), count)


@FINETUNE.row("--eval", "evaluations are of it, with the loss that funicular evaluate finds; its rows are not trained on")
def evaluation(lab):
    for name, texts in (("three", ["old song", "old", "song"]), ("two", ["not dull", "dull"])):
        path = lab.data(name, texts)
        run = lab.train(train=lab.data("few", ["film good", "book bad"]), batch_size=2, optim="sgd", eval=path, precision="fp32",
                        learning_rate=1e-30)
        lab.assertEqual(read_words(run), {"film", "good", "book", "bad"})
        found = lab.succeeds("evaluate", "--model", run.folder / "model", "--task", "custom", "--data", path).json()
        lab.assertEqual(found["samples"], len(texts))
        lab.assertAlmostEqual(run.evaluations[-1]["eval_loss"], found["loss"], places=6)


@FINETUNE.row("--metric-for-best-model", "the model that is kept is the best by it")
def metric_of_classes(lab):
    words = {"max_steps": 12, "eval_steps": 1, "learning_rate": 0.05, **lab.held_out(20)}
    steps = {}
    for metric, sign in (("accuracy", -1), ("macro_f1", -1), ("loss", 1)):
        run = lab.train(metric_for_best_model=metric, **words)
        steps[metric] = run.result["best_step"]
        lab.assertEqual(steps[metric], best_by(run, metric, sign), metric)
    lab.assertGreater(len(set(steps.values())), 1, "evaluations that do not tell the metrics apart")
    lab.assertEqual(lab.train(**words).result["best_step"], steps["accuracy"], "the default")


@FINETUNE.row("--max-length", "what is longer is cut off")
def longest_row(lab):
    path = lab.data("letters", [" ".join(LETTERS), "a b"])
    for longest in (LONGEST, 10):
        run = lab.train(train=path, max_length=longest, batch_size=2, optim="sgd")
        lab.assertEqual(read_words(run), set(LETTERS[:longest - SPECIAL]))
        lab.assertEqual(touched(run, POSITION_ROWS), set(range(longest)))


@FINETUNE.row("--truncation", "the text that is said to loses its end")
def truncation(lab):
    pair = (" ".join(LETTERS[:6]), " ".join(LETTERS[6:12]))
    rows = [("pro", *pair), ("contra", *pair)]
    path = lab.once("pairs.tsv", lambda path: write_rows(path, ("label", "one", "two"), rows))
    for name, first, second in (("only_first", 1, 6), ("only_second", 6, 1), ("longest_first", 3, 4)):
        run = lab.train(train=path, text_column=["one", "two"], truncation=name, max_length=10, batch_size=2, optim="sgd")
        lab.assertEqual(read_words(run), set(LETTERS[:first] + LETTERS[6:6 + second]), name)


COLUMNS = [("one", "two", "three"), ("film", "pro", "song"), ("book", "contra", "old")]


def columns_file(lab, name, write):
    return lab.once(name, lambda path: path.write_text(write) and path)


def read_columns(lab, **options):
    """The words and the classes of a training on COLUMNS."""
    path = columns_file(lab, "columns.tsv", "".join("\t".join(row) + "\n" for row in COLUMNS))
    run = lab.train(**{"train": path, "batch_size": 2, "optim": "sgd", **options})
    return read_words(run), set(json.loads((run.folder / "model" / "config.json").read_text())["label2id"])


@FINETUNE.row("--text-column", "the texts are those of that column, or of two")
def text_column(lab):
    for column, words in (("one", {"film", "book"}), ("3", {"song", "old"}), (["one", "three"], {"film", "book", "song", "old"})):
        lab.assertEqual(read_columns(lab, text_column=column, label_column="two"), (words, {"pro", "contra"}))


@FINETUNE.row("--label-column", "the classes are those of that column")
def label_column(lab):
    for column, names in (("two", {"pro", "contra"}), ("three", {"song", "old"})):
        lab.assertEqual(read_columns(lab, text_column="one", label_column=column), ({"film", "book"}, names))


SETS = "text\tlabel\nfilm\tpro;song\nbook\tpro\n"


@FINETUNE.row("--multi-label", "a row has any number of labels")
def multi_label(lab):
    path = columns_file(lab, "sets.tsv", SETS.replace(";", ","))
    for several, names in ((True, {"pro", "song"}), (False, {"pro", "pro,song"})):
        run = lab.train(train=path, multi_label=several)
        config = json.loads((run.folder / "model" / "config.json").read_text())
        lab.assertEqual((set(config["label2id"]), config["problem_type"].startswith("multi")), (names, several))


@FINETUNE.row("--regression", "the labels are numbers")
def regression(lab):
    path = columns_file(lab, "numbers.tsv", "text\tlabel\nfilm\t1.5\nbook\t-2\n")
    run = lab.train(train=path, regression=True, batch_size=2, learning_rate=NOTHING)
    config = json.loads((run.folder / "model" / "config.json").read_text())
    lab.assertEqual((config["problem_type"], list(config["label2id"])), ("regression", ["LABEL_0"]))
    answers = lab.succeeds("predict", "--model", run.folder / "model", stdin="film\nbook\n").out
    first, second = (json.loads(line)["value"] for line in answers.splitlines())
    lab.assertAlmostEqual(run.each("loss")[0], ((first - 1.5) ** 2 + (second + 2) ** 2) / 2, places=4)
    lab.refuses_to_train("not both", train=path, regression=True, multi_label=True)


def loss_of(lab, rows, **options):
    """Of the first step, of a model whose classifier is new; and of each row alone."""
    path = columns_file(lab, f"rows-{len(rows)}.tsv", "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    run = lab.train(train=path, batch_size=len(rows), learning_rate=NOTHING, **options)
    lines = lab.succeeds("predict", "--model", run.folder / "model", stdin="".join(text + "\n" for text, _ in rows)).out.splitlines()
    probabilities = [json.loads(line)["probabilities"] for line in lines]
    return run.each("loss")[0], [{name: -math.log(share) for name, share in each.items()} for each in probabilities]


ROWS = [("film", "a"), ("good book", "b"), ("old song", "a")]


@FINETUNE.row("--class-weights", "rows of a class count as much as it says")
def class_weights(lab):
    loss, each = loss_of(lab, ROWS, class_weights=[1, 5])
    expected = sum({"a": 1, "b": 5}[label] * own[label] for own, (_, label) in zip(each, ROWS)) / 7
    lab.assertAlmostEqual(loss, expected, places=4)
    loss, each = loss_of(lab, ROWS, class_weights="balanced")
    means = [sum(own[name] for own, (_, label) in zip(each, ROWS) if label == name) / count for name, count in (("a", 2), ("b", 1))]
    lab.assertAlmostEqual(loss, sum(means) / 2, places=4)


@FINETUNE.row("--label-smoothing", "so much of a row is shared by all classes")
def label_smoothing(lab):
    loss, each = loss_of(lab, ROWS, label_smoothing=0.3)
    expected = sum(0.7 * own[label] + 0.3 * (own["a"] + own["b"]) / 2 for own, (_, label) in zip(each, ROWS)) / 3
    lab.assertAlmostEqual(loss, expected, places=4)


@FINETUNE.row("--label-separator", "what stands between the labels of a row")
def label_separator(lab):
    path = columns_file(lab, "separated.tsv", SETS)
    for words, names in (({"label_separator": ";"}, {"pro", "song"}), ({}, {"pro", "pro;song"})):
        run = lab.train(train=path, multi_label=True, **words)
        lab.assertEqual(set(json.loads((run.folder / "model" / "config.json").read_text())["label2id"]), names)


@FINETUNE.row("--stride", "two windows of a context share so many tokens")
def stride(lab):
    for tokens, windows in ((2, 3), (5, 4)):  # a window has 16 - 3 - 1 tokens
        run = lab.train(task="spans", train=answering.long_context(lab), stride=tokens, max_length=16, batch_size=1, max_steps=None, num_train_epochs=1)
        lab.assertEqual(len(run.records), windows)
        lab.assertEqual(json.loads((run.folder / "model" / "config.json").read_text())["funicular"]["columns"]["stride"], tokens)
    path = columns_file(lab, "long.tsv", "text\tlabel\n" + "film " * 13 + "\tpro\nbook\tcontra\n")
    for tokens, windows in ((2, 4), (5, 9)):  # a window has 8 - 2 tokens
        run = lab.train(train=path, stride=tokens, max_length=8, batch_size=1, max_steps=None, num_train_epochs=1)
        lab.assertEqual(len(run.records), windows)


@FINETUNE.row("--format", "the file is read as that, whatever its name")
def file_format(lab):
    lines = "".join(json.dumps(dict(zip(COLUMNS[0], row))) + "\n" for row in COLUMNS[1:])
    commas = "".join(",".join(row) + "\n" for row in COLUMNS)
    for name, text in (("jsonl", lines), ("csv", commas)):
        path = columns_file(lab, f"{name}.tsv", text)
        found = read_columns(lab, train=path, format=name, text_column="one", label_column="two")
        lab.assertEqual(found, ({"film", "book"}, {"pro", "contra"}))


@FINETUNE.row("--header", "the first row names the columns; without it, it is data")
def header(lab):
    for first, words in ((True, {"film", "book"}), (False, {"film", "book", "o", "##n", "##e"})):
        found, _ = read_columns(lab, header=first, text_column="1", label_column="2", batch_size=2 if first else 3)
        lab.assertEqual(found, words)
