"""How the program's messages are shown: at a terminal, in a notebook, as lines, or not."""

import codecs
import re
import shutil
import sys

CLEAR = re.compile(r"\r\x1b\[K|\x1b\[[0-9;]*[A-Za-z]")
UNFINISHED = re.compile(r"\r?(\x1b(\[[0-9;]*)?)?$")


class Display:
    """Keeps the messages. Subclasses show them, and the line of progress that the program draws anew."""

    columns = 0  # of the terminal that the program believes to have; 0: it has none, and draws nothing

    def __init__(self, stream=None):
        self.stream, self.messages, self.pending = stream, [], ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data):
        text = self.decoder.decode(data)
        self.raw(text)
        *lines, self.pending = (self.pending + text).split("\n")
        for line in lines:
            line = last_drawn(line)
            self.messages.append(line)
            self.message(line)
        self.drawn(last_drawn(self.pending))

    def log(self):
        return "\n".join([*self.messages, last_drawn(self.pending)]).rstrip("\n")

    def raw(self, text):
        pass

    def message(self, line):
        pass

    def drawn(self, line):
        pass

    def end(self):
        pass


def last_drawn(text):
    """What stays of a line after its redrawings."""
    return CLEAR.split(UNFINISHED.sub("", text))[-1].split("\r")[-1]


class Terminal(Display):
    def __init__(self, stream):
        super().__init__(stream)
        self.columns = shutil.get_terminal_size().columns

    def raw(self, text):
        self.stream.write(text)
        self.stream.flush()


class Lines(Display):
    def message(self, line):
        print(line, file=self.stream, flush=True)


class Notebook(Display):
    """A line that is overwritten, as notebooks understand a carriage return."""

    columns = 100

    def __init__(self, stream):
        super().__init__(stream)
        self.shown = ""

    def show(self, line, end=""):
        if line != self.shown or end:
            self.stream.write("\r" + line.ljust(len(self.shown)) + end)
            self.stream.flush()
            self.shown = "" if end else line

    def message(self, line):
        self.show(line, "\n")

    def drawn(self, line):
        self.show(line)

    def end(self):
        self.show("")


def in_notebook():
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


def display(progress):
    """progress: True, False, or None, which decides by where this process runs."""
    if progress is False:
        return Display()
    if in_notebook():
        return Notebook(sys.stdout)
    return Terminal(sys.stderr) if sys.stderr.isatty() else Lines(sys.stderr)
