"""What the options do that only distill has, and those that it reads in its own way."""

from byte_bpe_test import SPECIAL_TOKENS, byte_characters
from harness import HEADS, HIDDEN, LAYERS, array, json, read_safetensors, write_model, write_rows, write_safetensors

from . import answering, own
from .lab import *

DISTILL = Table()
for option in ("--output", "--max-length", "--truncation", "--text-column"):
    DISTILL[option] = own.FINETUNE[option]


def layers(lab, **options):
    """A step of the stage general on documents, of which one epoch has 12."""
    documents = lab.tokenized("documents", lab.texts())
    return lab.train(**{"stage": "general", "task": None, "train": documents, "optim": "sgd", **options})


def saved(run):
    return json.loads((run.folder / "model" / "config.json").read_text())


def student_config(lab, name, **changes):
    return lab.once(f"{name}.json", lambda path: path.write_text(
        json.dumps({**json.loads((lab.plain_model() / "config.json").read_text()), **changes})) and path)


def refuses_at_once(lab, *phrases, **options):
    """Before the rows are tokenised, which may take hours, and before a file is left."""
    lab.refuses_to_train(*phrases, output=lab.folder / "unbegun", **options)
    lab.assertEqual(list((lab.folder / "unbegun").rglob("*")), [])


@DISTILL.row("--teacher", "the student learns from it: another one's answers are others")
def teacher(lab):
    other = lab.teacher(layer_norm_eps=0.5)
    lab.assertNotEqual(lab.train().weights, lab.train(teacher=other).weights)
    untrained = lab.once("untrained", lambda path: write_model(path, id2label={"0": "contra", "1": "pro"}, label2id={"contra": 0, "pro": 1}))
    lab.refuses_to_train("lacks weights that this command needs", "classifier.weight", teacher=untrained)
    lab.refuses_to_train("lacks weights that this command needs", "cls.predictions.transform", "funicular pretrain", stage="general",
                         task=None, train=lab.tokenized("documents", lab.texts()), terms="tokens", teacher=untrained)
    words = own.VOCABULARY[:5] + own.VOCABULARY[:4:-1]
    lab.refuses_to_train("another tokeniser", teacher=lab.once("turned", lambda path: write_model(path, vocabulary=words)))


@DISTILL.row("--student", "a folder whose weights are the start, a config.json, or a name")
def student(lab):
    start = lab.train(learning_rate=NOTHING).weights
    for name, values in tensors(lab.plain_model() / "model.safetensors").items():
        lab.assertLess(max(map(abs, less(start["bert." + name], values))), 1e-200, name)
    one_layer = student_config(lab, "one", num_hidden_layers=1)
    lab.assertEqual(saved(lab.train(student=one_layer))["num_hidden_layers"], 1)
    found = saved(lab.train(student="tinybert4", batch_size=1, precision="fp32"))
    keys = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
    lab.assertEqual(tuple(found[key] for key in keys), (4, 312, 1200, 12))
    found = saved(lab.train(student="1-layer"))
    lab.assertEqual((found["num_hidden_layers"], found["hidden_size"]), (1, HIDDEN))
    lab.refuses_to_train("did you mean tinybert4", student="tinybert")
    # A folder with sizes and a tokeniser of its own, and no weights: the teacher's tokeniser is the student's.
    def without_weights(path):
        write_model(path, vocabulary=own.VOCABULARY[:5] + own.VOCABULARY[:4:-1], num_hidden_layers=1)
        (path / "model.safetensors").unlink()
    folder = lab.once("sizes-and-words", lambda path: without_weights(path) or path)
    run = lab.train(student=folder)
    lab.assertIn(f"the student takes the teacher's tokeniser; the one in {folder} is not read", run.err)
    lab.assertEqual(saved(run)["num_hidden_layers"], 1)
    lab.assertEqual(run.weights, lab.train(student=folder / "config.json").weights)
    # RoBERTa's files of a tokeniser, which are read where there are no others.
    def byte_level(path):
        lab.copy_model(lab.plain_model(), path)
        (path / "vocab.txt").unlink()
        tokens = [*SPECIAL_TOKENS, *byte_characters().values()]
        (path / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
        (path / "merges.txt").write_text("#version: 0.2\n")
        return path
    refuses_at_once(lab, "another tokeniser", student=lab.once("byte-level", byte_level))
    refuses_at_once(lab, "tokens in its vocabulary", student=student_config(lab, "words", vocab_size=len(own.VOCABULARY) + 1))


def projection(path):
    return {name: list(values) for name, values in tensors(path).items() if name.startswith("fit_dense.")}


def keeps_its_projection(lab):
    """Each stage that learns layers begins with the projection that the one before has learnt, of this program or TinyBERT's."""
    general = layers(lab, learning_rate=0.1)
    kept = projection(general.folder / "model" / "fit_dense.safetensors")
    lab.assertEqual({name: len(values) for name, values in kept.items()}, {"fit_dense.weight": HIDDEN * HIDDEN, "fit_dense.bias": HIDDEN})
    lab.assertNotEqual(kept, projection(layers(lab, learning_rate=NOTHING).folder / "model" / "fit_dense.safetensors"))
    words = {"stage": "intermediate", "learning_rate": NOTHING}
    after = lab.train(student=general.folder / "model", **words)
    lab.assertIn("fit_dense.safetensors is continued", after.err)
    lab.assertEqual(projection(after.folder / "model" / "fit_dense.safetensors"), kept)
    lab.assertNotIn("fit_dense.weight", tensors(general.folder / "model" / "model.safetensors"))
    # TinyBERT's program has it among the weights of the model.
    def published(path):
        lab.copy_model(general.folder / "model", path)
        (path / "fit_dense.safetensors").unlink()
        weights = {**tensors(path / "model.safetensors"), **{name: array.array("f", values) for name, values in kept.items()}}
        shapes = {name: shape for name, (shape, _) in read_safetensors(general.folder / "model" / "model.safetensors").items()}
        shapes |= {"fit_dense.weight": [HIDDEN, HIDDEN], "fit_dense.bias": [HIDDEN]}
        write_safetensors(path / "model.safetensors", {name: (shapes[name], values) for name, values in weights.items()})
        return path
    theirs = lab.train(student=lab.once("published", published), **words)
    lab.assertIn("model.safetensors is continued", theirs.err)
    lab.assertNotIn("not used: fit_dense", theirs.err)
    lab.assertEqual(projection(theirs.folder / "model" / "fit_dense.safetensors"), kept)
    # One of another teacher's width begins anew; the answers need none.
    def narrow(path):
        lab.copy_model(general.folder / "model", path)
        write_safetensors(path / "fit_dense.safetensors", {"fit_dense.weight": ([3, HIDDEN], array.array("f", [0.5] * 3 * HIDDEN)),
                                                           "fit_dense.bias": ([3], array.array("f", [0.5] * 3))})
        return path
    other = lab.train(student=lab.once("narrow", narrow), **words)
    lab.assertIn("a new one is learnt", other.err)
    lab.assertEqual(len(projection(other.folder / "model" / "fit_dense.safetensors")["fit_dense.bias"]), HIDDEN)
    lab.assertFalse((lab.train(student=general.folder / "model").folder / "model" / "fit_dense.safetensors").exists())


@DISTILL.row("--stage", "layers of documents, layers of rows, or answers")
def stage(lab):
    lab.assertEqual(saved(layers(lab))["architectures"], ["BertModel"])
    lab.assertEqual(saved(lab.train(stage="intermediate"))["architectures"], ["BertModel"])
    lab.assertEqual(saved(lab.train())["architectures"], ["BertForSequenceClassification"])
    keeps_its_projection(lab)
    lab.refuses_to_train("--stage general reads a token store, and --train", "rows.tsv is a file", stage="general", task=None)
    lab.refuses_to_train("--stage prediction reads rows, and --train", "is a folder", train=lab.folder)
    lab.refuses_to_train("--stage prediction reads rows, and --eval", "is a folder", eval=lab.folder)
    lab.refuses_to_train("--task is not for --stage general", stage="general", train=lab.folder)


def store_as_train(lab):
    """A token store as --train means the stage general, and its documents are what is trained on; --data was its name before."""
    other = lab.tokenized("others", lab.texts([20, 19, 18]))
    lab.assertEqual(layers(lab, train=other, batch_size=1, max_steps=3).tokens, [22, 21, 20])
    before = layers(lab, stage=None, train=None, data=other, batch_size=1, max_steps=3)
    lab.assertEqual(before.tokens, [22, 21, 20])
    lab.assertIn("--data is called --train now", before.err)


def store_as_eval(lab):
    documents = lab.tokenized("held", lab.texts([5, 6], seed=9))
    trained = lab.tokenized("documents", lab.texts())
    loss = layers(lab, eval=documents, learning_rate=NOTHING).evaluations[-1]["eval_loss"]
    lab.assertAlmostEqual(loss, layers(lab, train=documents, eval=trained, batch_size=2, learning_rate=NOTHING).each("loss")[0], places=9)


@DISTILL.row("--task", "the file has the task's columns, and the classes the teacher's names")
def task(lab):
    rows = [("book", str(number % 2), "*", "film") for number in range(4)]
    path = lab.once("four.tsv", lambda path: write_rows(path, None, rows))
    teacher = lab.once("nameless", lambda path: lab.copy_model(lab.teacher(), path, id2label={"0": "LABEL_0", "1": "LABEL_1"},
                                                               label2id={"LABEL_0": 0, "LABEL_1": 1}))
    run = lab.train(task="cola", train=path, teacher=teacher, optim="sgd")
    lab.assertEqual(own.read_words(run), {"film"})
    lab.assertEqual(saved(run)["id2label"], {"0": "unacceptable", "1": "acceptable"})
    lab.assertEqual(saved(lab.train())["id2label"], {"0": "contra", "1": "pro"})


@DISTILL.row("--train", "its rows are what is trained on")
def train(lab):
    store_as_train(lab)
    path = lab.data("few", ["film good", "book bad"])
    run = lab.train(train=path, batch_size=2, optim="sgd")
    lab.assertEqual((own.read_words(run), run.tokens), ({"film", "good", "book", "bad"}, [8]))
    three = lab.once("three.tsv", lambda path: write_rows(path, ("label", "text"), [("pro", "a"), ("contra", "b"), ("neither", "c")]))
    lab.refuses_to_train("three.tsv", "neither", train=three)
    weights = lab.train().weights
    for name in ("no_labels.tsv", "no_labels.jsonl"):
        run = lab.train(train=unlabelled(lab, name))
        lab.assertEqual(run.weights, weights, "the teacher's answers need no label")
        lab.assertIn(f'{name} has no column "label"', run.err)
    lines = lab.data().read_text().splitlines()
    for empty, said in ((1, "1 row has an empty label"), (3, "3 rows have an empty label")):
        path = lab.once(f"{empty}-empty.tsv", lambda path: path.write_text("\n".join(
            [lines[0], *("\t" + line.split("\t")[1] for line in lines[1:1 + empty]), *lines[1 + empty:]]) + "\n") and path)
        run = lab.train(train=path)
        lab.assertEqual(run.weights, weights, "the teacher's answers need no label")
        lab.assertIn(f"{path}: {said}, so no label of this file is read; the student learns the teacher's answers", run.err)
    lab.refuses_to_train('1-empty.tsv:2: expected one of the labels contra, pro, found ""', train=path.with_name("1-empty.tsv"), terms=["soft", "hard"])
    lab.refuses_to_train('no column "label"', train=unlabelled(lab, "no_labels.tsv"), terms=["soft", "hard"])


@DISTILL.row("--skip-bad-rows", "rows that cannot be read are left out; without it, the command stops there")
def skip_bad_rows(lab):
    path = lab.once("ragged.tsv", lambda path: path.write_text("label\ttext\npro\tfilm good\npro\ncontra\tbook bad\n") and path)
    for stage in ("prediction", "intermediate"):
        run = lab.train(stage=stage, train=path, batch_size=2, optim="sgd", skip_bad_rows=True)
        lab.assertEqual(own.read_words(run), {"film", "good", "book", "bad"}, stage)
    lab.refuses_to_train("ragged.tsv:3", "--skip-bad-rows", train=path)
    lab.refuses_to_train("a token store", stage="general", task=None, train=lab.tokenized("documents", lab.texts()), skip_bad_rows=True)
    lab.refuses_to_train("each row of --soft-columns", teacher=None, soft_columns=["contra", "pro"], train=path, skip_bad_rows=True)


@DISTILL.row("--eval", "the student is measured on its rows")
def evaluation(lab):
    store_as_eval(lab)
    run = lab.train(learning_rate=1e-30, precision="fp32", **lab.held_out(9))
    found = lab.succeeds("evaluate", "--model", run.folder / "model", "--task", "custom", "--data", lab.held_out(9)["eval"]).json()
    lab.assertAlmostEqual(run.evaluations[-1]["eval_accuracy"], found["accuracy"], places=6)


@DISTILL.row("--metric-for-best-model", "the student that is kept is the best by it")
def metric(lab):
    words = {"max_steps": 6, "eval_steps": 1, "learning_rate": 0.05, **lab.held_out(20)}
    for name, sign in (("accuracy", -1), ("loss", 1)):
        run = lab.train(metric_for_best_model=name, **words)
        lab.assertEqual(run.result["best_step"], own.best_by(run, name, sign), name)
    numbers = {name: lab.once(f"{name}-numbers.tsv", lambda path, shift=shift: write_rows(path, ("label", "text"), [
        (str(number % 4 / 2 + shift), text) for number, text in enumerate(lab.texts())])) for shift, name in enumerate(("train", "eval"))}
    run = lab.train(teacher=answering.number_model(lab), regression=True, metric_for_best_model="mean_absolute_error",
                    **{**words, **numbers})
    lab.assertEqual(run.result["best_step"], own.best_by(run, "mean_absolute_error", 1))


def unlabelled(lab, name):
    """The rows of lab.data() without their labels, as TSV or JSON lines."""
    def make(path):
        texts = [line.split("\t")[1] for line in lab.data().read_text().splitlines()[1:]]
        if path.suffix == ".tsv":
            return write_rows(path, ("text",), [(text,) for text in texts])
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        return path
    return lab.once(name, make)


def with_probabilities(lab, name, shares):
    def make(path):
        rows = [("pro", "film good", str(share), str(1 - share)) for share in shares]
        return write_rows(path, ("label", "text", "contra", "pro"), rows)
    return lab.once(name + ".tsv", make)


@DISTILL.row("--soft-columns", "the probabilities of the file are what is learnt, without a teacher")
def soft_columns(lab):
    def loss(name, shares, **options):
        path = with_probabilities(lab, name, shares)
        run = lab.train(teacher=None, soft_columns=["contra", "pro"], train=path, learning_rate=NOTHING, soft_mean="rows",
                        batch_size=1, **options)
        return run.each("loss")[0]
    contra, pro, half = loss("contra", [1]), loss("pro", [0]), loss("half", [0.5])
    lab.assertAlmostEqual(math.exp(-contra) + math.exp(-pro), 1, places=6)
    lab.assertAlmostEqual((contra + pro) / 2, half, places=6)
    wrong = lab.once("wrong.tsv", lambda path: write_rows(path, ("label", "text", "contra", "pro"), [("pro", "film", "0.5", "0.6")]))
    lab.refuses_to_train("wrong.tsv:2", "sum to 1.1", teacher=None, soft_columns=["contra", "pro"], train=wrong)
    minus = lab.once("minus.tsv", lambda path: write_rows(path, ("label", "text", "contra", "pro"), [("pro", "film", "-0.5", "1.5")]))
    lab.refuses_to_train("minus.tsv:2", "from 0 to 1", teacher=None, soft_columns=["contra", "pro"], train=minus)
    bare = lab.once("bare.tsv", lambda path: write_rows(path, ("text", "contra", "pro"), [("film good", "0.5", "0.5")]))
    words = {"teacher": None, "soft_columns": ["contra", "pro"], "train": bare, "learning_rate": NOTHING, "soft_mean": "rows", "batch_size": 1}
    lab.assertAlmostEqual(lab.train(**words).each("loss")[0], half, places=9, msg="without a label, which nothing reads")
    lab.refuses_to_train('no column "label"', terms=["soft", "hard"], **words)
    lab.refuses_to_train('no column "nope"', **{**words, "soft_columns": ["contra", "nope"]})
    other = lab.once("other.tsv", lambda path: write_rows(path, ("label", "text", "contra", "pro"), [("neg", "film", "0.5", "0.5")]))
    lab.refuses_to_train("the classes have the names of --soft-columns: contra, pro", eval=other, **words)
    bare = lab.once("unlabelled.tsv", lambda path: write_rows(path, ("text", "contra", "pro"), [("film good", "0.5", "0.5")]))
    lab.refuses_to_train('no column "label"', "rows that are evaluated need a label", eval=bare, **words)
    refuses_at_once(lab, 'held_out_8.tsv:1: there is no column "contra"', "rows that are evaluated have the columns of --soft-columns",
                    "funicular evaluate", **words, **lab.held_out())
    refuses_at_once(lab, 'rows.tsv:1: there is no column "contra"', **{**words, "train": lab.data()})
    lab.refuses_to_train("--teacher", teacher=None)


@DISTILL.row("--cache-teacher", "the teacher is asked once; the student is the same but for the cache's rounding")
def cache_teacher(lab):
    words = {"max_steps": 4, "precision": "fp32", "teacher_precision": "fp32", "optim": "sgd", **lab.held_out(8)}
    plain = lab.train(**words)
    cached = lab.train(cache_teacher=lab.folder / "cache", **words)
    lab.assertLess(distance(cached.weights, plain.weights), 1e-6)
    kept = json.loads((lab.folder / "cache" / "train" / "cache.json").read_text())
    lab.assertEqual((kept["rows"], kept["blocks"][-1]["end"]), (len(LENGTHS), len(LENGTHS)))
    again = lab.train(cache_teacher=lab.folder / "cache", save_total_limit=1, **words)
    lab.assertEqual(again.weights, cached.weights)
    lab.refuses_to_train("the cache there was made with another teacher", cache_teacher=lab.folder / "cache",
                         teacher=lab.teacher(layer_norm_eps=0.5), **words)
    lab.refuses_to_train("the cache there was made with rows that were cut otherwise", "at most 12 tokens", cache_teacher=lab.folder / "cache", max_length=12,
                         **{name: value for name, value in words.items() if name != "max_length"})
    lab.refuses_to_train("with other answers of the teacher (logits; this run has logits, hidden.2)", "--terms", "delete that one",
                         cache_teacher=lab.folder / "cache", terms=["soft", "cosine"], **words)
    kept = lab.folder / "cache" / "train" / "teacher.logits.bin"
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    lab.refuses_to_train("of teacher.logits.bin are damaged", cache_teacher=lab.folder / "cache", **words)
    kept.write_bytes(whole)
    # Beside what is read, never in it: the next run would find another input there.
    documents = lab.tokenized("documents", lab.texts())
    of_documents = {"stage": "general", "task": None, "train": documents}
    run = lab.folder / "none"
    for place, where, options in ((lab.teacher(), "into --teacher", {}), (lab.teacher() / "cache", "into --teacher", {}),
                                  (lab.plain_model() / "a" / "b", "into --student", {}), (documents / "cache", "into --train", of_documents),
                                  (run / "model" / "cache", "which this run makes", {"output": run}), (run / "data", "which this run makes", {"output": run})):
        before = sorted(place.parent.rglob("*"))
        lab.refuses_to_train("--cache-teacher", where, "a folder that nothing else is in", cache_teacher=place, **options)
        lab.assertEqual(sorted(place.parent.rglob("*")), before)
    # Rank 0 asks the teacher, and the others read; of documents, layers as well.
    for name in ("of-two", "cache"):
        shared = lab.train(ranks=2, cache_teacher=lab.folder / name, **words)
        lab.assertEqual(shared.file["ranks"], 2)
        lab.assertLess(distance(shared.weights, plain.weights), 1e-6)
    kept = json.loads((lab.folder / "of-two" / "train" / "cache.json").read_text())
    lab.assertEqual((kept["rows"], kept["blocks"][-1]["end"]), (len(LENGTHS), len(LENGTHS)))
    general = {**of_documents, "max_steps": 4, "precision": "fp32", "teacher_precision": "fp32", "eval": documents}
    asked = layers(lab, **general)
    for ranks in (1, 2):
        cached = layers(lab, ranks=ranks, cache_teacher=lab.folder / f"documents-{ranks}", **general)
        lab.assertTrue(0 < distance(cached.weights, asked.weights) < 1e-2, "layers are kept in bf16")
        lab.assertTrue((lab.folder / f"documents-{ranks}" / "eval" / "cache.json").exists())
    deep = {**words, "stage": "intermediate", "terms": ["attention", "hidden"]}
    lab.assertLess(distance(lab.train(cache_teacher=lab.folder / "layers", **deep).weights, lab.train(**deep).weights), 1e-2)


@DISTILL.row("--init-layers", "the student begins with those layers of the teacher")
def init_layers(lab):
    one_layer = student_config(lab, "one", num_hidden_layers=1)
    theirs = tensors(lab.teacher() / "model.safetensors")
    for text, layer in (("even", LAYERS), ("1", 1)):
        start = lab.train(student=one_layer, init_layers=text, learning_rate=NOTHING).weights
        name = "attention.output.dense.weight"
        found = less(start["bert.encoder.layer.0." + name], theirs[f"encoder.layer.{layer - 1}.{name}"])
        lab.assertLess(max(map(abs, found)), 1e-200)
        lab.assertLess(max(map(abs, less(start["classifier.weight"], theirs["classifier.weight"]))), 1e-200)
    refuses_at_once(lab, "names 2 layers; expected 1", student=one_layer, init_layers="1,2")
    refuses_at_once(lab, "from 1 to 2", student=one_layer, init_layers="3")
    narrow = student_config(lab, "narrow", hidden_size=16)
    refuses_at_once(lab, "hidden_size 16 and the teacher 32", student=narrow, init_layers="even")


@DISTILL.row("--terms", "the loss is their weighted sum")
def terms(lab):
    def loss(*terms):
        return lab.train(terms=list(terms), relation_heads=4, learning_rate=NOTHING, soft_mean="rows").each("loss")[0]
    soft, hard = loss("soft"), loss("hard")
    lab.assertAlmostEqual(loss("soft=0.25", "hard=2"), 0.25 * soft + 2 * hard, places=9)
    lab.assertGreater(abs(soft - hard), 1e-3)
    configured = config_file(lab, 'terms = ["soft=0.25", "hard=2"]\n')
    lab.assertAlmostEqual(lab.train(config=configured, learning_rate=NOTHING, soft_mean="rows").each("loss")[0], 0.25 * soft + 2 * hard, places=9)
    lab.assertAlmostEqual(loss("soft", "logits=3"), soft + 3 * loss("logits"), places=9)
    lab.assertGreater(loss("logits"), 0)
    for name in ("patient", "cosine", "relations"):
        lab.assertGreater(loss("soft", name + "=3"), soft, name)
    refuses_at_once(lab, "did you mean attention", terms=["atention"])
    refuses_at_once(lab, "expected blanks between terms", terms=["soft,hard"])
    refuses_at_once(lab, "above 0", terms=["soft=0"])
    refuses_at_once(lab, "given twice", terms=["soft", "soft=2"])
    refuses_at_once(lab, "soft, hard and logits are terms of the stage prediction", terms=["soft"], stage="intermediate")
    refuses_at_once(lab, "attention heads", "relations", stage="intermediate", student=student_config(lab, "heads", num_attention_heads=1))
    sixteen = student_config(lab, "narrow", hidden_size=16)
    refuses_at_once(lab, "channels", terms=["soft", "cosine"], student=sixteen)


@DISTILL.row("--layer-map", "those layers of the teacher are learnt from")
def layer_map(lab):
    one_layer = student_config(lab, "one", num_hidden_layers=1)
    losses = {text: layers(lab, student=one_layer, layer_map=text, learning_rate=NOTHING).each("loss")[0]
              for text in ("uniform", "last", "1:1", "1:2")}
    lab.assertEqual((losses["uniform"], losses["last"]), (losses["1:2"], losses["1:2"]))
    lab.assertNotEqual(losses["1:1"], losses["1:2"])
    lab.assertEqual(layers(lab, layer_map="1:1, 2:2").weights, layers(lab, layer_map="1:1,2:2").weights)
    words = {"stage": "intermediate", "student": one_layer}
    refuses_at_once(lab, "the teacher's layer", "expected 1 to 2", layer_map="1:3", **words)
    refuses_at_once(lab, "learn nothing", layer_map="1:1", stage="intermediate")
    three = student_config(lab, "three", num_hidden_layers=3)
    refuses_at_once(lab, "the student has 3 layers and the teacher 2", stage="intermediate", student=three)


@DISTILL.row("--temperature", "the logits are divided by it")
def temperature(lab):
    def loss(temperature):
        return lab.train(temperature=temperature, learning_rate=NOTHING, soft_mean="rows").each("loss")[0]
    lab.assertAlmostEqual(loss(1e9), math.log(2), places=6)
    lab.assertNotEqual(loss(1), loss(2))


@DISTILL.row("--soft-mean", "soft is a mean over rows and classes, or over rows")
def soft_mean(lab):
    rows, classes = (lab.train(soft_mean=name, learning_rate=NOTHING).each("loss")[0] for name in ("rows", "classes"))
    lab.assertAlmostEqual(rows, 2 * classes, places=12)
    lab.assertEqual(classes, lab.train(learning_rate=NOTHING).each("loss")[0])


@DISTILL.row("--relation-heads", "so many relations are compared")
def relation_heads(lab):
    def loss(heads):
        return layers(lab, terms="relations", relation_heads=heads, learning_rate=NOTHING).each("loss")[0]
    lab.assertEqual(len({loss(1), loss(4), loss(16)}), 3)
    refuses_at_once(lab, "3 relation heads do not divide", "expected one of 1, 2, 4, 8, 16, 32", stage="intermediate", terms="relations", relation_heads=3)
    lab.assertIn("--relation-heads does nothing: it works with the terms relations; this run has attention 1, hidden 1",
                 layers(lab, relation_heads=4, learning_rate=NOTHING).err)


@DISTILL.row("--relation-layer", "the relations are those of that layer of the teacher")
def relation_layer(lab):
    found = [layers(lab, terms="relations", relation_heads=HEADS, relation_layer=layer, learning_rate=NOTHING).each("loss")[0]
             for layer in (0, 1, 2)]
    lab.assertEqual(found[0], found[2])
    lab.assertNotEqual(found[0], found[1])
    refuses_at_once(lab, "the relation layer 3 is not there", stage="intermediate", terms="relations", relation_heads=2, relation_layer=3)


@DISTILL.row("--mlm-probability", "that share of the tokens is hidden")
def mlm_probability(lab):
    documents = lab.tokenized("forty", [" ".join((own.WORDS + LETTERS)[:40])])
    counts = []
    for share in (0.05, 0.5):
        run = layers(lab, train=documents, terms="mlm", mlm_probability=share, max_length=64, batch_size=1)
        counts.append(sum(value < 0 for value in run.state("momentum_buffer")["cls.predictions.bias"]))
    lab.assertEqual(counts, [2, 20])


@DISTILL.row("--teacher-precision", "the teacher's arithmetic, by itself")
def teacher_precision(lab):
    losses = {name: lab.train(precision="fp32", teacher_precision=name, learning_rate=1e-30).each("loss")[0]
              for name in ("fp32", "bf16", "int8")}
    lab.assertEqual(len(set(losses.values())), 3)
    lab.assertLess(max(losses.values()) - min(losses.values()), 0.1)
    lab.assertEqual(lab.train(precision="fp32", learning_rate=1e-30).each("loss")[0], losses["fp32"])
    lab.refuses_to_train("--teacher-precision tf32 is for NVIDIA GPUs", precision="fp32", teacher_precision="tf32")


@DISTILL.row("--label-column", "the classes are those of that column")
def label_column(lab):
    path = own.columns_file(lab, "columns.tsv", "".join("\t".join(row) + "\n" for row in own.COLUMNS))
    words = {"train": path, "batch_size": 2, "optim": "sgd", "text_column": "one"}
    lab.assertEqual(own.read_words(lab.train(label_column="two", **words)), {"film", "book"})
    lab.refuses_to_train("song", label_column="three", **words)


@DISTILL.row("--format", "the file is read as that, whatever its name")
def file_format(lab):
    path = own.columns_file(lab, "csv.tsv", "".join(",".join(row) + "\n" for row in own.COLUMNS))
    run = lab.train(train=path, batch_size=2, optim="sgd", format="csv", text_column="one", label_column="two")
    lab.assertEqual(own.read_words(run), {"film", "book"})


@DISTILL.row("--header", "the first row names the columns; without it, it is data")
def header(lab):
    path = own.columns_file(lab, "headless.tsv", "".join("\t".join(row) + "\n" for row in own.COLUMNS[1:]))
    words = {"train": path, "optim": "sgd", "text_column": "1", "label_column": "2"}
    lab.assertEqual(own.read_words(lab.train(header=False, batch_size=2, **words)), {"film", "book"})
    lab.assertEqual(own.read_words(lab.train(header=True, batch_size=1, **words)), {"book"})


@DISTILL.row("--multi-label", "is refused: a row has one class")
def multi_label(lab):
    lab.refuses_to_train("expected one class a row", multi_label=True)


@DISTILL.row("--label-separator", "is that of rows with several labels, and has no effect on others")
def label_separator(lab):
    lab.assertEqual(lab.train(label_separator=";").weights, lab.train().weights)


@DISTILL.row("--stride", "is refused: students read no windows")
def stride(lab):
    lab.refuses_to_train("--stride: distill reads no windows", stride=3)


@DISTILL.row("--regression", "the labels are numbers, and the student learns the teacher's")
def regression(lab):
    numbers = own.columns_file(lab, "numbers.tsv", "text\tlabel\nfilm\t1.5\nbook\t-2\n")
    run = lab.train(teacher=answering.number_model(lab), train=numbers, regression=True)
    lab.assertEqual(saved(run)["problem_type"], "regression")
    lab.refuses_to_train("gives one class per text", train=numbers, regression=True)
