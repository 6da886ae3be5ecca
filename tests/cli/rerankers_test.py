"""Rerankers: from queries with texts to a folder of sentence-transformers' CrossEncoder, rankings, their scores, and mined negatives."""

import time

from harness import *

SUBJECTS = ["film", "book", "song", "old", "fine", "dull", "very", "long"]


def ranked(count, seed):
    """(query, texts, labels): the first text names the query's two words, the second one of them, the third none."""
    source, rows = random.Random(seed), []
    for number in range(count):
        own = source.sample(SUBJECTS, 2)
        others = source.sample([word for word in SUBJECTS if word not in own], 3)
        texts = [(f"{own[1]} is {own[0]}", 2), (f"{own[0]} is {others[0]}", 1), (f"{others[1]} is {others[2]}", 0)]
        source.shuffle(texts)
        rows.append((f"the {own[0]} {own[1]} {chr(97 + number % 26)}", [text for text, _ in texts], [label for _, label in texts]))
    return rows


class RerankerTest(ProgramTest):
    def write(self, name, lines):
        path = self.folder / name
        path.write_text("".join(json.dumps(line) + "\n" if isinstance(line, dict) else line + "\n" for line in lines))
        return path

    def lists(self, name="lists.jsonl", count=64, seed=1):
        return self.write(name, [{"query": q, "text": t, "label": l} for q, t, l in ranked(count, seed)])

    def flat(self, name="flat.tsv", count=64, seed=1, scale=2):
        return self.write(name, ["query\ttext\tlabel"] + [f"{q}\t{text}\t{label / scale}" for q, t, l in ranked(count, seed) for text, label in zip(t, l)])

    def words(self, train, held_out=None, output="run", **options):
        model = options.pop("model", self.folder / "model")
        if not model.exists():
            self.model()
        return self.finetune_words(model, train=train, eval=held_out, output=self.folder / output,
                                   **{"task": "reranker", "batch_size": 16, "num_train_epochs": 24, **options})

    def train(self, train, held_out, *more, **options):
        return self.succeeds(*self.words(train, held_out, **options), *more)

    def losses_of(self, output):
        return [json.loads(line)["loss"] for line in (self.folder / output / "metrics.jsonl").read_text().splitlines() if '"eval' not in line]

    def samples_of(self, output):
        return json.loads((self.folder / output / "run.json").read_text())["data"]["train"]["samples"]


class Rerankers(RerankerTest):
    def test_learn_from_labels_lists_and_triplets(self):
        held_out = self.lists("eval.jsonl", 40, 2)
        plain = self.train(self.lists(), held_out, "--loss", "list-net", num_train_epochs=1, learning_rate=1e-9, output="none").json()["ndcg@10"]
        for output, train, more in (("bce", self.flat(), []), ("mse", self.flat("grades.tsv", scale=1), ["--loss", "mse"]),
                                    ("list-net", self.lists(), ["--loss", "list-net"]), ("rank-net", self.lists(), ["--loss", "rank-net"]),
                                    ("lambda", self.lists(), ["--loss", "lambda", "--loss-top-k", 2])):
            found = self.train(train, held_out if output != "bce" else self.flat("held.tsv", 40, 2), *more, output=output).json()
            self.assertGreater(found["ndcg@10"], plain, output)
            self.assertGreaterEqual(found["mrr@10"], 0.5, output)
        triplets = self.write("triplets.jsonl", [{"query": q, "positive": t[l.index(2)], "negatives": [t[l.index(1)], t[l.index(0)]], "margins": [1, 2]}
                                                 for q, t, l in ranked(64, 1)])
        columns = ["--text-column", "query", "positive", "negatives"]
        self.train(triplets, None, "--loss", "margin-mse", "--label-column", "margins", *columns, output="margins")
        found = self.succeeds("evaluate", "--model", self.folder / "margins/model", "--input", held_out).json()
        self.assertGreater(found["ndcg@10"], plain)
        config = json.loads((self.folder / "lambda/model/config.json").read_text())
        self.assertEqual((config["architectures"], config["funicular"]["task"], config["funicular"]["ranking_loss"]["top_k"]),
                         (["BertForSequenceClassification"], "reranker", 2))
        self.assertEqual(config["sentence_transformers"]["activation_fn"], "torch.nn.modules.linear.Identity")
        self.assertEqual(json.loads((self.folder / "bce/model/config.json").read_text())["sbert_ce_default_activation_function"],
                         "torch.nn.modules.activation.Sigmoid")

    def test_evaluate_repeats_the_scores_of_training(self):
        for loss, more in (("lambda", ["--loss-top-k", 1]), ("list-net", [])):
            held_out = self.lists("eval.jsonl", 40, 2)
            best = self.train(self.lists(), held_out, "--loss", loss, *more, output=loss).json()
            answers = self.folder / f"answers-{loss}.jsonl"
            found = self.succeeds("evaluate", "--model", self.folder / loss, "--input", held_out, "--predictions", answers).json()
            for name in ("ndcg@10", "mrr@10", "map", "loss"):
                self.assertAlmostEqual(found[name], best[name], places=5, msg=name)
            self.assertEqual(len(answers.read_text().splitlines()), 120)

    def test_evaluate_gives_the_scores_that_predict_gives(self):
        flat, answers = self.flat(count=16), self.folder / "answers.jsonl"
        self.train(flat, None, num_train_epochs=2)
        self.succeeds("evaluate", "--model", self.folder / "run", "--input", flat, "--predictions", answers)
        scores = [json.loads(line)["score"] for line in answers.read_text().splitlines()]
        for line, score in list(zip(flat.read_text().splitlines()[1:], scores))[:4]:
            query, text, _ = line.split("\t")
            self.assertTrue(0 < score < 1)
            self.assertAlmostEqual(self.succeeds("predict", "--model", self.folder / "run", "--text", query, text).json()["score"], score, places=5)

    def test_predict_ranks_the_texts_of_each_query(self):
        said = self.train(self.lists(), self.lists("eval.jsonl", 40, 2), "--loss", "list-net")
        self.assertIn(f"next: funicular predict {self.folder / 'run'} new.jsonl", said.err)
        model, asked = self.folder / "run", ranked(20, 3)
        by_list = self.succeeds("predict", model, self.write("asked.jsonl", [{"query": q, "text": t} for q, t, _ in asked]), "--window", 3).out
        lines = [f"{q}\t{text}" for q, t, _ in asked for text in t]
        self.assertEqual(self.succeeds("predict", model, self.write("asked.txt", lines)).out, by_list)
        self.assertEqual(self.succeeds("predict", model, self.write("asked.csv", ["query,text", *(line.replace("\t", ",") for line in lines)])).out, by_list)
        answers = [json.loads(line) for line in by_list.splitlines()]
        self.assertEqual(list(answers[0]), ["query", "rank", "score", "text", "place"])
        place = 0
        for query, texts, _ in asked:
            own = answers[place:place + 3]
            place += 3
            self.assertEqual({answer["query"] for answer in own}, {query})
            self.assertEqual([answer["rank"] for answer in own], [1, 2, 3])
            self.assertEqual([answer["score"] for answer in own], sorted((answer["score"] for answer in own), reverse=True))
            self.assertEqual([texts[answer["place"] - 1] for answer in own], [answer["text"] for answer in own])
        # A text keeps its own cells, or its own elements of a list.
        kept = [{"id": f"{q} {text}", "source": q} for q, t, _ in asked for text in t]
        rows = self.write("kept.csv", ["id,query,text,source", *(f"{one['id']},{q},{text},{q}" for one, (q, text) in
                                                                 zip(kept, ((q, text) for q, t, _ in asked for text in t)))])
        lists = self.write("kept.jsonl", [{"query": q, "text": t, "id": [f"{q} {text}" for text in t], "source": q} for q, t, _ in asked])
        for path in (rows, lists):
            for answer, line in zip(answers, self.succeeds("predict", model, path, "--keep", "id", "source").out.splitlines()):
                self.assertEqual(json.loads(line), {"id": f"{answer['query']} {answer['text']}", "source": answer["query"], **answer})
        table = self.folder / "answers.tsv"
        self.succeeds("predict", model, self.folder / "asked.txt", "--output", table)
        self.assertEqual(table.read_text().splitlines()[0], "query\trank\tscore\ttext\tplace")
        self.assertEqual(len(table.read_text().splitlines()), 61)
        words = ["launch", "-n", 2, "--", PROGRAM, *exact(["predict", model, self.folder / "asked.txt", "--window", 3])]
        self.assertEqual(self.succeeds(*words).out, by_list)

    def test_a_share_of_the_queries_is_held_out_with_all_their_rows(self):
        flat = self.flat(count=40)
        head, *rows = flat.read_text().splitlines()
        random.Random(1).shuffle(rows)
        self.write("flat.tsv", [head, *(row.upper() if number % 7 == 0 else row for number, row in enumerate(rows))])
        said = self.train(flat, None, "--eval-fraction", 0.25, num_train_epochs=1)
        self.assertIn("flat.tsv: 30 rows are held out for evaluation (--eval-fraction 0.25), each query with all its rows", said.err)
        data = json.loads((self.folder / "run/run.json").read_text())["data"]
        self.assertEqual((data["train"]["samples"], data["evaluation"]["samples"]), (90, 30))

    def test_the_loss_chooses_the_best_model_where_ndcg_cannot(self):
        apart = self.write("apart.tsv", ["query\ttext\tlabel", *(f"the {a} {b}\t{b}\t{number % 2}" for number, (a, b) in enumerate(zip(SUBJECTS, SUBJECTS[1:])))])
        for held_out, best in ((apart, "loss"), (self.flat(count=8), "ndcg@10")):
            said = self.train(self.flat(count=8), held_out, num_train_epochs=1, output=best)
            self.assertEqual(json.loads((self.folder / best / "run.json").read_text())["options"]["best_metric"], best)
            self.assertEqual("apart.tsv: these labels cannot tell models apart by ndcg@10, so the loss chooses the best model" in said.err, best == "loss")

    def test_no_cut_of_a_batch_changes_a_run(self):
        train = self.lists()
        usual = {"logging_steps": 1, "max_steps": 6, "num_train_epochs": None}
        for loss in (["--loss", "lambda", "--loss-top-k", 2], ["--loss", "list-net"]):
            for output, more in (("whole", []), ("cut", ["--micro-batch-size", 3]), ("tokens", ["--micro-batch-tokens", 100])):
                self.train(train, None, *loss, *more, output=output + loss[1], **usual)
            words = self.words(train, None, output="ranks" + loss[1], **usual)
            self.succeeds("launch", "-n", 2, "--", PROGRAM, *exact(words), *loss, "--micro-batch-size", 3)
            whole = self.losses_of("whole" + loss[1])
            self.assertEqual(len(whole), 6)
            for output in ("cut", "tokens", "ranks"):
                for a, b in zip(whole, self.losses_of(output + loss[1])):
                    self.assertAlmostEqual(a, b, delta=2e-4 * abs(a), msg=output)

    def test_lists_and_triplets_of_one_query_stay_apart(self):
        columns = ["--text-column", "query", "positive", "negative", "--label-column", "margin", "--loss", "margin-mse"]
        usual = {"max_steps": 2, "num_train_epochs": None, "batch_size": 2}
        rows = [{"query": f"the {a}", "positive": f"{b} {a}", "negative": b, "margin": number} for number, (a, b) in enumerate((("film", "old"), ("book", "dull")))]
        apart = [rows[0], rows[1], {**rows[0], "negative": "song", "margin": 3}, {**rows[1], "negative": "very long", "margin": -1}]
        for output, lines in (("apart", apart), ("together", [apart[0], apart[2], apart[1], apart[3]])):
            self.train(self.write(output + ".jsonl", lines), None, *columns, output=output, **usual)
            self.assertEqual(self.samples_of(output), 4)
        lists = [{"query": "the film", "text": ["old film", other], "label": [1, 0]} for other in ("book", "song", "dull song")]
        self.train(self.write("equal.jsonl", lists), None, "--loss", "list-net", output="equal", **usual)
        self.assertEqual(self.samples_of("equal"), 3)

    def test_metrics_of_triplets_and_soft_labels_are_not_zero(self):
        triplets = self.write("triplets.jsonl", [{"query": q, "positive": t[l.index(2)], "negatives": [t[l.index(1)], t[l.index(0)]], "margins": [1, 2]}
                                                 for q, t, l in ranked(64, 1)])
        columns = ["--text-column", "query", "positive", "negatives", "--label-column", "margins"]
        found = self.train(triplets, triplets, "--loss", "margin-mse", *columns, output="margins", num_train_epochs=1).json()
        for name in ("ndcg@10", "mrr@10", "map"):
            self.assertGreater(found[name], 0.2, name)
        soft = self.write("soft.jsonl", [{"query": q, "text": t, "label": [label / 5 for label in l]} for q, t, l in ranked(24, 2)])
        said = self.train(self.lists(), soft, "--loss", "list-net", output="soft", num_train_epochs=1)
        self.assertGreater(said.json()["ndcg@10"], 0.2)
        self.assertIn("no text has a label of at least 0.5, so mrr@10 and map are 0", said.err)
        below = self.write("below.jsonl", [{"query": q, "text": t, "label": [-label for label in l]} for q, t, l in ranked(24, 2)])
        said = self.succeeds("evaluate", "--model", self.folder / "soft", "--input", below)
        self.assertIn("no text has a label above 0", said.err)

    def test_losses_that_learn_nothing_are_refused(self):
        constant = self.write("constant.jsonl", [{"query": q, "text": t, "label": [1, 1, 1]} for q, t, _ in ranked(8, 1)])
        for loss in ("rank-net", "lambda"):
            self.refuses([*self.words(constant), "--loss", loss], f"--loss {loss} learns from texts of a query with different labels", "constant.jsonl")
        some = self.write("some.jsonl", [{"query": q, "text": t, "label": l if number % 4 else [1, 1, 1]} for number, (q, t, l) in enumerate(ranked(8, 1))])
        said = self.train(some, None, "--loss", "rank-net", output="some", num_train_epochs=1)
        self.assertIn("learns nothing from 2 of 8 queries, which have no texts with different labels", said.err)
        lines = [f"{q}\t{text}\t{label}" for q, t, l in ranked(8, 1) for text, label in zip(t, l)]
        scattered = self.write("scattered.tsv", ["query\ttext\tlabel", *lines[0::3], *lines[1::3], *lines[2::3]])
        self.refuses([*self.words(scattered), "--loss", "lambda"], "each query has one text", "The rows of 8 queries stand in several places", "sort the rows by query")
        said = self.train(self.write("mostly.tsv", ["query\ttext\tlabel", *lines[1:], lines[0]]), None, "--loss", "lambda", output="mostly", num_train_epochs=1)
        self.assertIn("The rows of 1 queries stand in several places", said.err)

    def test_a_query_of_too_many_texts_is_named(self):
        rows = ["query\ttext\tlabel", *(f"film\tbook {chr(97 + number % 26)}\t{number % 2}" for number in range(1002)), "song\tbook\t1"]
        self.refuses([*self.words(self.write("many.tsv", rows)), "--loss", "list-net"], "many.tsv:1002", "text 1001 of a query; expected at most 1000")
        self.train(self.write("many.tsv", rows), None, max_steps=1, num_train_epochs=None)
        self.refuses(["predict", self.folder / "run", self.write("asked.tsv", [line.rsplit("\t", 1)[0] for line in rows])], "asked.tsv:1002", "more than 1000 texts")

    def test_the_folder_says_the_trained_length_and_activation(self):
        self.train(self.lists(), None, "--loss", "list-net", num_train_epochs=1, max_length=12)
        config = json.loads((self.folder / "run/model/tokenizer_config.json").read_text())
        self.assertEqual(config["model_max_length"], 12)
        again = self.words(self.lists(), loss="list-net", num_train_epochs=1, max_length=12)
        self.refuses([*again, "--activation", "sigmoid"], "activation was")

    def test_margins_that_are_not_read_are_told(self):
        rows = [{"query": q, "positive": t[l.index(2)], "negative": t[l.index(0)], "margin": 2} for q, t, l in ranked(16, 1)]
        words = ["--text-column", "query", "positive", "negative", "--loss", "margin-mse"]
        said = self.train(self.write("triplets.jsonl", rows), None, *words, num_train_epochs=1)
        self.assertIn('the column "margin" is not read', said.err)
        said = self.train(self.write("triplets.jsonl", rows), None, *words, "--label-column", "margin", num_train_epochs=1, output="read")
        self.assertNotIn("is not read", said.err)

    def test_lists_without_a_task_ask_for_a_reranker(self):
        self.refuses(self.words(self.lists(), task=None), "holds lists of texts", "give --task reranker")

    def test_neighbouring_rows_of_a_query_are_a_list(self):
        usual = {"logging_steps": 1, "max_steps": 2, "num_train_epochs": None}
        self.train(self.lists(), None, "--loss", "list-net", output="lists", **usual)
        self.train(self.flat(scale=1), None, "--loss", "list-net", output="rows", **usual)
        for a, b in zip(self.losses_of("lists"), self.losses_of("rows")):
            self.assertAlmostEqual(a, b, places=6)

    def test_an_interrupted_run_goes_on_as_one_that_was_not(self):
        train, options = self.lists(), {"num_train_epochs": None, "max_steps": 60, "logging_steps": 1, "micro_batch_size": 4, "loss": "lambda", "loss_top_k": 2}
        self.succeeds(*self.words(train, **options))
        output, again = self.folder / "stopped", self.words(train, output="stopped", **options)
        stopped = run_and_interrupt(output / "metrics.jsonl", 3, signal.SIGINT, *again)
        self.assertEqual(stopped.code, 75, stopped.err)
        self.assertIn("resumed from", self.succeeds(*again).err)
        self.assertEqual(read_safetensors(output / "model" / "model.safetensors"), read_safetensors(self.folder / "run" / "model" / "model.safetensors"))
        self.refuses([*again, "--sigma", 2], "loss was")

    def test_wrong_rows_are_named(self):
        good = {"query": "the film", "text": ["film", "book"], "label": [1, 0]}
        for row, phrases in (
                ({**good, "query": " "}, ['"query" is empty']),
                ({**good, "query": ["a"]}, ['"query" is a list', "the last column alone"]),
                ({**good, "text": []}, ['"text" is empty', "expected a text in each row"]),
                ({**good, "text": ["film", " "]}, ["text 2 of the list is empty"]),
                ({**good, "text": "film"}, ["the label is a list and the text is none"]),
                ({**good, "label": 1}, ["the texts are a list and the label is none"]),
                ({**good, "label": [1]}, ["found 1 labels for 2 texts"]),
                ({**good, "label": [1, "much"]}, ["expected a finite number", '"much"']),
                ({**good, "label": [1, 7]}, ["found the label 7", "--loss bce expects numbers from 0 to 1", "list-net"]),
                ({"query": "film", "label": [1]}, ['"text" is missing']),
                ("{broken", ["JSON"]),
        ):
            self.refuses(self.words(self.write("wrong.jsonl", [good, row, good])), "wrong.jsonl:2", *phrases)
        for label in (31, -1):
            self.refuses([*self.words(self.write("wrong.jsonl", [good, {**good, "label": [1, label]}])), "--loss", "lambda"], "wrong.jsonl:2", f"the label {label}",
                         "--loss lambda expects numbers from 0 to 30")
        triplet, columns = {"q": "film", "p": "a film", "n": ["book"], "m": 1}, ["--text-column", "q", "p", "n"]
        for row, phrases in (({**triplet, "n": []}, ['"n" has no text', "expected a negative"]), ({**triplet, "p": ""}, ['"p" is empty']),
                             ({**triplet, "m": [1, 2, 3]}, ["found 3 labels for 2 texts", "a margin for each of the 1 negatives"]),
                             ({**triplet, "m": "far"}, ['"far"'])):
            self.refuses([*self.words(self.write("wrong.jsonl", [triplet, row])), *columns, "--label-column", "m", "--loss", "margin-mse"],
                         "wrong.jsonl:2", *phrases)
        self.train(self.write("skipped.jsonl", [good, {**good, "label": [1]}, *[good] * 3]), None, "--skip-bad-rows", num_train_epochs=1)

    def test_wrong_options_are_named(self):
        lists, pairs = self.lists(count=8), self.write("apart.jsonl", [{"query": f"film {letter}", "text": "film", "label": 1} for letter in "abcdef"])
        for train, options, phrases in (
                (lists, ["--loss", "cosent"], ["--loss cosent does not fit --task reranker", "rank-net, lambda"]),
                (lists, ["--loss", "list-net", "--sigma", 2], ["--sigma works only with --loss rank-net or lambda", "found --loss list-net"]),
                (lists, ["--loss", "mse", "--positive-weight", 2], ["--positive-weight works only with --loss bce"]),
                (lists, ["--loss", "rank-net", "--weighting", "lambda-rank"], ["--weighting works only with --loss lambda"]),
                (lists, ["--loss-top-k", 2], ["--loss-top-k works only"]),
                (lists, ["--weighting", "ndcg-loss2++"], ["--weighting works only with --loss lambda", "found --loss bce"]),
                (lists, ["--loss", "mse", "--sigma", 1], ["--sigma works only with --loss rank-net or lambda"]),
                (lists, ["--loss", "lambda", "--loss-top-k", 0], ["--loss-top-k"]),
                (lists, ["--loss", "lambda", "--weighting", "ndcg"], ["--weighting", "ndcg-loss2++"]),
                (lists, ["--activation", "tanh"], ["--activation", "sigmoid"]),
                (lists, ["--scale", 3], ["--scale works only with --task pairs, triplets, scores or vectors", "reranker"]),
                (lists, ["--text-column", "query"], ["expected two of --text-column", "found 1"]),
                (pairs, ["--loss", "lambda"], ["--loss lambda compares the texts of a query", "apart.jsonl", "funicular mine"]),
                (lists, ["--eval", lists, "--metric-for-best-model", "f1"], ["ndcg@10"]),
        ):
            self.refuses([*self.words(train, resume="never"), *options], *phrases)
        self.refuses([*self.words(lists, task="pairs"), "--sigma", 2], "--sigma works only with --task reranker, found --task pairs")
        self.refuses([*self.words(self.custom_files()[0], task="custom"), "--loss", "bce"], "--loss works only with --task pairs, triplets, scores, vectors or reranker")
        self.refuses([*self.words(lists, task="ranking")], "--task", "write --task reranker")

    def test_wrong_input_of_predict_is_named(self):
        self.train(self.lists(), None, num_train_epochs=1, loss="list-net")
        model = self.folder / "run"
        for name, line, phrase in (("a.txt", "one column", "expected a query and a text separated by a tab"), ("a.jsonl", '{"query": ["a"], "text": "b"}', "the query is a list"),
                                   ("b.jsonl", '{"query": "a", "text": []}', "expected 1 to 1000 texts, found 0"), ("c.jsonl", '{"query": "a"}', '"text" is missing'),
                                   ("d.txt", " \ta text", "the query is empty"), ("d.jsonl", '{"query": "a", "text": ["b", ""]}', "text 2 of the list is empty")):
            path = self.write(name, [line])
            self.refuses(["predict", model, path], f"{name}:1", phrase)
            self.assertIn("error", self.succeeds("predict", model, path, "--skip-bad-rows").json())
        self.refuses(["predict", model, self.lists(), "--keep", "text"], "--keep text", "has a key \"text\" already")
        self.refuses(["predict", model, self.write("e.txt", ["a\tb"]), "--keep", 1], "--keep are for tables")
        self.refuses(["embed", "--model", model, "--input", self.lists(), "--output", self.folder / "v.npy", "--pooling", "cls", "--max-length", 4000], "--max-length")

    def test_folders_of_cross_encoders_are_read(self):
        shapes = {**encoder_shapes(), "classifier.weight": [1, HIDDEN], "classifier.bias": [1]}
        own = {"extra_shapes": shapes, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "architectures": ["BertForSequenceClassification"]}
        sigmoid, identity = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"
        folders = {"new-sigmoid": {}, "middle-identity": {"sentence_transformers": {"activation_fn": identity, "version": "4.1.0"}},
                   "old-sigmoid": {"sbert_ce_default_activation_function": sigmoid}}
        found = {}
        for name, changes in folders.items():
            model = write_model(self.folder / name, **own, **changes)
            if name.startswith("new"):
                (model / "config_sentence_transformers.json").write_text(json.dumps({"model_type": "CrossEncoder", "activation_fn": sigmoid}))
            found[name] = self.succeeds("predict", "--model", model, "--text", "good film", "a fine film", "--precision", "fp32").json()["score"]
        logit = found["middle-identity"]
        for name in ("new-sigmoid", "old-sigmoid"):
            self.assertAlmostEqual(found[name], 1 / (1 + 2.718281828459045 ** -logit), places=5)
        model = write_model(self.folder / "tanh", **own, sentence_transformers={"activation_fn": "torch.nn.modules.activation.Tanh"})
        self.refuses(["predict", "--model", model, "--text", "a", "b"], "Tanh", "expected torch.nn.modules.activation.Sigmoid")


class Mining(RerankerTest):
    def pairs(self, name="pairs.jsonl", count=40):
        return self.write(name, [{"anchor": f"{q} {number}", "positive": t[l.index(2)] + f" {number}"} for number, (q, t, l) in enumerate(ranked(count, 5))])

    def test_mined_rows_train_embedders_and_rerankers(self):
        model, pairs = self.model(), self.pairs()
        counts = self.succeeds("mine", "--model", model, "--input", pairs, "--output", self.folder / "triplets.jsonl", "--negatives", 2).json()
        self.assertEqual((counts["queries"], counts["negatives"], counts["rows"]), (40, 80, 80))
        self.succeeds(*self.finetune_words(model, task="triplets", train=self.folder / "triplets.jsonl", output=self.folder / "embedder", eval=None, max_steps=2,
                                            num_train_epochs=None))
        self.succeeds("mine", "--model", model, "--input", pairs, "--output", self.folder / "mined.jsonl", "--output-form", "labeled-list")
        self.train(self.folder / "mined.jsonl", None, "--text-column", "anchor", "positive", "--label-column", "labels", "--loss", "lambda", max_steps=2,
                   num_train_epochs=None)
        self.succeeds("mine", "--model", model, "--input", pairs, "--output", self.folder / "rows.tsv", "--output-form", "labeled-pair")
        self.train(self.folder / "rows.tsv", None, "--text-column", "anchor", "positive", max_steps=2, num_train_epochs=None, output="flat")

    def test_each_positive_of_a_query_has_a_list_of_its_own(self):
        rows = [{"anchor": f"the {a}", "positive": f"{b} {a}"} for a in SUBJECTS[:4] for b in SUBJECTS[4:6]]
        self.succeeds("mine", "--model", self.model(), "--input", self.write("pairs.jsonl", rows), "--output", self.folder / "mined.jsonl",
                      "--output-form", "labeled-list", "--negatives", 2)
        mined = [json.loads(line) for line in (self.folder / "mined.jsonl").read_text().splitlines()]
        self.assertEqual([len(row["positive"]) for row in mined], [3] * 8)
        self.train(self.folder / "mined.jsonl", None, "--text-column", "anchor", "positive", "--label-column", "labels", "--loss", "lambda", max_steps=2,
                   num_train_epochs=None, batch_size=4)
        self.assertEqual(self.samples_of("run"), 8)

    def test_scores_fit_into_tables(self):
        words = ["mine", "--model", self.model(), "--input", self.pairs(), "--scores", "--output"]
        self.succeeds(*words, self.folder / "pairs.csv", "--output-form", "labeled-pair")
        lines = (self.folder / "pairs.csv").read_text().splitlines()
        self.assertEqual(lines[0], "anchor,positive,score")
        self.train(self.folder / "pairs.csv", None, "--text-column", "anchor", "positive", "--label-column", "score", "--loss", "mse", max_steps=2,
                   num_train_epochs=None)

    def temporaries(self):
        return list(self.folder.glob(".tmp-mined*"))

    def test_a_killed_command_leaves_no_file(self):
        model = self.model()
        rows = [{"anchor": f"{a} {b} {c}", "positive": f"{b} {a} {c} film"} for a in SUBJECTS for b in SUBJECTS for c in "abcdefghijklmnop"]
        output = self.folder / "mined.jsonl"
        words = ["mine", "--model", model, "--input", self.write("many.jsonl", rows * 2), "--output", output, "--micro-batch-tokens", 64]
        for number, code in ((signal.SIGINT, 75), (signal.SIGKILL, -signal.SIGKILL)):
            process = subprocess.Popen([PROGRAM, *exact(words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
            while process.poll() is None and not self.temporaries():  # the file is opened before the search
                time.sleep(0.002)
            process.send_signal(number)
            _, err = process.communicate(timeout=300)
            self.assertEqual(process.returncode, code, err.decode())
            self.assertFalse(output.exists())
            self.assertEqual(len(self.temporaries()), int(number == signal.SIGKILL))

    def test_a_killed_command_resumes_and_gives_the_same_bytes(self):
        model, output, parts = self.model(), self.folder / "mined.jsonl", self.folder / "mined.jsonl.parts"
        self.train(self.flat(count=8), None, num_train_epochs=1, output="reranker")
        rows = [{"anchor": f"{a} {b}", "positive": f"{b} {a} film"} for a in SUBJECTS for b in SUBJECTS]
        words = ["mine", "--model", model, "--input", self.write("pairs.jsonl", rows), "--reranker", self.folder / "reranker", "--output"]
        self.succeeds(*words, self.folder / "whole.jsonl")
        for file, size in (("documents.npy", 0), ("scores.npy.parts/vectors.npy", 128 + 40 * 4)):  # a header and 40 scores
            process = subprocess.Popen([PROGRAM, *exact([*words, output])], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
            while process.poll() is None and not ((parts / file).exists() and (parts / file).stat().st_size >= size):
                time.sleep(0.002)
            process.kill()
            process.communicate(timeout=300)
            self.assertFalse(output.exists())
        said = self.succeeds(*words, output).err
        self.assertIn("queries.npy: the vectors are there already", said)
        self.assertRegex(said, r"scores\.npy: resuming after \d{2,} numbers")
        self.assertEqual(output.read_bytes(), (self.folder / "whole.jsonl").read_bytes())
        self.assertFalse(parts.exists())
        self.assertEqual(self.temporaries(), [])
        # Other rules keep the vectors, and the scores of as many candidates.
        output.unlink()
        kept = [f"{name}.npy: the vectors are there already" for name in ("queries", "documents")]
        self.refuses([*words, output, "--negatives", 4, "--max-score", -1, "--range-max", 5], "no query has 4 negatives")
        self.refuses([*words, output, "--max-score", -1, "--range-max", 5, "--output-form", "n-tuple"], *kept, "scores.npy: resuming after 448 numbers")
        said = self.succeeds(*words, output).err
        for phrase in (*kept, "scores.npy.parts holds unfinished work with another"):
            self.assertIn(phrase, said)
        self.assertEqual(output.read_bytes(), (self.folder / "whole.jsonl").read_bytes())

    def test_kept_vectors_of_another_model_are_not_used(self):
        # A corpus changes the documents only.
        words = ["mine", "--input", self.pairs(), "--output", self.folder / "m.jsonl", "--max-score", -1, "--model"]
        model, corpus = self.model(), self.write("corpus.txt", ["an old book"])
        self.refuses([*words, model], "no query has 3 negatives")
        for options, queries in (([model, "--corpus", corpus], False), ([model, "--max-length", 4], True), ([model, "--precision", "bf16"], True),
                                 ([self.model("other", layer_norm_eps=1e-5)], True)):
            said = self.refuses([*words, *options], "documents.npy holds vectors of other texts, another model or other options").err
            self.assertEqual("queries.npy holds vectors of other texts" in said, queries, options)

    def test_wrong_input_is_named(self):
        model, pairs, output = self.model(), self.pairs(), self.folder / "m.jsonl"
        words = ["mine", "--model", model, "--input", pairs, "--output", output]
        for options, phrases in (
                (["--negatives", 0], ["--negatives"]),
                (["--range-min", 5, "--range-max", 6], ["--negatives 3: only 1 candidates remain"]),
                (["--min-score", 0.9, "--max-score", 0.1], ["--min-score 0.9 is above --max-score 0.1"]),
                (["--max-score", -1], ["no query has 3 negatives"]),
                (["--relative-margin", -1], ["--relative-margin"]),
                (["--sampling", "best"], ["--sampling", "random"]),
                (["--output-form", "pairs"], ["--output-form", "labeled-pair"]),
                (["--text-column", "anchor"], ["found 1"]),
                (["--text-column", "query", "positive"], ["query"]),
                (["--reranker", self.folder / "none"], ["--reranker", "none"]),
                (["--reranker", model], ["--reranker", "expected a reranker"]),
        ):
            self.refuses([*words, *options], *phrases)
            self.assertFalse(output.exists())
        bad = self.write("bad.jsonl", [{"anchor": "film", "positive": "book"}, {"anchor": "", "positive": "book"}])
        self.refuses(["mine", "--model", model, "--input", bad, "--output", output], "bad.jsonl:2", '"anchor" is empty')
        self.refuses(["launch", "-n", 2, "--", PROGRAM, *exact(words)], "leave out funicular launch")


if __name__ == "__main__":
    unittest.main()
