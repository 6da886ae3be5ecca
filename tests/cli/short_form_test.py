"""finetune, evaluate and predict with a file and a model alone, and what they guess and say."""

import csv
import os
import re
import shlex

from harness import *


def reviews(count=120, seed=1):
    return [{"id": str(number), "review": text, "sentiment": label, "stars": "5" if label == "pro" else "1"}
            for number, (label, text) in enumerate(sentiment_rows(count, seed))]


class ShortForm(ProgramTest):
    def setUp(self):
        super().setUp()
        self.before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, self.before)

    def table(self, name="reviews.csv", rows=None, keep=("id", "review", "sentiment")):
        with open(self.folder / name, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, keep, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows or reviews())
        return name

    def words(self, *more, model="MODEL"):
        if not (self.folder / "MODEL").exists():
            self.model("MODEL")
        return ["finetune", self.table(), "--model", model, "--learning-rate", "5e-3", "--batch-size", 8,
                "--max-length", 16, *([] if "--max-steps" in more else ["--num-train-epochs", 12]), *more]

    def test_a_file_and_a_model_are_enough(self):
        done = self.succeeds(*self.words())
        for phrase in ("reviews.csv: 120 rows; one class per text from the column review, learnt from sentiment (not read: id)",
                       "--task custom --text-column review --label-column sentiment", "the run's folder is runs/reviews",
                       "12 rows are held out for evaluation", "an answer that is always \"contra\" has accuracy 0.5",
                       "next: funicular predict runs/reviews new.csv"):
            self.assertIn(phrase, done.err)
        found = done.json()
        self.assertEqual(found["baseline"], {"answer": 'always "contra"', "accuracy": 0.5})
        self.assertGreater(found["accuracy"], 0.5)
        answers = self.succeeds("predict", "runs/reviews", self.table("new.csv", reviews(10, 7), keep=("review",))).out
        self.assertEqual(len(answers.splitlines()), 10)
        self.assertEqual(self.succeeds("predict", "--model", "runs/reviews/model", "--input", "new.csv").out, answers)
        self.assertEqual(self.succeeds("evaluate", "runs/reviews", self.table("test.csv", reviews(30, 9))).json()["samples"], 30)
        self.refuses(["predict", "runs/reviews", "new.csv", "more.csv"], 'unexpected argument "more.csv"')

    def test_the_most_certain_mistakes_are_shown(self):
        wrong = [{**row, "sentiment": "pro" if "bad" in row["review"] else "contra"} if int(row["id"]) % 10 == 3 else row for row in reviews(200)]
        self.table("wrong.csv", wrong)
        words = [*self.words("--eval-fraction", 0.3, "--mistakes", 2, "--output", "out"), "--weight-decay", 0]
        words[1] = "wrong.csv"
        said = self.succeeds(*words).err
        self.assertIn("the 2 mistakes of which the model is most certain:", said)
        self.assertEqual(len(re.findall(r'^.*  ".*" is (pro|contra), and the model says (pro|contra) \(0\.\d\d for ', said, re.M)), 2)
        self.assertNotIn("mistakes of which", self.succeeds(*[0 if word == 2 else word for word in words]).err)

    def test_the_guess_is_what_the_options_say(self):
        self.succeeds(*self.words())
        self.succeeds(*self.words("--task", "custom", "--text-column", "review", "--label-column", "sentiment", "--output", "other",
                                   "--eval-fraction", 0.1))
        self.assertTrue(read_safetensors("runs/reviews/model/model.safetensors") == read_safetensors("other/model/model.safetensors"))

    def test_a_guess_that_may_be_wrong_lists_the_columns(self):
        words = self.words()
        words[1] = self.table("two.csv", keep=("id", "review", "sentiment", "stars"))
        self.refuses(words, 'which column is the label? The columns are "id", "review", "sentiment", "stars"',
                     "give --label-column sentiment or --label-column stars")
        self.assertIn("learnt from stars", self.succeeds(*words, "--label-column", "stars").err)

    def test_the_printed_options_say_the_same(self):
        pairs = ["pro;long", "contra", "pro", "contra;long"]
        rows = [{"Full Text": row["review"], "Label Name": pairs[number % 4]} for number, row in enumerate(reviews())]
        words = self.words("--max-steps", 2)
        words[1] = self.table("kinds.csv", rows, keep=("Full Text", "Label Name"))
        said = self.succeeds(*words).err
        options = shlex.split(re.search(r"Equivalent options: (.*)", said).group(1))
        self.assertEqual(options[-2:], ["--label-separator", ";"])
        self.succeeds(*words, *options, "--eval-fraction", 0.1, "--output", "other")
        self.assertTrue(read_safetensors("runs/kinds/model/model.safetensors") == read_safetensors("other/model/model.safetensors"))

    def test_a_folder_that_nobody_named_keeps_its_run(self):
        def words(folder, *more):
            (self.folder / folder).mkdir(exist_ok=True)
            found = self.words("--max-steps", 2, *more)
            found[1] = self.table(f"{folder}/train.csv")
            return found
        self.assertIn("the run's folder is runs/train", self.succeeds(*words("d1")).err)
        refused = self.refuses(words("d2"), "runs/train holds the run of d1/train.csv; give --output RUN")
        self.assertNotIn("the run's folder is", refused.err)
        self.succeeds(*words("d2", "--output", "runs/second"))
        self.succeeds(*words("d1"))
        os.rename("runs/train/checkpoints", "checkpoints")
        self.refuses(words("d1"), "runs/train holds a model, but no checkpoint to resume from", "give --output RUN")

    def test_the_folder_is_told_after_the_guess(self):
        words = self.words()
        words[1] = self.table("two.csv", keep=("review", "sentiment", "stars"))
        self.assertNotIn("the run's folder is", self.refuses(words, "which column is the label?").err)

    def test_rows_are_held_out_as_they_are_asked_for(self):
        def rows(*more):
            return self.succeeds(*self.words("--output", "run" + "-".join(map(str, more)).replace(".csv", ""), *more)).err
        self.assertIn("24 rows are held out", rows("--eval-fraction", 0.2))
        self.assertNotIn("held out", rows("--eval-fraction", 0))
        self.assertIn("next: funicular evaluate run--eval-fraction-0 labelled.csv", rows("--eval-fraction", 0))
        self.table("eval.csv", reviews(20, 4))
        self.assertNotIn("held out", rows("--eval", "eval.csv"))
        self.refuses(self.words("--eval", "eval.csv", "--eval-fraction", 0.1), "--eval and --eval-fraction are both given")
        named = self.finetune_words("MODEL", output="named", eval=None, max_steps=1, num_train_epochs=None)
        self.assertNotIn("held out", self.succeeds(*named).err)

    def test_few_rows_are_not_divided(self):
        words = self.words("--output", "few")
        words[1] = self.table("few.csv", reviews(8))
        self.assertIn("too few rows to hold some out", self.succeeds(*words).err)

    def test_an_interrupted_run_is_resumed_by_the_same_command(self):
        metrics = self.folder / "runs" / "reviews" / "metrics.jsonl"
        words = self.words("--logging-steps", 1)
        self.assertEqual(run_and_interrupt(metrics, 5, signal.SIGTERM, *words).code, 75)
        self.succeeds(*words)
        other = self.words("--logging-steps", 1, "--output", "straight")
        self.succeeds(*other)
        self.assertTrue(read_safetensors("runs/reviews/model/model.safetensors") == read_safetensors("straight/model/model.safetensors"))

    def test_a_model_of_the_hub_is_taken_from_its_cache(self):
        self.model("MODEL")
        cache = self.folder / "hub"
        snapshot = cache / "models--org--tiny" / "snapshots" / "c0ffee"
        snapshot.parent.mkdir(parents=True)
        (cache / "models--org--tiny" / "refs").mkdir()
        (cache / "models--org--tiny" / "refs" / "main").write_text("c0ffee")
        (self.folder / "MODEL").rename(snapshot)
        with unittest.mock.patch.dict(os.environ, {"HF_HUB_CACHE": str(cache)}):
            (self.folder / "MODEL").mkdir()  # so that words() makes none
            self.succeeds(*self.words("--max-steps", 1, "--output", "hub-run", model="org/tiny"))
            self.succeeds("tokenize", "--tokenizer", "org/tiny", "--input", self.table(), "--text-column", "review", "--output", "a.tokens")
            self.succeeds("doctor", "--model", "org/tiny")
        self.refuses(self.words("--output", "none", model="org/tiny"), "org/tiny: no such folder", "run: hf download org/tiny")
        self.refuses(["finetune", "reviews.csv", "--model", "bert-base-uncased"], "hf download bert-base-uncased")


class Words(ProgramTest):
    """Words without the name of an option."""

    def test_a_name_that_is_given_takes_no_word(self):
        self.succeeds(*self.finetune_words(self.model(), max_steps=1, num_train_epochs=None))
        run_folder, rows = self.folder / "run", self.folder / "eval.tsv"
        found = self.succeeds("predict", run_folder, rows).out
        self.assertEqual(self.succeeds("predict", rows, "--model", run_folder).out, found)
        self.assertEqual(self.succeeds("predict", run_folder, "--input", rows).out, found)
        self.assertEqual(len(self.succeeds("predict", run_folder, stdin="good film\n").out.splitlines()), 1)
        self.refuses(["predict", run_folder, rows, "--model", run_folder], "unexpected argument")


class Names(ProgramTest):
    """One name for one thing; older names still work, and say so."""

    def test_older_names_are_accepted_with_a_line(self):
        model = self.model()
        self.succeeds(*self.finetune_words(model, max_steps=1, num_train_epochs=None))
        run_folder, rows = self.folder / "run", self.folder / "eval.tsv"
        old = self.succeeds("evaluate", "--model", run_folder / "model", "--data", rows)
        self.assertEqual(old.err.count("funicular evaluate: --data is called --input now"), 1)
        new = self.succeeds("evaluate", run_folder, rows)
        self.assertNotIn("is called", new.err)
        self.assertEqual(old.out, new.out)
        self.assertIn("--replicas is called --ranks-per-stage now", self.succeeds("plan", "--schedule", "gpipe", "--replicas", "2,1", "-m", 3).err)

    def test_older_names_are_keys_of_files(self):
        self.succeeds(*self.finetune_words(self.model(), max_steps=1, num_train_epochs=None))
        (self.folder / "a.toml").write_text(f'model = "{self.folder}/run/model"\ndata = "{self.folder}/eval.tsv"\n')
        self.assertIn("--data is called --input now", self.succeeds("evaluate", "--config", self.folder / "a.toml").err)

    def test_tokenize_takes_the_first_row_of_a_table_for_its_header(self):
        model = self.model()
        table = write_rows(self.folder / "a.tsv", ("text", "n"), [("good film", "1"), ("bad book", "2")])
        def rows(*more):
            done = self.succeeds("tokenize", "--tokenizer", model, "--input", table, "--text-column", 1, "--output", self.folder / "a.tokens", "--overwrite", *more)
            return json.loads((self.folder / "a.tokens" / "meta.json").read_text())["rows"], "the first row names the columns" in done.err
        self.assertEqual(rows(), (2, True))
        self.assertEqual(rows("--header"), (2, False))
        self.assertEqual(rows("--no-header"), (3, False))

    def test_distill_reads_the_columns_of_its_teacher(self):
        rows = [(text, label) for label, text in sentiment_rows(32)]
        table = write_rows(self.folder / "own.tsv", ("review", "mood"), rows)
        self.succeeds(*self.finetune_words(self.model(), max_steps=1, num_train_epochs=None, train=table, eval=table),
                      "--text-column", "review", "--label-column", "mood")
        words = ["distill", "--teacher", self.folder / "run", "--student", "1-layers", "--train", table, "--max-steps", 1, "--output"]
        said = self.succeeds(*words, self.folder / "small")
        self.assertIn("next: funicular evaluate", said.err)
        self.succeeds("evaluate", self.folder / "small", table)
        self.succeeds(*words, self.folder / "layers", "--stage", "intermediate")


if __name__ == "__main__":
    unittest.main()
