"""Runs Python scripts in forks of a process that has imported their packages already, as server.cpp runs programs.

usage: server.py, by client.cpp alone, with FUNICULAR_FORK_SERVER="DESCRIPTOR OWNER": a socket that listens, and the process whose end is that of
the server. server.cpp describes requests and answers.

Importing transformers takes 6 s of processor time, and sentence_transformers 10. Scripts start as python would start them, except that
these packages are there, and that variables which Python and packages read when they start (PYTHONPATH, HF_HOME) have the server's values.
"""

import array
import atexit
import contextlib
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import struct
import sys
import traceback

PACKAGES = ["numpy", "pandas", "scipy.stats", "sklearn.metrics", "sklearn.linear_model", "tokenizers", "safetensors.torch", "torch",
            "transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto", "transformers.models.bert.modeling_bert",
            "sentence_transformers"]


def receive(connection):
    """The three streams, the folder, the words and the variables of a request; None where the connection ends before."""
    head, control, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(3 * 4), socket.MSG_WAITALL)
    if len(head) < 8 or not control:
        return None
    text, length = b"", struct.unpack("=Q", head)[0]
    while len(text) < length:
        part = connection.recv(length - len(text))
        if not part:
            return None
        text += part
    folder, count, *rest = text.split(b"\0")[:-1]
    return array.array("i", control[0][2][:12]), folder, rest[:int(count)], rest[int(count):]


def become(streams, folder, words, variables):
    """In the fork: the process that was asked for, python SCRIPT ARGUMENTS…. Returns its exit code."""
    os.setpgid(0, 0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, max(streams) + 1)
    sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), open(1, "w", closefd=False), open(2, "w", buffering=1, closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(tuple(map(os.fsdecode, variable.split(b"=", 1))) for variable in variables)
    sys.argv = list(map(os.fsdecode, words[1:]))
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001 - as the interpreter ends
        traceback.print_exc()
        return 1
    return 0


def wait_for(process, connection):
    """The wait status of the process. It gets the signals that come, and is killed where the connection ends before it does."""
    ended, poll = os.pidfd_open(process), select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(connection, select.POLLIN | select.POLLRDHUP)
    while ended not in dict(poll.poll()):
        number = connection.recv(1)
        with contextlib.suppress(ProcessLookupError):
            if number:
                os.kill(process, number[0])
            else:
                os.killpg(process, signal.SIGKILL)
                break
    return os.waitpid(process, 0)[1]


def answer(connection):
    request = receive(connection)
    if request is None:
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    process = os.fork()
    if process == 0:
        connection.close()
        code = become(*request)
        atexit._run_exitfuncs()  # removes temporary folders
        sys.stdout.flush()
        os._exit(code)
    with contextlib.suppress(OSError):  # it does the same
        os.setpgid(process, process)
    for stream in request[0]:
        os.close(stream)
    connection.send(struct.pack("=i", wait_for(process, connection)))


def serve(listening, owner):
    os.environ["HF_HUB_OFFLINE"] = "1"  # packages read it when they are imported
    for package in PACKAGES:
        with contextlib.suppress(Exception):  # a script that needs it says so
            importlib.import_module(package)
    gc.freeze()
    # Nobody waits for the processes that answer.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while os.path.exists(f"/proc/{owner}"):
        if not select.select([listening], [], [], 0.5)[0]:
            continue
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            try:
                answer(connection)
            finally:
                os._exit(0)
        connection.close()


if __name__ == "__main__":
    descriptor, its_owner = map(int, os.environ.pop("FUNICULAR_FORK_SERVER").split())
    serve(socket.socket(fileno=descriptor), its_owner)
