"""Answers that are spans of a context: from SQuAD's JSON to a model that evaluate and predict read."""

import csv
import json
import re
import string

from harness import *

NAMES = ["film", "book", "song"]
PRAISES = ["good", "bad", "fine", "dull", "long", "short", "old"]


def squad(count, seed, impossible=0, before=0):
    """Articles in SQuAD's form: the answer is the one word of praise in "the film is good . not the song .". Of the first `impossible`
    every third has none."""
    source, articles = random.Random(seed), []
    for number in range(count):
        name, other = source.sample(NAMES, 2)
        none = number < impossible and number % 3 == 0
        praise = source.choice(PRAISES)
        context = "not very . " * before + f"the {name} is {other if none else praise} . not the {other} ."
        answers = [] if none else [{"text": praise, "answer_start": context.index(f" is {praise}") + 4}]
        questions = [{"id": f"{number}-{asked}", "question": f" is the {asked}", "is_impossible": none, "answers": answers} for asked in (name, other)]
        own = {"title": "of a paragraph"} if number == 0 else {}
        articles.append({"title": str(number), "paragraphs": [{"context": context, "qas": questions, **own}]})
    return {"version": "2.0", "data": articles}


def gold_of(data):
    return {question["id"]: ([answer["text"] for answer in question["answers"]], paragraph["context"])
            for article in data["data"] for paragraph in article["paragraphs"] for question in paragraph["qas"]}


def rows_of(data):
    """Each question, with its context and what else its article says."""
    return [{"title": paragraph.get("title", article["title"]), "context": paragraph["context"], "id": question["id"], "question": question["question"],
             "is_impossible": question["is_impossible"], "answers": [answer["text"] for answer in question["answers"]]}
            for article in data["data"] for paragraph in article["paragraphs"] for question in paragraph["qas"]]


def words_of(text):
    """SQuAD's normalisation."""
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def score(answer, gold):
    """Exact match and F1, the best over the gold answers."""
    best = [0.0, 0.0]
    for right in gold or [""]:
        a, b = words_of(answer), words_of(right)
        exact = float(a == b)
        common = sum(min(a.count(word), b.count(word)) for word in set(a))
        f1 = exact if not a or not b else 2 * common / (len(a) + len(b))
        best = [max(best[0], exact), max(best[1], f1)]
    return best


class Spans(ProgramTest):
    def write(self, name, *arguments, **more):
        data = squad(*arguments, **more)
        (self.folder / name).write_text(json.dumps(data))
        return data

    def words(self, output="run", impossible=0, before=0, **options):
        if not (self.folder / "model").exists():
            self.model()
            self.write("train.json", 48, 1, impossible, before)
            self.write("eval.json", 16, 2, impossible, before)
        return self.finetune_words(self.folder / "model", output=output, **{
            "task": "spans", "train": self.folder / "train.json", "eval": self.folder / "eval.json", "num_train_epochs": 12, "max_length": 24,
            **options})

    def answers(self, *words, **more):
        return [json.loads(line) for line in self.succeeds("predict", "--model", self.folder / "run" / "model", *words, **more).out.splitlines()]

    def test_are_learnt_evaluated_and_predicted_alike(self):
        best = self.succeeds(*self.words()).json()
        self.assertGreater(best["f1"], 0.9)
        model, data = self.folder / "run" / "model", self.folder / "eval.json"
        config = json.loads((model / "config.json").read_text())
        self.assertEqual(config["architectures"], ["BertForQuestionAnswering"])
        self.assertEqual(config["funicular"]["task"], "spans")
        weights = read_safetensors(model / "model.safetensors")
        self.assertEqual(weights["qa_outputs.weight"][0], [2, HIDDEN])
        self.assertEqual([name for name in weights if "pooler" in name], [])
        measured = self.succeeds("evaluate", "--model", model, "--data", data, "--predictions", self.folder / "rows.jsonl").json()
        for name in ("f1", "exact"):
            self.assertAlmostEqual(measured[name], best[name], places=9)
        self.assertNotIn("no_answer_f1", measured)
        gold, answers = gold_of(json.loads(data.read_text())), self.answers("--input", data)
        self.assertEqual([answer["id"] for answer in answers], list(gold))
        for answer in answers:
            self.assertEqual(gold[answer["id"]][1][answer["start"]:answer["end"]], answer["answer"])
        scores = [score(answer["answer"], gold[answer["id"]][0]) for answer in answers]
        for column, name in enumerate(("exact", "f1")):
            self.assertAlmostEqual(sum(each[column] for each in scores) / len(scores), measured[name], places=9)
        rows = [json.loads(line) for line in (self.folder / "rows.jsonl").read_text().splitlines()]
        self.assertEqual([(row["id"], row["answer"], [row["exact"], row["f1"]]) for row in rows],
                         [(answer["id"], answer["answer"], own) for answer, own in zip(answers, scores)])
        for words, name in ((["predict", "--input", data, "--output"], "given"), (["evaluate", "--data", data, "--predictions"], "found")):
            self.succeeds(*words, self.folder / f"{name}.squad.json", "--model", model)
            self.assertEqual(json.loads((self.folder / f"{name}.squad.json").read_text()), {answer["id"]: answer["answer"] for answer in answers})
        rows = rows_of(json.loads(data.read_text()))
        lines = "".join(json.dumps({"question": row["question"], "context": row["context"]}) + "\n" for row in rows)
        for streamed, answer in zip(self.answers(stdin=lines), answers):
            self.assertEqual(streamed, {key: value for key, value in answer.items() if key != "id"})
        self.keeps_columns(rows, answers)

    def keeps_columns(self, rows, answers):
        """Of a table, of JSON lines, and of the objects in SQuAD's JSON."""
        data, table, lines = (self.folder / name for name in ("eval.json", "eval.csv", "eval.jsonl"))
        names = ["title", "question", "context", "is_impossible"]
        expected = [{**{name: row[name] for name in names}, **answer} for row, answer in zip(rows, answers)]
        self.assertEqual(self.answers("--input", data, "--keep", *names, "id"), expected)
        with open(table, "w", newline="") as file:
            writer = csv.DictWriter(file, ["number", "question", "context", "start"], extrasaction="ignore")
            writer.writeheader()
            writer.writerows({**row, "number": number, "start": "x"} for number, row in enumerate(rows))
        predict = ["predict", "--model", self.folder / "run" / "model", "--overwrite"]
        kept = self.folder / "kept.csv"
        self.succeeds(*predict, "--input", table, "--keep", "number", "question", "start", "--output", kept)
        with open(kept, newline="") as file:
            self.assertEqual([(row["number"], row["question"], row["input_start"], row["answer"], row["start"]) for row in csv.DictReader(file)],
                             [(str(number), row["question"], "x", answer["answer"], str(answer["start"])) for number, (row, answer) in enumerate(zip(rows, answers))])
        lines.write_text("".join(json.dumps({**row, "id": number}) + "\n" for number, row in enumerate(rows)))
        told = self.succeeds(*predict, "--input", lines, "--keep", "id", "title", "--output-format", "tsv").out.splitlines()
        self.assertEqual(told[0].split("\t")[:4], ["id", "title", "answer", "start"])
        self.assertEqual(told[1].split("\t")[:3], ["0", rows[0]["title"], answers[0]["answer"]])
        keyed = self.folder / "kept.squad.json"
        self.succeeds(*predict, "--input", lines, "--keep", "id", "--output", keyed)
        self.assertEqual(json.loads(keyed.read_text()), {str(number): answer["answer"] for number, answer in enumerate(answers)})
        self.refuses([*predict, "--input", lines, "--keep", "title", "--output", keyed], "--keep title", "one answer for each id", ".jsonl or .csv")
        self.refuses([*predict, "--input", data, "--keep", "titel"], 'has the key "titel" of --keep')

    def test_questions_about_one_context_are_held_out_together(self):
        words = self.words(eval=None, num_train_epochs=2)
        done = self.succeeds(*words, "--eval-fraction", 0.25)
        self.assertRegex(done.err, r"train.json: 2[0-4] rows are held out for evaluation \(--eval-fraction 0.25\), each context with all its questions")
        self.assertIn("f1", done.json())
        told = self.succeeds(*self.words(eval=None, num_train_epochs=2, output="folds"), "--folds", 2)
        answers = [json.loads(line) for line in (self.folder / "folds" / "predictions.jsonl").read_text().splitlines()]
        rows = rows_of(json.loads((self.folder / "train.json").read_text()))
        self.assertEqual([(answer["row"], answer["id"], answer["answers"], answer["texts"][1]) for answer in answers],
                         [(number, row["id"], row["answers"], row["context"]) for number, row in enumerate(rows, 1)])
        self.assertEqual(len({(answer["texts"][1], answer["fold"]) for answer in answers}), len({row["context"] for row in rows}))
        self.assertLess(len({row["context"] for row in rows}), 48, "no context stands twice")
        for fold, value in enumerate(told.json()["f1"]["values"], 1):
            own = [answer for answer in answers if answer["fold"] == fold]
            self.assertAlmostEqual(len(own), 48, delta=4)
            self.assertAlmostEqual(sum(score(answer["answer"], answer["answers"])[1] for answer in own) / len(own), value, places=9)

    def test_questions_without_an_answer_have_a_threshold(self):
        best = self.succeeds(*self.words(impossible=100, num_train_epochs=20)).json()
        model, data = self.folder / "run" / "model", self.folder / "eval.json"
        threshold = json.loads((model / "config.json").read_text())["funicular"]["null_threshold"]
        measured = self.succeeds("evaluate", "--model", model, "--data", data, "--predictions", self.folder / "rows.jsonl").json()
        self.assertAlmostEqual(measured["best_f1_threshold"], threshold, places=9)
        self.assertAlmostEqual(measured["best_f1"], measured["f1"], places=9, msg="evaluate uses the threshold that the model keeps")
        self.assertGreaterEqual(measured["f1"], best["f1"] - 1e-9)
        gold, answers = gold_of(json.loads(data.read_text())), self.answers("--input", data)
        kinds = {True: [], False: []}
        for answer in answers:
            self.assertEqual(answer["answer"] == "", answer["null_score"] - answer["score"] > threshold - 2e-6 and answer["start"] == answer["end"])
            kinds[not gold[answer["id"]][0]].append(score(answer["answer"], gold[answer["id"]][0]))
        for none, name in ((True, "no_answer"), (False, "has_answer")):
            self.assertAlmostEqual(sum(each[1] for each in kinds[none]) / len(kinds[none]), measured[name + "_f1"], places=9)
        for answer, listed in zip(answers, self.answers("--input", data, "--n-best", 3)):
            best = listed.pop("n_best")
            self.assertEqual(listed, answer)
            self.assertEqual([each["score"] for each in best], sorted((each["score"] for each in best), reverse=True))
            self.assertAlmostEqual(sum(each["probability"] for each in best), 1, places=5)
            [none] = [each for each in best if each["start"] == each["end"]]
            self.assertEqual((none["answer"], none["score"]), ("", answer["null_score"]))
            spans = [each for each in best if each is not none]
            self.assertEqual(len({(each["start"], each["end"]) for each in spans}), 3)
            self.assertEqual(spans[0]["score"], answer["score"])
            for each in spans:
                self.assertEqual(gold[answer["id"]][1][each["start"]:each["end"]], each["answer"])
        self.refuses(["predict", "--model", model, "--input", data, "--n-best", 3, "--output", self.folder / "a.squad.json"], "--n-best", ".jsonl")
        self.assertGreater(measured["best_f1"], 0.6)

    def test_long_contexts_are_read_in_windows(self):
        best = self.succeeds(*self.words(before=8, stride=8, max_length=24, num_train_epochs=8))
        self.assertNotIn("cut", best.json())
        self.assertNotIn("are longer than", best.err)
        model, data = self.folder / "run" / "model", self.folder / "eval.json"
        self.assertEqual(json.loads((model / "config.json").read_text())["funicular"]["columns"]["stride"], 8)
        measured = self.succeeds("evaluate", "--model", model, "--data", data).json()
        self.assertEqual(measured["samples"], len(gold_of(json.loads(data.read_text()))))
        self.assertGreater(measured["windows"], 2 * 32)
        gold = gold_of(json.loads(data.read_text()))
        answers = self.answers("--input", data)
        right = sum(score(answer["answer"], gold[answer["id"]][0])[0] for answer in answers) / len(answers)
        self.assertAlmostEqual(right, best.json()["exact"], places=9)
        self.refuses(self.words(stride=30, output="other"), "--stride 30", "expected a stride from 0 to")
        self.refuses([*self.finetune_words(self.folder / "model", task="reranker"), "--stride", 3], "--stride works only with --task", "--task spans")

    def test_two_ranks_learn_and_answer_as_one_process(self):
        alone = self.succeeds(*self.words(num_train_epochs=2)).json()
        pair = self.succeeds("launch", "-n", "2", "--", PROGRAM, *self.words(output="pair", num_train_epochs=2)).json()
        for name in ("f1", "exact", "loss"):
            self.assertAlmostEqual(pair[name], alone[name], places=5)
        words = ["predict", "--model", self.folder / "run" / "model", "--input", self.folder / "eval.json"]
        shared = self.succeeds("launch", "-n", "2", "--", PROGRAM, *words)
        self.assertEqual(shared.out, self.succeeds(*words).out)

    def test_other_names_of_the_task_and_wrong_files(self):
        words = self.words(task="squad", num_train_epochs=1)
        data = json.loads((self.folder / "train.json").read_text())
        question = data["data"][1]["paragraphs"][0]["qas"][1]
        question["answers"][0]["answer_start"] += 3
        data["data"][2]["paragraphs"][0]["qas"][0]["answers"][0]["text"] = "nowhere"
        (self.folder / "train.json").write_text(json.dumps(data))
        err = self.succeeds(*words).err
        self.assertIn("1 of 96 answers do not stand where answer_start says", err)
        self.assertIn("1 of 96 questions have no answer that stands in the context", err)
        del question["question"]
        (self.folder / "train.json").write_text(json.dumps(data))
        self.refuses(words, "train.json: data[1].paragraphs[0].qas[1]: expected a text as \"question\", found none", "--skip-bad-rows")
        self.assertIn("left out 1 row", self.succeeds(*self.words(task="qa", output="rest", num_train_epochs=1), "--skip-bad-rows").err)
        self.refuses(["predict", "--model", self.folder / "run" / "model", "--input", self.folder / "model" / "vocab.txt"], "SQuAD's JSON")


if __name__ == "__main__":
    unittest.main()
