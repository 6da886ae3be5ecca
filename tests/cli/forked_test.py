"""What runs tests in forks of their program (tests/fork_server): what they are given, and how they end."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from harness import FORKED, SANITIZED


def run(script, **more):
    return subprocess.run([FORKED, "/bin/sh", "-c", script], capture_output=True, text=True, timeout=60, check=False, **more)


def until(condition):
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def servers_of(owner):
    """The processes that serve forks as long as the process `owner` lives."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(variable.startswith(b"FUNICULAR_FORK_SERVER=") and variable.endswith(f" {owner}".encode()) for variable in variables):
            found.append(int(folder.name))
    return found


@unittest.skipIf(SANITIZED, "sanitizers have to be loaded first")
class Forked(unittest.TestCase):
    def test_programs_end_with_their_own_codes_and_signals(self):
        self.assertEqual(run("exit 3").returncode, 3)
        self.assertEqual(run("kill -SEGV $$").returncode, -signal.SIGSEGV)
        self.assertEqual(run("exit 0").returncode, 0)

    def test_programs_have_the_streams_the_folder_and_the_variables_of_their_caller(self):
        done = run('cat; pwd; echo "$COLOUR" >&2', input="given\n", cwd="/usr", env={**os.environ, "COLOUR": "red"})
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("given\n/usr\n", "red\n", 0))
        self.assertEqual(run('echo "[$COLOUR]"').stdout, "[]\n")

    def test_programs_are_killed_with_their_caller_and_what_they_have_started_too(self):
        with subprocess.Popen([FORKED, "/bin/sh", "-c", "sleep 100 & echo $$ $!; wait"], stdout=subprocess.PIPE, text=True) as caller:
            processes = [pathlib.Path("/proc") / number for number in caller.stdout.readline().split()]
            self.assertEqual([process.exists() for process in processes], [True, True])
            caller.kill()
        self.assertTrue(until(lambda: not any(process.exists() for process in processes)), processes)

    def test_signals_of_the_caller_reach_the_program(self):
        for number in (signal.SIGTERM, signal.SIGUSR1):
            script = f"trap 'echo received; exit 7' {number.name[3:]}; echo begun; while :; do sleep 0.02; done"
            with subprocess.Popen([FORKED, "/bin/sh", "-c", script], stdout=subprocess.PIPE, text=True) as caller:
                self.assertEqual(caller.stdout.readline(), "begun\n")
                caller.send_signal(number)
                self.assertEqual((caller.stdout.read(), caller.wait(timeout=60)), ("received\n", 7), number)

    def test_a_program_that_starts_itself_again_runs_in_a_fork_again_and_other_programs_do_not(self):
        in_fork = "'grep -q libfork_server /proc/$$/maps && echo forked; exit 5'"
        for program, said in ((os.path.realpath("/bin/sh"), "forked\n"), (os.path.realpath("/bin/bash"), "")):
            done = run(f"exec {program} -c {in_fork}")
            self.assertEqual((done.stdout, done.returncode), (said, 5), program)

    def test_a_server_is_used_again_and_ends_with_its_owner(self):
        owner = subprocess.Popen(["sleep", "100"])
        self.addCleanup(owner.wait)
        self.addCleanup(owner.kill)
        variables = {**os.environ, "FUNICULAR_FORK_OWNER": str(owner.pid)}
        for _ in range(3):
            self.assertEqual(run("echo x", env=variables).stdout, "x\n")
        self.assertTrue(until(lambda: len(servers_of(owner.pid)) == 1))
        # What is read while libraries are loaded asks for a server of its own.
        for number, name in enumerate(("OMP_SCHEDULE", "FUNICULAR_MUTANT"), 2):
            self.assertEqual(run("echo x", env={**variables, name: "1"}).stdout, "x\n")
            self.assertTrue(until(lambda expected=number: len(servers_of(owner.pid)) == expected), name)
        owner.kill()
        owner.wait()
        self.assertTrue(until(lambda: not servers_of(owner.pid)))

    def test_a_server_that_is_gone_is_an_error(self):
        owner = subprocess.Popen(["sleep", "100"])
        self.addCleanup(owner.wait)
        self.addCleanup(owner.kill)
        variables = {**os.environ, "FUNICULAR_FORK_OWNER": str(owner.pid)}
        with subprocess.Popen([FORKED, "/bin/sh", "-c", "echo begun; read x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env=variables) as caller:
            self.assertEqual(caller.stdout.readline(), "begun\n")
            for process in servers_of(owner.pid):
                os.kill(process, signal.SIGKILL)
            self.assertEqual(caller.wait(timeout=60), 99)
            self.assertIn("no answer from the server of /bin/sh", caller.stderr.read())

    def test_a_program_that_cannot_be_loaded_says_why(self):
        done = subprocess.run([FORKED, "/nowhere/program"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 127)
        self.assertIn("/nowhere/program: No such file", done.stderr)


@unittest.skipIf(SANITIZED, "sanitizers have to be loaded first")
class ForkedScripts(unittest.TestCase):
    """Scripts of Python, which a server of their own runs, end and say what they do without it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="funicular-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()

    def outcome(self, before, code):
        """Of a script with this code: its exit code, its output, and the last line of its errors."""
        (self.folder / "script.py").write_text(code)
        done = subprocess.run([*before, sys.executable, self.folder / "script.py", "a b", "é"], capture_output=True, text=True, input="given", timeout=60,
                              check=False, cwd="/usr", env={**os.environ, "COLOUR": "red"})
        return done.returncode, done.stdout, done.stderr.splitlines()[-1:]

    def test_have_the_words_the_folder_the_variables_and_the_end_of_a_start_by_python(self):
        for code, expected in (("import os, sys; print(sys.argv, os.getcwd(), os.environ['COLOUR'], sys.path[0], __name__, __file__, sys.stdin.read())", 0),
                               ("raise SystemExit(3)", 3), ("raise SystemExit('wrong')", 1), ("raise ValueError('é')", 1),
                               ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
                               ("import atexit; atexit.register(print, 'at the end'); print('now')", 0)):
            with self.subTest(code):
                found = self.outcome([FORKED], code)
                self.assertEqual(found, self.outcome([], code))
                self.assertEqual(found[0], expected)

    def test_get_signals_and_are_killed_with_their_caller(self):
        script = self.folder / "script.py"
        script.write_text("import os, signal, time\nsignal.signal(signal.SIGTERM, lambda *_: print('received', flush=True))\n"
                          "print(os.getpid(), flush=True)\nwhile True: time.sleep(0.02)\n")
        with subprocess.Popen([FORKED, sys.executable, script], stdout=subprocess.PIPE, text=True) as caller:
            process = pathlib.Path("/proc") / caller.stdout.readline().strip()
            caller.terminate()
            self.assertEqual(caller.stdout.readline(), "received\n")
            self.assertTrue(process.exists())
            caller.kill()
        self.assertTrue(until(lambda: not process.exists()))


if __name__ == "__main__":
    unittest.main()
