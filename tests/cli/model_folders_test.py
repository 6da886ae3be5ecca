"""Model folders as they are met: weights that do not fit, keys that are misspelt, and what is said of them."""

import os
import re

from harness import *

CLASSIFIER = {"classifier.weight": [2, HIDDEN], "classifier.bias": [2]}


class Weights(ProgramTest):
    def classifier(self, **changes):
        return self.model(extra_shapes=CLASSIFIER, **changes)

    def test_of_layers_that_the_configuration_does_not_have_are_refused(self):
        model = self.classifier(num_hidden_layers=1)
        self.refuses(["predict", "--model", model], 'says 1 layers ("num_hidden_layers")', "has 2", stdin="film\n")
        result = run("doctor", "--model", model, "--output", self.folder)
        self.assertEqual(result.code, 1)
        self.assertRegex(result.out, r"(?m)^FAIL weights .*says 1 layers")

    def test_that_have_no_place_are_named(self):
        model = self.model(extra_shapes={**CLASSIFIER, "encoder.layer.0.attention.self.distance_embedding.weight": [3, 16]})
        result = self.succeeds("predict", "--model", model, stdin="film\n")
        self.assertIn("no place for them: encoder.layer.0.attention.self.distance_embedding.weight", result.err)
        self.assertIn("no place for them: encoder.layer.0", self.succeeds(*self.finetune_words(model, max_steps=1, num_train_epochs=None)).err)
        told = self.succeeds("doctor", "--model", model).out
        self.assertRegex(told, "warn weights .* has no place for encoder.layer.0.attention.self.distance_embedding.weight")

    def test_of_another_family_are_refused(self):
        """A RoBERTa's weights have all that a BERT needs; a DistilBERT's lack token types."""
        shapes = {"roberta." + name: shape for name, shape in encoder_shapes().items()}
        model = self.model("roberta")
        write_safetensors(model / "model.safetensors", random_weights(shapes))
        phrases = ('is the name of a weight of RoBERTa, but config.json says "model_type" "bert"', 'set "model_type" to roberta or xlm-roberta or camembert')
        self.refuses(self.finetune_words(model, max_steps=1, num_train_epochs=None), *phrases)
        self.refuses(["predict", "--model", model], *phrases, stdin="film\n")
        self.assertRegex(run("doctor", model, "--output", self.folder).out, r"(?m)^FAIL weights .*roberta\.\S+ is the name of a weight of RoBERTa")
        model = self.model("distilbert")
        shapes = {name.replace("roberta.", "distilbert."): shape for name, shape in shapes.items() if "token_type" not in name}
        write_safetensors(model / "model.safetensors", random_weights(shapes))
        phrases = ("is the name of a weight of DistilBERT", "bert.embeddings.token_type_embeddings.weight", "put the config.json of the DistilBERT")
        self.refuses(self.finetune_words(model, max_steps=1, num_train_epochs=None), *phrases)
        result = run("doctor", model, "--output", self.folder)
        self.assertEqual(result.code, 1)
        for phrase in phrases:
            self.assertIn(phrase, result.out)

    def test_of_a_token_classifier_are_not_taken_for_those_of_texts(self):
        model = self.classifier(architectures=["BertForTokenClassification"])
        result = self.succeeds(*self.finetune_words(model, max_steps=1, num_train_epochs=None, learning_rate=1e-30))
        self.assertIn("is a BertForTokenClassification", result.err)
        self.assertIn("a new one takes its place", result.err)
        before = read_safetensors(model / "model.safetensors")
        after = read_safetensors(self.folder / "run" / "model" / "model.safetensors")
        self.assertNotEqual(before["classifier.weight"], after["classifier.weight"])
        self.assertEqual(before["encoder.layer.0.output.dense.weight"], after["bert.encoder.layer.0.output.dense.weight"])
        self.assertIn('"tags"', self.succeeds("predict", "--model", model, stdin="film\n").out)
        settings = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**settings, "architectures": ["BertForMultipleChoice"]}))
        self.refuses(["predict", "--model", model], "is a BertForMultipleChoice", stdin="film\n")

    def shard(self, model):
        """Moves the weights into two files and an index, as transformers shards them."""
        tensors = random_weights({**encoder_shapes(), **CLASSIFIER})
        names = sorted(tensors)
        files = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
        for file, own in files.items():
            write_safetensors(model / file, {name: tensors[name] for name in own})
        index = {"metadata": {"total_size": 1}, "weight_map": {name: file for file, own in files.items() for name in own}}
        (model / "model.safetensors.index.json").write_text(json.dumps(index))
        (model / "model.safetensors").unlink()
        return index

    def test_in_several_files_are_loaded(self):
        model = self.classifier()
        expected = self.succeeds("predict", "--model", model, stdin="good film\n").out
        index = self.shard(model)
        self.assertEqual(self.succeeds("predict", "--model", model, stdin="good film\n").out, expected)
        self.assertRegex(self.succeeds("doctor", "--model", model, "--output", self.folder).out, r"(?m)^ok +weights +\d+ tensors")
        self.succeeds(*self.finetune_words(model, max_steps=1, num_train_epochs=None))
        broken = {"../other.safetensors": "a file of the same folder", "none.safetensors": "is not there",
                  "model-00001-of-00002.safetensors": "which lacks it"}
        for file, phrase in broken.items():
            changed = json.loads(json.dumps(index))
            changed["weight_map"]["none" if "00001" in file else "classifier.bias"] = file
            (model / "model.safetensors.index.json").write_text(json.dumps(changed))
            self.refuses(["predict", "--model", model], phrase, stdin="film\n")

    @unittest.skipUnless(pathlib.Path(os.environ.get("FUNICULAR_PYTHON", "")).is_file(), "needs the Python of ./run setup")
    def test_of_a_pickle_are_refused_with_the_line_that_converts_them(self):
        python = os.environ["FUNICULAR_PYTHON"]
        model = self.classifier()
        expected = self.succeeds("predict", "--model", model, stdin="good film\n").out
        script = "import sys, torch, safetensors.torch as s; torch.save(s.load_file(sys.argv[1]), sys.argv[2])"
        subprocess.run([python, "-c", script, model / "model.safetensors", model / "pytorch_model.bin"], check=True)
        (model / "model.safetensors").unlink()
        message = self.refuses(["predict", "--model", model], "pytorch_model.bin", "pickle", stdin="film\n").err
        line = next(line.strip() for line in message.splitlines() if line.strip().startswith("python3 -c "))
        subprocess.run(["sh", "-c", line.replace("python3", python, 1)], check=True)
        self.assertEqual(self.succeeds("predict", "--model", model, stdin="good film\n").out, expected)


class Tokenizer(ProgramTest):
    def with_added_tokens(self, **changes):
        size = len(VOCABULARY)
        model = self.model(extra_shapes={**CLASSIFIER, "embeddings.word_embeddings.weight": [size + 2, HIDDEN]}, vocab_size=size + 2,
                           **changes)
        (model / "added_tokens.json").write_text(json.dumps({"[E1]": size, "[/E1]": size + 1}))
        return model

    def test_tokens_that_were_added_survive_a_training_and_an_extension(self):
        model = self.with_added_tokens()
        self.succeeds(*self.finetune_words(model, max_steps=1, num_train_epochs=None))
        (self.folder / "words.txt").write_text("hobbit\n")
        self.succeeds("vocabulary", "extend", "--model", model, "--words", self.folder / "words.txt", "--output", self.folder / "more")
        for folder in (self.folder / "run" / "model", self.folder / "more"):
            saved = json.loads((folder / "tokenizer_config.json").read_text())["added_tokens_decoder"]
            self.assertEqual({token["content"]: int(id) for id, token in saved.items() if int(id) >= len(VOCABULARY)},
                             {"[E1]": len(VOCABULARY), "[/E1]": len(VOCABULARY) + 1}, folder)

    def test_tokens_without_an_embedding_are_refused_by_name(self):
        model = self.model(extra_shapes=CLASSIFIER)
        (model / "added_tokens.json").write_text(json.dumps({"[E1]": len(VOCABULARY)}))
        self.refuses(["predict", "--model", model], '"[E1]" has no embedding', "resize the model's embeddings", stdin="film\n")
        self.assertIn('"[E1]" has no embedding', run("doctor", "--model", model).out)
        (model / "added_tokens.json").unlink()
        (model / "vocab.txt").write_text("\n".join(VOCABULARY).replace("[MASK]", "[unused0]") + "\n")
        self.succeeds("predict", "--model", model, stdin="film\n")

    def test_of_pieces_gives_the_token_types_that_the_saved_encoder_reads(self):
        """`transformers` gives the inputs that the file names; a store of the tokeniser before fits the saved model."""
        (self.folder / "lines.txt").write_text("the film was good\nthe play was bad\n" * 20)
        self.succeeds("vocabulary", "train", "--kind", "unigram", "--input", self.folder / "lines.txt", "--output", self.folder / "pieces",
                      "--size", 30)
        tokenizer = json.loads((self.folder / "pieces" / "tokenizer.json").read_text())
        size = len(tokenizer["model"]["vocab"])
        special = lambda name, kind: {"SpecialToken": {"id": name, "type_id": kind}}
        single = [special("<s>", 0), {"Sequence": {"id": "A", "type_id": 0}}, special("</s>", 0)]
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing", "single": single, "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}, special("</s>", 1)],
            "special_tokens": {name: {"id": name, "ids": [id], "tokens": [name]} for name, id in (("<s>", 0), ("</s>", 2))}}
        (self.folder / "pieces" / "tokenizer.json").write_text(json.dumps(tokenizer))
        store = self.store(self.folder / "pieces", "the film was bad\n" * 8)
        for types, named in ((2, ["input_ids", "token_type_ids", "attention_mask"]), (1, ["input_ids", "attention_mask"])):
            start, run_folder = self.folder / f"start{types}", self.folder / f"run{types}"
            write_model(start, vocab_size=size, type_vocab_size=types, extra_shapes={
                "embeddings.word_embeddings.weight": [size, HIDDEN], "embeddings.token_type_embeddings.weight": [types, HIDDEN]})
            (start / "vocab.txt").unlink()
            for file in (self.folder / "pieces").iterdir():
                (start / file.name).write_bytes(file.read_bytes())
            self.succeeds("pretrain", "--model", start, "--train", store, "--output", run_folder, "--max-steps", 1, "--batch-size", 4)
            saved = json.loads((run_folder / "model" / "tokenizer_config.json").read_text())
            self.assertEqual(saved["model_input_names"], named)
            self.succeeds("evaluate", "--model", run_folder / "model", "--task", "mlm", "--input", store)

    def test_padding_alone_shows_no_other_model(self):
        """Multilingual E5 and MiniLM are BERTs whose config.json has another padding token than the tokeniser."""
        model = self.model(extra_shapes=CLASSIFIER, pad_token_id=3)
        self.assertNotIn("another model", self.succeeds("predict", "--model", model, stdin="film\n").err)
        self.assertRegex(self.succeeds("doctor", model, "--output", self.folder).out, "(?m)^ok   tokeniser ")
        values = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**values, "cls_token_id": 7}))
        said = self.succeeds("predict", "--model", model, stdin="film\n").err
        self.assertIn("says pad_token_id 3, but the tokeniser's id is 0: is it another model's?", said)
        self.assertIn("says cls_token_id 7, but the tokeniser's id is 2", said)

    def test_of_a_class_with_other_rules_is_refused_by_name(self):
        model = self.model(extra_shapes=CLASSIFIER)
        (model / "tokenizer_config.json").write_text('{"tokenizer_class": "BertJapaneseTokenizer", "do_lower_case": false}')
        for words in (["predict", "--model", model], ["tokenize", "--tokenizer", model, "--input", "-", "--output", self.folder / "store"]):
            self.refuses(words, "BertJapaneseTokenizer, which is not implemented", stdin="film\n")


class Configuration(ProgramTest):
    def test_classes_are_named_by_id2label_and_the_keys_of_published_models_are_known(self):
        # transformers 5 leaves label2id as it was where from_pretrained gets id2label alone.
        model = self.model(extra_shapes=CLASSIFIER, id2label={"1": "b", "0": "a"}, label2id={"LABEL_0": 0, "LABEL_1": 1},
                           pooler_type="first_token_transform", pooler_fc_size=768, directionality="bidi", output_past=True)
        result = self.succeeds("predict", "--model", model, stdin="film\n")
        self.assertEqual(set(result.json()["probabilities"]), {"a", "b"})
        self.assertEqual(result.err.count("warning"), 1)
        self.assertIn('"label2id" says 0 for "LABEL_0", and "id2label" does not', result.err)

    def test_a_misspelt_key_is_named_with_the_one_that_was_meant(self):
        model = self.model()
        values = json.loads((model / "config.json").read_text())
        values["layer_norm_epss"] = values.pop("layer_norm_eps")
        (model / "config.json").write_text(json.dumps({**values, "our_own_key": 1}))
        meant = 'the key "layer_norm_epss" is not known and not used; did you mean "layer_norm_eps"?'
        for result in (self.succeeds(*self.finetune_words(model, max_steps=1, num_train_epochs=None)), run("doctor", "--model", model)):
            self.assertEqual((result.err + result.out).count(meant), 1)
            self.assertNotIn("our_own_key", result.err + result.out)

    def test_unknown_keys_are_named_where_a_size_of_the_model_is_left_out(self):
        model = self.model()
        values = json.loads((model / "config.json").read_text())
        del values["max_position_embeddings"]
        (model / "config.json").write_text(json.dumps({**values, "our_own_key": 1}))
        said = run("predict", "--model", model, stdin="film\n").err
        self.assertIn('there is no "max_position_embeddings", so the default is taken; these keys are not known and not used: our_own_key', said)

    def test_the_models_shape_and_parameters_are_told_at_the_start(self):
        result = self.succeeds(*self.finetune_words(self.model(), max_steps=1, num_train_epochs=None))
        self.assertRegex(result.err, r"the model: 0\.0 million parameters, 2 layers of 2 heads, hidden size 32, feed-forward size 64, \d+ tokens")

    def test_a_level_of_messages_that_there_is_not_is_refused(self):
        self.refuses(["--version"], "FUNICULAR_LOG expects one of debug, info, warning, error", "found \"warnin\"", "did you mean warning?",
                     env={**environment(), "FUNICULAR_LOG": "warnin"})

    def test_an_instruction_set_that_there_is_not_is_refused(self):
        self.refuses(["--version"], "FUNICULAR_ISA expects one of baseline, avx2,", 'found "avx513"', "did you mean avx512?",
                     env={**environment(), "FUNICULAR_ISA": "avx513"})

    def test_what_the_instruction_set_is_limited_to_is_used_where_the_processor_has_it(self):
        flags = set(re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1].split())
        avx512 = {"avx2", "avx512f", "avx512bw", "avx512vl", "avx512dq"}
        for isa, needed in (("avx2", {"avx2", "fma", "bmi2"}), ("avx2_vnni", {"avx2", "avx512_vnni", "avx512vl"}), ("avx512", avx512),
                            ("avx512_vnni", avx512 | {"avx512_vnni"}), ("avx512_bf16", avx512 | {"avx512_vnni", "avx512_bf16"})):
            if needed <= flags:
                result = run("doctor", env={**environment(), "FUNICULAR_ISA": isa})
                self.assertIn(f"kernels for {isa};", result.out + result.err)

    def test_threads_wait_briefly_for_each_other_unless_they_are_told_otherwise(self):
        library = pathlib.Path(PROGRAM).with_name("libfunicular.so")
        if "libgomp" not in subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout:
            self.skipTest("OpenMP is not GNU's here")
        shown = {**environment(), "OMP_DISPLAY_ENV": "verbose"}
        for more, spins in (({}, "5000"), ({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "passive"}, "0")):
            result = run("doctor", env={**shown, **more})
            self.assertIn(f"GOMP_SPINCOUNT = '{spins}'", result.err)

    def test_options_of_trainers_elsewhere_are_answered_with_ours(self):
        answers = {"--eval-strategy": "--eval-steps N", "--evaluation_strategy": "--eval-steps N", "--report-to": "TensorBoard",
                   "--do-train": "each is a command", "--do_eval": "each is a command", "--load-best-model-at-end": "--metric-for-best-model",
                   "--save-strategy": "--save-steps N", "--tensor-model-parallel-size": "--tensor-parallel", "--world-size": "launch -n N",
                   "--pipeline-model-parallel-size": "--pipeline-parallel", "--zero-stage": "--zero 1", "--gpus": "--device cuda",
                   "--accelerator": "--device cpu", "--nproc_per_node": "launch -n N", "--deepspeed": "--strategy zero1, zero2 or zero3"}
        words = self.finetune_words(self.folder)
        for option, answer in answers.items():
            self.refuses([*words, option, "x"], f"there is no {option.replace('_', '-')}: ", answer)

    def test_values_of_trainers_elsewhere_are_understood(self):
        words = self.finetune_words(self.model(), max_steps=1, num_train_epochs=None, metric_for_best_model="eval_accuracy")
        self.succeeds(*words, "--precision", "float32", "--strategy", "deepspeed_stage_2")
        noted = json.loads((self.folder / "run" / "run.json").read_text())
        self.assertEqual(noted["precision"], "fp32")
        self.refuses([*words, "--device", "gpu"], "--device cuda")


if __name__ == "__main__":
    unittest.main()
