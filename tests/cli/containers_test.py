"""Containers that may use fewer processors than the machine has (a control group's cpu.max)."""
import os
import pathlib
import subprocess
import unittest

from harness import PROGRAM, ProgramTest, environment


class Quotas(ProgramTest):
    def inside(self, quota, *words, **variables):
        """Runs the program where control groups show this quota of processors."""
        groups = self.folder / "groups"
        groups.mkdir(exist_ok=True)
        (groups / "cpu.max").write_text(f"{int(quota * 100000)} 100000\n")
        mount = f"mount --bind '{groups}' /sys/fs/cgroup && exec \"$@\""
        if subprocess.run(["unshare", "-rm", "sh", "-c", mount, "sh", "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no folder can be mounted here")
        given = {name: value for name, value in environment().items() if name != "OMP_NUM_THREADS"}
        return subprocess.run(["unshare", "-rm", "sh", "-c", mount, "sh", PROGRAM, *map(str, words)], capture_output=True, text=True,
                              check=False, env={**given, **variables})

    def setUp(self):
        super().setUp()
        places = (pathlib.Path(f"/sys/devices/system/cpu/cpu{number}/topology") for number in os.sched_getaffinity(0))
        self.cores = len({tuple((place / name).read_text() for name in ("physical_package_id", "core_id")) for place in places})
        if self.cores < 2:
            self.skipTest("a quota limits nothing on one core")

    def test_a_process_has_no_more_threads_and_doctor_says_why(self):
        told = self.inside(1, "doctor").stdout
        self.assertRegex(told, r"1 of \d+ processors; a control group allows 1 of them at a time")
        self.assertNotIn("unset OMP_NUM_THREADS", told)
        self.assertIn("unset OMP_NUM_THREADS", self.inside(2, "doctor", OMP_NUM_THREADS="1").stdout)
        self.assertIn("give --threads 1", self.inside(1, "doctor", OMP_NUM_THREADS="2").stdout)

    def test_ranks_share_it(self):
        threads = ["sh", "-c", "echo threads $OMP_NUM_THREADS"]
        self.assertIn("threads 1\n", self.inside(1, "launch", "-n", 1, "--", *threads).stdout)
        self.assertIn("threads 2\n", self.inside(2, "launch", "-n", 1, "--", *threads).stdout)
        self.assertIn(f"threads {min(2, max(1, self.cores // 2))}\n", self.inside(3, "launch", "-n", 2, "--", *threads).stdout)


if __name__ == "__main__":
    unittest.main()
