"""Where the program and LibTorch's libraries are."""

import importlib.util
import os
import pathlib
import sys

PACKAGE = pathlib.Path(__file__).resolve().parent


def path():
    """The program of this package, or the one that FUNICULAR_PROGRAM names."""
    return pathlib.Path(os.environ.get("FUNICULAR_PROGRAM") or PACKAGE / "bin" / "funicular")


def unstartable(error):
    """The message for a program that the system could not start."""
    remedy = "check the variable FUNICULAR_PROGRAM" if os.environ.get("FUNICULAR_PROGRAM") else \
        "install the wheel, or set FUNICULAR_PROGRAM to a program such as build/release/funicular"
    return f"cannot start {path()}: {error.strerror}; {remedy}"


def torch_libraries():
    """The folder of torch's libraries if it is not the one that the program looks in, else None."""
    if "FUNICULAR_PROGRAM" in os.environ or (PACKAGE.parent / "torch" / "lib").is_dir():
        return None
    found = importlib.util.find_spec("torch")  # does not import it
    return pathlib.Path(found.origin).parent / "lib" if found and found.origin else None


def environment():
    """The variables that the program is started with."""
    variables = dict(os.environ)
    if sys.executable:
        variables.setdefault("FUNICULAR_PYTHON", sys.executable)  # reads files of Parquet and Arrow
    libraries = torch_libraries()
    if libraries:
        others = variables.get("LD_LIBRARY_PATH")
        variables["LD_LIBRARY_PATH"] = f"{libraries}:{others}" if others else str(libraries)
    return variables


def main():
    """Replaces this process by the program."""
    program = path()
    try:
        os.execve(program, ["funicular", *sys.argv[1:]], environment())
    except OSError as error:
        sys.exit(f"error: {unstartable(error)}")
