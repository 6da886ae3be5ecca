"""What a resume compares, by the options that change it: no entry of run.json's identity without a row here."""

from harness import *

# Set by no option of these commands.
WITHOUT_OPTION = {"trainable", "frozen"}


class Identity(ProgramTest):
    def refuses_each(self, words, changes):
        """The run of `words` is refused, and the entry named, with each of the changes: entry -> words of the run."""
        self.succeeds(*words())
        identity = json.loads((self.folder / "run" / "run.json").read_text())["identity"]
        self.assertEqual(set(identity), set(changes) | WITHOUT_OPTION, "an entry without a row here, or a row without one")
        for entry, changed in changes.items():
            with self.subTest(entry):
                self.assertRegex(self.refuses(changed, "cannot be resumed; it belongs to another run").err, rf"\s{entry} was ")
        self.assertIn("resumed", self.succeeds(*words()).err)

    def test_of_a_fine_tuning_is_compared_entry_by_entry(self):
        model = self.model()
        rows = [(text, "01"[label == "pro"]) for label, text in sentiment_rows(24)]
        file = write_rows(self.folder / "rows.tsv", ("sentence", "label"), rows)
        fewer = write_rows(self.folder / "fewer.tsv", ("sentence", "label"), rows[:20])
        named = write_rows(self.folder / "named.tsv", ("sentence", "label"), [(text, "no yes".split()[int(label)]) for text, label in rows])

        def words(**changes):
            values = {"model": model, "train": file, "eval": None, "text_column": "sentence", "max_steps": 1,
                      "num_train_epochs": None, **changes}
            return self.finetune_words(values.pop("model"), **values)

        self.refuses_each(words, {
            "task": words(task="sst2", text_column=None), "labels": words(train=named), "data": words(train=fewer),
            "model": words(model=self.model("relu", hidden_act="relu")),
            "initial_weights": words(model=self.model("other", extra_shapes={"cls.predictions.bias": [len(VOCABULARY)]})),
            "tokenizer": words(model=self.model("words", vocabulary=VOCABULARY[:-1] + ["new"])),
            "sequence": words(max_length=12), "batch_size": words(batch_size=4), "seed": words(seed=43),
            "shuffle": words() + ["--no-shuffle"], "drop_last": words() + ["--drop-last"],
            "precision": words(precision="bf16"), "optimizer": words(optim="lamb")})

    def test_of_a_pretraining_is_compared_entry_by_entry(self):
        model, vocabulary = self.model(), VOCABULARY[:-1] + ["new"]
        other_words = self.model("words", vocabulary=vocabulary)
        store = self.store(model)
        less = self.store(model, text="\n\n".join(["the very good film is not bad"] * 9), name="less.tokens")
        other = self.store(other_words, name="other.tokens")

        def words(**changes):
            values = {"model": model, "train": store, "output": self.folder / "run", "max_steps": 1, "batch_size": 4,
                      "max_length": 16, **changes}
            return ["pretrain"] + [word for name, value in values.items() for word in ("--" + name.replace("_", "-"), str(value))]

        self.refuses_each(words, {
            "objective": words(mlm_probability=0.2), "data": words(train=less),
            "model": words(model=self.model("relu", hidden_act="relu")),
            "initial_weights": words(model=self.model("other", extra_shapes={"cls.predictions.bias": [len(VOCABULARY)]})),
            "tokenizer": words(model=other_words, train=other), "freeze_encoder_steps": words(freeze_encoder_steps=1),
            "batch_size": words(batch_size=2), "seed": words(seed=43), "shuffle": words() + ["--no-shuffle"],
            "drop_last": words() + ["--drop-last"], "precision": words(precision="bf16"), "optimizer": words(optim="lamb")})
        for changed in (words() + ["--whole-words"], words(max_length=24), words(objective="mlm-sop"), words(masking="span"),
                        words(masking="ngram"), words(compat="google"), words(pack_sentences="within")):
            self.refuses(changed, "cannot be resumed", "objective was ")

    def test_of_a_pretraining_holds_what_is_in_the_files_of_words(self):
        model = self.model()
        store = self.store(model)
        files = {"lexicon": "very good\n", "word_weights": "film\t2\n", "similar_words": "film\tbook\n", "word_dictionary": "中国 3 n\n"}
        more = {"lexicon": {"masking": "entity"}, "similar_words": {"replacement": "similar"}}
        for name, text in files.items():
            with self.subTest(name):
                path = self.folder / (name + ".txt")
                path.write_text(text)
                values = {"model": model, "train": store, "output": self.folder / name, "max_steps": 1, "batch_size": 4,
                          "max_length": 16, "masking": "whole-word", name: path, **more.get(name, {})}
                words = ["pretrain"] + [word for option, value in values.items() for word in ("--" + option.replace("_", "-"), str(value))]
                self.succeeds(*words)
                self.assertIn("resumed", self.succeeds(*words).err)
                moved = path.rename(self.folder / ("moved " + name))
                words[words.index(str(path))] = str(moved)
                self.assertIn("resumed", self.succeeds(*words).err)
                moved.write_text(text.replace("film", "song").replace("very", "not").replace("3", "4"))
                self.refuses(words, "cannot be resumed", "objective was ")


if __name__ == "__main__":
    unittest.main()
