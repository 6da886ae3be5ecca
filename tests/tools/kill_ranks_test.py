"""What bench/kill_ranks.py plans, and what it takes for a fault; tests/cli kills real ranks."""
import collections
import contextlib
import io
import pathlib
import random
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import kill_ranks


def result(**changes):
    return {"strategy": "ddp", "planned": 40, "kills": 40, "least_saves": 10, "exit_code": 0, "identical": True, "save_steps": 3,
            "interrupted": collections.Counter({"saving": 12, "computing": 20, "in a collective": 5, "starting": 3}),
            "most_steps_lost": 3, "undisturbed_seconds": 30, "seconds": 90, **changes}


class KillRanks(unittest.TestCase):
    def test_by_default_five_strategies_have_forty_kills_each_as_the_evidence_says(self):
        arguments = kill_ranks.parse([])
        self.assertEqual(arguments.strategies, ["ddp", "zero1", "zero2", "zero3", "ps-sync"])
        self.assertEqual((arguments.kills, arguments.ranks), (40, 2))
        evidence = (pathlib.Path(__file__).resolve().parents[2] / "docs/project/evidence.md").read_text(encoding="utf-8")
        self.assertIn("40 kills of each of these strategies, 200 in all, at least 10 of each inside saves, on two ranks", evidence)

    def test_pipelines_stand_for_schedules_slices_and_their_products(self):
        layouts = [kill_ranks.options_of(each, 2) for each in kill_ranks.parse(["--strategies", "pipelines"]).strategies]
        self.assertIn((2, ["--strategy", "pipeline", "--schedule", "1f1b"]), layouts)
        self.assertIn((4, ["--strategy", "pipeline", "--schedule", "pipedream-2bw", "--tensor-parallel", "2"]), layouts)
        self.assertIn((4, ["--strategy", "pipeline-zero3", "--schedule", "zb-h1", "--pipeline-parallel", "2"]), layouts)
        self.assertIn((2, ["--strategy", "tensor"]), layouts)

    def test_every_kill_has_a_step_within_the_run_and_enough_are_aimed_at_saves(self):
        for kills in (1, 2, 7, 8, 40):
            plan = kill_ranks.Plan(kills, 400, 3, random.Random(1))
            self.assertEqual((len(plan.steps), len(plan.aims)), (kills, kills))
            self.assertTrue(3 <= plan.steps[0] and plan.steps[-1] <= 400 - 9, plan.steps)
            self.assertEqual(plan.aims.count("starting"), kills // 8)
            self.assertGreaterEqual(3 * plan.aims.count("saving"), kills)
            self.assertEqual(plan.least_saves, kills // 4)

    def test_a_save_is_under_way_while_there_is_a_checkpoint_of_a_temporary_name(self):
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder)
            self.assertFalse(kill_ranks.saving(output))
            (output / "checkpoints/step-000003").mkdir(parents=True)
            self.assertFalse(kill_ranks.saving(output))
            (output / "checkpoints/.tmp-step-000006-0123456789abcdef").mkdir()
            self.assertTrue(kill_ranks.saving(output))

    def test_steps_are_lost_from_the_kill_back_to_the_checkpoint_that_the_next_start_tells_of(self):
        first, second = (b"[0] 2026-11-24 18:46:44 resumed from run/checkpoints/step-%06d at step %d of 40\n" % (step, step)
                         for step in (3, 21))
        log = b"[0] starts\n" + first + b"  | 2026-11-24 18:46:44 resumed from run at step 0 of 40\n" + second
        kills = [("saving", 5, 0), ("computing", 23, len(log) - len(second)), ("starting", 30, len(log))]
        self.assertEqual(kill_ranks.Study.lost_steps(kills, log), [2, 2])

    def test_each_fault_of_a_run_is_told(self):
        self.assertEqual(kill_ranks.faults(result()), [])
        few_saves = collections.Counter({"saving": 9, "computing": 31})
        for changes, phrase in (({"kills": 39}, "39 kills instead of 40"), ({"interrupted": few_saves}, "9 kills inside saves"),
                                ({"interrupted": collections.Counter()}, "0 kills inside saves"),
                                ({"identical": False, "exit_code": 1}, "other weights"), ({"most_steps_lost": 4}, "4 steps lost")):
            found = kill_ranks.faults(result(**changes))
            self.assertEqual(len(found), 1, found)
            self.assertIn(phrase, found[0])

    def test_the_table_has_the_sums(self):
        lines = kill_ranks.table([result(), result(strategy="ps-sync", most_steps_lost=2)]).splitlines()
        self.assertEqual(lines[-1], "| all | 80 | 40 | 24 | 10 | 6 | 3 | yes | 4.0 |")
        self.assertIn("| NO |", kill_ranks.table([result(identical=False)]).splitlines()[-1])

    def test_a_run_that_is_too_short_for_its_kills_is_refused(self):
        for words in (["--kills", "0"], ["--kills", "40", "--steps", "100"]):
            with self.assertRaises(SystemExit) as refused, contextlib.redirect_stderr(io.StringIO()) as said:
                kill_ranks.parse(words)
            self.assertEqual(refused.exception.code, 2)
            self.assertIn("--steps", said.getvalue())


if __name__ == "__main__":
    unittest.main()
