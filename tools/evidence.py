#!/usr/bin/env python3
"""Keeps docs/project/evidence.md: what is claimed, which value was seen, where and when, and the command that shows it again.

docs/project/evidence/claims.toml holds a [[claim]] each:
  id, topic   the name of its result file, and the heading that it stands under
  what        the claim, one sentence; `note` may hold conditions and limits
  command     shows the claim again; words in capitals (FOLDER) are files of the reader
  about       the paths of the code that the claim speaks of
  pattern     finds values in the output: a table from a value's name to a regular expression with one group;
              of several numbers the largest counts
  holds       values that the command asserts: a table from name to value; they are recorded if the command succeeds
docs/project/evidence/results/ID.json holds the values of a claim with date, machine, commit and command. A claim without pattern
and holds is recorded by hand: write its file, with "recorded": "by hand".
"""
import argparse
import datetime
import difflib
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
REQUIRED, OPTIONAL = ("id", "topic", "what", "command", "about"), ("note", "pattern", "holds")
RECORDED = ("values", "date", "machine", "commit", "command", "recorded")
OWN_FILES = ("docs/project/evidence.md", "docs/project/evidence")  # they may change while something is measured
BY_MEASURE = "by ./run evidence measure"
HEAD = """# What is shown, and by which command

Each row is a value that was seen, where and when, and the command that shows it again. [Numerics](../explanation/numerics.md) tells how far results may
differ. Speeds are in [performance](../explanation/performance.md) and, by day and machine, in [the measurements](measurements/README.md).

The column "code since" counts the commits that changed the claim's code after its value was recorded, up to commit `AS_OF`. A value that
is older than its code may be different today. "By hand" marks a value that a person wrote down; `./run evidence measure` recorded all
other values. In a command, words in capitals stand for your own files. [Tests](testing.md#evidence) tells how to record a result.
"""
COLUMNS = "| claim | value | date, machine | code since | command |\n|---|---|---|---|---|\n"
MARK = 3  # the column "code since"


class Wrong(Exception):
    """What is wrong, and what to do."""


class Tree:
    """A working tree with its claims and results."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        self.page = root / "docs/project/evidence.md"
        self.results_folder = root / "docs/project/evidence/results"
        self.claims = self.read_claims()
        self.results = {path.stem: self.read_result(path) for path in sorted(self.results_folder.glob("*.json"))}

    def read_claims(self) -> dict[str, dict]:
        path, claims = self.root / "docs/project/evidence/claims.toml", {}
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8")).get("claim", [])
        except (OSError, ValueError) as error:
            raise Wrong(f"{path}: {error}") from error
        for number, claim in enumerate(found, 1):
            name = claim.get("id", f"claim {number}")
            missing = [key for key in REQUIRED if not claim.get(key)]
            unknown = [key for key in claim if key not in REQUIRED + OPTIONAL]
            if missing or unknown or name in claims:
                raise Wrong(f"{path}: {name}: " + (f"{missing[0]} is missing" if missing else f"unknown key {unknown[0]}" if unknown
                                                   else "two claims have this id"))
            claims[name] = claim
        return claims

    @staticmethod
    def read_result(path: pathlib.Path) -> dict:
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise Wrong(f"{path}: {error}") from error

    def git(self, *words: str) -> str | None:
        """What git prints, None if it fails."""
        try:
            done = subprocess.run(["git", *words], cwd=self.root, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    @functools.cache
    def commits_since(self, commit: str, paths: tuple[str, ...]) -> int | None:
        """The commits behind `commit` that changed one of the paths; None if the history does not hold `commit`."""
        if self.git("cat-file", "-e", f"{commit}^{{commit}}") is None:
            return None
        count = self.git("rev-list", "--count", f"{commit}..HEAD", "--", *paths)
        return None if count is None else int(count)

    def mark(self, claim: dict, result: dict) -> str:
        if result["command"] != claim["command"]:
            return "another command today"
        count = self.commits_since(result["commit"], tuple(claim["about"]))
        if count is None:
            return "unknown"
        return f"changed since ({count} commit{'' if count == 1 else 's'})" if count else "unchanged"

    def older_than_their_code(self) -> list[str]:
        return [name for name, claim in self.claims.items() if name in self.results
                and self.mark(claim, self.results[name]).startswith(("changed", "another"))]

    def rows(self, claim: dict, note: int) -> str:
        """The first row has the claim, with the number of its note (0: it has none); each further value has a row of its own."""
        result = self.results[claim["id"]]
        what = claim["what"] + (f" <sup>{note}</sup>" if note else "")
        machine = "machine not recorded" if result["machine"] == "not recorded" else result["machine"]
        where = f"{result['date']}, {machine}" + ("" if result["recorded"] == BY_MEASURE else ", by hand") + \
            (", with uncommitted changes" if result.get("uncommitted") else "")
        rows = []
        for number, (name, value) in enumerate(result["values"].items()):
            value = f"{int(value):,}" if re.fullmatch(r"\d{4,}", str(value)) else value
            cells = ["", f"{name}: {value}", "", "", ""] if number else \
                [what, f"{name}: {value}", where, self.mark(claim, result), f"`{claim['command']}`"]
            rows.append("|" + "|".join(f" {cell} " if cell else " " for cell in (each.replace("|", "\\|") for each in cells)) + "|\n")
        return "".join(rows)

    def rendered(self) -> str:
        text = HEAD.replace("AS_OF", self.git("rev-parse", "--short=7", "HEAD") or "unknown")
        topics: dict[str, list[dict]] = {}
        for claim in self.claims.values():
            if claim["id"] in self.results:
                topics.setdefault(claim["topic"], []).append(claim)
        for topic, claims in topics.items():
            text += f"\n## {topic}\n\n" + COLUMNS
            notes: list[str] = []
            for claim in claims:
                note = claim.get("note")
                notes += [note] if note and note not in notes else []
                text += self.rows(claim, notes.index(note) + 1 if note else 0)
            text += "".join(f"{chr(10) if number == 1 else ''}{number}. {note}\n" for number, note in enumerate(notes, 1))
        return text


def without_marks(page: str) -> str:
    """The page without what moves with every commit."""
    lines = []
    for line in re.sub(r"up to commit `\w+`", "", page).splitlines():
        cells = re.split(r"(?<!\\)\|", line) if line.startswith("|") else [line]
        if len(cells) > MARK + 1:
            del cells[MARK + 1]  # cells[0] stands before the row's first bar
        lines.append("|".join(cells))
    return "\n".join(lines)


def problems_of_claim(tree: Tree, claim: dict) -> list[str]:
    found = []
    for path in claim["about"]:
        if not (tree.root / path).exists():
            found.append(f"`about` names {path}, which does not exist; name the path of today")
    for word in shlex.split(claim["command"]):
        if word.startswith(("tests/", "bench/", "tools/", "./")) and not (tree.root / word).is_file():
            found.append(f"the command names {word}, which does not exist; write the command of today")
    for name, pattern in claim.get("pattern", {}).items():
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            found.append(f"the pattern of \"{name}\" is no regular expression: {error}")
            continue
        if groups != 1:
            found.append(f"the pattern of \"{name}\" has {groups} groups; expected 1")
    return found


def problems_of_result(tree: Tree, claim: dict) -> list[str]:
    result = tree.results.get(claim["id"])
    if result is None:
        return [f"it has no result; run ./run evidence measure {claim['id']}, or write docs/project/evidence/results/{claim['id']}.json"]
    missing = [key for key in RECORDED if not result.get(key)]
    if missing:
        return [f"{missing[0]} is missing in docs/project/evidence/results/{claim['id']}.json"]
    found = []
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", result["date"]):
        found.append(f"the date of its result is {result['date']}; expected YEAR-MONTH-DAY")
    names = {*claim.get("pattern", {}), *claim.get("holds", {})}
    if names and result["recorded"] == BY_MEASURE and names != set(result["values"]):
        found.append(f"its result has other values than the claim names; run ./run evidence measure {claim['id']}")
    return found


def check(tree: Tree) -> int:
    problems = [f"docs/project/evidence/claims.toml: {name}: {problem}" for name, claim in tree.claims.items()
                for problem in problems_of_claim(tree, claim) + problems_of_result(tree, claim)]
    problems += [f"docs/project/evidence/results/{name}.json: no claim has this id; remove the file" for name in tree.results
                 if name not in tree.claims]
    if not problems:
        page = tree.page.read_text(encoding="utf-8") if tree.page.exists() else ""
        if without_marks(page) != without_marks(tree.rendered()):
            problems.append("docs/project/evidence.md differs from docs/project/evidence/; run ./run evidence page")
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 1
    older = tree.older_than_their_code()
    print(f"{len(tree.claims)} claims have results; {len(older)} are older than their code" + (f": {' '.join(older)}" if older else ""))
    return 0


def write_page(tree: Tree) -> int:
    tree.page.write_text(tree.rendered(), encoding="utf-8")
    print(f"wrote {tree.page.relative_to(tree.root)}")
    return check(Tree(tree.root))


def this_machine() -> str:
    """The processor as /proc/cpuinfo names it; a virtual one tells only its maker, so its family and model are named too."""
    cpu = dict(re.findall(r"^(model name|cpu family|model)\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)[::-1])
    name = f"{cpu.get('model name', 'unknown processor')} (family {cpu.get('cpu family', '?')}, model {cpu.get('model', '?')})"
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def value_of(name: str, pattern: str, output: str) -> str:
    found = list(dict.fromkeys(re.findall(pattern, output, re.M)))
    if not found:
        raise Wrong(f"the output holds no value \"{name}\" (pattern {pattern})")
    try:
        return max(found, key=lambda text: float(text.replace(",", ""))) if len(found) > 1 else found[0]
    except ValueError:
        raise Wrong(f"the output holds several values \"{name}\" that are no numbers: {', '.join(found)}") from None


def filled(command: str, given: dict[str, str]) -> str:
    """The command with the reader's own files in place of the words in capitals."""
    for name, value in given.items():
        command = re.sub(rf"(?<![\w-]){name}…?(?![\w=])", lambda _, value=value: shlex.quote(value), command)
    left = re.search(r"(?<![\w-])([A-Z_]{3,})(?![\w=])", command)
    if left:
        raise Wrong(f"the command needs your own {left[1]}: {command}; give it as --with {left[1]}=PATH")
    return command


def newest(paths) -> tuple[float, pathlib.Path | None]:
    return max(((path.stat().st_mtime, path) for path in paths if path.is_file()), default=(0.0, None))


def need_a_current_build(tree: Tree) -> None:
    build = tree.root / "build/release"
    built, _ = newest([build / "funicular", *build.glob("lib*.so"), *build.glob("tests/test_*")])
    source_time, source = newest(path for path in (tree.root / "funicular").rglob("*") if path.suffix in (".h", ".cpp", ".inc"))
    if source and source_time > built:
        raise Wrong(f"{source.relative_to(tree.root)} is newer than build/release; run ./run build all first")


def measured(tree: Tree, claim: dict, given: dict[str, str]) -> dict[str, str]:
    patterns, holds = claim.get("pattern", {}), claim.get("holds", {})
    if not patterns and not holds:
        raise Wrong("the claim has neither `pattern` nor `holds`, so its values are recorded by hand, in "
                    f"docs/project/evidence/results/{claim['id']}.json")
    command = filled(claim["command"], given)
    print(f"{claim['id']}: {command}", flush=True)
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=tree.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, env={**os.environ, "PATH": f"{tree.root}/build/release:{os.environ['PATH']}"})
    skipped = re.search(r"^.*(No tests were found|\*\*\*Skipped|Not Run).*$", done.stdout, re.M)
    if done.returncode != 0 or skipped:
        why = f"exit code {done.returncode}" if done.returncode else f"tests did not run: {skipped.group().strip()}"
        raise Wrong(f"{why}; the claim is not shown. The command's last lines:\n{done.stdout[-2000:]}")
    return {**{name: value_of(name, pattern, done.stdout) for name, pattern in patterns.items()}, **holds}


def measure(tree: Tree, names: list[str], given: dict[str, str], dirty: bool) -> int:
    for name in names:
        if name not in tree.claims:
            near = difflib.get_close_matches(name, tree.claims, 1)
            raise Wrong(f"no claim has the id {name}" + (f"; did you mean {near[0]}?" if near else "; docs/project/evidence/claims.toml lists them"))
    changed = tree.git("status", "--porcelain", "--", ".", *(f":!{path}" for path in OWN_FILES))
    commit = tree.git("rev-parse", "--short=9", "HEAD")
    if commit is None or changed is None:
        raise Wrong("a result names the commit that was measured, and there is none here: expected a git repository with a commit")
    if changed and not dirty:
        raise Wrong(f"the working tree has changes that no commit holds: {changed.splitlines()[0].strip()}; commit them, or give --dirty, "
                    "which the result will say")
    need_a_current_build(tree)
    failed = 0
    for name in names:
        claim = tree.claims[name]
        try:
            values = measured(tree, claim, given)
        except Wrong as problem:
            print(f"{name}: {problem}", file=sys.stderr)
            failed += 1
            continue
        result = {"values": values, "date": datetime.date.today().isoformat(), "machine": this_machine(), "commit": commit,
                  "command": claim["command"], "recorded": BY_MEASURE, **({"uncommitted": True} if changed else {})}
        (tree.results_folder / f"{name}.json").write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{name}: " + "; ".join(f"{key}: {value}" for key, value in values.items()), flush=True)
    return write_page(Tree(tree.root)) or (1 if failed else 0)


def named_file(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not re.fullmatch("[A-Z_]+", name):
        raise argparse.ArgumentTypeError(f"expected NAME=PATH, as FOLDER=texts, found '{text}'")
    return name, value


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run evidence", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the working tree (default: this one)")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("check", help="check claims, results and page (the default)")
    commands.add_parser("page", help="write docs/project/evidence.md")
    measuring = commands.add_parser("measure", help="run the commands of claims, record what they show, and write the page")
    measuring.add_argument("ids", nargs="+", metavar="ID", help="the id of a claim")
    measuring.add_argument("--with", dest="given", type=named_file, action="append", default=[], metavar="NAME=PATH",
                           help="your own file for a word in capitals in the command")
    measuring.add_argument("--dirty", action="store_true", help="measure with changes that no commit holds; the result says so")
    args = parser.parse_args()
    try:
        tree = Tree(args.root.resolve())
        if args.command == "page":
            return write_page(tree)
        if args.command == "measure":
            return measure(tree, args.ids, dict(args.given), args.dirty)
        return check(tree)
    except Wrong as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
