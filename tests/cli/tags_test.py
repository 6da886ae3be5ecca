"""A tag for each word: from CoNLL files and JSON lines to a model that evaluate and predict read, and transformers too."""

import json
import re

from harness import *

TAGS = {"film": "B-ART", "book": "B-ART", "old": "B-AGE", "very": "B-PRAISE", "good": "I-PRAISE"}


def sentences(count, seed):
    """Lists of words; the tag of each is that of TAGS, else O."""
    source = random.Random(seed)
    parts = [["film"], ["book"], ["old"], ["very", "good"], ["the"], ["is"], ["song"], ["not"]]
    return [sum((source.choice(parts) for _ in range(source.randint(1, 5))), []) for _ in range(count)]


def tags_of(words):
    return [TAGS.get(word, "O") for word in words]


class Tags(ProgramTest):
    def write(self, name, count, seed, tokens="tokens", tags="tags"):
        path, found = self.folder / name, sentences(count, seed)
        if path.suffix.lower() == ".jsonl":
            path.write_text("".join(json.dumps({tokens: words, tags: tags_of(words)}) + "\n" for words in found))
        else:
            path.write_text("-DOCSTART- O\n\n" + "\n".join("".join(f"{word} x {tag}\n" for word, tag in zip(words, tags_of(words)))
                                                           for words in found))
        return path

    def words(self, ending="conll", output="run", **options):
        model = self.folder / "model"
        if not model.exists():
            self.model()
        files = self.write("train." + ending, 96, 1), self.write("eval." + ending, 40, 2)
        return self.finetune_words(model, task="tags", output=output, train=files[0], **{"eval": files[1], "num_train_epochs": 20, **options})

    def train(self, *more, **options):
        return self.succeeds(*self.words(**options), *more).json()

    def answers(self, *words, **more):
        return [json.loads(line) for line in self.succeeds("predict", "--model", self.folder / "run" / "model", *words, **more).out.splitlines()]

    def test_are_learnt_from_columns_and_json_lines_alike(self):
        found = {ending: self.train(ending=ending, output="run-" + ending) for ending in ("conll", "jsonl", "JSONL")}
        for metrics in found.values():
            metrics.pop("seconds")
        self.assertGreater(found["conll"]["f1"], 0.9)
        self.assertEqual(found["conll"], found["jsonl"])
        self.assertEqual(found["JSONL"], found["jsonl"], "the case of a file's ending means nothing")
        self.assertEqual(set(found["conll"]) >= {"f1", "precision", "recall", "accuracy", "macro_f1", "loss"}, True)
        config = json.loads((self.folder / "run-conll" / "model" / "config.json").read_text())
        self.assertEqual(config["architectures"], ["BertForTokenClassification"])
        self.assertEqual(list(config["id2label"].values()), sorted({*TAGS.values(), "O"}))
        weights = read_safetensors(self.folder / "run-conll" / "model" / "model.safetensors")
        self.assertEqual(weights["classifier.weight"][0], [5, HIDDEN])

    def test_evaluate_and_predict_agree(self):
        best = self.train()
        model, data = self.folder / "run" / "model", self.folder / "eval.conll"
        measured = self.succeeds("evaluate", "--model", model, "--data", data, "--details").json()
        self.assertAlmostEqual(measured["f1"], best["f1"], places=9)
        self.assertEqual(set(measured["classes"]), {"ART", "AGE", "PRAISE"})
        expected = sentences(40, 2)
        outside = [tag == "O" for words in expected for tag in tags_of(words)]
        self.assertEqual(measured["baseline"], {"answer": 'always "O"', "accuracy": sum(outside) / len(outside), "f1": 0})
        stdin = "".join(" ".join(words) + "\n" for words in expected)
        answers = self.answers(stdin=stdin)
        self.assertEqual([answer["words"] for answer in answers], expected)
        right = sum(tag == own for answer, words in zip(answers, expected) for tag, own in zip(answer["tags"], tags_of(words)))
        self.assertAlmostEqual(right / sum(map(len, expected)), measured["accuracy"], places=9)
        for words in (["--input", data], ["--input", self.write("eval.jsonl", 40, 2)], ["--input", self.write("EVAL.CONLL", 40, 2)],
                      ["--input", data, "--window", "7"]):
            self.assertEqual([answer["tags"] for answer in self.answers(*words)], [answer["tags"] for answer in answers])

    def test_evaluations_answers_are_those_of_predict_beside_what_is_right(self):
        self.train(num_train_epochs=1)
        model, expected = self.folder / "run" / "model", sentences(40, 2)
        answers = self.answers("--max-length", 6, stdin="".join(" ".join(words) + "\n" for words in expected))
        for file in ("eval.conll", "eval.jsonl"):
            data = self.folder / file if file.endswith("conll") else self.write(file, 40, 2)
            words = ["evaluate", "--model", model, "--data", data, "--max-length", 6]
            measured = self.succeeds(*words, "--predictions", self.folder / "answers.jsonl", "--overwrite", "--output", self.folder / "found").json()
            rows = [json.loads(line) for line in (self.folder / "answers.jsonl").read_text().splitlines()]
            self.assertEqual([row["row"] for row in rows], list(range(1, 41)))
            self.assertEqual([row["words"] for row in rows], expected)
            self.assertEqual([row["labels"] for row in rows], [tags_of(words) for words in expected])
            self.assertEqual([row["predicted"] for row in rows], [answer["tags"] for answer in answers])
            pairs = [pair for row in rows for pair in zip(row["predicted"], row["labels"], row["scores"], row["words"]) if pair[0]]
            self.assertAlmostEqual(sum(given == right for given, right, _, _ in pairs) / len(pairs), measured["accuracy"], places=9)
            self.assertTrue(all(1 / 5 <= score <= 1 for _, _, score, _ in pairs))
            self.assertEqual((self.folder / "found" / "predictions.jsonl").read_text(), (self.folder / "answers.jsonl").read_text())
            record = json.loads((self.folder / "found" / "evaluation.json").read_text())
            self.assertEqual(record["metrics"]["f1"], measured["f1"])
            self.assertEqual(set(record["classes"]), {"ART", "AGE", "PRAISE"})
            wrong = sorted((score, given, right, word) for given, right, score, word in pairs if given != right)
            self.assertGreater(len(wrong), 0, "a model that is right everywhere shows nothing")
            shown = record["mistakes"]
            self.assertEqual(sorted((each["score"], each["predicted"], each["label"], each["texts"][1]) for each in shown), wrong)
            self.assertEqual([each["label_score"] for each in shown], sorted(each["label_score"] for each in shown))
            self.assertTrue(all(each["label_score"] <= min(each["score"], 1 - each["score"]) + 1e-9 for each in shown))
            self.assertTrue(all(each["texts"][0] == " ".join(expected[each["row"] - 1]) for each in record["mistakes"]))
        shared = self.folder / "shared.jsonl"
        self.succeeds("launch", "-n", 2, "--", PROGRAM, *words, "--predictions", shared)
        self.assertEqual([json.loads(line)["predicted"] for line in shared.read_text().splitlines()], [row["predicted"] for row in rows])

    def test_texts_are_held_out_by_their_tags(self):
        options = {"eval": None, "num_train_epochs": 1, "ending": "jsonl"}
        done = self.succeeds(*self.words(**options), "--eval-fraction", 0.25, "--mistakes", 1)
        self.assertRegex(done.err, r"train.jsonl: (1\d|2[0-4]) rows are held out for evaluation \(--eval-fraction 0.25\), at most this share of the texts with each tag")
        self.assertRegex(done.err, r"on the evaluated rows: accuracy [\d.]+, f1 [\d.]+; an answer that is always \"O\" has accuracy 0.\d+, f1 0")
        told = self.succeeds(*self.words(**options, output="folds"), "--folds", 2)
        answers = [json.loads(line) for line in (self.folder / "folds" / "predictions.jsonl").read_text().splitlines()]
        texts = sentences(96, 1)
        self.assertEqual([(answer["row"], answer["words"], answer["labels"]) for answer in answers],
                         [(row, words, tags_of(words)) for row, words in enumerate(texts, 1)])
        self.assertEqual(len({(" ".join(answer["words"]), answer["fold"]) for answer in answers}), len({" ".join(words) for words in texts}))
        self.assertLess(len({" ".join(words) for words in texts}), 96, "no text stands twice")
        for tag in {*TAGS.values(), "O"}:
            first, second = (sum(tag in answer["labels"] for answer in answers if answer["fold"] == fold) for fold in (1, 2))
            self.assertLessEqual(abs(first - second), 0.25 * (first + second), tag)
        found = told.json()
        for fold in (1, 2):
            tags = [pair for answer in answers if answer["fold"] == fold for pair in zip(answer["labels"], answer["predicted"])]
            self.assertAlmostEqual(sum(given == right for right, given in tags) / len(tags), found["accuracy"]["values"][fold - 1], places=9)
            self.assertAlmostEqual(sum(right == "O" for right, _ in tags) / len(tags), found["baseline"]["accuracy"]["values"][fold - 1], places=9)
        self.assertEqual((found["baseline"]["answers"], found["baseline"]["f1"]["mean"]), (['always "O"'] * 2, 0))

    def test_columns_are_kept_beside_the_answers(self):
        self.train(num_train_epochs=1)
        path, texts = self.folder / "texts.jsonl", sentences(5, 4)
        path.write_text("".join(json.dumps({"id": number, "tokens": words, "tags": tags_of(words)}) + "\n" for number, words in enumerate(texts)) + '{"tokens": ["film"]}\n')
        for more in ([], ["--aggregation", "simple"]):
            plain = self.answers("--input", path, *more)
            self.assertEqual(self.answers("--input", path, "--keep", "id", "tags", *more),
                             [*({"id": number, "input_tags": tags_of(words), **answer} for number, (words, answer) in enumerate(zip(texts, plain))),
                              {"id": None, "input_tags": None, **plain[-1]}])
        found = [(" ".join(words)[entity["start"]:entity["end"]], entity["word"]) for words, answer in zip(texts, plain) for entity in answer["entities"]]
        self.assertGreater(len(found), 0)
        self.assertEqual(*zip(*found), "offsets are those of the words joined by blanks")
        words = ["predict", "--model", self.folder / "run" / "model", "--keep", "id", "--input"]
        self.refuses([*words, path, "--output-format", "csv"], "--output-format csv", "lists, which a table cannot hold; expected jsonl or json")
        for name, text in (("texts.txt", "film\n"), ("texts.conll", "film O\n")):
            (self.folder / name).write_text(text)
            self.refuses([*words, self.folder / name], "--keep id: lines of words and CoNLL's files have no columns to keep", '{"tokens": ["New", "York"], "id": 1}')

    def test_bad_sentences_keep_their_numbers_among_the_answers(self):
        self.train(num_train_epochs=1)
        lines = [json.dumps({"tokens": words, "tags": tags_of(words)}) for words in sentences(9, 4)]
        lines[2:2] = ['{"tokens": 3']
        (self.folder / "eval.jsonl").write_text("\n".join(lines) + "\n")
        self.succeeds("evaluate", "--model", self.folder / "run" / "model", "--data", self.folder / "eval.jsonl", "--skip-bad-rows",
                      "--predictions", self.folder / "answers.jsonl")
        rows = [json.loads(line) for line in (self.folder / "answers.jsonl").read_text().splitlines()]
        self.assertEqual([row["row"] for row in rows], [1, 2, *range(4, 11)])
        self.assertEqual([row["words"] for row in rows], sentences(9, 4))

    def test_entities_are_told_with_their_words(self):
        self.train()
        [answer] = self.answers(stdin="the old film is very good\n")
        self.assertEqual(answer["tags"], ["O", "B-AGE", "B-ART", "O", "B-PRAISE", "I-PRAISE"])
        self.assertEqual([(entity["type"], entity["text"], entity["begin"], entity["end"]) for entity in answer["entities"]],
                         [("AGE", "old", 1, 2), ("ART", "film", 2, 3), ("PRAISE", "very good", 4, 6)])
        self.assertTrue(all(0 < entity["score"] <= 1 for entity in answer["entities"]))

    def test_an_empty_line_and_words_that_are_cut_off_have_no_tags(self):
        self.train()
        answers = self.answers("--max-length", "6", stdin="\n" + "good " * 9 + "\n")
        self.assertEqual(answers[0], {"words": [], "tags": [], "entities": []})
        self.assertEqual(answers[1]["tags"][4:], [None] * 5)
        self.assertNotIn(None, answers[1]["tags"][:4])

    def test_two_ranks_learn_and_measure_the_same(self):
        alone = self.train(num_train_epochs=4)
        launch = ["launch", "-n", "2", "--", PROGRAM]
        pair = self.succeeds(*launch, *self.words(output="pair", num_train_epochs=4)).json()
        for name in ("f1", "accuracy", "loss"):
            self.assertAlmostEqual(pair[name], alone[name], places=5)

    def test_ranks_answer_as_one_process_does(self):
        self.train(num_train_epochs=1)
        path = self.folder / "words.txt"
        for count in (0, 1, 5, 23):
            lines = [" ".join(words) for words in sentences(count, 3)]
            path.write_text("".join(line + "\n" for line in [*lines[:2], *([""] if count > 2 else []), *lines[2:]]))
            alone = self.succeeds("predict", "--model", self.folder / "run" / "model", "--input", path, "--max-length", 6)
            for ranks, window in ((2, 3), (3, 100)):
                shared = self.succeeds("launch", "-n", ranks, "--", PROGRAM, "predict", "--model", self.folder / "run" / "model", "--input", path,
                                       "--window", window, "--max-length", 6)
                self.assertEqual(*[[json.loads(line)["tags"] for line in done.out.splitlines()] for done in (shared, alone)])
                self.assertEqual(*[re.findall(r"\d+ of \d+ rows", done.err) for done in (shared, alone)])
        self.assertRegex(alone.err, r"\d+ of 24 rows")
        shared = self.succeeds("launch", "-n", 2, "--", PROGRAM, "predict", "--model", self.folder / "run" / "model", "--input",
                               self.folder / "eval.conll", "--output", self.folder / "answers.jsonl")
        self.assertEqual(shared.out, "")
        self.assertEqual([json.loads(line)["words"] for line in (self.folder / "answers.jsonl").read_text().splitlines()], sentences(40, 2))

    def test_texts_that_cannot_be_read_are_refused_or_answered_in_their_place(self):
        self.train(num_train_epochs=1)
        words = ["predict", "--model", self.folder / "run" / "model", "--input", self.folder / "texts.jsonl"]
        lists = [json.dumps({"tokens": text}) for text in sentences(9, 4)]
        lines = [lists[0], '{"tokens": 3', *lists[1:5], '{"other": ["film"]}', *lists[5:]]
        (self.folder / "texts.jsonl").write_text("\n".join(lines) + "\n")
        self.refuses(words, "texts.jsonl:2", "--skip-bad-rows answers such rows")
        done = self.succeeds(*words, "--skip-bad-rows")
        answers = [json.loads(line) for line in done.out.splitlines()]
        self.assertEqual([answer.get("words") for answer in answers], [json.loads(line)["tokens"] if line in lists else None for line in lines])
        self.assertEqual([answer["tags"] for answer in answers if "tags" in answer],
                         [answer["tags"] for answer in self.answers(stdin="".join(" ".join(text) + "\n" for text in sentences(9, 4)))])
        self.assertIn("texts.jsonl:7: ", answers[6]["error"])
        self.assertIn("gave an error instead of an answer to 2 rows", done.err)
        shared = self.succeeds("launch", "-n", 2, "--", PROGRAM, *words, "--skip-bad-rows", "--window", 2)
        self.assertEqual(*[[json.loads(line).get("tags") for line in output.splitlines()] for output in (shared.out, done.out)])
        (self.folder / "some.conll").write_text("the O\nold film O\n\n# a comment\nvery O\ngood O\n-DOCSTART- O\nfilm O\n")
        words = ["predict", "--model", self.folder / "run" / "model", "--input", self.folder / "some.conll"]
        self.refuses(words, "some.conll:2: expected 2 columns", "found 3", "--skip-bad-rows answers such rows")
        answers = [json.loads(line) for line in self.succeeds(*words, "--skip-bad-rows").out.splitlines()]
        self.assertEqual([answer.get("words") for answer in answers], [None, ["very", "good"], ["film"]])
        self.assertIn("some.conll:2: expected 2 columns", answers[0]["error"])

    def test_bad_sentences_of_columns_are_left_out_and_counted(self):
        words = self.words(num_train_epochs=1)
        (self.folder / "train.conll").write_text("old B-AGE\nfilm O\n\nNew York O\nis O\n\nfilm O\n\nold very B-AGE\n")
        self.refuses(words, "train.conll:4: expected 2 columns, as in the sentence's other lines, found 3: \"New York O\"", "needs tabs")
        err = self.succeeds(*words, "--skip-bad-rows").err
        self.assertIn("left out 2 rows", err)
        self.assertIn("train.conll:9: expected 2 columns, as in most lines of the file, found 3", err)
        self.assertIn("train.conll: 2 rows", err)

    def test_schemes_are_scored_by_entities_and_other_tags_by_words(self):
        """What seqeval 1.2.2 finds in the sentence: an ART and an AGE of three words, in each of the spellings."""
        spellings = {"bmes": "S-ART O B-AGE M-AGE E-AGE", "bmewo": "W-ART O B-AGE M-AGE E-AGE", "small": "b-ART o b-AGE i-AGE i-AGE",
                     "suffix": "ART-B O AGE-B AGE-I AGE-I", "iob1": "I-ART O I-AGE I-AGE I-AGE", "ioe": "E-ART O I-AGE I-AGE E-AGE"}
        for name, tags in spellings.items():
            words = self.words(output=name, num_train_epochs=60, learning_rate=3e-3)
            for file in ("train.conll", "eval.conll"):
                lines = "".join(map("{} {}\n".format, ["film", "the", "old", "very", "good"], tags.split()))
                (self.folder / file).write_text("\n".join([lines] * 8))
            result = self.succeeds(*words)
            self.assertEqual((result.json()["f1"], "words are scored" in result.err), (1, False), name)
            answer = self.succeeds("predict", "--model", self.folder / name / "model", stdin="film the old very good\n").json()
            self.assertEqual([(entity["type"], entity["begin"], entity["end"]) for entity in answer["entities"]], [("ART", 0, 1), ("AGE", 2, 5)])
        words = self.words(output="stranger", num_train_epochs=1)
        (self.folder / "train.conll").write_text((self.folder / "train.conll").read_text() + "\nis x domain:en\n")
        result = self.succeeds(*words)
        self.assertIn('words are scored, and not entities: 1 of 6 tags, such as "domain:en", are no letter and type', result.err)
        self.assertNotIn("f1", result.json())

    def test_scores_and_answers_of_texts_that_are_cut_say_how_much_is_left_out(self):
        self.train(num_train_epochs=1)
        model, texts = self.folder / "run" / "model", sentences(40, 2)
        measured = self.succeeds("evaluate", "--model", model, "--data", self.folder / "eval.conll", "--max-length", 6, "--output", self.folder / "found")
        cut, every = [text for text in texts if len(text) > 4], sum(map(len, texts))
        beyond = sum(len(text) - 4 for text in cut)
        expected = {"rows": len(cut), "rows_share": len(cut) / 40, "tokens": beyond, "tokens_share": beyond / every, "words": beyond, "words_share": beyond / every}
        self.assertEqual(measured.json()["cut"], expected)
        self.assertEqual(json.loads((self.folder / "found" / "evaluation.json").read_text())["cut"], expected)
        told = f"{len(cut)} of 40 rows are longer than 6 tokens: {beyond} of {every} words ({100 * beyond / every:.1f} %)"
        self.assertIn(told, measured.err)
        self.assertIn("warning", measured.err)
        answered = self.succeeds("predict", "--model", model, "--input", self.folder / "eval.conll", "--max-length", 6)
        self.assertIn(told + " are not read, and have the tag null", answered.err)
        self.assertEqual(answered.out.count("null"), beyond)
        self.assertEqual(self.train(num_train_epochs=1, output="short", max_length=6)["cut"], expected)
        self.assertNotIn("cut", self.succeeds("evaluate", "--model", model, "--data", self.folder / "eval.conll").json())

    def test_an_interrupted_run_goes_on_to_the_same_bits(self):
        self.succeeds(*self.words(output="whole", num_train_epochs=3, logging_steps=1))
        parts = self.words(output="parts", num_train_epochs=3, logging_steps=1)
        code = run_and_interrupt(self.folder / "parts" / "metrics.jsonl", 5, signal.SIGTERM, *parts).code
        self.assertEqual(code, 75)
        self.assertIn("resumed from", self.succeeds(*parts).err)
        weights = [read_safetensors(self.folder / output / "model" / "model.safetensors") for output in ("whole", "parts")]
        self.assertEqual(weights[0], weights[1])

    def test_keys_and_columns_can_be_named(self):
        self.model()
        train = self.write("train.jsonl", 40, 1, "words", "ner")
        options = dict(task="tags", train=train, eval=train, num_train_epochs=1)
        words = self.finetune_words(self.folder / "model", **options)
        self.refuses(words, '"tokens"', '"words"')
        self.succeeds(*words, "--text-column", "words", "--label-column", "ner")
        self.succeeds("evaluate", "--model", self.folder / "run" / "model", "--data", train)  # the columns are the model's own

    def test_wrong_input_is_refused_by_its_line(self):
        words = self.words()
        path = self.folder / "train.conll"
        path.write_text("old B-AGE\nfilm\n")
        self.refuses(words, "train.conll:2", "a word and its tag")
        path.write_text("old B-AGE\nfilm O\n")
        (self.folder / "eval.conll").write_text("old O\n\nfilm B-NEW\n")
        self.refuses(words, "eval.conll:3", "B-NEW")
        (self.folder / "eval.conll").write_text("old O\n")
        self.refuses([*words, "--class-weights", 1, 2, 3], "there are 2 classes", "found 3 weights")

    def test_rare_tags_may_count_as_much_as_frequent_ones(self):
        """A rate that moves nothing: the losses are of the same model, so that the weighted one is the words' own, weighted."""
        losses = {}
        for name, weights in {"plain": [], "ones": [1, 1], "rare": [5, 1], "more": [10, 2], "balanced": ["balanced"]}.items():
            words = self.words(output=name, max_steps=1, num_train_epochs=None, learning_rate=1e-30, logging_steps=1)
            for file in ("train.conll", "eval.conll"):
                (self.folder / file).write_text("old B-AGE\nfilm O\nbook O\nsong O\n")
            self.succeeds(*words, *(["--class-weights", *weights] if weights else []))
            losses[name] = json.loads((self.folder / name / "metrics.jsonl").read_text().splitlines()[0])["loss"]
        self.assertAlmostEqual(losses["plain"], losses["ones"], places=6)
        self.assertAlmostEqual(losses["rare"], losses["more"], places=6, msg="the mean is weighted")
        self.assertNotAlmostEqual(losses["rare"], losses["plain"], places=3)
        # Of 4 words one is B-AGE: balanced is 4 / (2 * 1) to 4 / (2 * 3), three to one; the classes' means are linear in it.
        age = (8 * losses["rare"] - 4 * losses["plain"]) / 4
        others = (4 * losses["plain"] - age) / 3
        self.assertAlmostEqual(losses["balanced"], (age + others) / 2, places=4)

    def test_tables_are_refused(self):
        tagger = write_model(self.folder / "tagger", architectures=["BertForTokenClassification"], id2label={"0": "O", "1": "X"},
                             extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]})
        for ending in ("csv", "tsv"):
            table = self.folder / f"rows.{ending}"
            table.write_text("id,text\n9,good film\n")
            words = ["predict", "--model", tagger, "--input", table]
            self.refuses(words, f"rows.{ending}", "JSON lines", "--format lines")
            self.assertEqual(len(self.succeeds(*words, "--format", "lines").out.splitlines()), 2)

    def test_models_of_whole_texts_and_of_words_are_told_apart(self):
        self.train(num_train_epochs=1)
        tagger = self.folder / "run" / "model"
        rows = write_rows(self.folder / "rows.tsv", ("label", "text"), sentiment_rows(20))
        self.refuses(["evaluate", "--model", tagger, "--task", "custom", "--data", rows], "--task tags")
        done = self.succeeds(*self.finetune_words(tagger, output="texts", train=rows, eval=rows, num_train_epochs=1))
        self.assertIn("not one of whole texts", done.err)
        texts = self.folder / "texts" / "model"
        self.refuses(["evaluate", "--model", texts, "--task", "tags", "--data", self.folder / "eval.conll"], "gives one class per text, and --task tags needs a model that gives a tag for each word")
        self.refuses(["predict", "--model", tagger, "--pairs"], "--pairs")


if __name__ == "__main__":
    unittest.main()
