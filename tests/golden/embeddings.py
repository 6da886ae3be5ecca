"""Vectors of `funicular embed` beside sentence-transformers, on a real model: folders of both forms, every pooling, Dense layers, prompts,
truncation, static embeddings, codes of few bits; and folders that funicular writes, read by sentence-transformers. The whole model gives the
vectors of both forms and the scores; one of its layers and 6,000 of its tokens give the rest.

usage: embeddings.py FUNICULAR_PROGRAM SENTENCE_FOLDER_PROGRAM MODEL_FOLDER [PART…]
"""

import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator, InformationRetrievalEvaluator
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, StaticEmbedding, Transformer
from sentence_transformers.util import quantize_embeddings
from transformers import AutoTokenizer, GteConfig, GteModel, NomicBertConfig, NomicBertModel

from small_model import small_model

LIMIT = 1e-6  # the largest difference of a number of a vector of length 1, in fp32
RAW_LIMIT = 5e-6  # of vectors that are not normalised: hidden states go up to 6, and sums are rounded in another order
WORDS = "the a river bank money water boat loan tree café 東京 Über naïve don't re-read 3.14 running ran [MASK] éclair 🙂".split()
BATCH = 4  # texts that the peer pads to the longest one: few, since one text is long
POOLINGS = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


def made_texts():
    source = random.Random(11)
    texts = [" ".join(source.choice(WORDS) for _ in range(source.randint(1, 40))) for _ in range(25)]
    return texts + ["", "x", " ".join(["river"] * 700), "A man is eating food.", "A man is eating a piece of bread."]


TEXTS = made_texts()


def run(*words):
    done = subprocess.run([str(word) for word in words], text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\nexit {done.returncode}\n{done.stderr}")
    return done.stdout


class Sides:
    def __init__(self, program, copier, model, scratch):
        self.program, self.copier, self.model, self.scratch = program, copier, pathlib.Path(model), pathlib.Path(scratch)
        self.small = small_model(model, self.folder("small"))
        self.number = 0

    def ours(self, folder, *options, texts=TEXTS, **more):
        self.number += 1
        lines, output = self.scratch / f"{self.number}.jsonl", self.scratch / f"{self.number}.npy"
        lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        run(self.program, "embed", "--model", folder, "--input", lines, "--output", output, "--precision", "fp32", *options)
        return numpy.load(output)

    def folder(self, name):
        return self.scratch / name

    def saved(self, name, model):
        """The folder as this version of sentence-transformers writes it."""
        model.save(str(self.folder(name)))
        return self.folder(name)


def compare(what, ours, theirs):
    theirs = numpy.asarray(theirs)
    limit = LIMIT if numpy.abs(theirs).max() <= 1 else RAW_LIMIT
    if ours.shape != theirs.shape:
        sys.exit(f"{what}: shape {ours.shape}, expected {theirs.shape}")
    difference = float(numpy.abs(ours.astype(numpy.float64) - theirs.astype(numpy.float64)).max())
    scale = max(1.0, float(numpy.abs(theirs).max()))
    print(f"{what}: largest difference {difference:.2g}, of numbers up to {scale:.3g}")
    if not difference <= limit * scale:
        sys.exit(f"{what}: the difference is above {limit * scale:g}")


def the_model_itself(sides):
    peer = SentenceTransformer(str(sides.model), device="cpu")
    vectors = peer.encode(TEXTS, batch_size=BATCH)
    compare("the real model, old form", sides.ours(sides.model), vectors)
    compare("the real model, new form", sides.ours(sides.saved("new", peer)), vectors)
    peer = SentenceTransformer(str(sides.small), device="cpu")
    compare("truncated and normalised", sides.ours(sides.small, "--truncate-dim", 100, "--normalize"),
            peer.encode(TEXTS, batch_size=BATCH, truncate_dim=100, normalize_embeddings=True))
    compare("truncated", sides.ours(sides.small, "--truncate-dim", 100), peer.encode(TEXTS, batch_size=BATCH, truncate_dim=100))
    compare("at most 16 tokens", sides.ours(sides.small, "--max-length", 16), short(peer).encode(TEXTS, batch_size=BATCH))


def short(peer):
    peer.max_seq_length = 16
    return peer


def codes(sides):
    vectors = SentenceTransformer(str(sides.small), device="cpu").encode(TEXTS, batch_size=BATCH)
    for name in ("binary", "ubinary"):
        # A number near 0 may have either sign.
        near = numpy.abs(vectors) < 1e-6
        ours, theirs = sides.ours(sides.small, "--vector-type", name), quantize_embeddings(vectors, name)
        bits = lambda codes: numpy.unpackbits((codes.astype(int) + (128 if name == "binary" else 0)).astype(numpy.uint8), axis=1)
        wrong = int(((bits(ours) != bits(theirs)) & ~near).sum())
        print(f"{name}: {wrong} bits differ")
        if wrong:
            sys.exit(f"{name}: bits differ")
    for name in ("int8", "uint8"):
        ours, theirs = sides.ours(sides.small, "--vector-type", name), quantize_embeddings(vectors, name)
        steps = numpy.abs(ours.astype(int) - theirs.astype(int))
        print(f"{name}: {int((steps > 0).sum())} of {steps.size} bytes differ, by at most {steps.max()}")
        if steps.max() > 1 or (steps > 0).mean() > 1e-3:
            sys.exit(f"{name}: bytes differ")


def poolings(sides):
    transformer = Transformer(str(sides.small), max_seq_length=128)
    width = transformer.get_embedding_dimension()
    torch.manual_seed(3)
    for mode in [*POOLINGS, tuple(POOLINGS), ("mean", "cls")]:
        peer = SentenceTransformer(modules=[transformer, Pooling(width, mode)], device="cpu")
        compare(f"pooling {mode}", sides.ours(sides.saved(f"pooling-{mode}", peer)), peer.encode(TEXTS, batch_size=BATCH))
    plain = sides.folder("plain")
    transformer.model.save_pretrained(plain)
    transformer.tokenizer.save_pretrained(plain)
    peer = SentenceTransformer(modules=[transformer, Pooling(width, ("cls", "max"))], device="cpu")
    compare("a plain folder, cls and max", sides.ours(plain, "--pooling", "cls", "max", "--max-length", 128), peer.encode(TEXTS, batch_size=BATCH))
    dense = [Dense(width, 64), Dense(64, 32, bias=False, activation_function=torch.nn.Identity()), Dense(32, 48, activation_function=torch.nn.GELU())]
    peer = SentenceTransformer(modules=[transformer, Pooling(width, "mean"), *dense, Normalize()], device="cpu")
    compare("Dense layers", sides.ours(sides.saved("dense", peer)), peer.encode(TEXTS, batch_size=BATCH))


def other_families(sides):
    """Small random encoders with rotary positions, and texts of more tokens than BERT has positions."""
    torch.manual_seed(7)
    for name, model_class, config_class, options in (("nomic", NomicBertModel, NomicBertConfig, {}), ("gte", GteModel, GteConfig, {"pad_token_id": 0})):
        tokenizer = AutoTokenizer.from_pretrained(str(sides.small))
        config = config_class(vocab_size=len(tokenizer), hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                              initializer_range=0.2, **options)
        plain = sides.folder(f"plain-{name}")
        model_class(config).save_pretrained(plain)
        tokenizer.save_pretrained(plain)
        transformer = Transformer(str(plain), max_seq_length=640)
        peer = SentenceTransformer(modules=[transformer, Pooling(48, "mean"), Normalize()], device="cpu")
        compare(f"{name}, mean", sides.ours(sides.saved(name, peer)), peer.encode(TEXTS, batch_size=BATCH))


def prompts(sides):
    for include in (True, False):
        transformer = Transformer(str(sides.small), max_seq_length=32)
        pooling = Pooling(transformer.get_embedding_dimension(), ("cls", "max", "mean", "weightedmean", "lasttoken"), include_prompt=include)
        peer = SentenceTransformer(modules=[transformer, pooling], device="cpu",
                                   prompts={"query": "search query: ", "passage": "passage – ", "other": "other: "}, default_prompt_name="other")
        folder = sides.saved(f"prompts-{include}", peer)
        compare(f"default prompt, included {include}", sides.ours(folder), peer.encode(TEXTS, batch_size=BATCH))
        compare(f"query prompt, included {include}", sides.ours(folder, "--role", "query"), peer.encode_query(TEXTS, batch_size=BATCH))
        compare(f"document prompt, included {include}", sides.ours(folder, "--role", "document"), peer.encode_document(TEXTS, batch_size=BATCH))
        compare(f"named prompt, included {include}", sides.ours(folder, "--prompt-name", "passage"), peer.encode(TEXTS, batch_size=BATCH, prompt_name="passage"))
        compare(f"own prompt, included {include}", sides.ours(folder, "--prompt", "Q "), peer.encode(TEXTS, batch_size=BATCH, prompt="Q "))


def static(sides):
    torch.manual_seed(5)
    tokenizer = AutoTokenizer.from_pretrained(str(sides.model))
    peer = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=24), Dense(24, 12), Normalize()], device="cpu")
    compare("static embeddings", sides.ours(sides.saved("static", peer)), peer.encode(TEXTS, batch_size=BATCH))


def made_static(sides):
    """The recipe of model2vec, written here: mean of three hidden states, centred principal components, weights of rare tokens."""
    folder, width = sides.folder("made-static"), 128
    encoder, tokenizer = Transformer(str(sides.small)).model.eval(), AutoTokenizer.from_pretrained(str(sides.small))
    made = json.loads(run(sides.program, "vectors", "--from", sides.small, "--output", folder, "--size", width))
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    kept = [number for number, name in enumerate(names) if not name.startswith("[unused")]
    if made != {"tokens": len(kept), "size": width}:
        sys.exit(f"static vectors: {made}, expected {len(kept)} tokens")
    rows = []
    with torch.inference_mode():
        for begin in range(0, len(kept), 1024):
            ids = torch.tensor([[tokenizer.cls_token_id, number, tokenizer.sep_token_id] for number in kept[begin:begin + 1024]])
            rows.append(encoder(ids).last_hidden_state.double().mean(1))
    rows = torch.cat(rows).numpy()
    rows -= rows.mean(0)
    components = numpy.linalg.eigh(rows.T @ rows / (len(rows) - 1))[1][:, ::-1][:, :width]
    inverse = 1 / numpy.arange(2, len(rows) + 2)
    rows = rows @ components * (1e-4 / (1e-4 + inverse / inverse.sum()))[:, None]
    table = numpy.zeros((len(tokenizer), width))
    table[kept] = rows
    table[tokenizer.all_special_ids] = 0
    texts = [text for text in TEXTS if text]
    expected = numpy.stack([table[tokenizer(text, add_special_tokens=False)["input_ids"]].sum(0) for text in texts])
    expected /= numpy.maximum(numpy.linalg.norm(expected, axis=1, keepdims=True), 1e-12)
    ours = sides.ours(folder, texts=texts).astype(numpy.float64)
    # Components have either sign, and those of near variances turn into each other: what counts is which texts are near.
    difference = float(numpy.abs(ours @ ours.T - expected @ expected.T).max())
    print(f"static vectors of an encoder: cosines differ by {difference:.2g}")
    if difference > 1e-4:
        sys.exit("static vectors of an encoder differ")
    peer = SentenceTransformer(str(folder), device="cpu")
    compare("static vectors, read by the peer", sides.ours(folder), peer.encode(TEXTS, batch_size=BATCH))


def written_folders(sides):
    """What funicular writes, sentence-transformers reads without a warning, and gives the same vectors."""
    for name in ("dense", "pooling-" + str(tuple(POOLINGS)), "prompts-False"):
        copy = sides.folder(name + "-copy")
        run(sides.copier, sides.folder(name), copy)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again = SentenceTransformer(str(copy), device="cpu")
        before = SentenceTransformer(str(sides.folder(name)), device="cpu")
        compare(f"{name}, written by funicular", again.encode(TEXTS, batch_size=BATCH), before.encode(TEXTS, batch_size=BATCH))
        if again.prompts != before.prompts or again.max_seq_length != before.max_seq_length:
            sys.exit(f"{name}: prompts or length differ: {again.prompts}, {again.max_seq_length}")


def scores(sides):
    """Retrieval and similarity as sentence-transformers' evaluators measure them."""
    source = random.Random(7)
    documents = {f"d{number}": text for number, text in enumerate(TEXTS) if text}
    documents["d999"] = documents["d3"]  # of equal score
    queries = {f"q{number}": " ".join(source.sample(documents[f"d{number}"].split(), k=min(4, len(documents[f"d{number}"].split()))))
               for number in range(20)}
    relevant = {query: {"d" + query[1:], *source.sample(sorted(documents), k=source.randint(0, 3))} for query in queries}
    folder = sides.folder("beir")
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"_id": key, "title": "", "text": text}) + "\n" for key, text in documents.items()))
    (folder / "queries.jsonl").write_text("".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in queries.items()))
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" +
                                           "".join(f"{query}\t{key}\t1\n" for query, keys in relevant.items() for key in sorted(keys)))
    ours = json.loads(run(sides.program, "evaluate", "--task", "retrieval", "--model", sides.model, "--data", folder, "--precision", "fp32"))
    peer = SentenceTransformer(str(sides.model), device="cpu")
    theirs = InformationRetrievalEvaluator(queries, documents, relevant, precision_recall_at_k=[1, 3, 5, 10, 100], write_csv=False, batch_size=BATCH)(peer)
    for name, value in theirs.items():
        key = name.removeprefix("cosine_")
        if key in ours and abs(ours[key] - value) > 1e-12:
            sys.exit(f"retrieval: {key} is {ours[key]}, expected {value}")
    print("retrieval:", {key: round(value, 4) for key, value in ours.items() if isinstance(value, float)})
    # No pair twice: equal scores would be ordered by their rounding.
    pairs = [(*pair, source.random()) for pair in source.sample(list(itertools.combinations(TEXTS, 2)), 80)]
    table = sides.folder("pairs.jsonl")
    table.write_text("".join(json.dumps({"text_a": a, "text_b": b, "label": c}) + "\n" for a, b, c in pairs))
    ours = json.loads(run(sides.program, "evaluate", "--task", "similarity", "--model", sides.model, "--data", table, "--precision", "fp32"))
    theirs = EmbeddingSimilarityEvaluator(*map(list, zip(*pairs)), write_csv=False, batch_size=BATCH)(peer)
    for key in ("spearman", "pearson"):
        if abs(ours[key] - theirs[f"{key}_cosine"]) > 1e-5:
            sys.exit(f"similarity: {key} is {ours[key]}, expected {theirs[f'{key}_cosine']}")
    print("similarity:", ours)


def main():
    program, copier, model, *only = sys.argv[1:]
    if not pathlib.Path(model, "modules.json").exists():
        print("skipped: there is no model; ./run setup fetches it")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as scratch:
        sides = Sides(program, copier, model, scratch)
        for part in (the_model_itself, codes, poolings, other_families, prompts, static, made_static, written_folders, scores):
            if not only or part.__name__ in only:
                part(sides)


if __name__ == "__main__":
    main()
