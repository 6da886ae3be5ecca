"""What bench/kill_chain.py takes for a fault; tests/cli kills a small chain."""
import json
import pathlib
import sys
import tempfile
import tomllib
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import kill_chain


class KillChain(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def record(self, run, steps):
        path = self.folder / "runs" / run
        path.mkdir(parents=True, exist_ok=True)
        evaluation = json.dumps({"step": steps[-1], "accuracy": 1}) + "\n"
        (path / "metrics.jsonl").write_text("".join(json.dumps({"step": step, "learning_rate": 1}) + "\n" for step in steps) + evaluation)

    def test_a_training_step_recorded_twice_or_left_out_is_one(self):
        for run in kill_chain.RUNS.values():
            self.record(run, [1, 2, 3])
        self.assertEqual(kill_chain.steps_recorded(self.folder), [])
        self.record("student", [1, 2, 2, 3])
        self.record("general", [1, 3])
        self.assertEqual([problem.split("/")[1] for problem in kill_chain.steps_recorded(self.folder)], ["general", "student"])

    def test_every_training_of_the_chain_is_looked_at(self):
        chain = tomllib.loads(kill_chain.make_inputs(self.folder, 7).read_text())
        trained = {name: step["output"] for name, step in chain.items() if step.get("max-steps") == 7}
        self.assertEqual(trained, {name: f"runs/{run}" for name, run in kill_chain.RUNS.items()})
        self.assertEqual([step["stage"] for step in chain.values() if step["command"] == "distill"], ["general", "intermediate", "prediction"])
        self.assertLessEqual({"compare", "report"}, {step["command"] for step in chain.values()})
        self.assertTrue([name for name, step in chain.items() if "cache-teacher" in step])
        outputs = [str(value) for step in chain.values() for key, value in step.items() if key in ("output", "predictions")]
        outputs += [f"chain.state/{name}.out" for name, step in chain.items() if step["command"] == "compare"]
        for product in kill_chain.PRODUCTS:
            self.assertTrue(any(product.startswith(output) for output in outputs), product)


if __name__ == "__main__":
    unittest.main()
