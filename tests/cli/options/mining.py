"""What the options of mine do."""

from harness import encoder_shapes, json, write_model, HIDDEN

from .answering import shows_device
from .embedding import put, sentence_folder
from .lab import *

MINE = Table()
MINE.row("--help", "the options are listed")(shows_help)
PAIRS = [("good film", "a fine film"), ("old book", "the long book"), ("a song", "dull song"), ("very short", "not long"), ("fine day", "good old day")]


def pairs_file(lab, rows=PAIRS, name="pairs.jsonl", query="anchor", positive="positive"):
    return put(lab, "".join(json.dumps({query: a, positive: p}) + "\n" for a, p in rows), name)


def mined(lab, *words, text=None, model=None, ending="jsonl"):
    output = lab.folder / f"mined-{len(list(lab.folder.glob('mined-*')))}.{ending}"
    lab.succeeds("mine", "--model", model or sentence_folder(lab), "--input", text or pairs_file(lab), "--output", output,
                 *words)
    if ending != "jsonl":
        return output.read_text()
    return [json.loads(line) for line in output.read_text().splitlines()]


def negatives_of(rows):
    """query -> negatives"""
    found = {}
    for row in rows:
        found.setdefault(row["anchor"], []).append(row["negative"])
    return found


def scored(lab, *words):
    """(the positive's score, the negative's) of each triplet."""
    return [tuple(row["scores"]) for row in mined(lab, "--scores", *words)]


@MINE.row("--model", "its vectors decide what is near")
def mining_model(lab):
    lab.assertNotEqual(mined(lab, "--negatives", 1, model=sentence_folder(lab, "two", ("cls", "max"))), mined(lab, "--negatives", 1))
    lab.refuses(["mine", "--model", lab.folder / "none", "--input", pairs_file(lab), "--output", lab.folder / "m.jsonl"], "no such folder")


@MINE.row("--input", "each pair has negatives that are other pairs' positives")
def mining_input(lab):
    found = negatives_of(mined(lab))
    lab.assertEqual(list(found), [query for query, _ in PAIRS])
    for query, positive in PAIRS:
        lab.assertNotIn(positive, found[query])
        lab.assertLessEqual(set(found[query]), {text for _, text in PAIRS})
    lab.refuses(["mine", "--model", sentence_folder(lab), "--input", lab.folder / "none.tsv", "--output", lab.folder / "m.jsonl"], "no such file")


@MINE.row("--text-column", "the query and its positive are in these columns")
def mining_columns(lab):
    rows = mined(lab, "--text-column", "question", "answer", text=pairs_file(lab, name="named.jsonl", query="question", positive="answer"))
    lab.assertEqual([(row["question"], row["answer"], row["negative"]) for row in rows],
                    [(row["anchor"], row["positive"], row["negative"]) for row in mined(lab)])


@MINE.row("--format", "the pairs are read as that, whatever the name")
def mining_format(lab):
    text = "anchor\tpositive\n" + "".join(f"{a}\t{p}\n" for a, p in PAIRS)
    lab.assertEqual(mined(lab, "--format", "tsv", text=put(lab, text, "pairs.data")), mined(lab))


@MINE.row("--header", "the first row names the columns; without it, it is data")
def mining_header(lab):
    text = "".join(f"{a}\t{p}\n" for a, p in PAIRS)
    rows = mined(lab, "--no-header", "--text-column", 1, 2, text=put(lab, text, "bare.tsv"))
    lab.assertEqual(negatives_of(rows), negatives_of(mined(lab)))


@MINE.row("--encoding", "the pairs are converted from it")
def mining_encoding(lab):
    path = lab.folder / "wide.jsonl"
    path.write_bytes(pairs_file(lab).read_text().encode("utf-16"))
    lab.assertEqual(mined(lab, "--encoding", "UTF-16", text=path), mined(lab))


@MINE.row("--quotes", "none: they are text")
def mining_quotes(lab):
    text = "anchor,positive\n" + "".join(f'"{a}",{p}\n' for a, p in PAIRS)
    lab.assertEqual(mined(lab, "--quotes", "csv", text=put(lab, text, "quoted.csv")), mined(lab))
    lab.assertIn('"good film"', negatives_of(mined(lab, "--quotes", "none", text=put(lab, text, "quoted.csv"))))


@MINE.row("--corpus", "negatives are found there, too")
def corpus(lab):
    path = put(lab, "good film\nvery old book\n\n", "corpus.txt")
    found = negatives_of(mined(lab, "--corpus", path, "--negatives", 6))
    lab.assertIn("very old book", found["old book"])
    lab.refuses(["mine", "--model", sentence_folder(lab), "--input", pairs_file(lab), "--output", lab.folder / "m.jsonl", "--corpus", lab.folder / "no"],
                "--corpus", "no such file")


@MINE.row("--corpus-column", "the texts of a table are in that column")
def corpus_column(lab):
    path, plain = put(lab, "a,b\n1,very old book\n", "corpus.csv"), put(lab, "very old book\n", "corpus.txt")
    lab.assertEqual(mined(lab, "--corpus", path, "--corpus-column", "b"), mined(lab, "--corpus", plain))
    lab.refuses(["mine", "--model", sentence_folder(lab), "--input", pairs_file(lab), "--output", lab.folder / "m.jsonl", "--corpus-column", "b"],
                "works only with --corpus")


@MINE.row("--output", "the rows are there, as JSON lines or a table")
def mining_output(lab):
    rows = mined(lab, ending="tsv").splitlines()
    lab.assertEqual(rows[0], "anchor\tpositive\tnegative")
    lab.assertEqual(rows[1:], ["\t".join(row.values()) for row in mined(lab)])
    lab.refuses(["mine", "--model", sentence_folder(lab), "--input", pairs_file(lab), "--output", lab.folder / "m.txt"], "m.txt")
    lab.refuses(["mine", "--model", sentence_folder(lab), "--input", pairs_file(lab), "--output", pairs_file(lab), "--overwrite"], "would be replaced")


@MINE.row("--overwrite", "a file that is there is replaced; without it, it is left")
def mining_overwrite(lab):
    path = put(lab, "mine", "there.jsonl")
    words = ["mine", "--model", sentence_folder(lab), "--input", pairs_file(lab), "--output", path]
    lab.refuses(words, "--overwrite")
    lab.assertEqual(path.read_text(), "mine")
    lab.succeeds(*words, "--overwrite")
    lab.assertIn("negative", path.read_text())


@MINE.row("--output-form", "rows are triplets, tuples, labelled pairs or labelled lists")
def output_form(lab):
    found = negatives_of(mined(lab))
    for row in mined(lab, "--output-form", "n-tuple"):
        lab.assertEqual([row[f"negative_{number}"] for number in (1, 2, 3)], found[row["anchor"]])
    for row in mined(lab, "--output-form", "labeled-list"):
        lab.assertEqual((row["positive"][1:], row["labels"]), (found[row["anchor"]], [1, 0, 0, 0]))
    labelled = [row for row in mined(lab, "--output-form", "labeled-pair")]
    lab.assertEqual([row["positive"] for row in labelled if row["label"] == 1], [positive for _, positive in PAIRS])
    lab.assertEqual([row["positive"] for row in labelled if row["label"] == 0], sum(found.values(), []))
    lab.refuses(["mine", "--model", sentence_folder(lab), "--input", pairs_file(lab), "--output", lab.folder / "m.csv", "--output-form", "labeled-list"],
                "a table cannot hold")


@MINE.row("--scores", "rows have the scores")
def mining_scores(lab):
    lab.assertNotIn("scores", mined(lab)[0])
    found = scored(lab)
    lab.assertEqual(len(found), len(mined(lab)))
    for row in mined(lab, "--scores", "--output-form", "labeled-list"):
        lab.assertNotIn("labels", row)
        lab.assertEqual(row["scores"][1:], sorted(row["scores"][1:], reverse=True))


@MINE.row("--negatives", "so many are found per query")
def negatives(lab):
    for count in (1, 4):
        lab.assertEqual({len(found) for found in negatives_of(mined(lab, "--negatives", count)).values()}, {count})
    whole = negatives_of(mined(lab, "--negatives", 4))
    lab.assertEqual(negatives_of(mined(lab, "--num-negatives", 2)), {query: found[:2] for query, found in whole.items()})


@MINE.row("--range-min", "so many of the nearest are passed over")
def range_min(lab):
    whole = negatives_of(mined(lab, "--negatives", 4))
    lab.assertEqual(negatives_of(mined(lab, "--negatives", 2, "--range-min", 1)), {query: found[1:3] for query, found in whole.items()})


@MINE.row("--range-max", "no candidate lies behind that rank")
def range_max(lab):
    whole = negatives_of(mined(lab, "--negatives", 4))
    drawn = negatives_of(mined(lab, "--negatives", 1, "--range-max", 2, "--sampling", "random"))
    for query, found in drawn.items():
        lab.assertIn(found[0], whole[query][:2])
    lab.refuses(["mine", "--model", sentence_folder(lab), "--input", pairs_file(lab), "--output", lab.folder / "m.jsonl", "--range-max", 2],
                "--negatives 3: only 2 candidates remain")


def kept_by(lab, keeps, *words):
    """The option keeps these of all triplets."""
    every = scored(lab, "--negatives", 4)
    lab.assertEqual(scored(lab, "--negatives", 4, "--range-max", 20, *words), [row for row in every if keeps(*row)])
    lab.assertTrue(0 < sum(keeps(*row) for row in every) < len(every), every)


def middle(values):
    return sorted(values)[len(values) // 2]


@MINE.row("--relative-margin", "a negative is farther than the positive by that share")
def relative_margin(lab):
    share = 1 - middle([negative / positive for positive, negative in scored(lab, "--negatives", 4)]) - 1e-5
    kept_by(lab, lambda positive, negative: negative <= positive - abs(positive) * share, "--relative-margin", max(share, 0))


@MINE.row("--absolute-margin", "a negative is farther than the positive by that number")
def absolute_margin(lab):
    margin = middle([positive - negative for positive, negative in scored(lab, "--negatives", 4)]) - 1e-5
    kept_by(lab, lambda positive, negative: negative + margin <= positive, "--absolute-margin", margin)


@MINE.row("--max-score", "nearer texts are dropped")
def max_score(lab):
    most = middle([negative for _, negative in scored(lab, "--negatives", 4)]) + 1e-5
    kept_by(lab, lambda _, negative: negative <= most, "--max-score", most)


@MINE.row("--min-score", "texts farther off are dropped")
def min_score(lab):
    least = middle([negative for _, negative in scored(lab, "--negatives", 4)]) - 1e-5
    kept_by(lab, lambda _, negative: negative >= least, "--min-score", least)


@MINE.row("--sampling", "any of the candidates is taken, the nearest first")
def sampling(lab):
    whole = negatives_of(mined(lab, "--negatives", 4))
    drawn = negatives_of(mined(lab, "--negatives", 2, "--range-max", 4, "--sampling", "random"))
    lab.assertNotEqual(drawn, {query: found[:2] for query, found in whole.items()})
    for query, found in drawn.items():
        lab.assertEqual(found, [text for text in whole[query] if text in found])


@MINE.row("--seed", "other candidates are taken")
def mining_seed(lab):
    words = ["--negatives", 2, "--range-max", 4, "--sampling", "random", "--seed"]
    lab.assertEqual(mined(lab, *words, 42), mined(lab, *words[:-1]))
    lab.assertGreater(len({str(mined(lab, *words, seed)) for seed in range(4)}), 1)


@MINE.row("--reranker", "its scores take the place of the embedder's")
def reranker(lab):
    def make(path):
        shapes = {**encoder_shapes(), "classifier.weight": [1, HIDDEN], "classifier.bias": [1]}
        write_model(path, extra_shapes=shapes, id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0}, architectures=["BertForSequenceClassification"],
                    sentence_transformers={"activation_fn": "torch.nn.modules.activation.Sigmoid"})
        return path
    scorer = lab.once("scorer", make)
    row = mined(lab, "--scores", "--negatives", 4, "--output-form", "n-tuple", "--reranker", scorer)[0]
    texts = [row["positive"], *(row[f"negative_{number}"] for number in (1, 2, 3, 4))]
    for text, score in zip(texts, row["scores"]):
        answer = json.loads(lab.succeeds("predict", "--model", scorer, "--text", row["anchor"], text, "--precision", "fp32").out)
        lab.assertAlmostEqual(answer["score"], score, places=5)
    lab.refuses(["mine", "--model", sentence_folder(lab), "--input", pairs_file(lab), "--output", lab.folder / "m.jsonl", "--reranker", lab.teacher()],
                "expected a reranker")


@MINE.row("--max-length", "what is longer is cut off for the embedder")
def mining_length(lab):
    rows = [(a + " very old", p) for a, p in PAIRS]
    cut = mined(lab, "--scores", "--max-length", 2 + SPECIAL, text=pairs_file(lab, rows, "long.jsonl"))
    first = mined(lab, "--scores", "--max-length", 2 + SPECIAL)
    lab.assertEqual([row["scores"] for row in cut], [row["scores"] for row in first])


@MINE.row("--precision", "the arithmetic has as many digits")
def mining_precision(lab):
    exact = scored(lab, "--negatives", 4)
    rough = scored(lab, "--negatives", 4, "--precision", "bf16")
    lab.assertTrue(0 < max(abs(a - b) for one, other in zip(sorted(exact), sorted(rough)) for a, b in zip(one, other)) < 5e-2)


@MINE.row("--micro-batch-tokens", "the rows are the same in smaller passes")
def mining_tokens(lab):
    lab.assertEqual(mined(lab, "--micro-batch-tokens", 1), mined(lab))


@MINE.row("--window", "the rows are the same, whatever is read ahead")
def mining_window(lab):
    lab.assertEqual(mined(lab, "--window", 1), mined(lab))


@MINE.row("--device", "cpu computes here; cuda is refused where there is none")
def mining_device(lab):
    shows_device(lab, ["mine", "--model", sentence_folder(lab), "--input", pairs_file(lab), "--output", lab.folder / "d.jsonl", "--overwrite",
                       "--precision", "fp32"])


@MINE.row("--threads", "the rows are the same")
def mining_threads(lab):
    lab.assertEqual(mined(lab, "--threads", 2), mined(lab))


@MINE.row("--config", "a file's keys are options")
def mining_config(lab):
    lab.assertEqual(mined(lab, "--config", config_file(lab, "negatives = 2\n")), mined(lab, "--negatives", 2))
