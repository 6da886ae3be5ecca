"""The secret that ranks of a launch share, and what strangers on their port come to."""

import os
import socket

from harness import PROGRAM, ProgramTest, run, signal, unittest
from launching import Started, children, listening, wait_until


def command_lines():
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", encoding="utf-8", errors="replace") as file:
                yield file.read()
        except OSError:
            pass


class Secrets(ProgramTest):
    """What keeps strangers from joining the ranks."""

    def setUp(self):
        super().setUp()
        self.go = self.folder / "go"

    def told(self, ranks, *words, **changes):
        """What each rank was told, while no command line of this machine shows any of it."""
        marks = self.folder / f"marks-{len(list(self.folder.iterdir()))}"
        marks.mkdir()
        self.go.unlink(missing_ok=True)
        started = Started(*words, "--", "sh", "-c", f'echo "$FUNICULAR_SECRET" > {marks}/new-$RANK; '
                          f"mv {marks}/new-$RANK {marks}/$RANK; until [ -e {self.go} ]; do sleep 0.02; done", **changes)
        self.addCleanup(started.process.kill)
        files = [marks / str(rank) for rank in range(ranks)]
        self.assertTrue(wait_until(lambda: all(file.exists() for file in files)))
        secrets = [file.read_text().strip() for file in files]
        lines = list(command_lines())
        self.go.touch()
        code, _, err = started.end()
        self.assertEqual(code, 0, err)
        self.assertTrue(any(str(marks) in line for line in lines), "the command lines were not read")
        for secret in filter(None, secrets):
            self.assertFalse([line for line in lines if secret in line])
            self.assertNotIn(secret, err)
        return secrets

    def test_the_ranks_of_a_launch_share_one_that_no_command_line_shows(self):
        first, second = self.told(2, "-n", 2), self.told(2, "-n", 2)
        for secrets in (first, second):
            self.assertEqual(len(set(secrets)), 1)
            self.assertRegex(secrets[0], r"^[0-9a-f]{64}$")
        self.assertNotEqual(first, second)

    def test_the_ranks_of_several_hosts_share_one_that_no_command_line_shows(self):
        remote = self.folder / "remote"
        # The shell with the command is still there while the ranks run.
        remote.write_text('#!/bin/sh\nenv -i sh -c "$2"\n')
        remote.chmod(0o755)
        for changes in ({}, {"FUNICULAR_SECRET": "chosen-by-the-user-1234"}):
            secrets = self.told(4, "-H", "a:2,localhost:1,b:1", "--remote-shell", remote, **changes)
            self.assertEqual(len(set(secrets)), 1)
            self.assertRegex(secrets[0], changes.get("FUNICULAR_SECRET", r"^[0-9a-f]{64}$"))

    def test_one_that_is_set_is_handed_on_and_launches_that_meet_make_none(self):
        given = "0123456789abcdef-given"
        self.assertEqual(self.told(1, "-n", 1, FUNICULAR_SECRET=given), [given])
        two_launches = ("-n", 1, "--nnodes", 2, "--node-rank", 0, "--rendezvous", "127.0.0.1:4321")
        self.assertEqual(self.told(1, *two_launches, FUNICULAR_SECRET=given), [given])
        self.assertEqual(self.told(1, *two_launches), [""])

    def test_one_that_is_easily_guessed_is_refused_and_not_shown(self):
        refused = Started("-n", 1, "--", "true", FUNICULAR_SECRET="guess-me")
        code, _, err = refused.end()
        self.assertEqual(code, 2, err)
        self.assertIn("FUNICULAR_SECRET must be 16 to 256", err)
        self.assertNotIn("guess-me", err)

    def test_a_controlled_launch_that_is_told_none_ends(self):
        result = run("launch", "-n", 1, "--controlled", "--", "true", stdin="signal 15\n")
        self.assertEqual(result.code, 1)
        self.assertIn("has not told it the run's secret", result.err)

    def test_strangers_are_counted_and_turned_away_and_the_run_goes_on(self):
        data = self.store(self.model())
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        output = self.folder / "run"
        started = Started("-n", 2, "--rendezvous", f"127.0.0.1:{port}", "--", PROGRAM, "pretrain", "--model", self.folder / "model",
                          "--train", data, "--output", output, "--max-length", 32, "--max-steps", 1000000, "--logging-steps", 1)
        self.addCleanup(started.process.kill)
        self.assertTrue(wait_until(lambda: started.process.poll() is not None or (output / "metrics.jsonl").exists()))
        heard = []
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.settimeout(30)
                stranger.sendall(b"x" * 64)
                heard.append(stranger.makefile("rb").read())
        ranks = [child for child in children(started.process.pid) if listening(child)]
        addresses = [address for rank in ranks for address in listening(rank)]
        started.process.send_signal(signal.SIGTERM)
        code, _, err = started.end()
        self.assertEqual(code, 75, err)
        self.assertEqual({answer[40:41] for answer in heard}, {b"n"}, heard)
        self.assertIn("turned away 1 connection to the meeting point", err)
        self.assertIn("turned away 10 connections to the meeting point", err)
        self.assertNotIn("turned away 2 ", err)
        self.assertEqual(len(ranks), 2)
        self.assertIn(("0100007F", port), addresses)
        self.assertEqual({address for address, _ in addresses}, {"0100007F"}, "127.0.0.1, and no other address")


if __name__ == "__main__":
    unittest.main()
