"""bench/on_a_gpu.sh keeps to its time, goes on after a part that fails, and leaves few files; the programs are stubs."""
import json
import os
import pathlib
import shutil
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
while [ $# -gt 1 ]; do
  [ "$1" = --output ] && [ "${2%.jsonl}" = "$2" ] && mkdir -p "$2" && yes '{"step_seconds": 0.1, "loss": 1}' | head -n 9 >"$2/metrics.jsonl"
  shift
done
echo '{"tokens_per_second": 1000, "step_seconds_median": 0.01, "peak_device_bytes": 1}'
"""
# A python3 that runs our scripts and stands for every program that imports torch or transformers.
PEER = f"""#!/bin/sh
case "$*" in
  *--make-model*) for folder; do :; done; mkdir -p "$folder"; echo word >"$folder/vocab.txt"; touch "$folder/model.safetensors" ;;
  *--make-teacher*) mkdir -p "$FOLDER/build-files/distill/teacher" ;;
  *bench/peers/* | *"--peer "*) ;;
  *gpu_step.py*) exec {sys.executable} -B "$@" --batch-size 4 --steps 1 ;;
  *gpu_predict.py*--recorded*) exec {sys.executable} -B "$@" --rows 2 ;;
  *gpu_predict.py*) exec {sys.executable} -B "$@" --rows 2,4 ;;
  *) exec {sys.executable} -B "$@" ;;
esac
echo "peer $*" >>"$FOLDER/calls.txt"
echo '{{"tokens_per_second": 500, "rows_per_second": 5, "loss": 1, "peak_device_bytes": 1}}'
"""
OUR_START, PEER_START = 10, 12  # seconds that a part grants each program
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

    def write_stub(self, name, text):
        path = self.folder / "stub" / name
        path.write_text(text)
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
        self.assertLess(together + sum(int(limit) for name, how, limit, _ in parts if how == "-" and name != "build"), 535 - 40)
        text = SCRIPT.read_text()
        for name, _, _, what in parts:
            self.assertIn(f"part_{name}()", text)
            self.assertTrue(what)

    def test_a_part_that_fails_does_not_stop_the_next(self):
        done = self.run_it("kernels", "doctor", "attention", fails="funiculardoctor", code=1)
        lines = [line.split(" (")[0] for line in self.summary()]
        self.assertEqual((set(lines[:2]), lines[2:]), ({"doctor: FAILED, exit code 7", "kernels: done"}, ["attention: done"]))
        self.assertIn("doctor: FAILED", done.stdout)
        self.assertIn("this one fails", (self.folder / "out/on_a_gpu/output.txt").read_text())

    def test_a_failed_test_program_fails_its_part_and_the_next_program_runs(self):
        self.run_it("kernels", fails="test_nn", code=1)
        self.assertIn("test_optim", (self.folder / "calls.txt").read_text())

    def test_a_part_that_hangs_is_ended_and_what_has_no_time_left_is_told(self):
        self.run_it("doctor", "attention", "--seconds", "9", sleeps="funiculardoctor", code=1)
        ended, left_out = self.summary()
        self.assertRegex(ended, r"^doctor: ended after its limit of [34] s")
        self.assertEqual(left_out, "attention: left out, the time is used up")

    def test_a_program_that_ignores_the_end_of_its_time_is_killed_with_what_it_started(self):
        survivor = self.folder / "survivor.txt"
        (self.folder / "build/funicular").write_text(
            f"#!/bin/bash\ntrap '' TERM\n(sleep 30) &\necho $! >{survivor}\nwait\nwhile true; do sleep 1; done\n")
        self.run_it("doctor", "--seconds", "8", code=1)
        self.assertRegex(self.summary()[0], r"^doctor: ended after its limit of [23] s")
        state = pathlib.Path(f"/proc/{survivor.read_text().strip()}/stat")
        self.assertTrue(not state.exists() or state.read_text().split()[2] == "Z", "the survivor runs")

    def test_an_archive_that_fails_does_not_stop_the_next_part(self):
        self.write_stub("tar", "#!/bin/sh\nexit 2\n")
        self.run_it("doctor", "attention", code=1)
        self.assertEqual([line.split(" (")[0] for line in self.summary()],
                         ["doctor: done", "files.tar.gz is not complete", "attention: done", "files.tar.gz is not complete"])

    def test_archives_are_made_after_the_checks_and_at_the_end(self):
        self.write_stub("tar", '#!/bin/sh\necho "tar $*" >>"$FOLDER/calls.txt"\n')
        self.run_it("doctor", "graphs", "attention")
        calls = [call.split()[0] for call in (self.folder / "calls.txt").read_text().splitlines()]
        self.assertEqual(calls, ["funicular", "tar", *["funicular"] * 3, "tar"])

    def test_parts_that_check_run_at_the_same_time_and_one_that_measures_waits_for_them(self):
        (self.folder / "build/funicular").write_text('#!/bin/sh\necho "begin $1" >>$FOLDER/order.txt\nsleep 1\necho "end $1" >>$FOLDER/order.txt\n' + STUB[STUB.rindex("echo '"):])
        self.run_it("doctor", "prove", "graphs", "--seconds", "60")
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

    def test_each_part_that_measures_has_time_for_its_programs_and_the_goals_are_printed(self):
        self.write_stub("python3", PEER)
        self.write_stub("timeout", f'#!/bin/sh\nfor name; do :; done\necho "part $name" >>"$FOLDER/calls.txt"\nexec {shutil.which("timeout")} "$@"\n')
        limits = {name: int(limit) for name, how, limit, _ in (line.split(" ", 3) for line in self.run_it("--dry-run").stdout.splitlines())
                  if how == "-" and name not in ("machine", "unpack", "build")}
        self.run_it("inputs", *limits)
        starts: dict[str, list[str]] = {}
        for call in (self.folder / "calls.txt").read_text().splitlines():
            who, what = call.split()[:2]
            if who == "part":
                starts[what] = part = []
            elif who in ("funicular", "peer"):
                part.append(who)
        self.assertEqual(starts.pop("inputs"), ["peer"] * 2)
        self.assertEqual(starts.keys(), limits.keys())
        for name, programs in starts.items():
            self.assertTrue(programs, name)
            self.assertLessEqual(sum(OUR_START if who == "funicular" else PEER_START for who in programs), limits[name], f"{name}: {programs}")

    def test_the_results_are_four_files_and_the_archive_holds_what_steps_wrote(self):
        done = self.run_it("steps", "attention")
        self.assertIn("| BERT-base, 256 rows of 128 | >= 870,000 tokens/s | 1,000 | no |", done.stdout)
        self.assertIn("| distillation, intermediate stage | >= 2 x the loop | not measured |", done.stdout)
        results = self.folder / "out/on_a_gpu"
        self.assertEqual(sorted(path.name for path in results.iterdir()), ["files.tar.gz", "goals.txt", "output.txt", "summary.txt"])
        with tarfile.open(results / "files.tar.gz") as archive:
            self.assertIn("./base-full-512.json", archive.getnames())
            self.assertIn("./attention-own-512.json", archive.getnames())
        self.assertIn("base-full-512 1000 tokens/s, step 10.0 ms", (results / "output.txt").read_text())

    def test_steps_are_measured_if_watching_them_fails(self):
        self.run_it("steps", fails="--floor")
        calls = (self.folder / "calls.txt").read_text().splitlines()
        self.assertEqual([("--floor" in call) for call in calls], [True, *[False] * 6])

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
