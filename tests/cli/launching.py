"""Launches for tests, and what is seen of their processes from outside."""

import os
import re
import time

from harness import PROGRAM, run, subprocess

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")


def launch(*words):
    return run("launch", *words)


def by_rank(line):
    """The rank that wrote a line of standard output, and what it wrote: rank 0's lines are as they are."""
    found = re.fullmatch(r"\[([1-9]\d*)\] (.*)", line)
    return (int(found[1]), found[2]) if found else (0, line)


def shell(ranks, script, *options):
    return launch("-n", ranks, *options, "--", "sh", "-c", script)


def alive(pid):
    """Whether the process is there and not a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def children(pid):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                if int(file.read().rsplit(")", 1)[1].split()[1]) == pid:
                    found.append(int(entry))
        except OSError:
            pass
    return found


def listening(pid):
    """The addresses, as /proc writes them, and ports at which a process listens."""
    sockets, found = set(), []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            sockets.add(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            pass
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="ascii") as file:
            for words in map(str.split, file.readlines()[1:]):
                if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                    address, port = words[1].split(":")
                    found.append((address, int(port, 16)))
    return found


def has_connected(pid, port):
    """Whether a process of this host is connected to a port."""
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="ascii") as file:
            sockets = {words[9] for words in map(str.split, file.readlines()[1:])
                       if words[3] == "01" and int(words[2].split(":")[1], 16) == port}
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                if os.readlink(f"/proc/{pid}/fd/{name}").removeprefix("socket:[").removesuffix("]") in sockets:
                    return True
            except OSError:
                pass
    return False


class Started:
    """A launch that runs beside the test."""

    def __init__(self, *words, **changes):
        self.process = subprocess.Popen([PROGRAM, "launch", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**os.environ, **changes})

    def end(self):
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out.decode(), err.decode()
