"""Wrong inputs of the commands that embed, search, mine and judge labels, and of training on related texts, spans and windows."""

import gzip
import struct

from embedders_test import EmbedderTest
from harness import *

MODULES = [("", "Transformer"), ("1_Pooling", "Pooling")]


def npy(values, columns, kind="<f4", order=False, shape=None):
    """A file of numpy."""
    header = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape or (len(values) // columns, columns)}, }}".encode()
    header += b" " * (117 - len(header)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}{'d' if kind == '<f8' else 'f'}", *values)


class WrongInputs(EmbedderTest):
    def put(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def lines(self, name, *rows):
        return self.put(name, "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))

    def folder_of(self, name, modules=MODULES, pooling=None, dense=None, tensors=None):
        folder = self.model(name)
        (folder / "modules.json").write_text(json.dumps([{"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
                                                         for at, (path, kind) in enumerate(modules)]))
        self.put(f"{name}/1_Pooling/config.json", json.dumps({"word_embedding_dimension": HIDDEN, "pooling_mode_mean_tokens": True} if pooling is None else pooling))
        if dense is not None:
            self.put(f"{name}/2_Dense/config.json", json.dumps(dense))
            write_safetensors(folder / "2_Dense/model.safetensors", random_weights(tensors or {"linear.weight": [4, HIDDEN], "linear.bias": [4]}))
        return folder

    def check(self, words, *cases):
        """Each case: what is given behind the words, and the phrases of the refusal."""
        for more, *phrases in cases:
            with self.subTest(more=list(map(str, more))):
                self.refuses([*words, *more], *phrases)

    def test_texts_to_embed(self):
        words = ["embed", "--model", self.model(), "--output", self.folder / "v.npy"]
        zipped = gzip.compress(b"the film\n" * 400)
        self.check(words,
                   (["--input", self.put("t.csv", "title,body\nthe,film\n")], "t.csv", "text", "title, body"),
                   (["--input", self.lines("broken.jsonl", {"text": "film"}, "{broken")], "broken.jsonl:2", "JSON"),
                   (["--input", self.lines("number.jsonl", {"text": "film"}, {"text": {"a": 1}})], "number.jsonl:2", "text"),
                   (["--input", self.put("u.txt", "the film\n".encode("utf-16"))], "u.txt", "UTF-16", "--encoding"),
                   (["--input", self.put("latin.txt", b"the film\nna\xefve\n")], "latin.txt:2", "UTF-8", "--encoding"),
                   (["--input", self.put("cut.txt.gz", zipped[:-6])], "cut.txt.gz", "gzip"),
                   (["--input", self.put("v.npy.txt", npy([1, 2], 2))], "v.npy.txt"),
                   (["--input", self.folder], "expected a regular file"))

    def test_folders_of_embedders(self):
        identity = {"in_features": HIDDEN, "out_features": 4, "bias": True, "activation_function": "torch.nn.modules.linear.Identity"}
        dense = [*MODULES, ("2_Dense", "Dense")]
        texts = self.put("texts.txt", "the film\n")
        folders = [
            (self.folder_of("none", [("", "Transformer"), ("1_Pooling", "Pooling"), ("../other", "Dense")]), "modules.json", "../other"),
            (self.folder_of("width", pooling={"word_embedding_dimension": 7, "pooling_mode_mean_tokens": True}), "hidden states of 7 numbers"),
            (self.folder_of("inputs", dense, dense={**identity, "in_features": 9}, tensors={"linear.weight": [4, 9], "linear.bias": [4]}),
             "2_Dense reads vectors of 9 numbers", f"gives {HIDDEN}"),
            (self.folder_of("shape", dense, dense=identity, tensors={"linear.weight": [5, HIDDEN], "linear.bias": [4]}), "linear.weight has the shape [5, 32]",
             "[4, 32]"),
            (self.folder_of("bias", dense, dense=identity, tensors={"linear.weight": [4, HIDDEN]}), "expected the tensor linear.bias"),
            (self.folder_of("activation", dense, dense={**identity, "activation_function": "torch.nn.modules.activation.Softmax"}), "2_Dense/config.json", "Softmax"),
        ]
        broken = self.folder_of("broken")
        (broken / "modules.json").write_text('[{"idx": 0,\n "path" }]')
        small = self.folder_of("small", [("", "StaticEmbedding")])
        write_safetensors(small / "model.safetensors", random_weights({"embedding.weight": [3, 4]}))
        other = self.folder_of("other", [("", "StaticEmbedding")])
        write_safetensors(other / "model.safetensors", random_weights({"table": [len(VOCABULARY), 4]}))
        folders += [(broken, "modules.json:2", "not valid JSON"), (small, "the table 3 rows", str(len(VOCABULARY))),
                    (other, "expected the tensor embedding.weight or embeddings")]
        for folder, *phrases in folders:
            with self.subTest(folder=folder.name):
                self.refuses(["embed", "--model", folder, "--input", texts, "--output", self.folder / "v.npy"], *phrases)

    def test_tables_to_search(self):
        good, query = self.put("good.npy", npy([1, 2, 3, 4], 2)), self.put("query.npy", npy([1, 2], 2))
        self.check(["search", "--queries", query],
                   (["--index", self.put("cut.npy", npy([1, 2, 3, 4], 2)[:-4])], "cut.npy", "bytes"),
                   (["--index", self.put("double.npy", npy([1, 2], 2, "<f8"))], "double.npy", "float32", "<f8"),
                   (["--index", self.put("columns.npy", npy([1, 2, 3, 4], 2, order=True))], "columns.npy", "column"),
                   (["--index", self.put("line.npy", npy([1, 2], 1, shape=(2,)))], "line.npy", "two"),
                   (["--index", self.put("wide.npy", npy([1, 2, 3], 3))], "3", "2"),
                   (["--index", self.folder / "none.npy"], "none.npy", "No such file"),
                   (["--index", good, "--ids", self.put("ids.txt", "a\n")], "ids.txt", "1", "2"),
                   (["--index", good, "-k", 0], "--neighbours must be at least 1", "found 0"))
        coded = self.put("coded.npy", npy([1, 2], 2).replace(b"<f4", b"|i1")[:-6])
        self.refuses(["search", "--index", good, "--queries", coded], "coded.npy", "expected vectors of float32")

    def test_texts_to_mine(self):
        model = self.folder_of("model")
        pairs = self.pairs(count=8)
        self.check(["mine", "--model", model, "--output", self.folder / "m.jsonl"],
                   (["--input", self.lines("one.jsonl", {"anchor": "film"})], "one.jsonl", "positive"),
                   (["--input", self.put("empty.jsonl", "")], "empty.jsonl", "no rows"),
                   (["--input", pairs, "--corpus", self.lines("corpus.jsonl", {"text": "film"}, "{")], "corpus.jsonl:2", "JSON"),
                   (["--input", pairs, "--corpus", self.lines("other.jsonl", {"body": "film"})], "other.jsonl", "text"),
                   (["--input", pairs, "--min-score", 1, "--max-score", 0], "--min-score 1 is above --max-score 0"))

    def test_encoders_to_make_tables_of(self):
        model = self.model()
        self.check(["vectors", "--output", self.folder / "table"],
                   (["--from", self.folder / "none"], "--from", "no such folder"),
                   (["--from", model, "--size", HIDDEN + 1], f"--size {HIDDEN + 1}", f"have {HIDDEN} numbers"),
                   (["--from", model, "--size", 0], "--size"),
                   (["--from", self.put("file", "x")], "file: expected a folder with config.json, found a file"))

    def test_spans(self):
        def document(**answer):
            question = {"id": "1", "question": "which film?", "answers": [{"text": "good", "answer_start": 4, **answer}]}
            return {"data": [{"title": "t", "paragraphs": [{"context": "the good film", "qas": [question]}]}]}

        words = ["finetune", "--model", self.model(), "--task", "spans", "--output", self.folder / "run", "--train"]
        self.check(words,
                   ([self.put("other.json", json.dumps(document(text="book")))], "other.json", "no answer stands in its context"),
                   ([self.put("word.json", json.dumps(document(answer_start="four")))], "word.json", "qas[0]"),
                   ([self.put("list.json", "[1, 2]")], "list.json"),
                   ([self.put("cut.json", json.dumps(document())[:-9])], "cut.json", "JSON"))

    def test_judged_labels(self):
        one = {"label": "a", "probabilities": {"a": 0.5, "b": 0.5}}
        several = {"labels": ["a"], "probabilities": {"a": 0.5, "b": 0.5}}
        packed = gzip.compress(b"".join(json.dumps(one).encode() + b"\n" for _ in range(200)))
        self.check(["label-errors"],
                   ([self.lines("mixed.jsonl", one, several)], "mixed.jsonl:2", "expected one label as in the lines before, found a list"),
                   ([self.lines("back.jsonl", several, one)], "back.jsonl:2", "expected a list of labels as in the lines before"),
                   ([self.lines("new.jsonl", several, {**several, "labels": ["c"]})], "new.jsonl:2", 'the label "c" has no probability'),
                   ([self.lines("unknown.jsonl", several, {**several, "unknown": ["c"]})], "unknown.jsonl:2", 'the label "c" has no probability'),
                   ([self.lines("list.jsonl", several, {**several, "unknown": "b"})], "list.jsonl:2", 'a list of labels for the key "unknown"'),
                   ([self.lines("both.jsonl", several, {**several, "unknown": ["a"]})], "both.jsonl:2", 'the label "a" is both given and unknown'),
                   ([self.lines("type.jsonl", several, {**several, "labels": [1]})], "type.jsonl:2", "the label 1 has no probability"),
                   ([self.lines("more.jsonl", one, {**one, "probabilities": {"a": 0.2, "b": 0.3, "c": 0.5}})], "more.jsonl:2", "expected 2 probabilities", "found 3"),
                   ([self.lines("less.jsonl", several, {**several, "probabilities": {"a": 0.2}})], "less.jsonl:2", 'probability from 0 to 1 of "b"'),
                   ([self.lines("high.jsonl", {**several, "probabilities": {"a": 1.2, "b": 0}})], "high.jsonl:1", 'of "a"'),
                   ([self.lines("text.jsonl", {**one, "probabilities": {"a": "0.5", "b": 0.5}})], "text.jsonl:1", 'of "a"'),
                   ([self.lines("single.jsonl", {"labels": [], "probabilities": {"a": 1}})], "single.jsonl:1", "at least two labels"),
                   ([self.lines("bare.jsonl", {"label": "a"})], "bare.jsonl:1", "expected an object with the row's label and probabilities", "finetune --folds"),
                   ([self.lines("broken.jsonl", one, "{")], "broken.jsonl:2", "expected an object"),
                   ([self.put("cut.jsonl.gz", packed[:-8])], "cut.jsonl.gz", "gzip"),
                   ([self.put("empty.jsonl", "")], "empty.jsonl", "expected two rows or more", "found 0"))

    def test_what_retrieval_is_measured_on(self):
        corpus, queries, qrels = [{"_id": "d", "text": "film"}], [{"_id": "q", "text": "film"}], "query-id\tcorpus-id\tscore\nq\td\t1\n"
        model = self.model()

        def case(name, corpus=corpus, queries=queries, qrels=qrels):
            self.lines(f"{name}/corpus.jsonl", *corpus)
            self.lines(f"{name}/queries.jsonl", *queries)
            if qrels is not None:
                self.put(f"{name}/qrels/test.tsv", qrels)
            return [self.folder / name]

        self.check(["evaluate", "--task", "retrieval", "--model", model, "--input"],
                   (case("twice", corpus=corpus * 2), "corpus.jsonl:2", "the id d was there before"),
                   (case("textless", corpus=[{"_id": "d"}]), "corpus.jsonl:1", '"text"'),
                   (case("nameless", queries=[{"text": "film"}]), "queries.jsonl:1", '"_id"'),
                   (case("list", queries=["[]"]), "queries.jsonl:1", "expected an object"),
                   (case("broken", corpus=["{"]), "corpus.jsonl:1", "JSON"),
                   (case("score", qrels="query-id\tcorpus-id\tscore\nq\td\tmuch\n"), "test.tsv:2", "much"),
                   (case("fields", qrels="query-id\tcorpus-id\tscore\nq\td\n"), "test.tsv:2", "expected"),
                   (case("none", qrels=None), "qrels"),
                   (case("other", qrels="query-id\tcorpus-id\tscore\nx\td\t1\n"), "queries.jsonl"))

    def test_related_texts(self):
        good = {"anchor": "film", "positive": "book"}
        self.check(self.training("pairs"),
                   ([self.lines("number.jsonl", good, {**good, "anchor": {"a": 1}})], "number.jsonl:2", "anchor"),
                   ([self.lines("null.jsonl", good, {**good, "positive": None})], "null.jsonl:2", "positive"),
                   ([self.put("ragged.tsv", "anchor\tpositive\nfilm\tbook\nfilm\n")], "ragged.tsv:3", "2"),
                   ([self.put("names.csv", "query,answer\nfilm,book\n")], "names.csv", "anchor", "query, answer"),
                   ([self.put("head.tsv", "anchor\tpositive\n")], "head.tsv", "no rows"),
                   ([self.put("utf.tsv", b"anchor\tpositive\nfilm\tb\xfcch\n")], "utf.tsv:2", "UTF-8"))
        self.check(self.training("scores"),
                   ([self.lines("infinite.jsonl", '{"sentence1": "a", "sentence2": "b", "score": 1e400}')], "infinite.jsonl:1", "finite"),
                   ([self.lines("true.jsonl", {"sentence1": "a", "sentence2": "b", "score": True})], "true.jsonl:1", "number"))

    def training(self, task):
        model = self.folder / "model"
        if not model.exists():
            self.model()
        return ["finetune", "--model", model, "--task", task, "--output", self.folder / "run", "--train"]


if __name__ == "__main__":
    unittest.main()
