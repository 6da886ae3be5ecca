#!/usr/bin/env python3
"""Checks that every #include under funicular/ obeys the table of docs/explanation/architecture.md, and that every header says what it is for.

usage: check_layers.py [ROOT]        exit code 0 if all do, 1 with one line for each violation
"""
import re
import sys
from pathlib import Path

import tree_check

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
TORCH = ("torch/", "ATen/", "c10/", "caffe2/")
ROW = re.compile(r"^\|\s*`(\w+)`\s*\|[^|]*\|([^|]*)\|\s*(yes|no)\s*\|$")


def read_table(document: Path) -> dict[str, tuple[set[str], bool]]:
    """folder -> (folders that it may include, itself among them; whether it may include LibTorch)"""
    rows = {}
    for line in document.read_text(encoding="utf-8").splitlines():
        if match := ROW.match(line):
            folder, allowed, torch = match.groups()
            rows[folder] = ({folder, *re.findall(r"\w+", allowed)}, torch == "yes")
    everything = set(rows)
    return {folder: (everything if "all" in allowed else allowed, torch) for folder, (allowed, torch) in rows.items()}


def upward(rows) -> list[str]:
    """Rows that name a row below themselves: the table is in order, so that there is no circle."""
    order = list(rows)
    return [f"docs/explanation/architecture.md: the row of {folder} names {above}, a row below it"
            for at, folder in enumerate(order) for above in rows[folder][0] if order.index(above) > at]


def violation(folder: str, target: str, rows) -> str | None:
    allowed, torch = rows[folder]
    if target == "torch/torch.h":
        return "torch/torch.h costs 15 s a file: include the header that is needed"
    if target.startswith(TORCH) and not torch:
        return f"layer {folder} does not use LibTorch, but includes {target}"
    if not target.startswith("funicular/"):
        return None
    layer = target.split("/")[1]
    if layer not in allowed:
        return f"layer {folder} may not include layer {layer} ({target})"
    return None


def check(root: Path) -> tuple[list[str], int]:
    rows = read_table(root / "docs/explanation/architecture.md")
    if not rows:
        return [f"{root / 'docs/explanation/architecture.md'}: no table of layers found"], 0
    unknown = sorted({name for allowed, _ in rows.values() for name in allowed} - set(rows))
    if unknown:
        return [f"{root / 'docs/explanation/architecture.md'}: there is no row of {', '.join(unknown)}"], 0
    problems, files = upward(rows), 0
    for file in sorted((root / "funicular").rglob("*")):
        if file.suffix not in (".h", ".cpp", ".cu", ".inc"):
            continue
        files += 1
        path = file.relative_to(root)
        folder = path.parts[1]
        if folder not in rows:
            problems.append(f"{path}: folder {folder} has no row in docs/explanation/architecture.md")
            continue
        lines = file.read_text(encoding="utf-8").splitlines()
        if file.suffix == ".h" and not (lines[:1] == ["#pragma once"] and lines[1:] and re.match(r"// \S", lines[1])):
            problems.append(f"{path}:2: expected, below #pragma once, a line of comment that says what the header is for")
        for number, line in enumerate(lines, 1):
            if not (match := INCLUDE.match(line)):
                continue
            quote, target = match.groups()
            if quote == '"' and not target.startswith("funicular/"):
                problems.append(f"{path}:{number}: write the include from the root: \"funicular/…\", not \"{target}\"")
            elif problem := violation(folder, target, rows):
                problems.append(f"{path}:{number}: {problem}")
    if not files:
        problems.append(f"{root}: no source found under funicular/")
    return problems, files


if __name__ == "__main__":
    sys.exit(tree_check.run(check, "obey the table of layers"))
