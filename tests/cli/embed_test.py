"""Vectors of texts: files that go on after a kill, ranks, folders that cannot be read, and what an embedder is worth."""

import time

from harness import *
from options.embedding import read_npy


class Embed(ProgramTest):
    def lines(self, count=400, name="lines.txt"):
        source = random.Random(5)
        path = self.folder / name
        path.write_text("".join(" ".join(source.choice(WORDS) for _ in range(source.randint(1, 30))) + "\n" for _ in range(count)))
        return path

    def sentences(self, modules=("Transformer", "Pooling"), name="sentences"):
        folder = self.model(name)
        paths = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense"}
        (folder / "modules.json").write_text(json.dumps([{"idx": at, "path": paths.get(kind, f"{at}_{kind}"),
                                                          "type": f"sentence_transformers.models.{kind}"} for at, kind in enumerate(modules)]))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": HIDDEN, "pooling_mode_mean_tokens": True}))
        return folder

    def words(self, output, **more):
        values = {"model": self.folder / "model", "input": self.folder / "lines.txt", "output": output, "window": 8, **more}
        return ["embed", *(word for name, value in values.items() for word in ("--" + name.replace("_", "-"), value))]

    def test_killed_command_goes_on_where_it_was(self):
        self.model()
        self.lines(3000)
        for name, kind in (("a.npy", "float32"), ("b.jsonl", "float32"), ("c.npy", "int8")):
            whole, output = self.folder / f"whole-{name}", self.folder / name
            self.succeeds(*self.words(whole, vector_type=kind))
            process = subprocess.Popen([PROGRAM, *exact(self.words(output, vector_type=kind))], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                       text=True, env=environment())
            part = self.folder / f"{name}.parts" / "vectors.npy"
            while not (part.exists() and part.stat().st_size > 128 + 20 * HIDDEN * 4) and process.poll() is None:
                time.sleep(0.001)
            process.kill()
            process.communicate()
            self.assertFalse(output.exists())
            again = self.succeeds(*self.words(output, vector_type=kind))
            self.assertRegex(again.err, r"resuming after \d+ vectors")
            self.assertEqual(output.read_bytes(), whole.read_bytes())
            self.assertFalse(part.parent.exists())

    def test_finished_command_is_not_run_again(self):
        self.model()
        self.lines(20)
        output = self.folder / "v.npy"
        first = self.succeeds(*self.words(output)).json()
        again = self.succeeds(*self.words(output))
        self.assertEqual(again.json(), first)
        self.assertIn("is complete already", again.err)
        self.refuses(self.words(output, truncate_dim=3), "--overwrite")

    def test_other_options_begin_anew(self):
        self.model()
        self.lines(20)
        output = self.folder / "v.npy"
        parts = self.folder / "v.npy.parts"
        parts.mkdir()
        (parts / "mine.txt").write_text("mine")
        self.refuses(self.words(output), "is in the way")
        (parts / "mine.txt").unlink()
        (parts / "job.json").write_text("{}")
        self.assertIn("this run starts from the beginning", self.succeeds(*self.words(output)).err)

    def test_a_pooling_that_nobody_chose_is_told(self):
        self.model()
        self.lines(3)
        self.assertIn("a text's vector: mean; the folder has no modules.json", self.succeeds(*self.words(self.folder / "a.npy")).err)
        self.assertNotIn("modules.json", self.succeeds(*self.words(self.folder / "b.npy", pooling="cls")).err)
        self.assertNotIn("modules.json", self.succeeds(*self.words(self.folder / "c.npy", model=self.sentences())).err)

    def test_ranks_share_the_rows(self):
        self.model()
        self.lines(100)
        alone, shared = self.folder / "alone.npy", self.folder / "shared.npy"
        self.succeeds(*self.words(alone))
        self.succeeds("launch", "-n", 3, "--", PROGRAM, *self.words(shared))
        for left, right in zip(read_npy(alone), read_npy(shared), strict=True):
            for x, y in zip(left, right, strict=True):
                self.assertAlmostEqual(x, y, places=5)

    def test_search_runs_in_one_process(self):
        self.model()
        vectors = self.folder / "v.npy"
        self.lines(4)
        self.succeeds(*self.words(vectors))
        self.refuses(["launch", "-n", 2, "--", PROGRAM, "search", "--index", vectors, "--queries", vectors],
                     "search runs in one process; leave out funicular launch")
        self.assertIn("neighbours", self.succeeds("search", "--index", vectors, "--queries", vectors).out)

    def test_order_is_kept_whatever_the_window(self):
        self.model()
        self.lines(60)
        one, all_rows = self.folder / "one.npy", self.folder / "all.npy"
        self.succeeds(*self.words(one, window=1))
        self.succeeds(*self.words(all_rows, window=1000))
        for left, right in zip(read_npy(one), read_npy(all_rows), strict=True):
            self.assertLess(max(abs(x - y) for x, y in zip(left, right, strict=True)), 1e-5)

    def test_modules_that_cannot_be_read_are_named(self):
        self.lines(3)
        for modules, phrase in ((("Transformer", "Pooling", "LSTM"), "cannot read modules of type LSTM"),
                                (("Transformer",), "there is no Pooling"),
                                (("Transformer", "Pooling", "Dense"), "2_Dense")):
            folder = self.sentences(modules, "-".join(modules))
            self.refuses(self.words(self.folder / "v.npy", model=folder), phrase)

    def test_static_embeddings_are_the_mean_of_the_tokens_rows(self):
        folder = self.model("static")
        (folder / "config.json").unlink()
        (folder / "modules.json").write_text(json.dumps([{"idx": 0, "path": "", "type": "sentence_transformers.models.StaticEmbedding"}]))
        rows = [[number + column / 4 for column in range(3)] for number in range(len(VOCABULARY))]
        write_safetensors(folder / "model.safetensors", {"embedding.weight": ([len(VOCABULARY), 3], array.array("f", sum(rows, [])))})
        (self.folder / "lines.txt").write_text("good film\n\n")
        output = self.folder / "v.npy"
        self.succeeds(*self.words(output, model=folder))
        good, film = rows[VOCABULARY.index("good")], rows[VOCABULARY.index("film")]
        self.assertEqual(read_npy(output), [[(x + y) / 2 for x, y in zip(good, film)], [0, 0, 0]])

    def test_a_model_is_measured_by_what_it_finds(self):
        model = self.model()
        data = self.folder / "beir"
        (data / "qrels").mkdir(parents=True)
        texts = ["good film", "old song", "very long book"]
        (data / "corpus.jsonl").write_text("".join(json.dumps({"_id": f"d{number}", "text": text}) + "\n" for number, text in enumerate(texts)))
        (data / "queries.jsonl").write_text("".join(json.dumps({"_id": f"q{number}", "text": text}) + "\n" for number, text in enumerate(texts)))
        (data / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(f"q{number}\td{number}\t1\n" for number in range(3)))
        found = self.succeeds("evaluate", "--task", "retrieval", "--model", model, "--data", data).json()
        self.assertEqual((found["accuracy@1"], found["ndcg@10"], found["map@100"], found["queries"], found["documents"]), (1, 1, 1, 3, 3))
        self.refuses(["evaluate", "--task", "retrieval", "--model", model, "--data", data, "--details"], "--details works only with rows that have labels")
        self.refuses(["evaluate", "--task", "retrieval", "--model", model, "--data", self.folder], "qrels")

    def test_similarity_is_the_order_of_the_cosines(self):
        model = self.model()
        table = self.folder / "pairs.tsv"
        write_rows(table, ("text_a", "text_b", "label"), [("good film", "good film", "1"), ("good film", "old song", "0.2")])
        found = self.succeeds("evaluate", "--task", "similarity", "--model", model, "--data", table).json()
        self.assertEqual((found["pairs"], round(found["spearman"], 6)), (2, 1))
        write_rows(table, ("text_a", "text_b", "label"), [("good film", "good film", "x")])
        self.refuses(["evaluate", "--task", "similarity", "--model", model, "--data", table], "pairs.tsv", "expected a finite number")


if __name__ == "__main__":
    unittest.main()
