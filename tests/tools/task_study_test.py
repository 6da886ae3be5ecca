"""The study of tasks: its texts, that both sides learn the same rows and as many texts per step, its table."""
import argparse
import json
import pathlib
import unittest

from study_rig import StudyTest

import task_study as study

# Stands in for the peer's Python, too. The scores of a model are its seed in tenths.
STUB = """if words[0] == "evaluate":
    saved = pathlib.Path(value("--model")) / "seed"
    score = (int(saved.read_text()) if saved.exists() else 5) / 10
    read = 35 if "--stride" in words else 10
    print(json.dumps({**dict.fromkeys(["ndcg@10", "spearman", "accuracy"], score), "samples": 10, "windows": read}))
elif "--output" in words:
    output = pathlib.Path(value("--output"))
    if output.suffix in (".npy", ".tokens"):
        output.write_text("")
    else:
        model = output if words[0].endswith("st_pairs.py") else output / "model"
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
        if "--seed" in words:
            (model / "seed").write_text(value("--seed"))
    print("{}")
"""
PARAGRAPH = "one two three four five six seven eight nine "
WIKI = """
 = One =\x20

 The river is very long . It is blue @-@ green and deep ! Is it deep at all ?\x20
\x20
 = = Part = =\x20
\x20
 Too short .
\x20
 = Two =\x20
\x20
 The hill is high today . It has 3 @,@ 000 trees now . Nobody climbs it in winter .
"""


def value(words, option):
    return words[words.index(f"--{option}") + 1]


class TaskStudy(StudyTest):
    stub = STUB

    def setUp(self):
        super().setUp()
        self.args = argparse.Namespace(
            data=self.folder / "data", results=self.folder / "results", program=self.program, python=self.program,
            model=self.folder / "start", only=list(study.COMPARISONS), seeds=2, threads=1, pairs=10, pairs_rate=5e-5,
            batch_size=4, texts=9, layers=3, student_rate=1e-4, student_epochs=1, long_texts=2, length=64, stride=16,
            labels_rate=1e-4)
        packages = self.args.results / "inputs" / "packages"
        files = {packages / "text-train.txt": self.documents("train", 12) + "eval 0\n" + PARAGRAPH + "new\n\n",
                 packages / "text-eval.txt": self.documents("eval", 3),
                 packages / "sections-train.tsv": f"perl\t{'word ' * 100}\nperl\tshort\nother\t{'word ' * 100}\n",
                 packages / "sections-test.tsv": f"perl\t{'text ' * 100}\n",
                 self.args.data / "wikitext2" / "valid.txt": WIKI}
        for name in ("train", "dev"):
            header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
            rows = [f"{at}\t1\t2\ta {name} sentence {at}\ta dev sentence {at}" for at in (0, 1)]
            files[self.args.data / "mrpc" / f"{name}.tsv"] = "\n".join([header, *rows]) + "\n"
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    @staticmethod
    def documents(name, count):
        return "".join(f"{name} {number}\n{PARAGRAPH}{name} {number}\nmore\n\n" for number in range(count))

    def lines(self, name):
        return [json.loads(line) for line in (self.args.results / "inputs" / name).read_text().splitlines()]

    def test_a_pair_is_a_title_and_the_first_paragraph_and_no_text_is_known_before(self):
        seen = set()
        held_out = study.package_pairs(self.args.results / "inputs/packages/text-eval.txt", seen)
        pairs = study.package_pairs(self.args.results / "inputs/packages/text-train.txt", seen)
        self.assertEqual((len(held_out), len(pairs)), (3, 12))
        self.assertIn(("eval 1", f"{PARAGRAPH}eval 1"), held_out)
        self.assertEqual(study.package_pairs(self.args.results / "inputs/packages/text-eval.txt", seen), [])

    def test_sections_are_sentences_of_an_article(self):
        first = ["The river is very long .", "It is blue-green and deep !", "Is it deep at all ?"]
        second = ["The hill is high today .", "It has 3,000 trees now .", "Nobody climbs it in winter ."]
        self.assertEqual(study.sections_of(WIKI), [[first], [second]])

    def test_sets_and_texts_share_no_text(self):
        study.make_texts(self.args)
        queries = [row["text"] for row in self.lines("set-sections/queries.jsonl")]
        self.assertEqual(queries, ["The hill is high today ."])
        self.assertEqual(len(self.lines("set-packages/corpus.jsonl")), 3)
        self.assertEqual({row["label"] for row in self.lines("set-paraphrases.jsonl")}, {0, 1})
        texts = {row["text"] for row in self.lines("texts.jsonl")}
        self.assertEqual(len(texts), 8)  # three of each kind, but MRPC has only two that are not held out
        self.assertFalse(any("eval" in text or "dev" in text or "hill" in text for text in texts))
        self.assertEqual([row["label"] for row in self.lines("long-train.jsonl")], ["perl"])

    def test_both_sides_learn_the_same_rows_by_the_same_recipe(self):
        found = study.contrastive(self.args, study.make_texts(self.args), 3)
        ours, peer = self.calls("finetune")[0], self.calls("st_pairs.py")[0]
        for option in ("train", "model", "max-length", "batch-size", "learning-rate", "warmup-ratio", "seed"):
            self.assertEqual(value(ours, option), value(peer, option), option)
        self.assertIn("--no-shuffle", ours)
        rows = pathlib.Path(value(ours, "train")).read_text().splitlines()
        before = (self.args.results / "inputs" / "pairs.jsonl").read_text().splitlines()
        self.assertEqual(sorted(rows), sorted(before))
        self.assertNotEqual(rows, before)
        self.assertEqual(found["funicular"], {name: 0.3 for name in study.SCORES})

    def test_a_student_begins_without_dropout_and_learns_the_vectors(self):
        study.student(self.args, study.make_texts(self.args), 4)
        words = self.calls("finetune")[0]
        start = pathlib.Path(value(words, "model"))
        self.assertEqual(json.loads((start / "config.json").read_text())["hidden_dropout_prob"], 0)
        self.assertEqual(value(words, "teacher"), str(self.args.results / "start" / "teacher.npy"))
        study.student(self.args, study.make_texts(self.args), 5)
        self.assertEqual(len(self.calls("distill")), 1)

    def test_a_batch_of_windows_has_as_many_texts(self):
        found = study.windows(self.args, study.make_texts(self.args), 6)
        cut, read = self.calls("finetune")
        self.assertEqual(value(cut, "batch-size"), "16")
        self.assertEqual(value(read, "batch-size"), "56")  # a text has 3.5 windows
        self.assertNotIn("--stride", cut)
        self.assertEqual({found[way] for way in ("cutting", "beginnings, then windows", "windows")}, {0.6})
        self.assertEqual(found["windows per text"], 3.5)

    def test_the_table_compares_seed_by_seed_and_finished_runs_stay(self):
        table = study.study(self.args).splitlines()
        # The interval of 0.1 and 0.2 is 12.71 × 0.0707 / √2.
        self.assertIn("| funicular | 0.150 ± 0.635 | 0.000 ± 0.000 |", "\n".join(table))
        self.assertIn("| before | 0.500 | 0.350 ± 0.636 |", "\n".join(table))
        self.assertIn("| student of 3 layers | 0.150 ± 0.635 | 0.300 ± 1.271 |", "\n".join(table))
        self.assertIn("| windows | 0.150 ± 0.635 | 0.000 ± 0.000 | 2 |", table)
        count = len(self.calls(""))
        self.args.only = ["windows"]
        self.assertEqual(study.study(self.args).splitlines(), table)
        self.assertEqual(len(self.calls("")), count)
        self.args.pairs = 11
        with self.assertRaisesRegex(study.tools.Failed, "settings.json: .* --pairs was 10, now 11. Name another folder"):
            study.study(self.args)


if __name__ == "__main__":
    unittest.main()
