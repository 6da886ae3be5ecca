"""A run whose ranks are started by a launch per node, as on hosts without ssh between them. Both launches are on this machine."""

import os

from harness import *
from launching import Started, wait_until
from ranks_test import launch, ranks_of


class TwoLaunches(ProgramTest):
    def words(self, output, **options):
        values = {"model": self.folder / "model", "train": self.data, "output": self.folder / output, "max_length": 32, "max_steps": 60, "batch_size": 8,
                  "save_steps": 5, "strategy": "ddp", "precision": "fp32", **options}
        return ["pretrain", *(word for name, value in values.items() for word in ("--" + name.replace("_", "-"), str(value)))]

    def start(self, node, words):
        return Started("-n", 1, "--nnodes", 2, "--node-rank", node, "--rendezvous", f"127.0.0.1:{self.port}", "--max-restarts", 2, "--grace", 10,
                       "--", PROGRAM, *words, **environment(), FUNICULAR_SECRET="a secret of two launches".replace(" ", "-"))

    def ranks(self):
        return [rank for one in self.launched for rank in ranks_of(one.process.pid)]

    def kill_when_it_trains(self, node, earlier):
        """Kills the rank of a launch once ranks that are none of the earlier ones have saved a checkpoint. Gives both ranks."""
        self.assertTrue(wait_until(lambda: len(set(self.ranks()) - set(earlier)) == 2), "the ranks are not started again")
        ranks, newest = self.ranks(), max(self.saved.glob("step-*"), default=None)
        self.assertTrue(wait_until(lambda: max(self.saved.glob("step-*"), default=None) != newest), "nobody trains")
        os.kill(ranks[node], signal.SIGKILL)
        return ranks

    def test_a_killed_rank_costs_each_launch_one_restart(self):
        self.data = self.store(self.model())
        self.port = random.randint(10000, 30000)
        whole = launch(2, self.words("whole"))
        self.assertEqual(whole.code, 0, whole.err)
        self.assertEqual(whole.err.count("2 ranks on 1 host: ddp, shared memory, cpu\n"), 1, whole.err)
        self.saved = self.folder / "killed" / "checkpoints"
        self.launched = [self.start(node, self.words("killed")) for node in (0, 1)]
        for one in self.launched:
            self.addCleanup(one.process.kill)
        self.kill_when_it_trains(0, self.kill_when_it_trains(1, []))
        for node, (code, _, err) in enumerate([one.end() for one in self.launched]):
            self.assertEqual(code, 0, f"node {node}: {err}")
            self.assertEqual(err.count("starting all ranks again"), 2, f"node {node}: {err}")
        for name in ("model/model.safetensors", "checkpoints/step-000060/optimizer.safetensors"):
            self.assertEqual((self.folder / "killed" / name).read_bytes(), (self.folder / "whole" / name).read_bytes(), name)


if __name__ == "__main__":
    unittest.main()
