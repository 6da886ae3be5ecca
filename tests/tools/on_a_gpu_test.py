"""bench/on_a_gpu.sh keeps to its time, goes on after a part that fails, and leaves few files; the programs are stubs."""
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "bench/on_a_gpu.sh"
STUB = """#!/bin/sh
echo "$(basename "$0") $*" >>"$FOLDER/calls.txt"
case "$(basename "$0")$*" in
  *"$SLEEPS"*) sleep 60 ;;
  *"$FAILS"*) echo this one fails; exit 7 ;;
esac
echo '{"tokens_per_second": 1000, "step_seconds_median": 0.01, "peak_device_bytes": 1}'
"""
TESTS = ("core", "runtime", "nn", "optim", "bench", "model", "train", "parallel")


class OnAGpu(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "stub").mkdir()
        self.make_build(self.folder / "build")
        for name in ("nvidia-smi", "nvcc", "compute-sanitizer"):
            self.stub(self.folder / "stub" / name)

    def stub(self, path):
        path.write_text(STUB)
        path.chmod(0o755)

    def make_build(self, build):
        (build / "tests").mkdir(parents=True)
        for name in ("funicular", "libfunicular.so.1", *(f"tests/test_{room}" for room in TESTS)):
            self.stub(build / name)

    def run_it(self, *words, fails="nothing", sleeps="nothing", code=0):
        variables = {**os.environ, "PATH": f"{self.folder}/stub:{os.environ['PATH']}", "FUNICULAR_GPU_BUILD": str(self.folder / "build"),
                     "FOLDER": str(self.folder), "FAILS": fails, "SLEEPS": sleeps, "OUT": str(self.folder / "out"), "TORCH_DIR": str(self.folder)}
        done = subprocess.run(["bash", SCRIPT, *words], text=True, capture_output=True, env=variables, check=False, cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def summary(self):
        return (self.folder / "out/on_a_gpu/summary.txt").read_text().splitlines()

    def test_without_a_build_its_limits_are_below_nine_minutes(self):
        parts = [line.split(" ", 3) for line in self.run_it("--dry-run").stdout.splitlines()]
        self.assertEqual([part[0] for part in parts][:3], ["machine", "unpack", "build"])
        self.assertEqual({how for _, how, _, _ in parts}, {"-", "+"})
        together = max(int(limit) for _, how, limit, _ in parts if how == "+")
        self.assertLess(together + sum(int(limit) for name, how, limit, _ in parts if how == "-" and name != "build"), 530 - 5)
        text = SCRIPT.read_text()
        for name, _, _, what in parts:
            self.assertIn(f"part_{name}()", text)
            self.assertTrue(what)

    def test_a_part_that_fails_does_not_stop_the_next(self):
        done = self.run_it("kernels", "doctor", "trace", fails="funiculardoctor", code=1)
        lines = [line.split(" (")[0] for line in self.summary()]
        self.assertEqual((set(lines[:2]), lines[2:]), ({"doctor: FAILED, exit code 7", "kernels: done"}, ["trace: done"]))
        self.assertIn("doctor: FAILED", done.stdout)
        self.assertIn("this one fails", (self.folder / "out/on_a_gpu/output.txt").read_text())

    def test_a_failed_test_program_fails_its_part_and_the_next_program_runs(self):
        self.run_it("kernels", fails="test_nn", code=1)
        self.assertIn("test_optim", (self.folder / "calls.txt").read_text())

    def test_a_part_that_hangs_is_ended_and_what_has_no_time_left_is_told(self):
        self.run_it("doctor", "trace", "--seconds", "9", sleeps="funiculardoctor", code=1)
        ended, left_out = self.summary()
        self.assertRegex(ended, r"^doctor: ended after its limit of [34] s")
        self.assertEqual(left_out, "trace: left out, the time is used up")

    def test_a_program_that_ignores_the_end_of_its_time_is_killed_with_what_it_started(self):
        survivor = self.folder / "survivor.txt"
        (self.folder / "build/funicular").write_text(
            f"#!/bin/bash\ntrap '' TERM\n(sleep 30) &\necho $! >{survivor}\nwait\nwhile true; do sleep 1; done\n")
        self.run_it("doctor", "--seconds", "8", code=1)
        self.assertRegex(self.summary()[0], r"^doctor: ended after its limit of [23] s")
        state = pathlib.Path(f"/proc/{survivor.read_text().strip()}/stat")
        self.assertTrue(not state.exists() or state.read_text().split()[2] == "Z", "the survivor runs")

    def test_an_archive_that_fails_does_not_stop_the_next_part(self):
        (self.folder / "stub/tar").write_text("#!/bin/sh\nexit 2\n")
        (self.folder / "stub/tar").chmod(0o755)
        self.run_it("doctor", "trace", code=1)
        self.assertEqual([line.split(" (")[0] for line in self.summary()],
                         ["doctor: done", "files.tar.gz is not complete", "trace: done", "files.tar.gz is not complete"])

    def test_parts_that_check_run_at_the_same_time_and_one_that_measures_waits_for_them(self):
        (self.folder / "build/funicular").write_text('#!/bin/sh\necho "begin $1" >>$FOLDER/order.txt\nsleep 1\necho "end $1" >>$FOLDER/order.txt\n')
        self.run_it("doctor", "prove", "trace", "--seconds", "60")
        order = (self.folder / "order.txt").read_text().splitlines()
        self.assertLess(order.index("begin prove"), order.index("end doctor"), order)
        first = order.index("begin bench")
        self.assertNotIn("end prove", order[first:], order)
        self.assertNotIn("end doctor", order[first:], order)

    def test_files_of_an_earlier_run_are_gone_and_only_our_programs_get_the_libraries(self):
        (self.folder / "build-files").mkdir()
        (self.folder / "build-files/old.json").write_text("{}")
        environment = self.folder / "lib/python3.11/site-packages/torch/lib"
        environment.mkdir(parents=True)
        for name in ("build/funicular", "stub/nvidia-smi"):
            path = self.folder / name
            path.write_text(STUB.replace('echo "$(', 'echo "$LD_LIBRARY_PATH $('))
        self.run_it("machine", "doctor")
        calls = (self.folder / "calls.txt").read_text().splitlines()
        self.assertIn(f"{self.folder}/build:{environment}", next(call for call in calls if "doctor" in call))
        self.assertNotIn(str(environment), next(call for call in calls if "nvidia-smi" in call))
        with tarfile.open(self.folder / "out/on_a_gpu/files.tar.gz") as archive:
            self.assertNotIn("./old.json", archive.getnames())

    def test_a_peer_that_fails_leaves_what_was_measured(self):
        python = self.folder / "python"
        python.write_text("#!/bin/sh\nexit 9\n")
        python.chmod(0o755)
        results = self.folder / "steps"
        done = subprocess.run([sys.executable, "-B", ROOT / "bench/gpu_step.py", "--results", results, "--program", self.folder / "build/funicular",
                               "--python", python, "--models", "base", "--rows", "full,ragged", "--repetitions", "1", "--peers", "unpadded",
                               "--steps", "1", "--batch-size", "2"],
                              text=True, capture_output=True, check=False, env={**os.environ, "PATH": f"{self.folder}/stub:{os.environ['PATH']}",
                                                                               "FOLDER": str(self.folder), "FAILS": "nothing", "SLEEPS": "nothing"})
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        report = json.loads((results / "gpu_step.json").read_text())
        for rows in ("base full", "base ragged"):
            self.assertEqual(report["found"][rows]["funicular"]["tokens_per_second"], 1000)
            self.assertIn("exit status 9", report["failed"][rows]["unpadded"])

    def test_the_results_are_three_files_and_the_archive_holds_what_steps_wrote(self):
        self.run_it("steps", "attention")
        results = self.folder / "out/on_a_gpu"
        self.assertEqual(sorted(path.name for path in results.iterdir()), ["files.tar.gz", "output.txt", "summary.txt"])
        with tarfile.open(results / "files.tar.gz") as archive:
            self.assertIn("./base-512.json", archive.getnames())
            self.assertIn("./attention-own-512.json", archive.getnames())
            self.assertIn("./attention-tiles-ragged.json", archive.getnames())
        self.assertIn("base-512 1000 tokens/s, step 10.0 ms", (results / "output.txt").read_text())
        limits = {name: int(limit) for name, _, limit, _ in (line.split(" ", 3) for line in self.run_it("--dry-run").stdout.splitlines())}
        measured = (self.folder / "calls.txt").read_text().count("funicular bench")
        self.assertLessEqual(10 * measured, limits["steps"] + limits["attention"], "each has 10 s")

    def test_what_was_packed_is_unpacked_and_used(self):
        pack = self.folder / "pack.tar.xz"
        self.stub(self.folder / "stub/strip")
        self.run_it("--pack", str(pack))
        build = self.folder / "build"
        build.rename(self.folder / "away")
        self.run_it("--packed", pack.name, "doctor")
        self.assertEqual([line.split(":")[0] for line in self.summary()], ["unpack", "doctor"])
        self.assertTrue((build / "libfunicular.so.1").exists())

    def test_wrong_words_are_refused(self):
        self.assertIn("unknown part kernel;", self.run_it("kernel", code=2).stderr)
        self.assertIn("unknown option --part-of", self.run_it("--part-of", code=2).stderr)
        self.assertIn(f"--packed: there is no file {self.folder}/none", self.run_it("--packed", "none", code=2).stderr)
        self.assertIn("found \"soon\"", self.run_it("--seconds", "soon", code=2).stderr)


if __name__ == "__main__":
    unittest.main()
