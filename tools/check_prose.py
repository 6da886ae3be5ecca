#!/usr/bin/env python3
"""Counts what a machine can find of unclear English, and fails where there is more of it than tools/prose_limits.json allows.

usage: check_prose.py [ROOT]               exit code 0 if no count is above its limit
       check_prose.py --list KIND [RULE]   each place: PATH:LINE: RULE: sentence
       check_prose.py --changed [COMMIT]   each place in a sentence that COMMIT (default: the last one) does not have; exit code 1 if any
       check_prose.py --lower              writes today's counts as limits where they are lower

Kinds: help (texts of options and commands), messages (all other texts of the program), comments, docs.
Rules: opening (a sentence begins with "Of", "What", "Where", "Those of", "That of", "The same"), is_of ("is of" for "applies to"), noun ("those", "the others", "the latter" for a noun),
long (more than 25 words), a_for_per ("tokens a second"), words (words that have a plainer one).
"""
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import tree_check

LONGEST = 25
LIMITS = "tools/prose_limits.json"
KINDS = ("help", "messages", "comments", "docs")
UNITS = "second|minute|hour|step|row|rank|token|layer|weight|text|line|batch|epoch|file|word|parameter|sequence"
COUNTED = "tokens|rows|lines|texts|bytes|[KMG]i?B|steps|ms|times|words|values|numbers|sequences|calls"
PATTERNS = {
    "opening": re.compile(r"^(Of|What|Where|Whoever|Whose|Those of|That of|The same)\b(?!.*\?$)"),
    "noun": re.compile(r"\b(those|the (others?|former|latter))\b", re.IGNORECASE),
    "is_of": re.compile(r"\b(is|are|was|were) of (?!course\b)"),
    "a_for_per": re.compile(rf"\b({COUNTED}) an? ({UNITS})\b"),
    "words": re.compile(r"\b(goes on|went on|go on|given again|anew|that is (said|told)|is (said|told) (of|so)|hidden words?|called as)\b"),
}
RULES = (*PATTERNS, "long")
STRING = re.compile(r'"((?:\\.|[^"\\\n])*)"')
JOINED = re.compile(r'"((?:\\.|[^"\\\n])*)"(?:\s*\n\s*"(?:\\.|[^"\\\n])*")*')
DECLARED = re.compile(r"(\barguments\s*\.\s*(add|section|hint|example)\b|\.alias\(|\bCommand\(|^\s*\.add\()")


class Sentence(NamedTuple):
    kind: str
    place: str  # PATH:LINE
    text: str


def sentences(text: str) -> list[str]:
    parts = re.split(r"(?<=[.?!;:])\s+(?=[A-Z`\"(0-9])|(?<=[\w)]{2}[.?!])\s+(?=[a-z-])", re.sub(r"\s+", " ", text).strip())
    return [part for part in parts if " " in part]


def of_source(path: str, text: str):
    """Sentences of the comments and strings of a C++ source."""
    lines, block, start = text.split("\n"), [], 0
    for number, line in enumerate([*lines, ""], 1):
        comment = re.match(r"\s*//+[/!<]*\s?(.*)", line) or re.search(r"//+[/!<]+\s(.*)", line)
        trailing = comment and not re.match(r"\s*//", line)
        if comment and not trailing:
            start = start if block else number
            block.append(comment.group(1))
            continue
        for sentence in sentences(" ".join(block)):
            yield Sentence("comments", f"{path}:{start}", sentence)
        block = []
        if trailing:
            yield from (Sentence("comments", f"{path}:{number}", sentence) for sentence in sentences(comment.group(1)))
    code = re.sub(r"//[^\n]*|^\s*#[^\n]*", lambda match: " " * len(match.group()), text, flags=re.MULTILINE)
    for match in JOINED.finditer(code):
        joined = "".join(part.group(1) for part in STRING.finditer(match.group())).replace("\\n", "\n").replace('\\"', "'")
        if " " not in joined.strip():
            continue
        near = code[max(0, match.start() - 1000):match.start()]
        statement = near[max(near.rfind(";"), near.rfind("{")) + 1:]
        kind = "help" if path.startswith("funicular/cli/") and DECLARED.search(statement) else "messages"
        for sentence in (part for line in re.split(r"\n\n|\n(?= )", joined) for part in sentences(line)):
            yield Sentence(kind, f"{path}:{code.count(chr(10), 0, match.start()) + 1}", sentence)


def of_document(path: str, text: str):
    """Sentences of the paragraphs, list items and table cells of a Markdown file; code blocks are left out."""
    text = re.sub(r"(?ms)^ {0,3}```.*?^ {0,3}```[^\n]*$", lambda block: "\n" * block.group().count("\n"), text)
    block, start = [], 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.lstrip().startswith("|") else []
        begins = not line.strip() or line.startswith("#") or cells or re.match(r"\s*([-*]|\d+\.)\s", line)
        if begins and block:
            yield from (Sentence("docs", f"{path}:{start}", sentence) for sentence in sentences(" ".join(block)))
            block = []
        for cell in cells:
            if re.fullmatch(r"`[^`]*`", cell):
                continue  # a command
            yield from (Sentence("docs", f"{path}:{number}", sentence) for sentence in sentences(cell))
        if line.strip() and not cells and not line.startswith("#"):
            start = start if block else number
            block.append(re.sub(r"^\s*([-*]|\d+\.)\s+", "", line))


def all_sentences(root: Path):
    for file in sorted((root / "funicular").rglob("*")):
        if file.suffix in (".h", ".cpp", ".cu", ".cuh"):
            yield from of_source(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    for file in sorted(page for page in pages if "measurements" not in page.parts and page.name != "options.md"):
        yield from of_document(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))


def broken(sentence: Sentence) -> list[str]:
    words = sum(any(letter.isalnum() for letter in word) for word in sentence.text.split())
    if words > 2 * LONGEST and not re.search(r"[.,;:?!{]", sentence.text):
        return []  # a list of words, no sentence
    found = [rule for rule, pattern in PATTERNS.items() if pattern.search(sentence.text)]
    if sentence.kind == "help" and PATTERNS["opening"].search(sentence.text[:1].upper() + sentence.text[1:]):
        found = ["opening", *(rule for rule in found if rule != "opening")]  # a help begins in lower case
    return found + ["long"] * (words > LONGEST)


def counts(root: Path) -> dict[str, dict[str, int]]:
    found = {kind: dict.fromkeys(RULES, 0) for kind in KINDS}
    for sentence in all_sentences(root):
        for rule in broken(sentence):
            found[sentence.kind][rule] += 1
    return found


def check(root: Path) -> tuple[list[str], int]:
    limits = json.loads((root / LIMITS).read_text(encoding="utf-8"))
    problems = [f"{kind}: {count} sentences break the rule '{rule}', at most {limits[kind][rule]} may; "
                f"tools/check_prose.py --list {kind} {rule} shows them"
                for kind, rules in counts(root).items() for rule, count in rules.items() if count > limits[kind][rule]]
    return problems, len({sentence.place.rpartition(":")[0] for sentence in all_sentences(root)})


def changed(root: Path, commit: str) -> list[str]:
    """What breaks a rule in a sentence that a file has and had not at a commit."""
    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else ""

    files = set(git("diff", "--name-only", "--relative", commit).split("\n")) | set(git("ls-files", "--others", "--exclude-standard").split("\n"))
    before = {}  # the sentences of a file at the commit
    problems = []
    for sentence in all_sentences(root):
        path = sentence.place.rpartition(":")[0]
        if path not in files:
            continue
        if path not in before:
            read = of_document if path.endswith(".md") else of_source
            before[path] = {old.text for old in read(path, git("show", f"{commit}:./{path}"))}
        if sentence.text not in before[path]:
            problems += [f"{sentence.place}: {rule}: {sentence.text}" for rule in broken(sentence)]
    return problems


def main() -> int:
    words, root = sys.argv[1:], Path(__file__).resolve().parents[1]
    if words[:1] == ["--list"] and len(words) in (2, 3) and words[1] in KINDS:
        for sentence in all_sentences(root):
            for rule in broken(sentence):
                if sentence.kind == words[1] and (len(words) == 2 or rule == words[2]):
                    print(f"{sentence.place}: {rule}: {sentence.text}")
        return 0
    if words[:1] == ["--changed"] and len(words) <= 2:
        problems = changed(root, *(words[1:] or ["HEAD"]))
        print("\n".join(problems) or "the changed sentences obey the rules")
        return 1 if problems else 0
    if words == ["--lower"]:
        old = json.loads((root / LIMITS).read_text(encoding="utf-8")) if (root / LIMITS).exists() else {}
        lower = {kind: {rule: min(count, old.get(kind, {}).get(rule, count)) for rule, count in rules.items()}
                 for kind, rules in counts(root).items()}
        (root / LIMITS).write_text(json.dumps(lower, indent=1) + "\n", encoding="utf-8")
        return 0
    if any(word.startswith("-") for word in words):
        print(__doc__.strip())
        return 0 if words[0] in ("-h", "--help") else 2
    return tree_check.run(check, "keep within the limits of unclear English")


if __name__ == "__main__":
    sys.exit(main())
