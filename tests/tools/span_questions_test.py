"""Questions whose answers are spans of real texts: what tools/spans/questions.py makes of descriptions."""
import json
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = [f"reader of mail number{i} Reads mail. The program was written by Ada Lovelace{i} in the year 18{i}3 for a friend. It also shows the "
         f"pictures that Blue{i} Planet{i} has sent over a slow line. Nothing else is done here." for i in range(100, 109)]


class Questions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "sections").mkdir()
            for part in ("train", "eval", "test"):
                (folder / f"sections/sections-{part}.tsv").write_text("".join(f"mail\t{text}\n" for text in [*TEXTS, "Short text 1."]))
            cls.runs = []
            for _ in range(2):
                subprocess.run([ROOT / "tools/spans/questions.py", folder, "--texts", "8"], check=True, capture_output=True)
                cls.runs.append([json.loads((folder / f"{part}.json").read_text()) for part in ("train", "eval", "test")])

    def asked(self, data):
        return [(paragraph["context"], question) for entry in data["data"] for paragraph in entry["paragraphs"] for question in paragraph["qas"]]

    def test_the_same_texts_give_the_same_questions(self):
        self.assertEqual(self.runs[0], self.runs[1])

    def test_an_answer_stands_once_where_it_is_said_and_not_in_its_question(self):
        answered = [(text, one) for text, one in self.asked(self.runs[0][0]) if not one["is_impossible"]]
        self.assertEqual(len(answered), 16)  # two sentences of each text have a name or a number within
        for text, one in answered:
            answer = one["answers"][0]
            self.assertEqual(text[answer["answer_start"]:][:len(answer["text"])], answer["text"])
            self.assertEqual(text.count(answer["text"]), 1)
            self.assertNotIn(answer["text"], one["question"])
            self.assertIn("which", one["question"].split())

    def test_every_third_text_has_a_question_that_it_does_not_answer(self):
        self.assertEqual([len([one for one in entry["paragraphs"][0]["qas"] if one["is_impossible"]]) for entry in self.runs[0][0]["data"]],
                         [1, 0, 0, 1, 0, 0, 1, 0])
        self.assertEqual(len({one["id"] for _, one in self.asked(self.runs[0][0])}), 19)

    def test_a_text_of_few_sentences_has_none(self):
        self.assertEqual(len(self.runs[0][1]["data"]), len(TEXTS))


unittest.main()
