"""Files that nobody writes by accident end no command by a signal, let none hang, and cost no memory."""

import os
import resource
import shutil
import tempfile
import threading

from harness import *

LIMIT = 60  # seconds; a command that waits for ever fails its test by then
DEEP = '{"a":' * 60000 + "1" + "}" * 60000


class HostileInput(ProgramTest):
    def classifier(self, name="model", **changes):
        return self.model(name, extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]}, **changes)

    def commands_of(self, model):
        """Each command that reads a model's folder, short."""
        rows = write_rows(self.folder / "rows.tsv", ("label", "text"), sentiment_rows(8))
        return {"predict": ["predict", "--model", model],
                "evaluate": ["evaluate", "--model", model, "--task", "custom", "--data", rows],
                "finetune": ["finetune", "--model", model, "--task", "custom", "--train", rows, "--output", self.folder / "run",
                             "--max-length", "16", "--max-steps", "2"],
                "doctor": ["doctor", "--model", model, "--output", self.folder]}

    def all_refuse(self, model, *phrases):
        """Every command refuses the model; doctor says so in its table."""
        for name, words in self.commands_of(model).items():
            with self.subTest(name):
                result = run(*words, timeout=LIMIT)
                self.assertEqual(result.code, 1 if name == "doctor" else 2, result.err)
                for phrase in phrases:
                    self.assertIn(phrase, result.out if name == "doctor" else result.err)
        self.assertFalse((self.folder / "run" / "model").exists())


class Nesting(HostileInput):
    def test_configuration_of_sixty_thousand_levels(self):
        model = self.classifier()
        text = (model / "config.json").read_text().rstrip()
        (model / "config.json").write_text(text[:-1] + ',\n"more": ' + DEEP + "}")
        self.all_refuse(model, "config.json:2: objects and lists are nested more than 128 deep")

    def test_tokeniser_files_of_sixty_thousand_levels(self):
        model = self.classifier()
        (model / "tokenizer_config.json").write_text(DEEP)
        self.all_refuse(model, "tokenizer_config.json:1: objects and lists are nested")
        (model / "tokenizer.json").write_text("[" * 60000)
        self.all_refuse(model, "tokenizer.json:1: objects and lists are nested")

    def test_row_of_sixty_thousand_levels(self):
        model = self.classifier()
        rows = self.folder / "rows.jsonl"
        rows.write_text('{"text": "good"}\n{"text": "bad", "more": ' + DEEP + "}\n")
        words = ["tokenize", "--tokenizer", model, "--input", rows, "--output", self.folder / "new.tokens"]
        self.refuses(words, "rows.jsonl:2: objects and lists are nested", timeout=LIMIT)
        self.assertIn("left out 1 row that could not be read", self.succeeds(*words, "--skip-bad-rows").err)

    def test_store_and_options_file_of_sixty_thousand_levels(self):
        model = self.model()
        store = self.store(model)
        words = ["pretrain", "--model", model, "--train", store, "--output", self.folder / "run", "--max-length", "16"]
        (self.folder / "options.toml").write_text("seed = " + "[" * 60000)
        self.refuses([*words, "--config", self.folder / "options.toml"], "options.toml:1: tables, arrays and dotted keys are nested", timeout=LIMIT)
        (store / "meta.json").write_text(DEEP)
        self.refuses(words, "meta.json:1: objects and lists are nested", timeout=LIMIT)


class Sizes(HostileInput):
    def test_a_thousand_million_layers(self):
        model = self.classifier(num_hidden_layers=10**9)
        self.all_refuse(model, '"num_hidden_layers": expected an integer from 1 to 1024, found 1000000000')

    def test_more_layers_than_the_weights_have(self):
        model = self.classifier(num_hidden_layers=1000)
        self.all_refuse(model, "config.json says 1000 layers", "model.safetensors has 2")

    def test_vocabularies_beyond_the_limit_and_beyond_the_weights(self):
        self.all_refuse(self.classifier("beyond", vocab_size=2**31 - 1), '"vocab_size": expected an integer from 1 to 16777216')
        self.all_refuse(self.classifier("large", vocab_size=2**24), 'config.json says "vocab_size" 16777216',
                        f"model.safetensors has {len(VOCABULARY)}")

    def pretrain_alone(self, **changes):
        """The words of a pre-training from a config.json without weights."""
        tokenizer = self.model("tokenizer")
        store = self.store(tokenizer)
        (self.folder / "config.json").write_text(json.dumps(config(**changes)))
        return ["pretrain", "--model", self.folder / "config.json", "--tokenizer", tokenizer, "--train", store,
                "--output", self.folder / "run", "--max-length", "16", "--max-steps", "1"]

    def test_model_that_no_memory_holds(self):
        words = self.pretrain_alone(vocab_size=2**24, hidden_size=2**14, num_attention_heads=2**7, intermediate_size=2**17,
                                    num_hidden_layers=2**10)
        self.refuses(words, "a model of 5.77e+12 weights (vocab_size 16777216", "They take 21506", "GiB of memory", timeout=LIMIT)

    @unittest.skipIf(SANITIZED, "sanitizers reserve more addresses than that")
    def test_memory_that_the_system_refuses(self):
        words = self.pretrain_alone(vocab_size=2**22)  # 512 MiB of weights, and as much again to make them
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (3 * 2**29, 3 * 2**29))
        result = self.refuses(words, "[memory] out of memory", code=1, timeout=LIMIT, preexec_fn=limit,
                              env={**environment(), "FUNICULAR_ALLOCATOR": "system"})
        self.assertNotIn("frame #", result.err)
        self.assertNotIn("c10", result.err)


class Numbers(HostileInput):
    def test_ids_beyond_32_bits(self):
        self.all_refuse(self.classifier("padding", pad_token_id=2**32 + 4),
                        '"pad_token_id": expected an integer of 32 bits, found 4294967300')
        model = self.classifier()
        mask = VOCABULARY.index("[MASK]")
        for id_ in (mask, 2**32 + mask):
            (model / "tokenizer.json").write_text(json.dumps({
                "added_tokens": [{"id": id_, "content": "[MASK]", "special": True}],
                "normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": None,
                "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                          "vocab": {token: number for number, token in enumerate(VOCABULARY)}}}))
            if id_ == mask:
                self.succeeds("predict", "--model", model, stdin="the film\n")
        self.all_refuse(model, 'tokenizer.json: the key "id": expected an integer from -2147483648 to 2147483647, found 4294967300')

    def test_numbers_out_of_range(self):
        for number, (key, value, expected) in enumerate((("initializer_range", 1e30, "a number from 0 to 10, found 1e+30"),
                                                         ("layer_norm_eps", 0, "a number above 0 and below 1, found 0"),
                                                         ("hidden_dropout_prob", 1, "a probability in [0, 1), found 1"))):
            model = self.classifier(str(number), **{key: value})
            self.refuses(["predict", "--model", model], f'"{key}": expected {expected}', timeout=LIMIT)


class Pipes(HostileInput):
    def replace_by_pipe(self, path):
        path.unlink()
        os.mkfifo(path)

    def test_files_of_a_model(self):
        for name in ("config.json", "vocab.txt", "model.safetensors"):
            model = self.classifier("model " + name)
            self.replace_by_pipe(model / name)
            self.all_refuse(model, f"{name}: expected a regular file, found a pipe")
        model = self.classifier("model tokenizer.json")
        for name in ("tokenizer_config.json", "tokenizer.json"):
            os.mkfifo(model / name)
            self.all_refuse(model, f"{name}: expected a regular file, found a pipe")

    def test_files_of_a_store(self):
        model = self.model()
        for name in ("meta.json", "tokens.bin", "rows.bin"):
            store = self.store(model, name=name + ".tokens")
            self.replace_by_pipe(store / name)
            self.refuses(["pretrain", "--model", model, "--train", store, "--output", self.folder / "run", "--max-length", "16"],
                         f"{name}: expected a regular file, found a pipe", timeout=LIMIT)

    def test_files_of_a_checkpoint(self):
        model = self.model()
        words = self.finetune_words(model, max_steps=2, num_train_epochs=None, eval=None)
        self.succeeds(*words)
        for name in ("state.json", "model.safetensors", "manifest.json"):
            self.replace_by_pipe(self.folder / "run" / "checkpoints" / "step-000002" / name)
            self.refuses(words, "is damaged and is passed over", name, timeout=LIMIT)
        shutil.rmtree(self.folder / "run" / "checkpoints")
        self.replace_by_pipe(self.folder / "run" / "metrics.jsonl")
        self.refuses(words, "metrics.jsonl: expected a regular file, found a pipe", timeout=LIMIT)

    def test_text_to_tokenise(self):
        model = self.model()
        os.mkfifo(self.folder / "text")
        self.refuses(["tokenize", "--tokenizer", model, "--input", self.folder / "text", "--output", self.folder / "new.tokens"],
                     "text: expected a regular file, found a pipe; write its contents to a file", timeout=LIMIT)

    def test_lines_to_predict_and_options_come_through_pipes(self):
        model = self.classifier()
        answers = self.succeeds("predict", "--model", model, stdin="the film\n").out
        self.assertEqual(self.succeeds("predict", "--model", model, "--input", "/dev/stdin", stdin="the film\n").out, answers)
        os.mkfifo(self.folder / "lines")
        writer = threading.Thread(target=lambda: (self.folder / "lines").write_text("the film\n"), daemon=True)
        writer.start()
        piped = run("predict", "--model", model, "--input", self.folder / "lines", timeout=LIMIT)
        self.assertEqual((piped.code, piped.out), (0, answers), piped.err)
        options = run("predict", "--model", model, "--config", "/dev/stdin", stdin='input = "none.txt"', timeout=LIMIT)
        self.assertIn("none.txt", options.err)


class FileSizes(HostileInput):
    def limited(self, bytes_):
        return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, bytes_)), "timeout": LIMIT}

    def test_run_whose_files_are_beyond_the_limit(self):
        model = self.model()
        words = self.finetune_words(model, max_steps=2, num_train_epochs=None)
        self.refuses(words, "cannot write", "your limits (ulimit -f) allow", str(self.folder / "run"), code=1, **self.limited(50000))
        self.assertFalse((self.folder / "run" / "model").exists())
        self.succeeds(*words)  # as if nothing had been

    def test_store_beyond_the_limit(self):
        model = self.model()
        text = self.folder / "text.txt"
        text.write_text("the film is good\n" * 20000)
        store = self.folder / "new.tokens"
        words = ["tokenize", "--tokenizer", model, "--input", text, "--output", store]
        self.refuses(words, "cannot write", "new.tokens", "your limits (ulimit -f) allow", code=1, **self.limited(20000))
        self.assertFalse(store.exists())
        self.succeeds(*words)

    def test_answers_beyond_the_limit(self):
        model = self.classifier()
        out = self.folder / "answers.jsonl"
        self.refuses(["predict", "--model", model, "--output", out], "cannot write", "answers.jsonl", "ulimit -f", code=1,
                     stdin="the film\n" * 200, **self.limited(4096))
        self.assertFalse(out.exists())
        with tempfile.TemporaryFile() as shown:
            done = subprocess.run([PROGRAM, "predict", "--model", model], input=b"the film\n" * 200, stdout=shown, check=False,
                                  stderr=subprocess.PIPE, env=environment(), **self.limited(4096))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("cannot write to standard output: File too large", done.stderr.decode())


class Divergence(HostileInput):
    def test_a_loss_that_grew_a_hundredfold_ends_the_run(self):
        words = self.finetune_words(self.model(), learning_rate=1e6)
        for launch in ([], ["launch", "-n", 2, "--", PROGRAM]):
            result = self.refuses([*launch, *words], "the learning rate 1000000 is far above what adamw learns with", code=1)
            self.assertRegex(result.err, r"at step \d+, and the loss of step 1 was 0\.\d+: the training diverges")
            self.assertFalse((self.folder / "run" / "model" / "model.safetensors").exists())

    def test_a_run_in_which_every_step_overflowed_is_no_success(self):
        words = self.finetune_words(self.model(), precision="fp16", loss_scale=1e30, max_steps=6, num_train_epochs=None, eval=None)
        result = self.refuses(words, "all 6 steps were skipped, so that no weight was updated", code=1)
        self.assertNotIn("the model is in", result.err)
        self.assertFalse((self.folder / "run" / "model" / "model.safetensors").exists())
        self.refuses(words, "all 6 steps were skipped", code=1)  # as it is when the command is repeated

    def test_word_vectors_that_diverge_are_not_written(self):
        text = self.folder / "text.txt"
        text.write_text("the film is good and the book is not\n" * 50)
        for rate in ("1e3", "1e6", "1e300"):
            self.refuses(["vectors", "--input", text, "--output", self.folder / "v.txt", "--min-count", 1, "--size", 8, "--learning-rate", rate],
                         "--learning-rate", code=1)
        self.assertEqual(list(self.folder.glob("*v.txt*")), [])

    def test_a_sound_training_is_not_warned_of(self):
        result = self.succeeds(*self.finetune_words(self.model()))
        self.assertNotIn("diverges", result.err)
        self.assertNotIn("far above", result.err)


if __name__ == "__main__":
    unittest.main()
