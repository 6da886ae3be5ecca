"""The commands with a folder of RoBERTa's kind: byte-level BPE, its special tokens, its positions and its names of weights."""

import re
import shutil

from harness import *

SPECIAL_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
LIMIT = 40  # tokens of a sequence


def byte_characters():
    """GPT-2's: bytes that are printed stand for themselves, the others for characters from U+0100 on."""
    printed = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printed]
    return {**{byte: chr(byte) for byte in printed}, **{byte: chr(256 + number) for number, byte in enumerate(others)}}


BLANK = byte_characters()[ord(" ")]


def write_roberta(folder):
    """Each of WORDS is one token behind a blank: its letters are merged from the left, and then the blank."""
    tokens = [*SPECIAL_TOKENS, *byte_characters().values()]
    merges = []
    for word in WORDS:
        parts = [(word[:size], word[size]) for size in range(1, len(word))] + [(BLANK, word)]
        merges += [pair for pair in parts if pair not in merges]
    tokens += ["".join(pair) for pair in merges if "".join(pair) not in tokens]
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges))
    values = config(model_type="roberta", architectures=["RobertaModel"], vocab_size=len(tokens), type_vocab_size=1, pad_token_id=1,
                    bos_token_id=0, eos_token_id=2, max_position_embeddings=LIMIT + 2, layer_norm_eps=1e-5)
    (folder / "config.json").write_text(json.dumps(values))
    shapes = encoder_shapes()
    shapes["embeddings.word_embeddings.weight"][0] = len(tokens)
    shapes["embeddings.position_embeddings.weight"][0] = LIMIT + 2
    shapes["embeddings.token_type_embeddings.weight"][0] = 1
    write_safetensors(folder / "model.safetensors", random_weights(shapes))
    return folder, tokens


class RobertasFolder(ProgramTest):
    def setUp(self):
        super().setUp()
        self.start, self.tokens = write_roberta(self.folder / "roberta")

    def id_of(self, word):
        return self.tokens.index(BLANK + word)

    def test_tokenizes_words_and_any_bytes(self):
        store = self.store(self.start, "a very good film\nné\n")
        found = list(memoryview((store / "tokens.bin").read_bytes()).cast("H"))
        accent = [self.tokens.index(byte_characters()[byte]) for byte in "né".encode()]
        # Without a blank before it the first word is another token.
        self.assertEqual(found, [self.tokens.index("a"), *map(self.id_of, ("very", "good", "film")), *accent])

    def test_masks_are_shown_as_its_own_mask_token(self):
        text = self.folder / "text.txt"
        text.write_text("the very good film is very good and long\n")
        for masking in ("token", "whole-word"):
            shown = self.succeeds("mask", "--tokenizer", self.start, "--input", text, "--show", "--examples", 8, "--sequences", 50, "--masking",
                                  masking, "--mlm-probability", 0.4).out
            lines = [line for line in shown.splitlines() if re.search(r"\{[^|{}]*\|\s*<mask>\s*\}", line)]
            # A random token may be a brace.
            whole = [line for line in lines if line.count("{") == line.count("}") == line.count("|")]
            self.assertGreater(len(whole), 2, shown)
            for line in whole:
                self.assertIn("very good film is very good", re.sub(r"\s+", " ", re.sub(r"\{([^|{}]*)\|[^{}]*\}", r"\1", line)))

    def test_a_hidden_token_that_is_a_blank_is_seen(self):
        text = self.folder / "blanks.txt"
        text.write_text("very   good   film\n")
        shown = self.succeeds("mask", "--tokenizer", self.start, "--input", text, "--show", "--mlm-probability", 0.9).out
        self.assertIn("{␣|", shown)
        self.assertNotIn("{|", shown)

    def test_is_pretrained_and_measured_and_its_model_is_a_folder_of_the_same_kind(self):
        store = self.store(self.start)
        words = ["pretrain", "--model", self.start, "--train", store, "--output", self.folder / "run", "--max-length", 24, "--batch-size", 16,
                 "--learning-rate", "5e-3", "--eval-fraction", 0.2, "--max-steps", 120, "--eval-steps", 60, "--masking", "whole-word"]
        result = self.succeeds(*words)
        self.assertLess(result.json()["loss"], 3.2)  # of one among the words: ln(14) = 2.6; of any token: 5.8
        folder = self.folder / "run" / "model"
        written = json.loads((folder / "config.json").read_text())
        self.assertEqual((written["architectures"], written["model_type"]), (["RobertaForMaskedLM"], "roberta"))
        for name in ("vocab.json", "merges.txt", "tokenizer.json"):
            self.assertTrue((folder / name).exists(), name)
        self.assertEqual(json.loads((folder / "vocab.json").read_text()), json.loads((self.start / "vocab.json").read_text()))
        self.assertIn("roberta.embeddings.word_embeddings.weight", read_safetensors(folder / "model.safetensors"))
        found = self.succeeds("evaluate", "--model", folder, "--task", "mlm", "--data", store, "--max-length", 24).json()
        self.assertLess(found["loss"], 3.2)
        self.assertEqual(self.store(folder, name="again.tokens").joinpath("tokens.bin").read_bytes(), (store / "tokens.bin").read_bytes())
        # The last step is done again: what is learnt is the same.
        before = read_safetensors(folder / "model.safetensors")
        shutil.rmtree(self.folder / "run" / "model")
        self.succeeds(*words)
        self.assertEqual(read_safetensors(folder / "model.safetensors"), before)

    def test_is_fine_tuned_and_answers_as_it_is_measured(self):
        result = self.succeeds(*self.finetune_words(self.start, learning_rate=2e-3, num_train_epochs=12))
        self.assertEqual(result.json()["accuracy"], 1)
        folder = self.folder / "run" / "model"
        self.assertEqual(json.loads((folder / "config.json").read_text())["architectures"], ["RobertaForSequenceClassification"])
        measured = self.succeeds("evaluate", "--model", folder, "--task", "custom", "--data", self.folder / "eval.tsv").json()
        self.assertEqual((measured["accuracy"], measured["samples"]), (1, 32))
        rows = [line.split("\t") for line in (self.folder / "eval.tsv").read_text().splitlines()[1:]]
        for precision in ("fp32", "int8"):
            answers = self.succeeds("predict", "--model", folder, "--precision", precision, stdin="".join(text + "\n" for _, text in rows)).out
            self.assertEqual([json.loads(line)["label"] for line in answers.splitlines()], [label for label, _ in rows])

    def test_has_four_special_tokens_around_a_pair(self):
        texts = [text for _, text in sentiment_rows(16)]
        rows = [(["no", "yes"][number % 2], one, other) for number, (one, other) in enumerate(zip(texts, reversed(texts)))]
        write_rows(self.folder / "pairs.tsv", ("label", "a", "b"), rows)
        run_folder = self.folder / "pairs"
        self.succeeds("finetune", "--model", self.start, "--task", "custom", "--train", self.folder / "pairs.tsv", "--text-column", "a", "b",
                      "--output", run_folder, "--batch-size", 16, "--max-steps", 1, "--logging-steps", 1, "--max-length", 40)
        record = json.loads((run_folder / "metrics.jsonl").read_text().splitlines()[0])
        pieces = sum(self.pieces_of(one) + self.pieces_of(other) for _, one, other in rows)
        self.assertEqual(round(record["tokens_per_second"] * record["step_seconds"]), pieces + 4 * len(rows))

    def pieces_of(self, text):
        """Of a text of known words: without a blank before it the first one is its letters, merged, and "a" is in no merge."""
        return len(text.split(" ")) + text.split(" ").count("a") - text.startswith("a ")

    def test_of_wordpiece_is_not_taken_for_it(self):
        store = self.store(self.model())
        self.refuses(["pretrain", "--model", self.start, "--train", store, "--output", self.folder / "run", "--max-length", 24],
                     "made with another tokeniser (WordPiece", "byte-level BPE")

    def test_of_another_model_of_the_same_size_is_refused(self):
        """WordPiece, whose padding token is 0: a RoBERTa counts positions from its own, 1."""
        fewest = self.folder / "other"
        shutil.copytree(self.start, fewest)
        for name in ("vocab.json", "merges.txt"):
            (fewest / name).unlink()
        fill = [f"word{number}" for number in range(len(self.tokens) - len(VOCABULARY))]
        (fewest / "vocab.txt").write_text("\n".join(VOCABULARY + fill) + "\n")
        store = self.store(fewest)
        words = ("(WordPiece", "is 0, but config.json says pad_token_id 1", "use the model's own tokeniser")
        train = ["--output", self.folder / "run", "--max-length", 24, "--max-steps", 1]
        self.refuses(["pretrain", "--model", fewest, "--train", store, *train], *words)
        write_rows(self.folder / "train.tsv", ("label", "text"), sentiment_rows(8))
        self.refuses(["finetune", "--model", fewest, "--task", "custom", "--train", self.folder / "train.tsv", *train], *words)
        found = run("doctor", "--model", fewest, "--output", self.folder)
        self.assertEqual(found.code, 1)
        self.assertRegex(found.out, r"(?m)^FAIL tokeniser .*pad_token_id 1")
        # A model of that shape may be made for it.
        values = json.loads((fewest / "config.json").read_text())
        (fewest / "config.json").write_text(json.dumps({**values, "pad_token_id": 0, "mask_token_id": 4}))
        (fewest / "model.safetensors").unlink()
        result = self.succeeds("pretrain", "--model", fewest, "--train", store, *train)
        self.assertIn("config.json says bos_token_id 0, but the tokeniser's id is 2", result.err)
        self.assertNotIn("mask_token_id", result.err)
        self.assertIn("says bos_token_id 0", run("doctor", "--model", fewest, "--output", self.folder).out)


if __name__ == "__main__":
    unittest.main()
