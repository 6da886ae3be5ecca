"""Prediction, from files and pipes, in the order of the lines."""

from harness import *


def rows_to_lines(rows):
    return "".join(text + "\n" for _, text in rows)


class Predict(ProgramTest):
    def classifier(self, **arguments):
        return self.model("classifier", extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]}, **arguments)

    def answers(self, *words, stdin):
        return [json.loads(line) for line in self.succeeds("predict", *words, stdin=stdin).out.splitlines()]

    def test_order_is_kept_whatever_the_window_and_the_batch(self):
        model = self.classifier()
        text = rows_to_lines(sentiment_rows(100))
        expected = self.answers("--model", model, "--window", 1, stdin=text)
        self.assertEqual(len(expected), 100)
        self.assertGreater(len({answer["score"] for answer in expected}), 50)
        for window, tokens in ((7, 16), (100, 64), (1000, 100000)):
            found = self.answers("--model", model, "--window", window, "--batch-tokens", tokens, stdin=text)
            for left, right in zip(expected, found, strict=True):
                self.assertEqual(left["label"], right["label"])
                self.assertAlmostEqual(left["score"], right["score"], places=5)

    def test_answer_holds_label_score_and_probabilities(self):
        answer, = self.answers("--model", self.classifier(), stdin="the film is good\n")
        self.assertEqual(set(answer), {"label", "score", "probabilities"})
        self.assertEqual(set(answer["probabilities"]), {"LABEL_0", "LABEL_1"})
        self.assertAlmostEqual(sum(answer["probabilities"].values()), 1, places=5)
        self.assertEqual(answer["score"], max(answer["probabilities"].values()))
        self.assertEqual(answer["probabilities"][answer["label"]], answer["score"])

    def test_every_line_has_an_answer_whatever_its_characters(self):
        source = random.Random(3)
        lines = [b"", b" ", b"\t\t", "\ufffd\ufeff\U0010ffff\x00\x1b".encode(), "字漢 é \u0301".encode(), b"x" * 5000, b"[CLS] [SEP] [MASK]"]
        codes = [code for code in (*range(0x300), *range(0x2000, 0x3100), *range(0x1F600, 0x1F650)) if code != 10]
        lines += ["".join(chr(source.choice(codes)) for _ in range(source.randrange(40))).encode() for _ in range(300)]
        found = self.answers("--model", self.classifier(), stdin=b"a\n" + b"\n".join(lines) + b"\n")
        self.assertEqual(len(found), len(lines) + 1)

    def test_no_input_gives_no_output(self):
        self.assertEqual(self.answers("--model", self.classifier(), stdin=""), [])

    def test_last_line_may_lack_its_end(self):
        self.assertEqual(len(self.answers("--model", self.classifier(), stdin="a\nb")), 2)

    def test_files_give_what_the_pipes_give(self):
        model = self.classifier()
        text = rows_to_lines(sentiment_rows(10))
        (self.folder / "in.txt").write_text(text)
        expected = self.succeeds("predict", "--model", model, stdin=text).out
        result = self.succeeds("predict", "--model", model, "--input", self.folder / "in.txt", "--output", self.folder / "out.jsonl")
        self.assertEqual(result.out, "")
        self.assertEqual((self.folder / "out.jsonl").read_text(), expected)
        self.assertEqual(self.succeeds("predict", "--model", model, "--input", "-", stdin=text).out, expected)
        self.assertEqual(self.succeeds("predict", model, "-", stdin=text).out, expected)

    def test_output_into_a_folder_that_is_not_there(self):
        output = self.folder / "none" / "out.jsonl"
        self.refuses(["predict", "--model", "none", "--output", output], f"there is no folder {output.parent}")
        self.refuses(["predict", "--model", "none", "--output", self.folder], "is a folder; expected a file")

    def test_model_trained_on_pairs_reads_pairs(self):
        train = write_rows(self.folder / "pairs.tsv", ("label", "a", "b"),
                           [("same" if i % 2 else "other", "good film", text) for i, (_, text) in enumerate(sentiment_rows(16))])
        self.succeeds(*self.finetune_words(self.model(), train=train, eval=train, max_steps=2, num_train_epochs=None),
                      "--text-columns", "a", "b")
        model = self.folder / "run" / "model"
        first, second = self.answers("--model", model, stdin="good film\tbad book\nbad book\tgood film\n")
        self.assertNotEqual(first["score"], second["score"])
        self.refuses(["predict", "--model", model], "standard input:1", "two texts separated by a tab", stdin="alone\n")
        self.answers("--model", model, "--no-pairs", stdin="alone\n")

    def test_closed_pipe_is_an_error_and_no_crash(self):
        model = self.classifier()
        text = rows_to_lines(sentiment_rows(5000))
        (self.folder / "in.txt").write_text(text)
        done = subprocess.run(["bash", "-c", f"set -o pipefail; '{PROGRAM}' predict --model '{model}' --window 16 "
                               f"--input '{self.folder}/in.txt' | head -n 1"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("cannot write to standard output", done.stderr)


if __name__ == "__main__":
    unittest.main()
