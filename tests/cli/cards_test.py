"""Commands on GPUs, on stand-ins of cards (tests/card) and of NCCL."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import time
import unittest

from augment_test import HEAD, pieces
from harness import (HIDDEN, PROGRAM, VOCABULARY, WORDS, ProgramTest, encoder_shapes, environment, exact, random_weights, run, sentiment_rows, write_model,
                     write_rows, write_safetensors)

TESTS = pathlib.Path(os.environ["FUNICULAR_BUILD_DIR"]) / "tests"
STAND_IN = TESTS / "libcard_stand_in.so"
MODEL = {"model_type": "bert", "vocab_size": 997, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
         "max_position_embeddings": 64, "type_vocab_size": 2}


DELAY = 0.02  # seconds, of each operation of NCCL


def with_cards(number):
    return {**environment(), "LD_PRELOAD": str(STAND_IN), "FUNICULAR_CARDS": str(number), "FUNICULAR_NCCL": str(TESTS / "libnccl_stand_in.so"),
            "FUNICULAR_STAND_IN": f"delay={1000 * DELAY:.0f}"}


@unittest.skipUnless(STAND_IN.exists(), "a build for CUDA has no stand-in of a card")
class OnCards(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "config.json").write_text(json.dumps(MODEL))
        self.bench = ["--device", "cuda", "--model", self.folder, "--batch-size", "4", "--max-length", "32", "--json"]

    def test_ranks_are_measured_with_a_card_each(self):
        strategies = ["ddp", "zero3", "pipeline"]
        done = run("launch", "-n", "2", "--", PROGRAM, "bench", "ranks", *self.bench, "--steps", "1",
                   *[word for name in strategies for word in ("--strategy", name)], env=with_cards(2))
        self.assertEqual(done.code, 0, done.err)
        uses = json.loads(done.out.splitlines()[-1].removeprefix("[0] "))
        self.assertEqual([use["strategy"] for use in uses], strategies)
        weights = [use["measured"]["weights"] for use in uses]
        self.assertLess(weights[1], 0.6 * weights[0])
        for use in uses:  # the last exchange hides behind nothing; the stages of a pipeline wait for each other
            self.assertGreater(use["wait_seconds"], DELAY, use["strategy"])
            self.assertLess(use["wait_seconds"], use["step_seconds"], use["strategy"])
        self.assertNotIn("predicted", uses[0])

    def test_more_ranks_than_cards_share_only_if_asked(self):
        layouts = ["zero2 -n 2", "single", "--device", "cuda", "--steps", "1"]
        refused = run("prove", *layouts, env=with_cards(1))
        self.assertEqual(refused.code, 2)
        self.assertIn("this host has 2 ranks and 1 visible GPUs", refused.err)
        shared = run("prove", *layouts, "--share-device", env=with_cards(1))
        self.assertEqual(shared.code, 0, shared.err)
        self.assertIn("; holds", shared.out)

    def test_what_a_card_cannot_do_is_refused_with_what_to_give(self):
        for options, message in {
                "--device cuda:1 --strategy dp --devices 2": "--device cuda:1 names one GPU, and --strategy dp --devices 2 uses 2; give --device cuda.",
                "--device cuda --strategy pipeline --devices 3": "uses 3 GPUs, found 2; give fewer, or --share-device",
                "--device cuda --offload-optimizer state": "Leave it out, or divide the state among GPUs by funicular launch and --strategy zero1",
                "--device cuda --cuda-graphs --class-weights balanced": "--cuda-graphs does not go with --class-weights; leave one of them out",
        }.items():
            with self.subTest(options):
                command = ["finetune", "--task", "custom"] if "class" in options else ["pretrain"]
                refused = run(*command, "--model", self.folder, "--train", "texts.tokens", "--output", self.folder / "run", *options.split(),
                              env=with_cards(2))
                self.assertEqual(refused.code, 2, refused.err)
                self.assertIn(message, refused.err)

    def test_static_embeddings_have_no_passes_to_record(self):
        model = write_model(self.folder / "static")
        (model / "modules.json").write_text(json.dumps([{"idx": 0, "path": "", "type": "sentence_transformers.models.StaticEmbedding"}]))
        write_safetensors(model / "model.safetensors", random_weights({"embedding.weight": [len(VOCABULARY), 3]}, 3))
        (self.folder / "lines.txt").write_text("good film\n")
        words = ["embed", "--model", model, "--input", self.folder / "lines.txt", "--output", self.folder / "v.npy", "--device", "cuda"]
        refused = run(*words, "--cuda-graphs", env=with_cards(1))
        self.assertEqual(refused.code, 2, refused.err)
        self.assertIn("static holds static embeddings, which have no encoder's pass to record; leave out --cuda-graphs", refused.err)
        done = run(*words, env=with_cards(1))
        self.assertEqual(done.code, 0, done.err)

    def classifier(self):
        shapes = {**encoder_shapes(), "classifier.weight": [2, HIDDEN], "classifier.bias": [2]}
        path = write_model(self.folder / "classifier", extra_shapes=shapes, id2label={"0": "contra", "1": "pro"}, label2id={"contra": 0, "pro": 1})
        write_safetensors(path / "model.safetensors", random_weights(shapes, 3))
        return path

    def assert_close(self, found, expected):
        """Numbers in JSON; the times in it are no result."""
        if isinstance(expected, dict):
            self.assertEqual(found.keys(), expected.keys())
            for key in expected:
                if "second" not in key and key not in ("output", "run"):
                    self.assert_close(found[key], expected[key])
        elif isinstance(expected, list):
            self.assertEqual(len(found), len(expected))
            for pair in zip(found, expected):
                self.assert_close(*pair)
        elif isinstance(expected, float):
            self.assertAlmostEqual(found, expected, delta=1e-4 * max(1, abs(expected)))
        else:
            self.assertEqual(found, expected)

    def on_a_card(self, *words, output=None):
        """What the command writes to standard output or to `output`, and its messages."""
        done = run(*words, *(["--output", output] if output else []), "--device", "cuda", "--precision", "fp32", env=with_cards(1))
        self.assertEqual(done.code, 0, done.err)
        text = output.read_text() if output and output.is_file() else done.out
        return [json.loads(line) for line in text.splitlines()], done.err

    def test_recorded_passes_give_the_results_of_passes(self):
        model, (train, held_out) = self.classifier(), self.custom_files(train=48)
        lines = write_rows(self.folder / "lines.txt", (), [row[1:] for row in sentiment_rows(60, 4)])
        pairs = write_rows(self.folder / "pairs.tsv", ("text_a", "text_b", "label"),
                           [(row[1], other[1], str(i)) for i, (row, other) in enumerate(zip(sentiment_rows(30, 4), sentiment_rows(30, 5)))])
        distillation = ["--stage", "intermediate", "--task", "custom", "--train", train, "--eval", held_out, "--batch-size", 8,
                        "--num-train-epochs", 1, "--max-length", 16]
        for words, name in ((["predict", model, lines, "--micro-batch-tokens", 64], None),
                            (["evaluate", model, held_out, "--task", "custom", "--eval-batch-size", 8], None),
                            (["evaluate", model, pairs, "--task", "similarity", "--micro-batch-tokens", 64], None),
                            (["embed", "--model", model, "--input", lines, "--micro-batch-tokens", 64], "{}.jsonl"),
                            (["distill", "--teacher", model, "--student", "1-layers", *distillation], "{}")):
            with self.subTest(words[0]):
                outputs = [self.folder / name.format(way) if name else None for way in ("plain", "recorded")]
                attention = ["--deterministic"] if words[0] == "distill" else []
                expected, _ = self.on_a_card(*words, *attention, output=outputs[0])
                found, messages = self.on_a_card(*words, "--cuda-graphs", output=outputs[1])
                self.assert_close(found, expected)
                self.assertGreater(int(re.search(r"cuda graphs: (\d+) of \d+ passes were repeated", messages)[1]), 1, messages)

    def test_memory_is_that_of_the_card(self):
        done = run("bench", "memory", *self.bench, "--precision", "bf16", "--recompute", "none", "--gradient-accumulation-steps", "1", env=with_cards(1))
        self.assertEqual(done.code, 0, done.err)
        row = json.loads(done.out)["combinations"][0]
        self.assertNotIn("predicted", row)
        self.assertGreater(row["measured"]["activations"], 0)

    def test_augment_writes_the_processors_file_also_when_it_was_killed(self):
        model, source = write_model(self.folder / "guesser", extra_shapes=HEAD), random.Random(3)
        rows = write_rows(self.folder / "in.tsv", ("label", "text"), [(str(i), " ".join(source.choices(WORDS, k=16))) for i in range(200)])

        def words(output, *more):
            return ["augment", "--model", model, "--task", "custom", "--input", rows, "--output", output, "--variants", "3", "--precision", "fp32", *more]

        expected = self.succeeds(*words(self.folder / "cpu.tsv"))
        output = self.folder / "card.tsv"
        on_card = words(output, "--device", "cuda")
        for _ in range(3):
            output.unlink(missing_ok=True)
            process = subprocess.Popen([PROGRAM, *exact(on_card)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=with_cards(1))
            while process.poll() is None and pieces(self.folder / "card.tsv.parts") == 0:
                time.sleep(0.001)
            process.kill()
            error = process.communicate()[1].decode()
            if process.returncode != 0 and not output.exists():  # else it was quicker
                break
        self.assertEqual(process.returncode, -signal.SIGKILL, error)
        done = run(*on_card, env=with_cards(1))
        self.assertEqual(done.code, 0, done.err)
        self.assertRegex(done.err, r"resuming: [1-9]\d* of \d+ blocks")
        self.assertEqual((done.json(), output.read_text()), (expected.json(), (self.folder / "cpu.tsv").read_text()))
        self.assertEqual(json.loads((self.folder / "card.tsv.made.json").read_text())["made_of"]["batch_tokens"], 16384)
        small = run(*words(self.folder / "small.tsv", "--device", "cuda", "--micro-batch-tokens", "500"), env=with_cards(1))
        self.assertEqual((small.json(), (self.folder / "small.tsv").read_text()), (expected.json(), output.read_text()))


if __name__ == "__main__":
    unittest.main()
