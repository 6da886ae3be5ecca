"""Embedders that learn a teacher's vectors: the vectors belong to their rows, the adapter is kept, and a table of static embeddings learns."""

import struct

from embedders_test import EmbedderTest
from harness import *
from options.embedding import read_npy

TABLE = "0_StaticEmbedding"  # sentence-transformers 3.4 loads no table from the folder of modules.json


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


class TeacherTest(EmbedderTest):
    def texts(self, name="texts.jsonl", count=40, seed=1, key="text"):
        source = random.Random(seed)
        return self.write(name, [{key: " ".join(source.choice(WORDS) for _ in range(source.randint(1, 9))) + f" {number}"} for number in range(count)])

    def embedder(self, name="model", width=None, unit=True):
        """A folder of an encoder with modules; `width`: a Dense layer to so many numbers."""
        folder = self.model(name)
        modules = [("", "Transformer"), ("1_Pooling", "Pooling")] + [("2_Dense", "Dense")] * bool(width) + [("3_Normalize", "Normalize")] * unit
        (folder / "modules.json").write_text(json.dumps([{"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
                                                         for at, (path, kind) in enumerate(modules)]))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": HIDDEN, "pooling_mode_mean_tokens": True}))
        if width:
            (folder / "2_Dense").mkdir()
            (folder / "2_Dense/config.json").write_text(json.dumps({"in_features": HIDDEN, "out_features": width, "bias": True,
                                                                    "activation_function": "torch.nn.modules.linear.Identity"}))
            write_safetensors(folder / "2_Dense/model.safetensors", random_weights({"linear.weight": [width, HIDDEN], "linear.bias": [width]}, seed=9))
        return folder

    def vectors(self, model, texts, name="vectors.npy", *more):
        self.succeeds("embed", "--model", model, "--input", texts, "--output", self.folder / name, *more)
        return self.folder / name

    def rows(self, path):
        return read_npy(path)

    def taught(self, train, teacher, *more, held_out=None, output="run", **options):
        """The first losses, and what the run printed."""
        done = self.train("vectors", train, held_out, "--teacher", teacher, *more, output=output, **{"logging_steps": 1, **options})
        return [json.loads(line)["loss"] for line in (self.folder / output / "metrics.jsonl").read_text().splitlines() if '"eval' not in line], done


def numbers_of(folder):
    """The table of static embeddings."""
    data = read_safetensors(folder / TABLE / "model.safetensors")["embedding.weight"][1]
    return struct.unpack(f"<{len(data) // 4}f", data)


STILL = {"num_train_epochs": 1, "learning_rate": 1e-30, "batch_size": 40}


class Teachers(TeacherTest):
    def test_a_student_that_is_its_teacher_has_nothing_to_learn(self):
        """Each row has its own vector, in the training and among the rows that are held out, from a folder and from a file."""
        model, texts = self.embedder(), self.texts()
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}))
        for number, teacher in enumerate((model, self.vectors(model, texts, "vectors.npy"))):
            losses, done = self.taught(texts, teacher, "--eval-fraction", 0.25, output=f"run-{number}", **STILL)
            self.assertLess(losses[0], 1e-9)
            self.assertAlmostEqual(done.json()["cosine"], 1, places=6)
            self.assertIn("10 rows are held out", done.err)
        losses, done = self.taught(texts, model, held_out=self.texts("eval.jsonl", 12, 2), output="apart", **STILL)
        self.assertLess(losses[0], 1e-9)
        self.assertAlmostEqual(done.json()["cosine"], 1, places=6)
        shifted = self.texts("shifted.jsonl", 40, 5)
        losses, done = self.taught(shifted, self.vectors(model, texts, "others.npy"), "--loss", "cosine-distance", output="shifted", **STILL)
        self.assertGreater(losses[0], 1e-4, "vectors of other texts")

    def test_both_losses_are_means_of_distances(self):
        model, texts = self.embedder(), self.texts(count=8)
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}))
        own = self.rows(self.vectors(model, texts))
        teacher = self.embedder("teacher", HIDDEN, unit=False)
        theirs = self.rows(self.vectors(teacher, texts, "theirs.npy"))
        cosines = [dot(a, b) / dot(b, b) ** 0.5 for a, b in zip(own, theirs)]
        for loss, expected in (("cosine-distance", [1 - cosine for cosine in cosines]), ("squared-distance", [2 - 2 * cosine for cosine in cosines])):
            losses, _ = self.taught(texts, teacher, "--loss", loss, output=loss, **{**STILL, "batch_size": 8})
            self.assertAlmostEqual(losses[0], sum(expected) / 8, places=5, msg="a student that normalises is compared with vectors of length 1")
        plain = self.embedder("plain", unit=False)
        raw = self.rows(self.vectors(plain, texts, "raw.npy"))
        (plain / "config.json").write_text((model / "config.json").read_text())
        losses, _ = self.taught(texts, teacher, output="raw", model=plain, **{**STILL, "batch_size": 8})
        self.assertAlmostEqual(losses[0], sum(sum((x - y) ** 2 for x, y in zip(a, b)) for a, b in zip(raw, theirs)) / 8, delta=1e-4)

    def test_an_adapter_brings_the_students_vectors_to_the_teachers_size(self):
        self.model()
        texts, teacher = self.texts(), self.embedder("teacher", 12)
        held_out = self.texts("eval.jsonl", 30, 2)
        before = self.taught(texts, teacher, held_out=held_out, output="before", **STILL)[1].json()["cosine"]
        losses, done = self.taught(texts, teacher, held_out=held_out, num_train_epochs=12)
        self.assertLess(losses[-1], 0.5 * losses[0])
        self.assertGreater(done.json()["cosine"], before + 0.1)
        folder = self.folder / "run" / "model"
        modules = json.loads((folder / "modules.json").read_text())
        self.assertEqual([entry["type"].split(".")[-1] for entry in modules], ["Transformer", "Pooling", "Dense", "Normalize"])
        self.assertEqual(modules[2]["path"], "2_Dense")
        dense = json.loads((folder / "2_Dense/config.json").read_text())
        self.assertEqual((dense["in_features"], dense["out_features"], dense["activation_function"]), (HIDDEN, 12, "torch.nn.modules.linear.Identity"))
        own, theirs = (self.rows(self.vectors(model, held_out, name)) for model, name in ((folder, "own.npy"), (teacher, "theirs.npy")))
        self.assertAlmostEqual(sum(map(dot, own, theirs)) / 30, done.json()["cosine"], places=4)
        again = self.taught(texts, teacher, output="again", model=folder, **STILL)[0]
        self.assertLess(again[0], 0.6 * losses[0], "an adapter that is there learns on")

    def test_a_student_that_was_cut_gives_vectors_of_the_teachers_size(self):
        texts, model = self.texts(count=8), self.embedder()
        settings = {"similarity_fn_name": "cosine", "truncate_dim": 8}
        (model / "config_sentence_transformers.json").write_text(json.dumps(settings))
        self.taught(texts, self.embedder("teacher", 12), **{**STILL, "batch_size": 8})
        self.assertNotIn("truncate_dim", json.loads((self.folder / "run/model/config_sentence_transformers.json").read_text()))
        self.assertEqual(len(self.rows(self.vectors(self.folder / "run/model", texts))[0]), 12)

    def test_vectors_are_cut_as_the_teachers_are(self):
        model, texts = self.embedder(), self.texts(count=8)
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}))
        teacher = self.embedder("teacher", HIDDEN)
        own, theirs = (self.rows(self.vectors(folder, texts, name)) for folder, name in ((model, "own.npy"), (teacher, "theirs.npy")))

        def mean(size):
            cosines = [dot(a[:size], b[:size]) / (dot(a[:size], a[:size]) * dot(b[:size], b[:size])) ** 0.5 for a, b in zip(own, theirs)]
            return sum(2 - 2 * cosine for cosine in cosines) / 8

        losses, _ = self.taught(texts, teacher, "--matryoshka-dims", 8, **{**STILL, "batch_size": 8})
        self.assertAlmostEqual(losses[0], mean(HIDDEN) + mean(8), places=4)

    def test_a_run_goes_on_and_ends_where_the_teacher_changes(self):
        self.model()
        texts, teacher = self.texts(), self.embedder("teacher", 12)
        words = [*self.words("vectors", texts, num_train_epochs=None, max_steps=6, logging_steps=1), "--teacher", teacher]
        self.succeeds(*words)
        self.assertIn("the vectors are there already", self.succeeds(*words).err)
        vectors = self.vectors(teacher, self.texts("other.jsonl", seed=8), "other.npy")
        self.refuses([*words[:-1], vectors], "teacher was")
        kept = {path: path.read_bytes() for path in (self.folder / "run/data").glob("teacher-*.npy")}
        self.assertEqual(len(kept), 1)
        self.refuses([*words[:-1], self.embedder("stranger", 12, unit=False)], "teacher was")
        self.assertEqual({path: path.read_bytes() for path in kept}, kept, "another teacher replaces nothing")
        self.assertIn("the vectors are there already", self.succeeds(*words).err)

    def test_folds_measure_against_the_teacher(self):
        self.model()
        texts, teacher = self.texts(count=20), self.embedder("teacher", 12)
        found = self.succeeds(*self.words("vectors", texts, num_train_epochs=1), "--teacher", teacher, "--folds", 2).json()
        self.assertEqual(len(found["cosine"]["values"]), 2)
        answers = [json.loads(line) for line in (self.folder / "run" / "predictions.jsonl").read_text().splitlines()]
        self.assertEqual([answer["row"] for answer in answers], list(range(1, 21)))
        self.assertTrue(all(-1 <= answer["cosine"] <= 1 for answer in answers))

    def test_what_does_not_fit_is_named(self):
        self.model()
        texts, teacher = self.texts(count=8), self.embedder("teacher", 12)
        vectors = self.vectors(teacher, texts)
        words = [*self.words("vectors", texts, resume="never")]
        few = self.vectors(teacher, self.texts("few.jsonl", 5), "few.npy")
        wrong = bytearray(vectors.read_bytes())
        wrong[128 + 4 * 12 * 2:132 + 4 * 12 * 2] = b"\0\0\xc0\x7f"  # NaN in row 3
        (self.folder / "nan.npy").write_bytes(wrong)
        coded = self.vectors(teacher, texts, "coded.npy", "--vector-type", "int8")
        for more, phrases in (
                ([], ["--task vectors learns a teacher's vectors", "--teacher"]),
                (["--teacher", self.folder / "none"], ["--teacher", "no such folder"]),
                (["--teacher", few], ["few.npy has 5 vectors", "8 rows", "expected a vector per row"]),
                (["--teacher", self.folder / "nan.npy"], ["nan.npy", "vector 3 holds NaN"]),
                (["--teacher", coded], ["coded.npy", "expected float32"]),
                (["--teacher", texts], ["texts.jsonl", "numpy"]),
                (["--teacher", vectors, "--eval", texts], ["vectors.npy holds the vectors of --train", "--eval-fraction"]),
                (["--teacher", teacher, "--loss", "cosine"], ["--loss cosine does not fit --task vectors", "squared-distance, cosine-distance"]),
                (["--teacher", teacher, "--scale", 0], ["--scale"]),
                (["--teacher", teacher, "--hardness", 2], ["--hardness works only with --loss multiple-negatives"]),
                (["--teacher", teacher, "--label-column", "label"], ["--label-column", "vectors has its own layout"]),
                (["--teacher", teacher, "--text-column", "text", "more"], ["expected 1 of --text-column"]),
                (["--teacher", teacher, "--matryoshka-dims", 13], ["the model's vectors have 12 numbers"]),
        ):
            self.refuses([*words, *more], *phrases)
        self.refuses([*self.words("pairs", self.pairs(count=8)), "--teacher", teacher], "--teacher works only with --task vectors")
        for row, phrase in (({"text": " "}, '"text" is empty'), ({"text": ["film"]}, '"text" is a list'), ({"other": "film"}, "text")):
            bad = self.write("bad.jsonl", [{"text": "the film"}, row])
            self.refuses([*self.words("vectors", bad), "--teacher", teacher], "bad.jsonl:2", phrase)
        self.taught(texts, teacher, **STILL)
        self.refuses(["evaluate", "--model", self.folder / "run/model", "--data", texts], "--task vectors learns a teacher's vectors", "retrieval or similarity")


class StaticTables(TeacherTest):
    """Training that starts from a table of static embeddings."""

    def table(self, width=16):
        self.succeeds("vectors", "--from", self.model("encoder"), "--output", self.folder / "static", "--size", width)
        return self.folder / "static"

    def test_a_table_learns_a_teachers_vectors(self):
        texts, teacher, table = self.texts(), self.embedder("teacher", 16), self.table()
        held_out = self.texts("eval.jsonl", 30, 2)
        options = {"model": table, "max_length": None, "learning_rate": 1e-2, "held_out": held_out}
        before = self.taught(texts, teacher, output="before", **{**options, **STILL})[1].json()["cosine"]
        losses, done = self.taught(texts, teacher, **{**options, "num_train_epochs": 20})
        self.assertIn(f"a table of {len(VOCABULARY)} tokens with 16 numbers each", done.err)
        self.assertGreater(done.json()["cosine"], before + 0.1)
        folder = self.folder / "run/model"
        self.assertEqual([entry["type"].split(".")[-1] for entry in json.loads((folder / "modules.json").read_text())], ["StaticEmbedding", "Normalize"])
        self.assertEqual(read_safetensors(folder / TABLE / "model.safetensors")["embedding.weight"][0], [len(VOCABULARY), 16])
        own, theirs = (self.rows(self.vectors(model, held_out, name)) for model, name in ((folder, "own.npy"), (teacher, "theirs.npy")))
        self.assertAlmostEqual(sum(map(dot, own, theirs)) / 30, done.json()["cosine"], places=4)

    def test_a_table_learns_from_pairs(self):
        table, options = self.table(), {"max_length": None, "learning_rate": 1e-2}
        train, held_out = self.pairs(), self.pairs("eval.jsonl", 40, 2)
        whole = self.train("pairs", train, held_out, model=table, logging_steps=1, **options)
        self.train("pairs", train, held_out, "--micro-batch-size", 3, model=table, output="cut", logging_steps=1, **options)
        self.assertGreater(whole.json()["mrr"], 0.4)
        first, second = ([json.loads(line)["loss"] for line in (self.folder / name / "metrics.jsonl").read_text().splitlines() if '"eval' not in line]
                         for name in ("run", "cut"))
        for a, b in zip(first, second):
            self.assertAlmostEqual(a, b, delta=1e-4 * abs(a) + 1e-6)

    def test_texts_without_tokens_have_the_vector_0(self):
        """They do not learn, and nothing else is learnt of them: the table is the one that is learnt without them."""
        table, texts = self.table(), self.write("texts.jsonl", [{"text": "film"}, {"text": "\u200b"}])
        teacher = self.embedder("teacher", 16)
        options = {"model": table, "max_length": None, "num_train_epochs": 3, "learning_rate": 1e-2}
        self.taught(texts, teacher, **options)
        self.taught(self.write("film.jsonl", [{"text": "film"}]), teacher, output="without", **options)
        learnt, expected, start = (numbers_of(folder) for folder in (self.folder / "run/model", self.folder / "without/model", table))
        self.assertGreater(max(abs(a - b) for a, b in zip(expected, start)), 0.01)
        self.assertLess(max(abs(a - b) for a, b in zip(learnt, expected)), 1e-4)
        rows = self.rows(self.vectors(self.folder / "run/model", texts))
        self.assertEqual(max(map(abs, rows[1])), 0)

    def test_the_length_of_texts_is_kept(self):
        table, texts, teacher = self.table(), self.texts(), self.embedder("teacher", 16)
        done = self.taught(texts, teacher, model=table, max_length=4, num_train_epochs=1)[1]
        self.assertIn("longer than 4 tokens", done.err)
        self.assertIn("next: funicular embed", done.err)
        folder = self.folder / "run/model"
        self.assertEqual(json.loads((folder / TABLE / "tokenizer.json").read_text())["truncation"],
                         {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0})
        long, short = self.rows(self.vectors(folder, self.write("long.jsonl", [{"text": " ".join(WORDS[:count])} for count in (6, 4)])))
        self.assertEqual(long, short)
        self.taught(texts, teacher, model=table, max_length=None, num_train_epochs=1, output="whole")
        self.assertIsNone(json.loads((self.folder / "whole/model" / TABLE / "tokenizer.json").read_text())["truncation"])

    def test_folds_refuse_a_table_before_they_train(self):
        words = self.words("vectors", self.texts(), model=self.table(), max_length=None)
        self.refuses([*words, "--teacher", self.embedder("teacher", 16), "--folds", 2], "--folds cannot measure tables", "--eval-fraction")
        self.assertFalse((self.folder / "run").exists())

    def test_a_resumed_run_is_the_same(self):
        table, texts, teacher = self.table(), self.texts(), self.embedder("teacher", 12)
        options = {"model": table, "max_length": None, "num_train_epochs": None, "max_steps": 40, "logging_steps": 1, "batch_size": 8}
        self.taught(texts, teacher, **options)
        output = self.folder / "stopped"
        words = [*self.words("vectors", texts, output="stopped", **options), "--teacher", teacher]
        stopped = run_and_interrupt(output / "metrics.jsonl", 3, signal.SIGINT, *words)
        self.assertEqual(stopped.code, 75, stopped.err)
        self.assertIn("resumed from", self.succeeds(*words).err)
        for name in (f"{TABLE}/model.safetensors", "1_Dense/model.safetensors"):
            self.assertEqual(read_safetensors(output / "model" / name), read_safetensors(self.folder / "run/model" / name))

    def test_other_tasks_refuse_a_table(self):
        table = self.table()
        self.refuses(self.finetune_words(table), "a table of static embeddings learns only --task pairs, triplets, scores or vectors")
        self.refuses(["evaluate", "--model", table, "--data", self.pairs()], "--task retrieval or similarity")


if __name__ == "__main__":
    unittest.main()
