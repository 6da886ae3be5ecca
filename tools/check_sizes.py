#!/usr/bin/env python3
"""Checks that no file under funicular/ has more than 500 lines, and no function more than 60.

usage: check_sizes.py [ROOT]        exit code 0 if all fit, 1 with one line for each that does not
"""
import re
import sys
from pathlib import Path

import tree_check

FILE_LINES, FUNCTION_LINES = 500, 60
TABLES = {"funicular/text/unicode_tables.cpp"}  # written by a script

SUFFIXES = (".h", ".cpp", ".cu", ".inc")
NOISE = re.compile(r"""//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'|^[ \t]*\#(?:\\\n|[^\n])*""",
                   re.DOTALL | re.MULTILINE | re.VERBOSE)
ACCESS = re.compile(r"\b(public|private|protected)\s*:(?!:)")
SCOPE = re.compile(r"\b(namespace|class|struct|union|extern)\b")
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


def functions(text: str):
    """(first line, last line, name) of each function that has a body of its own; those inside functions belong to these."""
    code = without_noise(text)
    scopes, starts, begin = [], [], 0  # begin: where the present statement starts
    for match in re.finditer(r"[{};]", code):
        at, sign = match.start(), match.group()
        if sign == "{":
            for access in ACCESS.finditer(code, begin, at):
                begin = access.end()
            head = code[begin:at]
            scopes.append(kind_of(head, at > 0 and code[at - 1].isspace(), scopes))
            starts.append(begin + len(head) - len(head.lstrip()))
            if scopes[-1] != "inner" or len(scopes) > 1 and scopes[-2] == "function":
                begin = at + 1
        elif sign == "}" and scopes:
            kind, start = scopes.pop(), starts.pop()
            if kind == "function":
                name = re.search(r"(operator\s*\S+|[~\w:]+)\s*\(", code[start:at])
                yield code.count("\n", 0, start) + 1, code.count("\n", 0, at) + 1, name.group(1).lstrip(":") if name else "?"
            if kind != "inner" or "function" in scopes:
                begin = at + 1
        elif sign == ";":
            begin = at + 1


def check(root: Path) -> tuple[list[str], int]:
    problems, files = [], 0
    for file in sorted((root / "funicular").rglob("*")):
        if file.suffix not in SUFFIXES:
            continue
        files += 1
        path, text = file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")
        if path in TABLES:
            continue
        if text.count("\n") > FILE_LINES:
            problems.append(f"{path}: {text.count(chr(10))} lines; expected at most {FILE_LINES}: one concept a file")
        for first, last, name in functions(text):
            if last - first + 1 > FUNCTION_LINES:
                problems.append(f"{path}:{first}: {name} has {last - first + 1} lines; expected at most {FUNCTION_LINES}")
    if not files:
        problems.append(f"{root}: no source found under funicular/")
    return problems, files


if __name__ == "__main__":
    sys.exit(tree_check.run(check, "and their functions fit"))
