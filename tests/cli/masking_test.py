"""Masking of every kind, objectives and packed sentences: the same however training is laid out; wrong files have their messages."""

import shutil

from harness import *
from byte_bpe_test import write_roberta
from options.lab import Lab, distance
from options.masking import FORTY, similar_file, text_file


class Layouts(Lab):
    """Of three steps: a layout changes neither what is hidden nor what is learnt."""

    def kinds(self):
        lexicon = text_file(self, "good bad\nfilm book very\n", "lexicon")
        return {"order": {"objective": "mlm-sop", "masking": "ngram"},
                "rows": {"pack_sentences": "across", "masking": "span"},
                "similar": {"masking": "whole-word", "replacement": "similar", "similar_words": similar_file(self)},
                "corpora": {"train": [self.data(), self.tokenized("more", self.texts([9, 4, 13], seed=6))], "data_weights": "0.6,0.4",
                            "objective": "mlm-nsp", "static_masks": 2},
                "electra": {"objective": "electra", "masking": "whole-word", "mlm_probability": 0.4, "model": self.electra()},
                "next": {"objective": "mlm-nsp", "masking": "entity", "lexicon": lexicon, "static_masks": 2}}

    def each_kind(self, check):
        self.command = "pretrain"
        for name, options in self.kinds().items():
            with self.subTest(name):
                check({"max_steps": 3, "save_total_limit": 0, "save_steps": 1, "shuffle": True, "weight_decay": 0.01,
                       "model": self.model_with_dropout(), **options})

    def electra(self):
        return self.once("electra_with_dropout", lambda path: write_model(path, model_type="electra", embedding_size=HIDDEN))

    def model_with_dropout(self):
        return self.once("dropout", lambda path: write_model(path))

    def test_by_workers_are_the_same_to_the_bit(self):
        def check(options):
            weights = [self.train(num_workers=number, **options).weights for number in (0, 3)]
            self.assertEqual(*weights)
        self.each_kind(check)

    def test_by_micro_batches_recomputation_and_two_ranks_differ_by_rounding(self):
        def check(options):
            one = self.train(**options)
            for other in (self.train(micro_batch_size=1, **options), self.train(recompute="full", **options),
                          self.train(gradient_accumulation_steps=2, **options), self.train(ranks=2, **options)):
                self.assertLess(distance(other.weights, one.weights), 1e-11)
                for mine, theirs in zip(one.each("loss"), other.each("loss"), strict=True):
                    self.assertAlmostEqual(mine, theirs, places=10)
        self.each_kind(check)

    def test_by_stages_slices_and_both_differ_by_rounding(self):
        def check(options):
            one = self.train(**options)
            for ranks, cut in ((2, {"pipeline_parallel": 2, "schedule": "zb-h1", "micro_batch_size": 1}), (2, {"tensor_parallel": 2}),
                               (4, {"pipeline_parallel": 2, "tensor_parallel": 2, "schedule": "gpipe"})):
                if "tensor_parallel" in cut and options.get("objective") == "electra":
                    continue  # its generator has one head, which cannot be cut
                other = self.train(ranks=ranks, **cut, **options)
                self.assertLess(distance(other.weights, one.weights), 1e-11, cut)
                for mine, theirs in zip(one.each("loss"), other.each("loss"), strict=True):
                    self.assertAlmostEqual(mine, theirs, places=10)
        self.each_kind(check)

    def resumes_to_the_same_bytes(self, whole, step, options):
        """What a run leaves that has lost its checkpoints behind `step`, and goes on."""
        cut = self.folder / f"cut-{len(list(self.folder.glob('cut-*')))}"
        shutil.copytree(whole.folder, cut)
        for later in range(step + 1, 4):
            shutil.rmtree(cut / "checkpoints" / f"step-{later:06}")
        again = self.train(output=cut, **options)
        self.assertIn("resumed", again.err)
        last = pathlib.Path("checkpoints") / "step-000003"
        for name in ("model", "optimizer"):
            self.assertEqual(*[(folder / last / f"{name}.safetensors").read_bytes() for folder in (cut, whole.folder)])
        states = [json.loads((folder / last / "state.json").read_text()) for folder in (cut, whole.folder)]
        self.assertEqual(*[state.get("drawn") for state in states])

    def test_resumed_after_each_step_end_with_the_same_bytes(self):
        def check(options):
            whole = self.train(**options)
            for step in (1, 2):
                self.resumes_to_the_same_bytes(whole, step, options)
        self.each_kind(check)

    def test_of_two_ranks_with_recomputation_and_accumulation_resume_to_the_same_bytes(self):
        def check(options):
            options = {"ranks": 2, "recompute": "full", "gradient_accumulation_steps": 2, **options}
            self.resumes_to_the_same_bytes(self.train(**options), 1, options)
        self.each_kind(check)


class WordFiles(Lab):
    """Files that the options of masking name."""

    def says(self, name, text, *phrases, **options):
        path = text_file(self, text, name)
        words = [word for option, value in {name: path, **options}.items() for word in ("--" + option.replace("_", "-"), value)]
        self.refuses(["mask", "--tokenizer", self.plain_model(), "--input", text_file(self, FORTY), *words],
                     *[phrase.replace("FILE", str(path)) for phrase in phrases])

    def test_that_are_ragged_are_refused_with_file_and_line(self):
        similar = {"masking": "whole-word", "replacement": "similar"}
        self.says("lexicon", "good bad\nfilm\tbook\n", "FILE:2: expected one entity a line", "found a tab", masking="entity")
        self.says("word_weights", "good\t1\nbad\n", "FILE:2: expected a word, a tab and a finite weight", 'found "bad"',
                  masking="whole-word")
        for weight in ("-1", "nan", "inf", "1x", ""):
            self.says("word_weights", f"good\t{weight}\n", "FILE:1: expected a word, a tab and a finite weight", masking="whole-word")
        self.says("similar_words", "good\tbad\nfilm\n", "FILE:2: expected a word, a tab and similar words", **similar)
        self.says("similar_words", "good 1 2\nbad 1\n", "FILE:2: expected a word and 2 numbers", "found 2 fields", **similar)
        self.says("similar_words", "good 1 2\nbad 1 two\n", 'FILE:2: expected a finite number, found "two"', **similar)
        self.says("word_dictionary", "中国 3 n\n中国\n", "FILE:2: expected a word, a blank and its frequency", masking="whole-word")

    def test_that_are_empty_or_missing_are_refused_but_for_a_lexicon(self):
        similar = {"masking": "whole-word", "replacement": "similar"}
        self.says("word_weights", "", "FILE: the file is empty", masking="whole-word")
        self.says("similar_words", "", "FILE: no word has a similar one", **similar)
        self.says("word_dictionary", "\n", "FILE: the dictionary is empty", masking="whole-word")
        self.refuses(["mask", "--tokenizer", self.plain_model(), "--input", text_file(self, FORTY), "--masking", "entity", "--lexicon",
                      self.folder / "none.txt"], "none.txt")
        empty = text_file(self, "", "lexicon")
        words = ["mask", "--tokenizer", self.plain_model(), "--input", text_file(self, FORTY), "--show"]
        self.assertEqual(self.succeeds(*words, "--masking", "entity", "--lexicon", empty).out,
                         self.succeeds(*words, "--masking", "whole-word").out)

    def test_of_weights_tell_the_words_that_the_vocabulary_lacks(self):
        words = ["mask", "--tokenizer", self.plain_model(), "--input", text_file(self, FORTY), "--masking", "whole-word", "--word-weights"]
        found = self.succeeds(*words, text_file(self, "good\t2\n中国\t3\nné\t1\n中\t0\n", "weights"))
        self.assertIn("2 words have a token that the vocabulary lacks, and are left out", found.err)
        self.refuses([*words, text_file(self, "中国\t3\n中\t0\n", "weights")], "weights.txt: each of the 2 words has a token that the vocabulary lacks")

    def test_of_chinese_words_are_refused_where_ideographs_are_no_tokens_of_their_own(self):
        dictionary, text = text_file(self, "中国 50 n\n", "dictionary"), text_file(self, "中国")
        joined = write_model(self.folder / "joined")
        (joined / "tokenizer_config.json").write_text(json.dumps({"tokenize_chinese_chars": False}))
        for tokenizer in (write_roberta(self.folder / "roberta")[0], joined):
            self.refuses(["mask", "--tokenizer", tokenizer, "--input", text, "--masking", "whole-word", "--word-dictionary", dictionary],
                         "finds words by blanks", "put blanks between the words before you tokenise the text")

    def test_whole_sentences_that_are_words_are_warned_of(self):
        joined = write_model(self.folder / "joined", vocabulary=[*VOCABULARY, *"中国人民", *("##" + one for one in "中国人民研究生命")])
        (joined / "tokenizer_config.json").write_text(json.dumps({"tokenize_chinese_chars": False}))
        words = ["mask", "--tokenizer", joined, "--input", text_file(self, "中国人民")]
        self.assertIn("a Chinese sentence counts as one word and is masked whole or not at all", self.succeeds(*words, "--masking", "whole-word").err)
        self.assertNotIn("masked whole", self.succeeds(*words).err)

    def test_that_no_option_reads_are_refused(self):
        self.says("lexicon", "good\n", "--lexicon does nothing without --masking entity")
        self.says("similar_words", "good\tbad\n", "--similar-words does nothing without --replacement similar")
        self.says("word_weights", "good\t1\n", "--word-weights weighs words; give --masking whole-word")
        self.says("word_dictionary", "中国 3\n", "--word-dictionary works only with words; give --masking whole-word")
        words = ["mask", "--tokenizer", self.plain_model(), "--input", text_file(self, FORTY)]
        self.refuses([*words, "--masking", "entity"], "--masking entity needs a file; give --lexicon FILE")
        self.refuses([*words, "--whole-words", "--replacement", "similar"], "--replacement similar needs a file; give --similar-words FILE")


if __name__ == "__main__":
    unittest.main()
