"""Which Python a script needs: ./run setup makes .deps/python, with torch, transformers and tokenizers in it."""

import importlib.util
import os
import sys
from pathlib import Path

PYTHON = Path(os.environ.get("FUNICULAR_PYTHON") or Path(__file__).resolve().parents[2] / ".deps/python/bin/python")
TRIED = "FUNICULAR_PYTHON_TRIED"  # set in a program that need() has started


def python_with(*packages: str) -> str:
    """A Python that has these packages: this one, or that of .deps/python. Ends the program where neither will do."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if not missing:
        return sys.executable
    if os.access(PYTHON, os.X_OK) and TRIED not in os.environ:
        return str(PYTHON)
    print(f"{sys.argv[0]}: the Python package {missing[0]} is missing in {sys.prefix}"
          f"{'' if TRIED in os.environ else f', and there is no {PYTHON}'}; ./run setup makes .deps/python, which has it", file=sys.stderr)
    sys.exit(2)


def need(*packages: str) -> None:
    """Starts this script again under a Python that has these packages, where this one has not."""
    python = python_with(*packages)
    if python != sys.executable:
        os.execve(python, [python, *sys.argv], {**os.environ, TRIED: "yes"})
