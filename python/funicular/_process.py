"""One command of the program: started, watched, interrupted, and its messages shown."""

import contextlib
import errno
import os
import selectors
import signal
import subprocess

from . import _program
from ._display import display

INTERRUPTED = 75  # the program saved what it had
WRONG_INPUT = 2


class FunicularError(RuntimeError):
    """A command failed. The text is the program's message.

    command: the words; code: the exit code, None if the program did not start; log: all messages of the command.
    """

    def __init__(self, message, command, code, log):
        super().__init__(message)
        self.command, self.code, self.log = command, code, log


class InputError(FunicularError, ValueError):
    """An option, a file or a value is wrong (exit code 2)."""


class Interrupted(FunicularError):
    """A signal that this process did not send ended the command (exit code 75). Repeat the call to resume."""


def message_of(log, code):
    """The program's error, or the last thing that it said."""
    lines = log.splitlines()
    errors = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    if errors:
        return "\n".join(lines[errors[0]:]).removeprefix("error: ")
    if code < 0:
        return f"the program was ended by {signal.Signals(-code).name}" + (f"; its last message: {lines[-1]}" if lines else "")
    return lines[-1] if lines else f"the program ended with exit code {code}"


def fail(words, code, log):
    kind = {WRONG_INPUT: InputError, INTERRUPTED: Interrupted}.get(code, FunicularError)
    raise kind(message_of(log, code), words, code, log)


class Messages:
    """Standard error of the program: a terminal of our own if the display redraws a line, else a pipe."""

    def __init__(self, columns):
        self.read_end = None
        if columns:
            import pty
            with contextlib.suppress(OSError):  # a container may have no terminals to give
                self.read_end, self.write_end = pty.openpty()
        if self.read_end is not None:
            import fcntl
            import struct
            import termios
            fcntl.ioctl(self.write_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        else:
            self.read_end, self.write_end = os.pipe()

    def close_write_end(self):
        if self.write_end is not None:
            os.close(self.write_end)
            self.write_end = None

    def read(self):
        try:
            return os.read(self.read_end, 65536)
        except OSError as error:
            if error.errno == errno.EIO:  # how a terminal ends
                return b""
            raise

    def close(self):
        self.close_write_end()
        os.close(self.read_end)


def pump(process, messages, shown):
    """Reads both outputs to their end; gives standard output. An interrupt is handed on, and the program saves."""
    out, interrupted = [], False
    with selectors.DefaultSelector() as selector:
        selector.register(messages.read_end, selectors.EVENT_READ, lambda: messages.read())
        selector.register(process.stdout, selectors.EVENT_READ, lambda: os.read(process.stdout.fileno(), 65536))
        while selector.get_map():
            try:
                for key, _ in selector.select():
                    data = key.data()
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is process.stdout:
                        out.append(data)
                    else:
                        shown.feed(data)
            except KeyboardInterrupt:
                interrupted = True
                process.send_signal(signal.SIGINT)
    process.wait()
    return b"".join(out).decode(), interrupted


def run(words, progress=None, quiet=False):
    """Standard output of `funicular WORDS…`. quiet: only warnings and errors, unless progress asks for all."""
    words = [str(word) for word in words]
    shown = display(progress)
    variables = {**_program.environment(), "FUNICULAR_LOG_TIMES": "off"}
    if quiet and not progress:
        variables.setdefault("FUNICULAR_LOG", "warning")
    if shown.columns:
        variables["TERM"] = "xterm"
    messages = Messages(shown.columns)
    try:
        # In a session of its own: Ctrl-C at a terminal reaches this process alone, which hands it on once.
        try:
            process = subprocess.Popen([str(_program.path()), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=messages.write_end, env=variables, start_new_session=True)
        except OSError as error:
            raise FunicularError(_program.unstartable(error), words, None, "") from error
        messages.close_write_end()
        try:
            out, interrupted = pump(process, messages, shown)
        except BaseException:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)  # to save
            except subprocess.TimeoutExpired:  # it writes to a pipe that is full, and nobody reads
                process.kill()
                process.wait()
            raise
        finally:
            process.stdout.close()
    finally:
        messages.close()
        shown.end()
    if interrupted:
        raise KeyboardInterrupt(message_of(shown.log(), process.returncode))
    if process.returncode:
        fail(words, process.returncode, shown.log())
    return out
