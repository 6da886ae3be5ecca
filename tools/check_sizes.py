#!/usr/bin/env python3
"""Checks that no file under funicular/ has more than 500 lines, no class more than 250 and no function more than 60.

A class has the lines of its definition and of its members' definitions in all files of its folder. Classes that were longer
when this check came, and the number of lines with more than 120 characters, stand in tools/size_limits.json: they may only shrink.

usage: check_sizes.py [ROOT]        exit code 0 if all fit, 1 with one line for each that does not
       check_sizes.py --lower       writes today's sizes as limits where they are lower
"""
import collections
import json
import re
import sys
from pathlib import Path

import tree_check

FILE_LINES, CLASS_LINES, FUNCTION_LINES, LINE_LENGTH = 500, 250, 60, 120
LIMITS = "tools/size_limits.json"
TABLES = {"funicular/text/unicode_tables.cpp"}  # written by a script

SUFFIXES = (".h", ".cpp", ".cu", ".inc")
NOISE = re.compile(r"""//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'|^[ \t]*\#(?:\\\n|[^\n])*""",
                   re.DOTALL | re.MULTILINE | re.VERBOSE)
ACCESS = re.compile(r"\b(public|private|protected)\s*:(?!:)")
SCOPE = re.compile(r"\b(namespace|class|struct|union|extern)\b")
CLASS = re.compile(r"\b(class|struct)\s+(?:\[\[[^\]]*\]\]\s*)?([\w:]+)(?:\s+final)?\s*(?:<[^{};]*>\s*)?(?::[^{};]*)?$")
CONTROL = re.compile(r"^(if|for|while|switch|catch|do|else|try)\b")


def without_noise(text: str) -> str:
    """Comments, strings and preprocessor lines become blanks; lines stay."""
    return NOISE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def kind_of(head: str, spaced: bool, scopes: list[str]) -> str:
    """What a brace opens: head is the text before it since the last statement."""
    if any(scope not in ("scope", "class") for scope in scopes):
        return "inner"
    text = re.sub(r"\b(template\s*<[^{};]*>|requires\b[^{};()]*)", "", head).strip()
    if not spaced or text.endswith(("=", "return", ",", "(")) or re.match(r"(\w+\s+)*enum\b", text):
        return "inner"
    if re.search(r"\b(namespace[\w:\s]*|extern\s*)$", text):
        return "scope"
    if "(" in text and not CONTROL.match(text):
        return "function"
    return "scope" if SCOPE.search(text) or not text else "inner"


def blocks(text: str):
    """(kind, first line, last line, name) of each function that has a body of its own, and of each class; functions and classes
    inside functions belong to these."""
    code = without_noise(text)
    scopes, starts, begin = [], [], 0  # begin: where the present statement starts
    for match in re.finditer(r"[{};]", code):
        at, sign = match.start(), match.group()
        if sign == "{":
            for access in ACCESS.finditer(code, begin, at):
                begin = access.end()
            head = code[begin:at]
            scopes.append(kind_of(head, at > 0 and code[at - 1].isspace(), scopes))
            starts.append((begin + len(head) - len(head.lstrip()), head))
            if scopes[-1] != "inner" or len(scopes) > 1 and scopes[-2] == "function":
                begin = at + 1
        elif sign == "}" and scopes:
            kind, (start, head) = scopes.pop(), starts.pop()
            lines = code.count("\n", 0, start) + 1, code.count("\n", 0, at) + 1
            if kind == "function":
                name = re.search(r"(operator\s*\S+|[~\w:]+)\s*\(", code[start:at])
                yield kind, *lines, name.group(1).lstrip(":") if name else "?"
            elif kind == "scope" and (name := CLASS.search(head)):
                yield "class", *lines, name.group(2)
            if kind != "inner" or "function" in scopes:
                begin = at + 1
        elif sign == ";":
            begin = at + 1


def class_lines(folder: dict[str, str]) -> dict[str, tuple[int, str]]:
    """Lines of each class that the files of a folder (path: text) define, and where its definition begins."""
    found = {path: list(blocks(text)) for path, text in folder.items()}
    classes, members = {}, collections.Counter()
    for path, all_blocks in found.items():
        for kind, first, last, name in all_blocks:
            if kind == "class":
                classes.setdefault(name.rpartition("::")[2], (last - first + 1, f"{path}:{first}"))
            elif "::" in name:
                members[name.split("::")[-2]] += last - first + 1
    return {name: (lines + members[name], place) for name, (lines, place) in classes.items()}


def sources(root: Path) -> dict[str, dict[str, str]]:
    """The text of each source by its path, by folder; without tables."""
    folders = collections.defaultdict(dict)
    for file in sorted((root / "funicular").rglob("*")):
        path = file.relative_to(root).as_posix()
        if file.suffix in SUFFIXES and path not in TABLES:
            folders[file.parent.relative_to(root).as_posix()][path] = file.read_text(encoding="utf-8")
    return folders


def long_lines(folders: dict[str, dict[str, str]]) -> int:
    return sum(len(line) > LINE_LENGTH for texts in folders.values() for text in texts.values() for line in text.split("\n"))


def read_limits(root: Path) -> dict:
    file = root / LIMITS
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"long_lines": 0, "classes": {}}


def check(root: Path) -> tuple[list[str], int]:
    limits, folders, problems = read_limits(root), sources(root), []
    for folder, texts in folders.items():
        for path, text in texts.items():
            if text.count("\n") > FILE_LINES:
                problems.append(f"{path}: {text.count(chr(10))} lines; expected at most {FILE_LINES}: one concept a file")
            for kind, first, last, name in blocks(text):
                if kind == "function" and last - first + 1 > FUNCTION_LINES:
                    problems.append(f"{path}:{first}: {name} has {last - first + 1} lines; expected at most {FUNCTION_LINES}")
        for name, (lines, place) in class_lines(texts).items():
            if lines > (most := limits["classes"].get(f"{folder}/{name}", CLASS_LINES)):
                problems.append(f"{place}: class {name} has {lines} lines over all files; expected at most {most}")
    if (lines := long_lines(folders)) > limits["long_lines"]:
        problems.append(f"funicular: {lines} lines have more than {LINE_LENGTH} characters; expected at most {limits['long_lines']}")
    if not folders:
        problems.append(f"{root}: no source found under funicular/")
    return problems, sum(map(len, folders.values()))


def lower(root: Path):
    """Writes today's sizes where they are below the limits; a class that fits has no limit of its own."""
    limits, folders = read_limits(root), sources(root)
    sizes = {f"{folder}/{name}": lines for folder, texts in folders.items() for name, (lines, _) in class_lines(texts).items()}
    classes = {name: min(most, sizes[name]) for name, most in limits["classes"].items() if sizes.get(name, 0) > CLASS_LINES}
    limits = {"long_lines": min(limits["long_lines"], long_lines(folders)), "classes": classes}
    (root / LIMITS).write_text(json.dumps(limits, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--lower"]:
        sys.exit(lower(Path(__file__).resolve().parents[1]))
    sys.exit(tree_check.run(check, "and their classes and functions fit"))
