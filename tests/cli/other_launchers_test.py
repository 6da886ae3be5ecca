"""The program under the launchers that its users have: torchrun of the torch wheel, mpirun where it is installed, and the script for
Slurm, whose commands stand-ins run."""

import os
import re
import sys

from harness import PROGRAM, ProgramTest, Result, environment, exact, json, pathlib, shutil, signal, subprocess, unittest
from launching import children, wait_until

TORCHRUN = pathlib.Path(os.environ.get("FUNICULAR_PYTHON", "")).parent / "torchrun"
MPIRUN = shutil.which("mpirun")
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/how_to/several_hosts.md"
# srun of the page's script: two nodes with two tasks each. It writes their numbers, and ends with their largest exit code.
SRUN = f"""#!{sys.executable}
import os, subprocess, sys
tasks = [subprocess.Popen(sys.argv[1:], env={{**os.environ, "SLURM_PROCID": str(number), "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": str(number % 2),
                          "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_NODEID": str(number // 2)}})
         for number in range(4)]
print("tasks", *[task.pid for task in tasks], flush=True)
sys.exit(max(task.wait() for task in tasks))
"""
SCONTROL = """#!/bin/sh
[ "$1" = show ] && echo 127.0.0.1
[ "$1" = requeue ] && echo asked for a new job "$2"
"""


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


class Interrupted(ProgramTest):
    """A training that a launcher starts a second time ends as one that was left alone."""

    def setUp(self):
        super().setUp()
        model = self.model()
        store = self.store(model)
        self.words = ["pretrain", "--model", model, "--train", store, "--strategy", "ddp", "--max-steps", "100", "--max-length", "32",
                      "--batch-size", "8", "--save-steps", "5"]
        self.port = 20000 + os.getpid() % 12000

    def ends_as_one_left_alone(self, ranks):
        self.succeeds("launch", "-n", str(ranks), "--", PROGRAM, *self.words, "--output", self.folder / "alone")
        weights = [(self.folder / name / "model/model.safetensors").read_bytes() for name in ("alone", "run")]
        self.assertEqual(*weights)

    def start(self, *words, **more):
        said = self.folder / "said"
        with open(said, "a", encoding="utf-8") as file:
            process = subprocess.Popen([str(word) for word in words], stdout=file, stderr=file, start_new_session=True,
                                       env={**environment(), **more})
        self.addCleanup(lambda: process.poll() is None and os.killpg(process.pid, signal.SIGKILL))
        return process, said

    def after_a_save(self, said):
        self.assertTrue(wait_until(lambda: list(self.folder.glob("run/checkpoints/step-*"))), said.read_text())

    @unittest.skipUnless(TORCHRUN.is_file(), f"{TORCHRUN} is not there (./run setup makes it)")
    def test_torchrun_trains_on_when_a_rank_is_killed(self):
        process, said = self.start(TORCHRUN, "--nnodes", "1:2", "--nproc-per-node", "2", "--max-restarts", "2", "--rdzv-backend", "c10d",
                                   "--rdzv-endpoint", f"127.0.0.1:{self.port}", "--rdzv-conf", "last_call_timeout=1", "--monitor-interval", "0.1",
                                   "--no-python", PROGRAM, *exact([*self.words, "--output", self.folder / "run"]))
        self.after_a_save(said)
        rank = next(one for one in children(process.pid) if b"\0RANK=1\0" in pathlib.Path(f"/proc/{one}/environ").read_bytes())
        os.kill(rank, signal.SIGKILL)
        self.assertEqual(process.wait(timeout=120), 0, said.read_text())
        self.assertIn("resumed from", said.read_text())
        self.ends_as_one_left_alone(2)

    def test_a_job_of_slurm_that_gets_its_warning_saves_and_is_queued_again(self):
        script = re.search(r"^```text\n(#!/bin/bash\n#SBATCH.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S).group(1)
        command = re.search(r"funicular pretrain .*", script).group()
        script = script.replace(command, " ".join(["funicular", *map(str, exact([*self.words, "--output", self.folder / "run"]))]))
        script = script.replace("MASTER_PORT=29500", f"MASTER_PORT={self.port}")
        for name, text in (("job", script), ("srun", SRUN), ("scontrol", SCONTROL), (".funicular_secret", "a-secret-of-the-cluster")):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o700)
        variables = {"PATH": f"{self.folder}:{pathlib.Path(PROGRAM).parent}:{os.environ['PATH']}", "HOME": str(self.folder), "SLURM_JOB_ID": "77",
                     "SLURM_JOB_NODELIST": "node[1-2]"}
        process, said = self.start(self.folder / "job", **variables)
        self.after_a_save(said)
        for task in re.search(r"^tasks (.*)", said.read_text(), re.M).group(1).split():
            os.kill(int(task), signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 0, said.read_text())
        self.assertIn("asked for a new job 77", said.read_text())
        self.assertFalse((self.folder / "run/model/model.safetensors").exists())
        said.unlink()
        process, said = self.start(self.folder / "job", **variables)
        process.wait(timeout=60)
        self.assertNotIn("asked for a new job", said.read_text())
        self.ends_as_one_left_alone(4)


if __name__ == "__main__":
    unittest.main()
