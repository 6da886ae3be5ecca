"""A run is killed before one of the calls that change its files, and given again: nothing may be lost.

FUNICULAR_KILL_POINTS says how many of those calls are tried, spread over all of them (6), or "all".
"""

import shutil
import sys

from harness import *
from harness import FORKED
import os

WATCHER = str(pathlib.Path(os.environ["FUNICULAR_BUILD_DIR"]) / "tests" / "libfile_calls.so")
POINTS = os.environ.get("FUNICULAR_KILL_POINTS", "6")
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


class KillPoints(ProgramTest):
    def again(self, words, output, rank="", **variables):
        environ = {**environment(), **{name: str(value) for name, value in variables.items()}}
        if variables:
            environ.update(LD_PRELOAD=WATCHER, FILE_CALLS_FOLDER=str(output), FILE_CALLS_RANK=rank)
        program = [PROGRAM] if variables or SANITIZED else [FORKED, PROGRAM]  # the watcher reads its variables as it is loaded
        return subprocess.run([*program, *exact(words)], env=environ, capture_output=True, timeout=300, check=False)

    def expect_no_harm(self, first, second, rank=""):
        """first, second: functions of the output folder that give a command's words; `second` writes a step anew."""
        before, whole, run, log = (self.folder / name for name in ("before", "whole", "run", "calls.log"))
        self.assertEqual(self.again(first(before), before).returncode, 0)
        shutil.copytree(before, whole)
        done = self.again(second(whole), whole, rank, FILE_CALLS_LOG=log)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        expected, total = contents(whole), len(log.read_text().splitlines())
        self.assertGreater(total, 5)
        count = total if POINTS == "all" else int(POINTS)
        print(f"{min(count, total)} of {total} calls that change a file", file=sys.stderr)
        for point in sorted({1 + total * i // count for i in range(count)}):
            with self.subTest(point=point, of=total):
                shutil.rmtree(run, ignore_errors=True)
                shutil.copytree(before, run)
                killed = self.again(second(run), run, rank, FILE_CALLS_KILL_AT=point)
                self.assertIn(killed.returncode, (-signal.SIGKILL, 128 + signal.SIGKILL), killed.stderr.decode())
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
