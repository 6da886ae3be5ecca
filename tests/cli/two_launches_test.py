"""A run whose ranks are started by a launch per node, as on hosts without ssh between them. All launches are on this machine."""

import os
import time

from harness import *
from launching import Started, has_connected, wait_until
from ranks_test import launch, ranks_of


class Launches(ProgramTest):
    def setUp(self):
        super().setUp()
        self.data = self.store(self.model())
        self.port = random.randint(10000, 30000)

    def words(self, output, **options):
        values = {"model": self.folder / "model", "train": self.data, "output": self.folder / output, "max_length": 32, "max_steps": 60, "batch_size": 8,
                  "save_steps": 5, "strategy": "ddp", "precision": "fp32", **options}
        return ["pretrain", *(word for name, value in values.items() for word in ("--" + name.replace("_", "-"), str(value)))]

    def start(self, node, words, nodes):
        one = Started("-n", 1, "--nnodes", nodes, "--node-rank", node, "--rendezvous", f"127.0.0.1:{self.port}", "--max-restarts", 2, "--grace", 10,
                      "--", PROGRAM, *words, **environment(), FUNICULAR_SECRET="a secret of two launches".replace(" ", "-"))
        self.addCleanup(one.end)
        self.addCleanup(one.process.kill)
        return one


class TwoLaunches(Launches):
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
        whole = launch(2, self.words("whole"))
        self.assertEqual(whole.code, 0, whole.err)
        self.assertEqual(whole.err.count("2 ranks on 1 host: ddp, shared memory, cpu\n"), 1, whole.err)
        self.saved = self.folder / "killed" / "checkpoints"
        self.launched = [self.start(node, self.words("killed"), nodes=2) for node in (0, 1)]
        self.kill_when_it_trains(0, self.kill_when_it_trains(1, []))
        for node, (code, _, err) in enumerate([one.end() for one in self.launched]):
            self.assertEqual(code, 0, f"node {node}: {err}")
            self.assertEqual(err.count("starting all ranks again"), 2, f"node {node}: {err}")
        for name in ("model/model.safetensors", "checkpoints/step-000060/optimizer.safetensors"):
            self.assertEqual((self.folder / "killed" / name).read_bytes(), (self.folder / "whole" / name).read_bytes(), name)


class ThreeLaunches(Launches):
    """The launches of nodes 0 and 1, whose ranks wait for the rank of node 2."""

    def setUp(self):
        super().setUp()
        self.launched = [self.start(node, self.words("run", max_steps=3), nodes=3) for node in (0, 1)]

    def rank_that_waits(self, one, earlier=None):
        """The process of a launch's rank, once it is at the meeting point."""
        found = []

        def waits():
            found[:] = [rank for rank in ranks_of(one.process.pid) if rank != earlier and has_connected(rank, self.port)]
            return found
        self.assertTrue(wait_until(waits), "no rank has come")
        time.sleep(0.3)  # until it has its place
        return found[0]

    def test_a_rank_that_is_killed_while_another_is_missing_is_started_again(self):
        killed = self.rank_that_waits(self.launched[1])
        os.kill(killed, signal.SIGKILL)
        self.rank_that_waits(self.launched[1], killed)
        self.launched.append(self.start(2, self.words("run", max_steps=3), nodes=3))
        for node, (code, _, err) in enumerate([one.end() for one in self.launched]):
            self.assertEqual(code, 0, f"node {node}: {err}")
            self.assertEqual(err.count("starting all ranks again"), int(node == 1), f"node {node}: {err}")

    def test_a_rank_that_two_launches_start_is_refused(self):
        first = self.rank_that_waits(self.launched[1])
        begin = time.monotonic()
        code, _, err = self.start(1, self.words("run", max_steps=3), nodes=3).end()
        self.assertLess(time.monotonic() - begin, 30, err)
        self.assertEqual(code, 2, err)
        self.assertRegex(err, rf"rank 1 of 3: process {first} on \S+ has this rank, and so has this process \d+ on \S+; give each")
        self.assertEqual(ranks_of(self.launched[1].process.pid), [first])


if __name__ == "__main__":
    unittest.main()
