"""Runs the program in forks of one process that has loaded its libraries already (fork_server.cpp)."""

import os
import pathlib
import signal
import socket
import struct
import subprocess
import tempfile

LIBRARY = pathlib.Path(os.environ["FUNICULAR_BUILD_DIR"]) / "tests" / "libfork_server.so"


class ForkServer:
    """One command at a time. The server ends with this process, whose end of the connection is then closed."""

    def __init__(self, program, environment):
        self.program = program
        self.socket, other = socket.socketpair()
        with other:
            self.process = subprocess.Popen([program], pass_fds=[other.fileno()], stdin=subprocess.DEVNULL,
                                            env={**environment, "LD_PRELOAD": str(LIBRARY), "FUNICULAR_FORK_SERVER": str(other.fileno())})

    def run(self, words, environment, stdin, timeout):
        """Exit code, standard output and standard error, as bytes. stdin: bytes."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as into:
            into.write(stdin)
            into.seek(0)
            self.send([self.program, *words], environment, [into.fileno(), out.fileno(), err.fileno()])
            self.socket.settimeout(30)
            child = self.number()
            self.socket.settimeout(timeout)
            try:
                status = self.number()
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                self.socket.settimeout(30)
                self.number()
                raise subprocess.TimeoutExpired(words, timeout) from None
            out.seek(0)
            err.seek(0)
            return os.waitstatus_to_exitcode(status), out.read(), err.read()

    def send(self, words, environment, streams):
        parts = [os.getcwd(), str(len(words)), *words, *(f"{name}={value}" for name, value in environment.items())]
        text = b"".join(os.fsencode(part) + b"\0" for part in parts)
        socket.send_fds(self.socket, [struct.pack("=Q", len(text))], streams)
        self.socket.sendall(text)

    def number(self):
        found = b""
        while len(found) < 4:
            part = self.socket.recv(4 - len(found))
            if not part:
                raise RuntimeError("the fork server has ended")
            found += part
        return struct.unpack("=i", found)[0]

    def stop(self):
        self.socket.close()
        self.process.wait(timeout=30)
