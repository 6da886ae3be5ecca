"""A run is killed before one of the calls that change its files, and given again: nothing may be lost.

FUNICULAR_KILL_POINTS says how many of those calls are tried, spread over all of them (6), or "all".
"""

import shutil
import sys

from answers_test import classifier
from harness import *
from harness import FORKED
from spans_test import squad
import os

WATCHER = str(pathlib.Path(os.environ["FUNICULAR_BUILD_DIR"]) / "tests" / "libfile_calls.so")
POINTS = os.environ.get("FUNICULAR_KILL_POINTS")
CLOCK = ("tokens_per_second", "step_seconds", "wait_share", "memory_bytes")


def contents(run):
    """What a run leaves that does not depend on the clock: path -> bytes or records."""
    found = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if not path.is_file() or path.name in ("run.json", ".lock") or path.name.startswith("events."):
            continue
        if path.name == "metrics.jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            found[name] = [{key: value for key, value in line.items() if key not in CLOCK} for line in lines]
        else:
            found[name] = path.read_bytes()
    return found


def output_in(run, name):
    """The contents below the output's name, without files that only the next run removes."""
    return {path: value for path, value in contents(run).items() if (path == name or path.startswith(name + "/")) and "/.tmp-" not in path}


class KillPoints(ProgramTest):
    def again(self, words, output, rank="", **variables):
        environ = {**environment(), **{name: str(value) for name, value in variables.items()}}
        if variables:
            environ.update(LD_PRELOAD=WATCHER, FILE_CALLS_FOLDER=str(output), FILE_CALLS_RANK=rank)
        program = [PROGRAM] if variables or SANITIZED else [FORKED, PROGRAM]  # the watcher reads its variables as it is loaded
        return subprocess.run([*program, *exact(words)], env=environ, capture_output=True, timeout=300, check=False)

    def expect_no_harm(self, first, second, rank=""):
        """first, second: functions of the output folder that give a command's words; `second` writes a step anew."""
        before = self.folder / "before"
        self.assertEqual(self.again(first(before), before).returncode, 0)
        self.expect_no_harm_after(before, second, rank)

    def expect_no_harm_after(self, before, second, rank="", most=6, output=None):
        """before: the folder as the command finds it. most: of points. output: a name that a killed run leaves as it was, or whole."""
        whole, run, log = (self.folder / name for name in ("whole", "run", "calls.log"))
        for path in (whole, run):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(before, whole)
        done = self.again(second(whole), whole, rank, FILE_CALLS_LOG=log)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        expected, total = contents(whole), len(log.read_text().splitlines())
        self.assertGreater(total, 1)
        count = total if POINTS == "all" else int(POINTS or most)
        print(f"{min(count, total)} of {total} calls that change a file", file=sys.stderr)
        for point in sorted({1 + (total - 1) * i // max(count - 1, 1) for i in range(count)}):
            with self.subTest(point=point, of=total):
                shutil.rmtree(run, ignore_errors=True)
                shutil.copytree(before, run)
                killed = self.again(second(run), run, rank, FILE_CALLS_KILL_AT=point)
                self.assertIn(killed.returncode, (-signal.SIGKILL, 128 + signal.SIGKILL), killed.stderr.decode())
                if output:
                    left, whole_output = (output_in(place, output) for place in (run, whole))
                    if left == whole_output:
                        continue  # some commands refuse to make again what is complete
                    self.assertTrue(left == output_in(before, output), f"half of an output: {sorted(left)}")
                done = self.again(second(run), run)
                self.assertEqual(done.returncode, 0, done.stderr.decode())
                found = contents(run)
                self.assertEqual(set(found), set(expected))
                for name, value in expected.items():
                    self.assertEqual(found[name], value, name)

    def pretraining(self, *launch):
        model = self.model()
        data = self.store(model)
        held_out = self.store(model, "the old book is fine\n\na dull song", "held_out.tokens")
        other = self.store(model, "the film is very good\n\nnot a long book\n\nthe song is short", "other.tokens")
        words = lambda evaluation: lambda output: [
            *launch, "pretrain", "--model", model, "--train", data, "--eval", evaluation, "--output", output,
            "--max-steps", 2, "--batch-size", 4, "--max-length", 16, "--logging-steps", 1,
            *(("--strategy", "zero2") if launch else ())]
        return words(held_out), words(other)

    def test_of_a_pretraining_that_writes_a_step_anew_lose_nothing(self):
        self.expect_no_harm(*self.pretraining())

    def test_of_a_finetuning_that_writes_a_step_anew_lose_nothing(self):
        model = self.model()
        other = write_rows(self.folder / "other.tsv", ("label", "text"), sentiment_rows(16, 7))
        words = lambda evaluation: lambda output: self.finetune_words(
            model, output=output, num_train_epochs=None, max_steps=2, eval_steps=1, **evaluation)
        self.expect_no_harm(words({}), words({"eval": other}))

    def test_of_the_first_of_two_ranks_lose_nothing(self):
        self.expect_no_harm(*self.pretraining("launch", "-n", 2, "--", PROGRAM), rank="0")

    def test_of_the_second_of_two_ranks_lose_nothing(self):
        self.expect_no_harm(*self.pretraining("launch", "-n", 2, "--", PROGRAM), rank="1")

    def test_of_commands_that_make_one_output_lose_nothing(self):
        model, other, rows, lines = (self.folder / name for name in ("classifier", "other", "rows.tsv", "answers.jsonl"))
        names = ["contra", "pro"]
        for seed, folder in enumerate((model, other)):
            classifier(folder, names, seed)
        write_rows(rows, ("label", "text"), sentiment_rows(40, 3))
        lines.write_text("".join(json.dumps({"row": at, "texts": [text], "label": label, "probabilities": {"pro": at / 40, "contra": 1 - at / 40}}) + "\n"
                                 for at, (label, text) in enumerate(sentiment_rows(40, 3))))
        index, before = self.folder / "index.npy", self.folder / "before"
        self.succeeds("embed", "--model", model, "--input", rows, "--output", index)
        measured = ["evaluate", "--task", "custom", "--data", rows, "--calibrate", "--model"]
        shutil.copytree(model, before / "model")
        for output, words in {
                "found.jsonl": lambda run: ["search", "--index", index, "--queries", rows, "--model", model, "--output", run / "found.jsonl"],
                "static": lambda run: ["vectors", "--from", model, "--size", 8, "--output", run / "static"],
                "suspects.csv": lambda run: ["label-errors", lines, "--output", run / "suspects.csv"],
                "average": lambda run: ["average", model, other, "--output", run / "average"],
                "copy": lambda run: [*measured, model, "--calibrated", run / "copy"],
                "model": lambda run: [*measured, run / "model"]}.items():
            with self.subTest(output):
                self.expect_no_harm_after(before, words, most=3, output=output)

    def test_of_spans_that_are_learnt_lose_nothing(self):
        data, before, model = self.folder / "spans.json", self.folder / "before", self.model()
        data.write_text(json.dumps(squad(8, 1)))
        before.mkdir()
        self.expect_no_harm_after(before, lambda run: self.finetune_words(
            model, run / "spans", task="spans", train=data, eval=data, num_train_epochs=None, max_steps=3, save_steps=1, eval_steps=1, batch_size=4,
            max_length=24), most=4)
