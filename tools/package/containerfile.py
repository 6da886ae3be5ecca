"""Reads a Containerfile and carries out its steps in chroots: for machines without a container engine.

It knows the instructions and forms that our file uses, and refuses others.
"""

import glob
import json
import pathlib
import shlex
import shutil
from typing import NamedTuple

KNOWN = ("FROM", "COPY", "RUN", "ENV", "WORKDIR", "ENTRYPOINT", "CMD")
SUITES = {"debian:bookworm-slim": "bookworm", "debian:bookworm": "bookworm", "debian:trixie-slim": "trixie"}


class Step(NamedTuple):
    line: int
    instruction: str
    words: str


class Stage(NamedTuple):
    image: str
    name: str
    steps: list


def steps(text):
    """The instructions, with continued lines joined and comments left out."""
    found, parts, start = [], [], 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or not (line.strip() or parts):
            continue
        start = start if parts else number
        parts.append(line.rstrip("\\").strip())
        if not line.endswith("\\"):
            instruction, _, words = " ".join(parts).partition(" ")
            if instruction not in KNOWN:
                raise ValueError(f"line {start}: unknown instruction {instruction}; expected one of {', '.join(KNOWN)}")
            found.append(Step(start, instruction, words.strip()))
            parts = []
    if parts:
        raise ValueError(f"line {start}: the file ends within an instruction")
    return found


def stages(text):
    found = []
    for step in steps(text):
        if step.instruction == "FROM":
            image, *name = step.words.split()
            if name and (len(name) != 2 or name[0].upper() != "AS"):
                raise ValueError(f"line {step.line}: expected FROM IMAGE AS NAME, found {step.words}")
            if image not in SUITES:
                raise ValueError(f"line {step.line}: no chroot stands for the image {image}; expected one of {', '.join(SUITES)}")
            found.append(Stage(image, name[1] if name else str(len(found)), []))
        elif not found:
            raise ValueError(f"line {step.line}: {step.instruction} stands before FROM")
        else:
            found[-1].steps.append(step)
    if not found:
        raise ValueError("there is no FROM")
    return found


def copy(step, machine, context, others):
    """COPY [--from=STAGE] SOURCE… TARGET"""
    words = shlex.split(step.words)
    source = context
    if words[0].startswith("--from="):
        source = others[words.pop(0).partition("=")[2]].root
    elif words[0].startswith("--"):
        raise ValueError(f"line {step.line}: unknown option {words[0]} of COPY")
    *patterns, target = words
    there = pathlib.Path(f"{machine.root}{target}")
    for pattern in patterns:
        files = glob.glob(f"{source}/{pattern.lstrip('/')}")
        if not files:
            raise ValueError(f"line {step.line}: COPY finds no {pattern} in {source}")
        for file in files:
            if pathlib.Path(file).is_dir():
                shutil.copytree(file, there, symlinks=True, dirs_exist_ok=True)
            else:
                there.mkdir(parents=True, exist_ok=True) if target.endswith("/") else there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, there)


def carry_out(stage, machine, context, others):
    """Runs the stage's steps in the machine. Gives the words that the container starts with."""
    start = {"ENTRYPOINT": [], "CMD": []}
    for step in stage.steps:
        if step.instruction == "RUN":
            machine.run(step.words)
        elif step.instruction == "COPY":
            copy(step, machine, context, others)
        elif step.instruction == "ENV":
            machine.variables.update(word.split("=", 1) for word in shlex.split(step.words))
        elif step.instruction == "WORKDIR":
            machine.folder = step.words
            (machine.root / step.words.lstrip("/")).mkdir(parents=True, exist_ok=True)
        else:
            start[step.instruction] = json.loads(step.words)
    return start
