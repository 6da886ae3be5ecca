"""docs/reference/training_arguments.md against transformers' class itself, and against what the program says to each of its fields.

usage: training_arguments.py FUNICULAR_PROGRAM
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

from transformers import TrainingArguments

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/training_arguments.md"
VERDICTS = {"the same name", "in another way", "not needed", "not there"}


def run(*words):
    return subprocess.run(words, text=True, capture_output=True, check=False)


def main():
    program = sys.argv[1]
    printed = run(program, "help", "--training-arguments").stdout
    if printed != PAGE.read_text(encoding="utf-8"):
        sys.exit(f"{PAGE.name} is generated: funicular help --training-arguments > docs/reference/training_arguments.md")
    rows = re.findall(r"^\| `(\w+)` \| ([a-z ]+) \| (.+) \|$", printed, re.M)
    fields = {field.name for field in dataclasses.fields(TrainingArguments) if not field.name.startswith("_")}
    listed = [name for name, _, _ in rows]
    problems = [f"{name}: not in the table" for name in sorted(fields - set(listed))]
    problems += [f"{name}: no field of the class" for name in sorted(set(listed) - fields)]
    problems += [f"{name}: listed twice" for name in sorted(set(listed)) if listed.count(name) > 1]
    known = set(re.findall(r"--[a-z][a-z0-9-]*", run(program, "finetune", "--help", "all").stdout +
                           run(program, "pretrain", "--help", "all").stdout))
    for name, verdict, answer in rows:
        option = name.replace("_", "-")
        # A switch takes no value: what follows is not read then.
        done = run(program, "finetune", f"--{option}", "1", "--help")
        if verdict not in VERDICTS:
            problems.append(f"{name}: {verdict}")
        elif verdict == "the same name" and f"there is no --{option}" in done.stderr + run(program, "finetune", f"--{option}").stderr:
            problems.append(f"{name}: is no option of finetune")
        elif verdict != "the same name" and f"there is no --{option}: " not in done.stderr:
            problems.append(f"{name}: answered by {done.stderr.strip()}")
        if verdict != "the same name":
            problems += [f"{name}: there is no {word}" for word in re.findall(r"--[a-z][a-z0-9-]*", answer) if word not in known]
    if problems:
        sys.exit("\n".join(problems))
    print(f"{len(rows)} fields, {len([row for row in rows if row[1] == 'the same name'])} of the same name")


if __name__ == "__main__":
    main()
