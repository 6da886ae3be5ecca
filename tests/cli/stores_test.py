"""A token store whose files were changed is found out, whatever command it is given to."""

import os
import shutil
import unittest.mock

from harness import *

FILES = ("tokens.bin", "rows.bin", "documents.bin", "words.bin", "meta.json")


def flip(path, place=None):
    """Changes a bit in the middle of the file."""
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2 if place is None else place] ^= 4
    path.write_bytes(raw)


def make_old(store):
    """As stores were made before blocks had checksums."""
    meta = json.loads((store / "meta.json").read_text())
    del meta["block_bytes"], meta["xxh3"]
    for entry in meta["files"].values():
        del entry["blocks"]
    (store / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")


def verified_first(count):
    return unittest.mock.patch.dict(os.environ, {"FUNICULAR_VERIFY_FIRST": str(count)})


class DamagedStores(ProgramTest):
    def setUp(self):
        super().setUp()
        self.encoder = self.model()
        self.sound = self.store(self.encoder)

    def damaged(self, name):
        store = self.folder / f"{name}.tokens"
        shutil.copytree(self.sound, store)
        flip(store / name)
        return store

    def pretrain(self, store, *words, output="run"):
        return ["pretrain", "--model", self.encoder, "--train", store, "--output", self.folder / output, "--max-length", "16",
                "--max-steps", "8", "--batch-size", "4", "--save-steps", "4", *words]

    def assert_nothing_saved(self, output="run"):
        for name in ("checkpoints", "model"):
            self.assertFalse((self.folder / output / name).exists(), name)

    def test_pretrain_and_evaluate_refuse_a_flipped_bit_of_any_file(self):
        masked = self.folder / "masked"
        self.succeeds(*self.pretrain(self.sound, output="masked"))
        for name in FILES:
            with self.subTest(name=name):
                store = self.damaged(name)
                where = [f"{name}.tokens/{name}: damaged", "the checksum", "expected", "make it again with `funicular tokenize`"]
                self.refuses(self.pretrain(store), *where)
                self.refuses(self.pretrain(self.sound, "--eval", store), *where)
                self.refuses(["evaluate", "--model", masked / "model", "--task", "mlm", "--data", store], *where)
        self.assert_nothing_saved()

    def test_the_block_is_named_where_a_file_has_several(self):
        store = self.store(self.encoder, "the old film is not very good\n\n" * 650_000, "long.tokens")
        flip(store / "tokens.bin", 5_000_000)
        self.refuses(self.pretrain(store), "tokens.bin: damaged: bytes 4194304 to 8388607 (block 2 of 3) have the checksum")

    def test_a_store_that_is_too_large_to_be_verified_first_is_verified_before_anything_is_saved(self):
        store = self.damaged("tokens.bin")
        with verified_first(0):
            self.refuses(self.pretrain(store), "tokens.bin: damaged", "nothing was saved that came of them")
            self.assert_nothing_saved()
            sound = self.succeeds(*self.pretrain(self.sound))
        self.assertRegex(sound.err, r"text.tokens: \d+\.\d MB verified in the background in \d+\.\d+ s, \d+ MB/s")
        self.assertTrue((self.folder / "run" / "model").exists())

    def test_evaluate_prints_nothing_of_a_store_that_is_found_damaged_meanwhile(self):
        self.succeeds(*self.pretrain(self.sound, output="masked"))
        store = self.damaged("tokens.bin")
        words = ["evaluate", "--model", self.folder / "masked" / "model", "--task", "mlm", "--data", store]
        with verified_first(0):
            self.refuses(words, "tokens.bin: damaged")
            flip(store / "tokens.bin", 701)  # an id that is no token
            self.refuses(words, "tokens.bin: damaged")
            self.refuses(self.pretrain(store), "tokens.bin: damaged")

    def test_ranks_share_the_verification_and_fail_together(self):
        for count in (0, 2**20):
            for name in ("tokens.bin", "rows.bin"):
                with self.subTest(name=name, verified_first=count), verified_first(count):
                    store = self.folder / f"{name}.tokens"
                    if not store.exists():
                        self.damaged(name)
                    self.refuses(["launch", "-n", "2", "--", PROGRAM, *self.pretrain(store)], f"{name}: damaged")
                    self.assert_nothing_saved()

    def test_an_older_store_without_checksums_of_blocks_is_used_and_verified(self):
        make_old(self.sound)
        self.succeeds(*self.pretrain(self.sound))
        self.assertIn("whole files", self.succeeds("tokenize", "--verify", self.sound).out)
        self.refuses(self.pretrain(self.damaged("tokens.bin")), "tokens.bin: damaged: its contents have the checksum")

    def test_tokenize_verify_says_what_it_read_or_what_is_damaged(self):
        said = self.succeeds("tokenize", "--verify", self.sound).out
        self.assertRegex(said, r"text.tokens: verified: 60 rows, \d+ tokens; 4 files, \d+\.\d MB, 4 blocks of at most 4194304 bytes; "
                               r"\d+\.\d+ s, \d+ MB/s")
        for name in FILES:
            self.refuses(["tokenize", "--verify", self.damaged(name)], f"{name}: damaged")

    def test_tokenize_verify_makes_nothing_and_tokenize_still_needs_its_options(self):
        self.refuses(["tokenize", "--verify", self.sound, "--output", self.folder / "x.tokens"],
                     "makes nothing; leave out --output")
        self.refuses(["tokenize", "--tokenizer", self.encoder, "--output", self.folder / "x.tokens"], "--input", "required")
        self.assertFalse((self.folder / "x.tokens").exists())

    def test_doctor_verifies_a_store_and_that_it_is_the_models(self):
        said = self.succeeds("doctor", "--model", self.encoder, "--data", self.sound, "--output", self.folder).out
        self.assertRegex(said, r"(?m)^ok   store      .*text.tokens: verified: 60 rows")
        self.assertIn("made with the model's tokeniser", said)
        damaged = run("doctor", "--data", self.damaged("words.bin"), "--output", self.folder)
        self.assertEqual(damaged.code, 1)
        self.assertRegex(damaged.out, r"(?m)^FAIL store      .*words.bin: damaged")
        other = self.model("other", vocabulary=VOCABULARY[:-1])
        foreign = run("doctor", "--model", other, "--data", self.sound, "--output", self.folder)
        self.assertRegex(foreign.out, r"(?m)^FAIL .*made with another tokeniser")

    def test_a_limit_that_is_no_number_is_refused(self):
        with verified_first("much"):
            self.refuses(self.pretrain(self.sound), "FUNICULAR_VERIFY_FIRST expects a number of bytes, found \"much\"")


class StoresOfFineTuning(ProgramTest):
    def test_flipped_labels_of_an_earlier_run_are_found_and_the_store_is_made_again(self):
        words = self.finetune_words(self.model(), num_train_epochs=1)
        self.succeeds(*words)
        run_folder = self.folder / "run"
        files = ("labels.bin", "tokens.bin", "rows.bin", "meta.json")
        stores = sorted((run_folder / "data").glob("*.tokens"))
        self.assertEqual([store.name.split("-")[0] for store in stores], ["eval", "train"])
        before = {path: path.read_bytes() for store in stores for path in store.iterdir()}
        model = (run_folder / "model" / "model.safetensors").read_bytes()
        for store in stores:
            for name in files:
                with self.subTest(store=store.name, name=name):
                    flip(store / name)
                    for part in ("model", "checkpoints"):
                        shutil.rmtree(run_folder / part)
                    again = self.succeeds(*words)
                    self.assertRegex(again.err, rf"(?s)warning: .*{store.name}/{name}: damaged.*made again from .*tsv")
                    self.assertEqual({path: path.read_bytes() for path in before}, before)
                    self.assertEqual((run_folder / "model" / "model.safetensors").read_bytes(), model)

    def test_ranks_use_what_rank_0_made_again(self):
        words = ["launch", "-n", "2", "--", PROGRAM, *self.finetune_words(self.model(), num_train_epochs=1)]
        self.succeeds(*words)
        labels, = (self.folder / "run" / "data").glob("train-*/labels.bin")
        before = labels.read_bytes()
        flip(labels)
        for part in ("model", "checkpoints"):
            shutil.rmtree(self.folder / "run" / part)
        again = self.succeeds(*words)
        self.assertEqual(again.err.count("labels.bin: damaged"), 1)
        self.assertEqual(labels.read_bytes(), before)


class StoresBeingMade(ProgramTest):
    def tokenize(self, model):
        (self.folder / "in.txt").write_text("the film\n\na book\n")
        return ["tokenize", "--tokenizer", model, "--input", self.folder / "in.txt", "--output", self.folder / "a.tokens"]

    def test_a_planted_link_is_not_written_through(self):
        words = self.tokenize(self.model())
        victim = self.folder / "victim"
        victim.mkdir()
        (victim / "tokens.bin").write_text("mine")
        planted = self.folder / ".a.tokens.building"
        planted.symlink_to(victim)
        self.refuses(words, ".a.tokens.building", "found a link or a file; remove it")
        self.assertEqual([(path.name, path.read_text()) for path in victim.iterdir()], [("tokens.bin", "mine")])
        planted.unlink()
        planted.mkdir()  # as a dead builder leaves it, but for the link
        (planted / "tokens.bin").symlink_to(victim / "tokens.bin")
        self.succeeds(*words)
        self.assertEqual((victim / "tokens.bin").read_text(), "mine")
        self.assertFalse(planted.exists())
        self.succeeds("tokenize", "--verify", self.folder / "a.tokens")


class Tables(ProgramTest):
    def test_a_column_named_twice_is_refused(self):
        model = self.model()
        table = self.folder / "twice.tsv"
        table.write_text("label\ttext\ttext\npro\tgood\tbad\ncontra\tbad\tgood\n")
        self.refuses(self.finetune_words(model, train=table),
                     f"{table}:1: expected a different name for each column, found \"text\" for columns 2 and 3")
        self.refuses(["tokenize", "--tokenizer", model, "--input", table, "--header", "--text-column", "text", "--output",
                      self.folder / "a.tokens"], f"{table}:1", "for columns 2 and 3")

    def test_an_endless_line_is_too_long_and_not_a_quote(self):
        model = self.model(extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]})
        lines = self.folder / "lines.txt"
        with lines.open("w") as file:
            file.write("the film\n")
            file.truncate(100_000_000)
        refused = self.refuses(["predict", "--model", model, "--input", lines, "--output", self.folder / "out"],
                               "lines.txt:2: the line is too long: expected at most 67108864 bytes, found")
        self.assertNotIn("quote", refused.err)


if __name__ == "__main__":
    unittest.main()
