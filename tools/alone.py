#!/usr/bin/env python3
"""Compiles files under funicular/ alone, so that one that lacks an include is found: the build compiles a dozen together, behind a
precompiled header, and a neighbour's include hides the gap.

usage: alone.py [--build DIR] [--jobs N] [--sample N] [--all] [FILE...]
  Without FILE: those that the last commit or the working tree has changed.
  --sample N    and N others, which change with each commit: all files take 40 CPU minutes
  --all         all files
Exit code 0 if all compile, 1 with the first errors of each that does not.
"""
import argparse
import concurrent.futures
import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = re.compile(r"/kernels/|/gloo_declarations/|unicode_tables|/device/")  # compiled for one instruction set, or by another compiler


def compilers(build: Path) -> dict[str, list[str]]:
    """The command of each target of the build, without its precompiled header."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        command, _, output = entry["command"].rpartition(" -o ")
        target = re.search(r"CMakeFiles/([^/]+)\.dir/", output)
        if target and "cmake_pch" not in entry["file"]:
            words = shlex.split(re.sub(r"-Winvalid-pch|-include \S*cmake_pch\S*|-Werror=invalid-pch", "", command))
            found.setdefault(target[1], [word for word in words if not word.startswith("-O")])
    return found


def command_of(path: str, known: dict[str, list[str]]) -> list[str]:
    layer = path.split("/")[1]
    return known["funicular_commands" if layer == "cli" else f"funicular_{layer}"]


def compiles(path: str, compiler: list[str]) -> str:
    """The first errors, or nothing."""
    source = ["-include", path, "-x", "c++", os.devnull] if path.endswith(".h") else [path]
    done = subprocess.run([*compiler, "-fsyntax-only", *source], cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.split("\n") if "error" in line]
    return "" if done.returncode == 0 else "\n".join(lines[:4] or [f"{path}: exit code {done.returncode}"])


def git(*words: str) -> list[str]:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False).stdout.split()


def choose(options) -> list[str]:
    every = sorted(path for path in git("ls-files", "--cached", "--others", "--exclude-standard", "funicular/*.h", "funicular/*.cpp")
                   if not LEFT_OUT.search(path) and (ROOT / path).exists())
    if options.all:
        return every
    chosen = options.files or sorted(set(git("diff", "--name-only", "HEAD~1", "--", "funicular")) & set(every))
    rest = [path for path in every if path not in chosen]
    return chosen + random.Random("".join(git("rev-parse", "HEAD"))).sample(rest, min(options.sample, len(rest)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("FUNICULAR_JOBS", os.cpu_count() or 1)))
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    known, files = compilers(options.build), choose(options)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        wrong = [errors for errors in pool.map(lambda path: compiles(path, command_of(path, known)), files) if errors]
    print("\n".join(wrong) if wrong else f"{len(files)} files compile alone")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
