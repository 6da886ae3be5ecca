"""What a killed command leaves behind is gone after the next run, and what it had completed is complete."""

import os
import time

from harness import *


def kill_when(condition, number, *words, **more):
    """Starts the program and sends it the signal `number` as soon as the condition holds; whether it did before the end."""
    process = subprocess.Popen([PROGRAM, *exact(words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**environment(), **more})
    deadline, held = time.monotonic() + 120, False
    while process.poll() is None and not held and time.monotonic() < deadline:
        if held := condition():
            process.send_signal(number)
    process.wait(timeout=120)
    return held and process.returncode == (-number if number == signal.SIGKILL else 75)


class Leftovers(ProgramTest):
    def hidden(self):
        return sorted(path.name for path in self.folder.rglob("*") if ".tmp-" in path.name)

    def leave(self, place, is_folder):
        """As a killed process leaves it."""
        path = place.parent / f".tmp-{place.name}-0123456789abcdef"
        if is_folder:
            (path / "inner").mkdir(parents=True)
            (path / "inner" / "file").write_text("half")
        else:
            path.write_text("half")
        return path

    def corpus(self, rows=200):
        text = self.folder / "text.txt"
        text.write_text("the film is good and the book is not\n" * rows)
        return text

    def vectors(self, *more):
        return ["vectors", "--input", self.corpus(), "--output", self.folder / "v.txt", "--min-count", 1, "--size", 8, *more]

    def extend(self):
        (self.folder / "words.txt").write_text("abc\nfilms\n")
        return ["vocabulary", "extend", "--model", self.folder / "model", "--words", self.folder / "words.txt", "--output",
                self.folder / "bigger"]

    def test_the_next_run_removes_what_a_killed_one_left_beside_its_output(self):
        self.model()
        (self.folder / "lines.txt").write_text("the film\n")
        classifier = self.model("classes", extra_shapes={"classifier.weight": [2, HIDDEN], "classifier.bias": [2]})
        answers = self.folder / "answers.jsonl"
        for place, is_folder, words in ((self.folder / "v.txt", False, self.vectors()), (self.folder / "bigger", True, self.extend()),
                                        (answers, False, ["predict", "--model", classifier, "--input", self.folder / "lines.txt",
                                                          "--output", answers])):
            with self.subTest(words[0]):
                self.leave(place, is_folder)
                stranger = self.leave(place.parent / f"{place.name}-2", False)
                self.succeeds(*words)
                self.assertEqual(self.hidden(), [stranger.name])
                stranger.unlink()

    def test_a_temporary_that_a_living_process_holds_stays(self):
        words, held = self.vectors(), self.leave(self.folder / "v.txt", False)
        with subprocess.Popen(["flock", held, "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as holder:
            while subprocess.run(["flock", "-n", held, "true"], check=False).returncode == 0:
                time.sleep(0.01)
            self.succeeds(*words)
            self.assertEqual(self.hidden(), [held.name])
            holder.stdin.close()

    def test_temporary_folders_of_killed_commands_are_removed_by_a_signal_or_by_the_next_command(self):
        place = self.folder / "temporary"
        place.mkdir()
        words = ["mask", "--tokenizer", self.model(), "--input", self.corpus(200_000)]
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                self.assertTrue(kill_when(lambda: any(place.iterdir()), number, *words, TMPDIR=str(place)))
                self.assertEqual(len(list(place.iterdir())), number == signal.SIGKILL)
                run("mask", "--tokenizer", self.folder / "model", "--input", self.folder / "model/vocab.txt",
                    env={**environment(), "TMPDIR": str(place)})
                self.assertEqual(list(place.iterdir()), [])

    def test_a_signal_to_the_extension_of_a_vocabulary_leaves_nothing(self):
        self.model(vocab_size=len(VOCABULARY))
        words = self.extend()
        if kill_when(lambda: bool(self.hidden()), signal.SIGTERM, *words):
            self.assertEqual(self.hidden(), [])
            self.assertFalse((self.folder / "bigger").exists())

    def test_an_output_that_was_complete_before_the_kill_is_no_obstacle(self):
        self.model()
        for words, output in ((self.vectors(), self.folder / "v.txt"), (self.extend(), self.folder / "bigger" / "model.safetensors")):
            with self.subTest(words[0]):
                first, written = self.succeeds(*words), output.read_bytes()
                again = self.succeeds(*words)  # as a killed command that is repeated
                self.assertIn("is complete already", again.err)
                if words[0] == "vectors":
                    self.refuses([*words, "--encoding", "ISO-8859-5"], "there is a file already")
                self.assertEqual((again.json(), output.read_bytes()), (first.json(), written))
                output.write_bytes(written[:-1] + b"x")  # somebody has changed it since
                self.refuses(words, "there is a file already" if words[0] == "vectors" else "exists; choose another folder")
        self.refuses(self.vectors("--seed", 7), "there is a file already")

    def test_a_second_augment_of_one_output_names_the_first(self):
        folder = self.folder / "out.tsv.parts"
        folder.mkdir()
        shapes = {"cls.predictions.transform.dense.weight": [HIDDEN, HIDDEN], "cls.predictions.transform.dense.bias": [HIDDEN],
                  "cls.predictions.transform.LayerNorm.weight": [HIDDEN], "cls.predictions.transform.LayerNorm.bias": [HIDDEN],
                  "cls.predictions.bias": [len(VOCABULARY)]}
        words = ["augment", "--model", self.model(extra_shapes=shapes), "--task", "custom", "--input",
                 write_rows(self.folder / "in.tsv", ("label", "text"), sentiment_rows(4)), "--output", self.folder / "out.tsv"]
        with subprocess.Popen(["flock", folder, "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as holder:
            while subprocess.run(["flock", "-n", folder, "true"], check=False).returncode == 0:
                time.sleep(0.01)
            self.refuses(words, "another process works in", "out.tsv.parts")
            holder.stdin.close()
        self.succeeds(*words)
        self.assertEqual(os.path.exists(folder), False)


if __name__ == "__main__":
    unittest.main()
