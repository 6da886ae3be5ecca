"""funicular launch with real processes: shells and Python programs as ranks."""

import os
import re
import sys

from harness import PROGRAM, ProgramTest, environment, json, run, signal, subprocess, unittest
from launching import VARIABLES, Started, alive, by_rank, children, launch, shell, wait_until


class WhatTheRanksAreTold(ProgramTest):
    def places(self, *words, environment=None):
        names = " ".join(f'"{name}=${name}"' for name in VARIABLES)
        clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        done = subprocess.run([PROGRAM, "launch", *map(str, words), "--", "sh", "-c", f"echo {names}"], capture_output=True,
                              text=True, env={**clean, **(environment or {})}, check=True, timeout=300)
        return {rank: dict(word.split("=") for word in line.split()) for rank, line in map(by_rank, done.stdout.splitlines())}

    def test_ranks_of_one_host(self):
        places = self.places("-n", 3)
        self.assertEqual(sorted(places), [0, 1, 2])
        for rank, place in places.items():
            self.assertEqual((place["RANK"], place["LOCAL_RANK"]), (str(rank), str(rank)))
            self.assertEqual((place["WORLD_SIZE"], place["LOCAL_WORLD_SIZE"]), ("3", "3"))
            self.assertEqual(place["MASTER_ADDR"], "127.0.0.1")
        self.assertEqual(len({place["MASTER_PORT"] for place in places.values()}), 1)

    def test_ranks_of_the_second_of_two_hosts(self):
        places = self.places("-n", 2, "--nnodes", 2, "--node-rank", 1, "--rendezvous", "first.example:4321")
        self.assertEqual(sorted(places), [2, 3])
        self.assertEqual([places[rank]["LOCAL_RANK"] for rank in (2, 3)], ["0", "1"])
        self.assertEqual((places[2]["WORLD_SIZE"], places[2]["MASTER_ADDR"], places[2]["MASTER_PORT"]),
                         ("4", "first.example", "4321"))

    def test_a_host_with_another_number_of_ranks_is_told_its_place(self):
        places = self.places("-n", 2, "--nnodes", 2, "--node-rank", 1, "--first-rank", 3, "--world-size", 5,
                             "--rendezvous", "first.example:4321")
        self.assertEqual(sorted(places), [3, 4])
        self.assertEqual((places[3]["LOCAL_RANK"], places[3]["WORLD_SIZE"]), ("0", "5"))
        refused = launch("-n", 2, "--first-rank", 4, "--world-size", 5, "--", "true")
        self.assertEqual(refused.code, 2)
        self.assertIn("beyond --world-size 5", refused.err)

    def test_threads_are_the_cores_divided_unless_they_are_set(self):
        cores = len(os.sched_getaffinity(0))
        alone = int(self.places("-n", 1)[0]["OMP_NUM_THREADS"])
        self.assertTrue(1 <= alone <= cores)
        self.assertEqual(int(self.places("-n", 2)[1]["OMP_NUM_THREADS"]), max(1, alone // 2))
        self.assertEqual(self.places("-n", 2, environment={"OMP_NUM_THREADS": "7"})[1]["OMP_NUM_THREADS"], "7")

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one processor cannot be divided")
    def test_ranks_have_processors_of_their_own(self):
        script = "import os; print(*os.sched_getaffinity(0))"
        pinned = launch("-n", 2, "--", sys.executable, "-c", script)
        sets = [set(by_rank(line)[1].split()) for line in pinned.out.splitlines()]
        self.assertEqual(len(sets), 2)
        self.assertFalse(sets[0] & sets[1])
        free = launch("-n", 2, "--no-pin", "--", sys.executable, "-c", script)
        self.assertEqual({frozenset(by_rank(line)[1].split()) for line in free.out.splitlines()},
                         {frozenset(map(str, os.sched_getaffinity(0)))})

    def test_standard_input_is_empty(self):
        result = run("launch", "-n", 2, "--", "cat", stdin="for nobody\n")
        self.assertEqual((result.code, result.out), (0, ""))


class Hosts(ProgramTest):
    """Other hosts stand in as shells with nothing of this process's environment but what the launch sends."""

    def setUp(self):
        super().setUp()
        self.shell = self.folder / "remote"
        self.shell.write_text('#!/bin/sh\necho "$1" >> "$0.called"\nexec env -i sh -c "$2"\n')
        self.shell.chmod(0o755)

    def on(self, hosts, *words):
        return launch("-H", hosts, "--remote-shell", self.shell, *words)

    def test_ranks_are_numbered_over_hosts_of_different_sizes(self):
        names = " ".join(f"${name}" for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR"))
        result = self.on("a:2,b,localhost:2", "--", "sh", "-c", f'echo "{names}" $(pwd) "it\'s"')
        self.assertEqual(result.code, 0, result.err)
        here = os.getcwd()
        self.assertEqual(sorted(map(by_rank, result.out.splitlines())),
                         [(rank, f"{rank} {local} 5 {size} {node} a {here} it's")
                          for rank, local, size, node in ((0, 0, 2, 0), (1, 1, 2, 0), (2, 0, 1, 1), (3, 0, 2, 2), (4, 1, 2, 2))])
        self.assertEqual(sorted((self.folder / "remote.called").read_text().split()), ["a", "b"], "not this host")

    def test_all_hosts_end_when_a_rank_of_one_dies_and_the_rank_is_named(self):
        result = self.on("a:2,b:2", "--grace", 20, "--", "sh", "-c",
                         'if [ $RANK = 2 ]; then echo "lost" >&2; exit 7; fi; sleep 100')
        self.assertEqual(result.code, 7, result.err)
        self.assertIn("rank 2", result.err)
        self.assertIn("| lost", result.err)
        self.assertRegex(result.err, r"host b \(process \d+\) ended with exit code 7")

    def test_a_killed_rank_is_the_failure_however_late_its_host_ends(self):
        # Rank 1 is killed, rank 2 of its host takes its time; meanwhile rank 0 fails, since its peer is gone.
        result = self.on("a:1,b:2", "--grace", 20, "--", "sh", "-c",
                         'case $RANK in 0) sleep 1; exit 1;; 1) sleep 0.3; kill -9 $$;; 2) trap "" TERM; sleep 3;; esac')
        self.assertEqual(result.code, 128 + signal.SIGKILL, result.err)
        self.assertRegex(result.err, r"host b \(process \d+\) ended with exit code 137")

    def test_a_signal_reaches_the_ranks_of_all_hosts(self):
        marks = self.folder / "marks"
        marks.mkdir()
        script = f'trap "echo saved; exit 75" TERM; touch {marks}/$RANK; while :; do sleep 0.05; done'
        started = Started("-H", "a:1,b:2", "--remote-shell", self.shell, "--", "sh", "-c", script)
        self.assertTrue(wait_until(lambda: len(list(marks.iterdir())) == 3))
        started.process.send_signal(signal.SIGTERM)
        code, out, err = started.end()
        self.assertEqual(code, 75, err)
        self.assertEqual(sorted(out.splitlines()), ["[1] saved", "[2] saved", "saved"])

    def test_nothing_is_left_on_any_host_when_the_launcher_is_killed(self):
        pids = self.folder / "pids"
        started = Started("-H", "a:1,b:2", "--remote-shell", self.shell, "--", "sh", "-c", f"echo $$ >> {pids}; sleep 1000")
        self.assertTrue(wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 3))
        started.process.kill()
        started.process.communicate()
        self.assertTrue(wait_until(lambda: not any(alive(int(pid)) for pid in pids.read_text().split())))

    def test_all_hosts_start_again(self):
        spoken = self.folder / "spoken"  # rank 1 fails only when rank 0 has been heard
        result = self.on("a:1,b:1", "--max-restarts", 2, "--", "sh", "-c",
                         f'echo start $FUNICULAR_RESTART; [ $RANK = 1 ] || touch {spoken}; [ $FUNICULAR_RESTART = 1 ] && exit 0;'
                         f'[ $RANK = 0 ] && sleep 100; while [ ! -e {spoken} ]; do sleep 0.05; done; exit 3')
        self.assertEqual(result.code, 0, result.err)
        self.assertEqual({line for line in result.out.splitlines() if not line.startswith("[1]")}, {"start 0", "start 1"})

    def test_wrong_hosts_are_refused(self):
        for hosts, phrase in (("a:0", "1 to 1024 ranks"), ("a:x", "\"a:x\""), ("a,a", "twice"), ("", "found nothing"),
                              ("-oProxyCommand=x", "name of a host"), ("a:1,:2", "name of a host")):
            result = launch(f"--hosts={hosts}", "--", "true")
            self.assertEqual(result.code, 2, result.err)
            self.assertIn(phrase, result.err)
        refused = launch("-H", "a:1", "-n", 2, "--", "true")
        self.assertEqual(refused.code, 2)
        self.assertIn("2 ranks are asked for, and the hosts have 1", refused.err)
        for words in (["--nnodes", 2], ["--first-rank", 1], ["--world-size", 3]):
            refused = launch("-H", "a:1", *words, "--", "true")
            self.assertEqual(refused.code, 2)
            self.assertIn("--hosts tells how many ranks", refused.err)


class AsOthersTypeIt(ProgramTest):
    """mpirun's and horovodrun's spellings."""
    SCRIPT = ["sh", "-c", "echo $RANK of $WORLD_SIZE $0", "--np"]

    def expect_two(self, result):
        self.assertEqual((result.code, sorted(by_rank(line)[1] for line in result.out.splitlines())),
                         (0, ["0 of 2 --np", "1 of 2 --np"]), result.err)

    def test_ranks_hosts_and_a_command_without_dashes(self):
        for words in (["-np", 2], ["-np", 2, "-H", "localhost:2"], ["-np", 2, "-H", "localhost:4"], ["--num-proc", 2]):
            self.expect_two(launch(*words, *self.SCRIPT))

    def test_horovodrun_is_a_command_and_a_name_of_the_program(self):
        self.expect_two(run("horovodrun", "-np", 2, "-H", "localhost:2", *self.SCRIPT))
        link = self.folder / "horovodrun"
        link.symlink_to(PROGRAM)
        done = subprocess.run([link, "-np", "2", "-H", "localhost:2", *self.SCRIPT], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(by_rank(line)[1] for line in done.stdout.splitlines()), ["0 of 2 --np", "1 of 2 --np"])
        helped = subprocess.run([link, "--help"], capture_output=True, text=True, check=True).stdout
        self.assertIn("-n, -np, --ranks N", helped)

    def test_a_command_of_this_program_needs_no_name_of_it(self):
        for words in (["-np", 2, "doctor", "--help"], ["-np", 2, "-H", "localhost:2", "doctor", "--help"]):
            result = launch(*words)
            self.assertEqual(result.code, 0, result.err)
            self.assertEqual(result.out.count("Usage: funicular doctor"), 2)

    def test_a_program_called_as_a_command_of_this_one_is_named_behind_dashes(self):
        other = self.folder / "doctor"
        other.write_text("#!/bin/sh\necho another $1\n", encoding="utf-8")
        other.chmod(0o755)
        done = subprocess.run([PROGRAM, "launch", "-n", "2", "--", "doctor", "--help"], capture_output=True, text=True, check=False,
                              env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("another --help"), 2)

    def test_options_that_are_not_there_are_answered(self):
        for words, phrase in ((["--gloo"], "ranks meet over their own connections"), (["--fusion-threshold-mb", 32], "HOROVOD_FUSION_THRESHOLD"),
                              (["--ssh-port", 22], '--remote-shell "ssh -o BatchMode=yes -p PORT"')):
            self.refuses(["horovodrun", *words, "-np", 2, "true"], phrase)


class Output(ProgramTest):
    def test_what_rank_0_writes_to_standard_output_is_left_as_it_is(self):
        script = ("import os, sys; rank = os.environ['RANK']; sys.stderr.write('said by ' + rank + '\\n'); "
                  "sys.stdout.buffer.write(b'{\"rank\": ' + rank.encode() + b'}\\r\\n' + b'y' * int(3e6) + b'\\n\\n50 %\\r100 %\\nno end')")
        result = launch("-n", 1, "--", sys.executable, "-c", script)
        self.assertEqual(result.out, '{"rank": 0}\r\n' + "y" * 3000000 + "\n\n50 %\r100 %\nno end")
        self.assertEqual(result.err, "[0] said by 0\n")

    def test_a_result_of_rank_0_can_be_read_whatever_the_others_write(self):
        result = shell(3, 'echo "{\\"rank\\": $RANK}"; echo "note of $RANK" >&2')
        self.assertEqual([json.loads(line) for line in result.out.splitlines() if line.startswith("{")], [{"rank": 0}])
        self.assertEqual(sorted(result.out.splitlines()), ['[1] {"rank": 1}', '[2] {"rank": 2}', '{"rank": 0}'])
        self.assertEqual(sorted(result.err.splitlines()), ["[0] note of 0", "[1] note of 1", "[2] note of 2"])

    def test_lines_are_whole_and_each_has_its_rank(self):
        # Four ranks write the same long lines in small pieces.
        script = """
import os, sys
for line in range(200):
    text = f"{os.environ['RANK']}:{line}:" + "x" * 300 + "\\n"
    for start in range(0, len(text), 97):
        os.write(1 + line % 2, text[start:start + 97].encode())
"""
        result = launch("-n", 4, "--", sys.executable, "-c", script)
        self.assertEqual(result.code, 0, result.err)
        for stream, parity in ((result.out, 0), (result.err, 1)):
            seen = {str(rank): [] for rank in range(4)}
            for line in stream.splitlines():
                match = re.fullmatch(r"(?:\[(\d)\] )?(\d):(\d+):x{300}", line)
                self.assertTrue(match, line)
                self.assertEqual(match[1], None if match[2] == "0" and parity == 0 else match[2])
                seen[match[2]].append(int(match[3]))
            for lines in seen.values():
                self.assertEqual(lines, list(range(parity, 200, 2)))

    def test_a_last_line_without_an_end_is_shown(self):
        result = shell(2, "[ $RANK = 0 ] || { printf one; printf ' two'; }; printf three >&2")
        self.assertEqual((result.out, sorted(result.err.splitlines())), ("[1] one two\n", ["[0] three", "[1] three"]))


class OneRankDies(ProgramTest):
    def test_a_trace_of_frames_does_not_stand_for_what_was_said(self):
        result = shell(1, "echo 'the shapes do not fit' >&2; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22; "
                          "do echo \"frame #$i: somewhere\" >&2; done; exit 3")
        self.assertIn("  | the shapes do not fit", result.err)
        self.assertNotIn("  | frame #", result.err)

    def test_the_exit_code_is_the_first_failures_and_the_rank_is_named_with_its_last_lines(self):
        result = shell(3, 'if [ $RANK = 1 ]; then echo "cannot read x" >&2; exit 3; fi; exec sleep 100')
        self.assertEqual(result.code, 3)
        report = result.err[result.err.index("error:"):]
        for phrase in ("rank 1", "exit code 3", "| cannot read x"):
            self.assertIn(phrase, report)

    def test_a_signal_is_named(self):
        result = shell(2, "if [ $RANK = 0 ]; then kill -9 $$; fi; exec sleep 100")
        self.assertEqual(result.code, 128 + 9)
        for phrase in ("rank 0", "signal 9 (SIGKILL: Killed)", "it had written nothing"):
            self.assertIn(phrase, result.err)

    def test_the_others_are_asked_before_they_are_killed(self):
        result = shell(2, """if [ $RANK = 0 ]; then until [ -e ready ]; do sleep 0.02; done; exit 4; fi
trap 'echo saved; exit 0' TERM; touch ready; while :; do sleep 0.02; done""".replace("ready", str(self.folder / "ready")))
        self.assertEqual(result.code, 4)
        self.assertIn("[1] saved", result.out)

    def test_a_rank_that_does_not_end_is_killed_after_the_grace_period(self):
        ready = self.folder / "ready"
        result = shell(2, f"""if [ $RANK = 0 ]; then until [ -e {ready} ]; do sleep 0.02; done; exit 4; fi
trap '' TERM; touch {ready}; while :; do sleep 0.02; done""", "--grace", 0.2)
        self.assertEqual(result.code, 4)
        self.assertIn("rank 1 did not end when asked to: killed", result.err)

    def test_a_stopped_rank_ends_too(self):
        pid_file = self.folder / "pid"
        result = shell(2, f"""if [ $RANK = 0 ]; then until [ -s {pid_file} ]; do sleep 0.02; done; sleep 0.1; exit 5; fi
echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; kill -STOP $$; exec sleep 100""")
        self.assertEqual(result.code, 5)
        self.assertFalse(alive(int(pid_file.read_text())))

    def test_what_the_ranks_started_dies_with_them(self):
        result = shell(2, f"sleep 100 & echo $! > {self.folder}/$RANK; if [ $RANK = 0 ]; then sleep 0.3; exit 1; fi; wait")
        self.assertEqual(result.code, 1)
        for rank in ("0", "1"):
            pid = int((self.folder / rank).read_text())
            self.assertTrue(wait_until(lambda pid=pid: not alive(pid)), rank)

    def test_nothing_is_left_when_the_launcher_is_killed(self):
        started = Started("-n", 2, "--", "sh", "-c", f"sleep 100 & echo $$ $! > {self.folder}/new-$RANK; "
                                                     f"mv {self.folder}/new-$RANK {self.folder}/$RANK; wait")
        files = [self.folder / "0", self.folder / "1"]
        self.assertTrue(wait_until(lambda: all(file.exists() for file in files)))
        started.process.kill()
        started.end()
        for file in files:
            for pid in map(int, file.read_text().split()):
                self.assertTrue(wait_until(lambda pid=pid: not alive(pid)), file.name)

    def test_the_launcher_ends_with_its_ranks_whatever_becomes_of_its_helper(self):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            with self.subTest(number):
                marks = self.folder / number.name
                marks.mkdir()
                started = Started("-n", 2, "--", "sh", "-c", f"echo $$ > {marks}/new-$RANK; mv {marks}/new-$RANK {marks}/$RANK; "
                                  f"until [ -e {marks}/go ]; do sleep 0.02; done; exit 7")
                self.addCleanup(started.process.kill)
                files = [marks / "0", marks / "1"]
                self.assertTrue(wait_until(lambda files=files: all(file.exists() for file in files)))
                ranks = [int(file.read_text()) for file in files]
                helpers = [child for child in children(started.process.pid) if child not in ranks]
                self.assertEqual(len(helpers), 1)
                self.addCleanup(lambda helper=helpers[0]: alive(helper) and os.kill(helper, signal.SIGKILL))
                os.kill(helpers[0], number)
                (marks / "go").touch()
                self.assertTrue(wait_until(lambda ranks=ranks: not any(map(alive, ranks))))
                started.process.wait(timeout=10)
                code, _, err = started.end()
                self.assertEqual(code, 7, err)
                self.assertFalse(alive(helpers[0]))

    def test_ranks_that_end_at_different_times_are_no_failure(self):
        self.assertEqual(shell(3, "sleep 0.$RANK").code, 0)


class Interrupted(ProgramTest):
    def interrupt(self, script, number, ranks=2):
        started = Started("-n", ranks, "--", "sh", "-c", script.replace("READY", f"touch {self.folder}/{int(number)}-$RANK"))
        ready = [self.folder / f"{int(number)}-{rank}" for rank in range(ranks)]
        self.assertTrue(wait_until(lambda: all(file.exists() for file in ready)))
        started.process.send_signal(number)
        return started.end()

    def test_signals_are_passed_on_and_75_is_passed_through(self):
        for name in ("INT", "TERM", "HUP", "USR1", "USR2", "XCPU"):
            with self.subTest(name):
                code, out, err = self.interrupt(
                    f"trap 'echo got {name}; sleep 0.$RANK; exit 75' {name}; READY; while :; do sleep 0.02; done",
                    getattr(signal, f"SIG{name}"))
                self.assertEqual(code, 75, err)
                self.assertEqual(sorted(out.split("\n")), ["", f"[1] got {name}", f"got {name}"])
                self.assertNotIn("error:", err)

    def test_a_rank_that_is_interrupted_alone_ends_the_others_and_the_code_is_75(self):
        ready = self.folder / "ready"
        result = shell(2, f"""if [ $RANK = 1 ]; then until [ -e {ready} ]; do sleep 0.02; done; exit 75; fi
trap 'exit 75' TERM; touch {ready}; while :; do sleep 0.02; done""")
        self.assertEqual(result.code, 75)
        self.assertIn("rank 1 was interrupted and can be resumed", result.err)


class Restarts(ProgramTest):
    def attempts(self):
        return (self.folder / "attempts").read_text().split()

    def test_all_ranks_start_again_until_they_succeed(self):
        result = shell(2, f'echo $FUNICULAR_RESTART >> {self.folder}/attempts; [ $FUNICULAR_RESTART = 2 ] && exit 0; '
                          "[ $RANK = 0 ] && exit 9; exec sleep 100", "--max-restarts", 5)
        self.assertEqual(result.code, 0, result.err)
        self.assertIn("restart 2 of 5", result.err)
        self.assertEqual(self.attempts().count("2"), 2)
        self.assertNotIn("3", self.attempts())

    def test_no_more_often_than_allowed(self):
        result = shell(1, f"echo x >> {self.folder}/attempts; exit 9", "--max-restarts", 2)
        self.assertEqual(result.code, 9)
        self.assertEqual(len(self.attempts()), 3)

    def test_wrong_input_and_interruption_are_not_tried_again(self):
        for code in (2, 75):
            with self.subTest(code):
                (self.folder / "attempts").write_text("")
                result = shell(1, f"echo x >> {self.folder}/attempts; exit {code}", "--max-restarts", 2)
                self.assertEqual(result.code, code)
                self.assertEqual(len(self.attempts()), 1)


class Refused(ProgramTest):
    def test_commands_of_one_process_are_refused_as_ranks(self):
        model = self.model()
        for words in (["mask", "--tokenizer", model, "--input", "none.txt"],
                      ["tokenize", "--tokenizer", model, "--input", "none.txt", "--output", self.folder / "out.tokens"]):
            result = run("launch", "-n", 2, "--", PROGRAM, *words)
            self.assertNotEqual(result.code, 0)
            self.assertIn(f"funicular {words[0]} is one process with threads, found 2 ranks", result.err)

    def test_usage(self):
        self.refuses(["launch", "-n", "2"], "no command")
        self.refuses(["launch", "-n", "2", "--"], "no command")
        self.refuses(["launch", "-n", "0", "--", "true"], "--ranks", "at least 1")
        self.refuses(["launch", "-nx", "--", "true"], "--ranks", "x")
        self.refuses(["launch", "--rendezvous", "host", "--", "true"], "HOST:PORT", "host")
        self.refuses(["launch", "--nnodes", "2", "--", "true"], "--rendezvous")
        self.refuses(["launch", "--nnodes", "2", "--node-rank", "2", "--rendezvous", "a:1", "--", "true"], "--node-rank")

    def test_a_limit_of_descriptors_or_memory_is_a_message_and_no_abort(self):
        model = self.model()
        words = ["launch", "-n", 2, "--", PROGRAM, "predict", "--model", model, "--input", model / "vocab.txt"]
        for limit in ("-n 7", "-n 9", "-n 12", "-n 16", "-n 20", "-v 400000", "-v 800000"):
            for command in (words, words[5:], ["mask", "--tokenizer", model, "--input", model / "vocab.txt"]):
                with self.subTest(limit, command=command[0]):
                    done = subprocess.run(["sh", "-c", f'ulimit {limit} && exec "$@"', "sh", PROGRAM, *map(str, command)], capture_output=True, text=True,
                                          timeout=120, check=False, env=environment())
                    self.assertIn(done.returncode, (0, 1, 2), done.stderr)
                    self.assertNotIn("terminate called", done.stderr)
                    if done.returncode:
                        self.assertRegex(done.stderr, "error: ")

    def test_programs_that_cannot_be_started(self):
        self.refuses(["launch", "--", "no-such-program"], "no-such-program", "PATH")
        self.refuses(["launch", "--", "./no-such-program"], "does not exist")
        file = self.folder / "text"
        file.write_text("hello\n")
        self.refuses(["launch", "--", file], "can be executed", "chmod +x")
        file.write_bytes(b"\x7fELF no more")
        file.chmod(0o755)
        self.refuses(["launch", "-n", "2", "--", file], "cannot be executed")


if __name__ == "__main__":
    unittest.main()
