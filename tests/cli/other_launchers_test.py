"""The program under the launchers that its users have: torchrun of the torch wheel, and mpirun where it is installed."""

import os

from harness import PROGRAM, ProgramTest, Result, environment, json, pathlib, shutil, subprocess, unittest

TORCHRUN = pathlib.Path(os.environ.get("FUNICULAR_PYTHON", "")).parent / "torchrun"
MPIRUN = shutil.which("mpirun")


class OtherLaunchers(ProgramTest):
    LAYOUTS = [(2, {"strategy": "zero1"}), (2, {"pipeline_parallel": 2, "schedule": "zb-h1"}), (2, {"tensor_parallel": 2}),
               (4, {"pipeline_parallel": 2, "tensor_parallel": 2, "schedule": "1f1b"})]

    def finds_what_one_process_finds(self, launcher, named):
        """Ranks started by `launcher` find the metrics of one process, and say who told them their places."""
        model = self.model()
        one = self.succeeds(*self.finetune_words(model, "one", precision="fp64")).json()
        for number, (ranks, layout) in enumerate(self.LAYOUTS):
            with self.subTest(layout=layout):
                self.agrees(one, [*launcher(ranks), PROGRAM, *self.finetune_words(model, f"several-{number}", precision="fp64", **layout)],
                            f"rank 0 of {ranks} by {named}")

    def agrees(self, one, command, told):
        done = subprocess.run([*map(str, command)], capture_output=True, timeout=300, check=False, env=environment())
        launched = Result(done.returncode, done.stdout.decode(), done.stderr.decode())
        self.assertEqual(launched.code, 0, launched.err)
        self.assertIn(told, launched.err)
        lines = [line[line.index("{"):] for line in launched.out.splitlines() if line.endswith("}")]
        self.assertEqual(len(lines), 1, "one rank speaks")
        two = json.loads(lines[0])
        for name in ("accuracy", "macro_f1", "loss", "last_loss", "best_step", "steps"):
            self.assertAlmostEqual(two[name], one[name], delta=1e-9 * abs(one[name]), msg=name)

    @unittest.skipUnless(TORCHRUN.is_file(), f"{TORCHRUN} is not there (./run setup makes it)")
    def test_torchrun(self):
        port = 20000 + os.getpid() % 12000  # below the ports that the system gives away by itself
        self.finds_what_one_process_finds(
            lambda ranks: [TORCHRUN, "--nproc-per-node", ranks, "--master-port", port, "--no-python"], "torchrun (RANK, WORLD_SIZE)")

    @unittest.skipUnless(MPIRUN, "mpirun is not installed")
    def test_open_mpi(self):
        self.finds_what_one_process_finds(lambda ranks: [MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", ranks], "Open MPI")


if __name__ == "__main__":
    unittest.main()
