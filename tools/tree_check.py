"""What the checks of the source tree share: their command line, and how they end."""
import sys
from collections.abc import Callable
from pathlib import Path


def run(check: Callable[[Path], tuple[list[str], int]], obeyed: str) -> int:
    """Checks the tree that the command line names, or this one; `check` gives what is wrong, a line each, and how many files it
    looked at. Prints it, or how many files `obeyed`. Returns the exit code."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    problems, files = check(root)
    print("\n".join(problems) if problems else f"{files} files {obeyed}")
    return 1 if problems else 0
