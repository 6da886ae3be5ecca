"""Fine-tuning of every kind of task cut into stages, into slices and into both: the weights and metrics of one process."""

import json

from harness import *

LAYOUTS = [(2, {"pipeline_parallel": 2, "schedule": "zb-h1", "micro_batch_size": 2}), (2, {"tensor_parallel": 2}),
           (4, {"pipeline_parallel": 2, "tensor_parallel": 2, "schedule": "gpipe"})]
SCORES = {"good": 2.0, "bad": -2.0, "film": 0.5, "book": 1.0}


class CutTasks(ProgramTest):
    def weights(self, output):
        return read_safetensors(self.folder / output / "checkpoints/step-000006/model.safetensors")

    def train_alike(self, files, *more, **options):
        model = self.model()
        words = lambda output, **layout: [
            *self.finetune_words(model, output=output, max_steps=6, num_train_epochs=None, precision="fp64", **files, **options, **layout), *more]
        one = self.succeeds(*words("one")).json()
        for number, (ranks, layout) in enumerate(LAYOUTS):
            with self.subTest(layout=layout):
                other = self.succeeds("launch", "-n", ranks, "--", PROGRAM, *words(f"cut-{number}", **layout)).json()
                for name, value in one.items():
                    if name not in ("seconds", "tokens_per_second", "samples_per_second"):
                        # Of ranks: rounding may exchange two answers that are almost equal.
                        self.assertAlmostEqual(other[name], value, delta=1e-3 if name == "spearmanr" else 1e-9, msg=name)
                for name, (_, raw) in self.weights("one").items():
                    mine, theirs = array.array("d", raw), array.array("d", self.weights(f"cut-{number}")[name][1])
                    self.assertLess(max(abs(a - b) for a, b in zip(mine, theirs, strict=True)), 1e-10, name)

    def rows(self, count, seed):
        source = random.Random(seed)
        return [[source.choice(["good", "bad", "film", "book", "the", "is"]) for _ in range(source.randint(1, 5))] for _ in range(count)]

    def files(self, ending, line):
        paths = {}
        for name, count, seed in (("train", 60, 1), ("eval", 20, 2)):
            paths[name] = self.folder / f"{name}.{ending}"
            paths[name].write_text("".join(line(words) for words in self.rows(count, seed)))
        return paths

    def test_tags(self):
        self.train_alike(self.files("jsonl", lambda words: json.dumps({"tokens": words, "tags": ["A" if word in SCORES else "O" for word in words]}) + "\n"),
                         task="tags")

    def test_any_number_of_labels(self):
        self.train_alike(self.files("jsonl", lambda words: json.dumps({"text": " ".join(words), "label": sorted(set(words) & set(SCORES))}) + "\n"),
                         "--multi-label")

    def test_numbers(self):
        self.train_alike(self.files("jsonl", lambda words: json.dumps({"text": " ".join(words), "label": sum(SCORES.get(word, 0) for word in words)}) + "\n"),
                         "--regression")

    def test_spans(self):
        """Contexts of several windows; some questions have no answer, and one teaches nothing."""
        paths = {}
        for name, count, seed in (("train", 30, 1), ("eval", 10, 2)):
            paths[name] = self.folder / f"{name}.json"
            paragraphs = []
            for number, words in enumerate(self.rows(count, seed)):
                context = " ".join(["the", "song"] * (number % 7) + words)
                answer = {"text": words[-1] if number else "nowhere", "answer_start": len(context) - len(words[-1])}
                paragraphs.append({"context": context, "qas": [{"id": str(number), "question": "is " + words[0], "is_impossible": number % 5 == 2,
                                                                "answers": [] if number % 5 == 2 else [answer]}]})
            paths[name].write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
        self.train_alike(paths, "--stride", 2, task="spans", max_length=12)

    def test_pairs_of_texts(self):
        self.train_alike(self.files("jsonl", lambda words: json.dumps({"label": str(words[0] in SCORES), "first": " ".join(words), "second": words[-1]}) + "\n"),
                         "--text-column", "first", "second")


if __name__ == "__main__":
    unittest.main()
