"""The study of objectives: its texts, that all read as many tokens, its table, and that finished runs stay."""
import argparse
import json
import pathlib
import stat
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import objective_study as study
import study_tools

# In place of funicular: a step of pre-training reads 100 tokens, of "span" 50; fine-tuning scores the seed in tenths.
STUB = """#!{python}
import json, pathlib, sys
here, words = pathlib.Path(__file__).parent, sys.argv[1:]
value = lambda name: words[words.index(name) + 1]
output = pathlib.Path(value("--output"))
with open(here / "calls.txt", "a") as calls:
    calls.write(" ".join(words) + "\\n")
output.mkdir(parents=True, exist_ok=True)
if words[0] == "pretrain":
    steps = int(value("--max-steps"))
    tokens = steps * (50 if "span" in words else 100)
    (output / "run.json").write_text(json.dumps({{"result": {{"tokens": tokens, "seconds": 1, "best_evaluation": {{"loss": 2.5}}}}}}))
if words[0] == "finetune":
    print(json.dumps({{"matthews_correlation": int(value("--seed")) / 10, "accuracy": int(value("--seed")) / 10}}))
"""

ARTICLES = " \n = One = \n \n The river is long . It is green ! Is it deep ? A fourth sentence .\n \n = = Part = = \n \n The hill is high .\n \n = Two = \n \n Short one .\n"
TAGGED = "中 B-LOC\n国 I-LOC\n大 O\n\n大 B-ORG\n学 I-ORG\n北 B-LOC\n京 I-LOC\n\n" + "好 O\n\n" * 7


class ObjectiveStudy(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.program = self.folder / "stub"
        self.program.write_text(STUB.format(python=sys.executable))
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)
        self.args = argparse.Namespace(program=self.program, results=self.folder / "results", language="english", tokens=3000.0, layers=2, width=32,
                                       max_length=32, batch_size=8, learning_rate=1e-3, dropout=0, task_learning_rate=1e-3, task_seeds=2, epochs=1, similar_words=None, word_dictionary=None, only=None, task_train=None, task_eval=None, rows=2)
        tokenizer = self.folder / "tokenizer"
        tokenizer.mkdir()
        (tokenizer / "vocab.txt").write_text("[PAD]\n[UNK]\n")
        self.paths = {"tokenizer": tokenizer, "train": self.folder / "train.txt", "eval": self.folder / "eval.txt", "lexicon": self.folder / "e.txt"}
        self.stores = {"train": self.folder / "train.tokens", "eval": self.folder / "eval.tokens"}

    def calls(self):
        return (self.folder / "calls.txt").read_text().splitlines()

    def run_once(self, name, seed=1):
        return study.run_once(self.args, self.paths, self.stores, (self.folder / "a.tsv", self.folder / "b.tsv"), name, seed)

    def test_articles_are_documents_and_sentences_are_lines(self):
        self.assertEqual(study.english_documents(ARTICLES), [["The river is long .", "It is green !", "Is it deep ?", "A fourth sentence .",
                                                              "The hill is high ."]])

    def test_sentences_are_grouped_and_entities_of_two_characters_are_kept(self):
        documents, entities = study.chinese_documents(TAGGED)
        self.assertEqual(documents, [["中国大", "大学北京"] + ["好"] * 6, ["好"]])
        self.assertEqual(set(entities), {"中国", "大学", "北京"})

    def test_rows_of_a_task_are_taken_from_the_whole_file(self):
        self.assertEqual(study.spread_over(list(range(10)), 4), [0, 2, 5, 7])
        self.assertEqual(study.spread_over([1, 2], 4), [1, 2])

    def test_tables_of_ones_own_are_scored_by_accuracy(self):
        self.args.task_train, self.args.task_eval = self.folder / "own.tsv", self.folder / "held.tsv"
        self.args.task_train.write_text("label\ttext\na\t1\nb\t2\nc\t3\nd\t4\n")
        train, held_out = study.task_files(self.args)
        self.assertEqual(train.read_text(), "label\ttext\na\t1\nc\t3\n")
        self.assertEqual(held_out, self.args.task_eval)
        self.assertEqual(self.run_once("tokens", seed=3)["score"], 30.15)
        self.assertIn("--task custom", self.calls()[-1])

    def test_every_objective_reads_as_many_tokens(self):
        found = {name: self.run_once(name) for name in ("tokens", "spans")}
        self.assertEqual({name: (run["tokens"], run["steps"]) for name, run in found.items()}, {"tokens": (3000, 30), "spans": (3000, 60)})

    def test_similar_words_are_those_of_vectors_of_the_text_which_are_trained_once(self):
        self.paths["train"].write_text("The River is long .\n", encoding="utf-8")
        vectors = study.similar_words(self.args, self.paths)
        self.assertEqual(self.calls(), [f"vectors --input {self.paths['train']} --output {vectors}"])
        self.assertEqual(study.similar_words(self.args, self.paths), vectors)
        self.assertEqual(len(self.calls()), 1)

    def test_vectors_of_chinese_words_are_those_of_the_dictionary(self):
        self.args.language, self.args.word_dictionary = "chinese", pathlib.Path("dict.txt")
        vectors = study.similar_words(self.args, self.paths)
        self.assertEqual(self.calls(), [f"vectors --input {self.paths['train']} --output {vectors} --word-dictionary dict.txt"])

    def test_finished_runs_are_not_repeated(self):
        first = self.run_once("tokens")
        count = len(self.calls())
        self.assertEqual(self.run_once("tokens"), first)
        self.assertEqual(len(self.calls()), count)
        next((self.args.results / "runs").glob("*/result.json")).unlink()  # stopped while it was fine-tuned
        self.assertEqual(self.run_once("tokens"), first)
        self.assertEqual([call.split()[0] for call in self.calls()[count:]], ["finetune", "finetune"])

    def test_replaced_tokens_are_of_electras_family_and_no_training_is_of_random_weights(self):
        self.run_once("replaced tokens (ELECTRA)")
        self.assertTrue(all("electra.json" in call for call in self.calls() if call.startswith("pretrain")))
        self.assertEqual(json.loads((self.args.results / "inputs/electra.json").read_text())["embedding_size"], 32)
        self.run_once("none")
        self.assertIn("--learning-rate 1e-30", self.calls()[-3])

    def test_the_table_has_means_and_intervals(self):
        results = [self.run_once("tokens", seed) for seed in (1, 2, 3)]
        table = study.report(self.args, results).splitlines()
        self.assertEqual(len(table), 3)
        self.assertIn("| tokens | 3000 | 30 | 2.500 | 20.150 ± 24.826 | 3 |", table[2])  # of 10.15, 20.15, 30.15: 4.30 × 10 / √3

    def test_what_lacks_its_file_is_left_out_and_unknown_names_are_refused(self):
        self.assertNotIn("entities", study.chosen(self.args))
        self.args.language = "chinese"
        self.assertIn("entities", study.chosen(self.args))
        self.assertIn("similar words (MacBERT)", study.chosen(self.args))
        self.args.only = ["nothing"]
        with self.assertRaisesRegex(study_tools.Failed, "expected one of none, tokens"):
            study.chosen(self.args)


if __name__ == "__main__":
    unittest.main()
