"""Runs the tests that should notice a mutant, and says whether one did."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

from build import Build, Variant
from catalogue import Mutant

LEAST_SECONDS, TIMES_UNMUTATED = 60, 5


@dataclasses.dataclass
class Verdict:
    mutant: Mutant
    state: str  # "killed", "survived", "not testable here", or "broken": the mutant or its test has to be mended
    by: str = ""


@dataclasses.dataclass
class Outcome:
    code: int | None  # None after the time was up
    seconds: float
    output: str

    @property
    def ran(self) -> bool:
        """Whether there was any test, skipped ones included."""
        return re.search(r"^(\[=+\] Running|Ran) [1-9]", self.output, re.MULTILINE) is not None

    @property
    def tests(self) -> int:
        """How many tests passed."""
        if match := re.search(r"\[  PASSED  \] (\d+) test", self.output):
            return int(match[1])
        if match := re.search(r"^Ran (\d+) test", self.output, re.MULTILINE):
            skipped = re.search(r"skipped=(\d+)", self.output)
            return int(match[1]) - (int(skipped[1]) if skipped else 0)
        return 0


def with_parameters(names: str) -> str:
    """The filter, for tests with parameters too, whose names are INSTANCE/Suite.Name/PARAMETER."""
    def widened(patterns: str) -> str:
        return ":".join(f"{one}:*/{one}:*/{one}/*" if "/" not in one else one for one in patterns.split(":"))
    wanted, minus, unwanted = names.partition("-")
    return widened(wanted) + (minus + widened(unwanted) if minus else "")


def command_of(test: str, variant: Variant, root: Path) -> tuple[list[str], Path, dict[str, str]]:
    """What runs a test of the list on a variant: command, folder, environment. Sanctioned forms: "test_nn FILTER", "cli NAME"."""
    program, _, names = test.partition(" ")
    environment = {"LD_LIBRARY_PATH": str(variant.out / "lib"), "OMP_NUM_THREADS": "1"}
    if program.startswith("test_"):
        command = [str(variant.program(program)), f"--gtest_filter={with_parameters(names)}", "--gtest_fail_fast",
                   "--gtest_color=no"]
        return command, variant.out, environment
    variant.program("funicular")
    environment["FUNICULAR_BUILD_DIR"] = str(variant.out / "lib")
    environment["FUNICULAR_PYTHON"] = str(root / ".deps/python/bin/python")
    return [sys.executable, "-B", "-m", "unittest", "-f", names], root / "tests" / program, environment


def run_test(command: list[str], folder: Path, environment: dict[str, str], timeout: float) -> Outcome:
    """Runs it in an empty folder for temporary files; nothing that it started is left afterwards."""
    token = uuid.uuid4().hex
    scratch = tempfile.mkdtemp(prefix="mutant-")
    environment = {**os.environ, **environment, "TMPDIR": scratch, "FUNICULAR_MUTANT_RUN": token}
    start = time.monotonic()
    code: int | None = None
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        finally:
            kill_all(process, token)
            shutil.rmtree(scratch, ignore_errors=True)
        output.seek(0)
        return Outcome(code, time.monotonic() - start, output.read().decode(errors="replace"))


def kill_all(process: subprocess.Popen, token: str):
    """The process and whatever it started, wherever that has moved: found by a variable of the environment."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    # A process that is just starting another program has no environment for a moment: it is looked at again.
    for _ in range(100):
        if not kill_marked(token.encode()):
            return
        time.sleep(0.02)


def kill_marked(token: bytes) -> bool:
    """Kills the processes whose environment holds the token; whether there may be more of them."""
    more = False
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
            if token in environment:
                os.kill(int(entry.name), signal.SIGKILL)
                more = True
            elif not environment and is_young(entry):
                more = True
        except OSError:
            continue
    return more


def is_young(process: Path) -> bool:
    """Whether this is a program that began within the last seconds; threads of the kernel and the dead are none."""
    os.readlink(process / "exe")  # OSError where there is no program
    begun = int((process / "stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return float(Path("/proc/uptime").read_text().split()[0]) - begun < 5


class Judge:
    def __init__(self, build: Build, out: Path, mutants: list[Mutant], widen: bool = False):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        self.build, self.out, self.mutants, self.widen = build, out, mutants, widen
        self.common = Variant(build, out / "all", [m for m in mutants if not m.alone and build.can_run(m)])
        self.unmutated: dict[tuple[str, str], Outcome] = {}
        self.lock = threading.Lock()

    def prepare(self):
        """Builds what the switchable mutants share and runs every test on it with all mutants off."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.common.make()
        tests = {(test, m.isa) for m in self.mutants if self.build.can_run(m) for test in m.tests}
        for test, _ in sorted(tests):
            command_of(test, self.common, self.build.root)  # links the programs, one after the other
        with concurrent.futures.ThreadPoolExecutor(self.build.jobs) as pool:
            for key, outcome in pool.map(lambda key: (key, self.run(self.common, *key, 0, 900)), sorted(tests)):
                self.unmutated[key] = outcome

    def unfit(self, test: str, isa: str) -> str:
        """Why a test can tell nothing of any mutant; empty if it can."""
        outcome = self.unmutated[test, isa]
        if outcome.code != 0:
            return (f"without any mutant '{test}' {'fails' if outcome.code is not None else 'hangs'}"
                    f"{' for ' + isa if isa else ''}:\n{outcome.output[-3000:]}")
        return "" if outcome.ran else f"'{test}' runs no test at all"

    def run(self, variant: Variant, test: str, isa: str, number: int, timeout: float) -> Outcome:
        command, folder, environment = command_of(test, variant, self.build.root)
        environment["FUNICULAR_MUTANT"] = str(number)
        if isa:
            environment["FUNICULAR_ISA"] = isa
        return run_test(command, folder, environment, timeout)

    def judge(self, mutant: Mutant) -> Verdict:
        if not self.build.can_run(mutant):
            return Verdict(mutant, "not testable here", f"needs {mutant.isa}")
        variant = self.common
        if mutant.alone or mutant.name in self.common.separate:
            variant = Variant(self.build, self.out / "alone" / mutant.name, [mutant], alone=True)
            variant.make()
        why = [variant.broken[source] for source in mutant.through if source in variant.broken]
        why += filter(None, (self.unfit(test, mutant.isa) for test in mutant.tests))
        try:
            return Verdict(mutant, "broken", why[0]) if why else self.verdict(mutant, variant)
        finally:
            if variant.alone:
                shutil.rmtree(variant.out, ignore_errors=True)

    def verdict(self, mutant: Mutant, variant: Variant) -> Verdict:
        number = 0 if variant.alone else mutant.number
        able = [test for test in mutant.tests if self.unmutated[test, mutant.isa].tests]
        if not able:
            return Verdict(mutant, "not testable here", "its tests are skipped here")
        for test in able:
            limit = max(LEAST_SECONDS, TIMES_UNMUTATED * self.unmutated[test, mutant.isa].seconds)
            outcome = self.run(variant, test, mutant.isa, number, limit)
            if outcome.code != 0:
                return Verdict(mutant, "killed", f"{test}: {how(outcome)}, {outcome.seconds:.0f} s")
        return Verdict(mutant, "survived", self.wider(mutant, variant, number))

    def wider(self, mutant: Mutant, variant: Variant, number: int) -> str:
        """Whether the whole test program of its layer would notice a survivor."""
        program = f"test_{mutant.layer}"
        if not self.widen or not (self.build.folder / "tests" / program).exists():
            return ""
        with self.lock:
            command_of(program + " *", variant, self.build.root)
        outcome = self.run(variant, program + " *", mutant.isa, number, 900)
        return f"all of {program}: {how(outcome)}" if outcome.code != 0 else f"all of {program} pass too"

    def judge_all(self, done):
        """Judges every mutant, several at a time; calls done(verdict) as each is known."""
        verdicts = []
        with concurrent.futures.ThreadPoolExecutor(self.build.jobs) as pool:
            for future in concurrent.futures.as_completed([pool.submit(self.judge, mutant) for mutant in self.mutants]):
                verdicts.append(future.result())
                done(verdicts[-1])
        order = {mutant.name: index for index, mutant in enumerate(self.mutants)}
        return sorted(verdicts, key=lambda verdict: order[verdict.mutant.name])


def how(outcome: Outcome) -> str:
    """What a test that noticed said, in few words."""
    if outcome.code is None:
        return "hangs"
    if outcome.code < 0:
        return f"dies of {signal.Signals(-outcome.code).name}"
    if match := re.search(r"\[  FAILED  \] ([\w/.]+)", outcome.output):
        return f"{match[1]} fails"
    if match := re.search(r"^(?:FAIL|ERROR): (\w+)", outcome.output, re.MULTILINE):
        return f"{match[1]} fails"
    return f"exit code {outcome.code}"
