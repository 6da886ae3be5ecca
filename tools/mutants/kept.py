"""Verdicts of earlier runs, so that a run that was interrupted goes on, and a change judges again only what it touches."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from catalogue import Mutant
from judge import Verdict


def suites_of(filter_: str) -> re.Pattern:
    """Finds the tests of a filter's suites in a source; a filter without a dot may mean any suite."""
    names = [one.partition(".")[0].rpartition("/")[2] if "." in one else "*" for one in filter_.split(":")]
    suites = "|".join(re.escape(name).replace(r"\*", r"\w*") for name in names)
    return re.compile(rf"TEST(_F|_P)?\(\s*({suites})\s*,")


def sources_of_test(root: Path, test: str) -> list[Path]:
    """Of "test_LAYER FILTER" the files with tests of these suites and the headers that tests share; of "cli FILE.Class.method" the
    file and all that it may import: what stands beside it but other files of tests."""
    program, _, names = test.partition(" ")
    tests = root / "tests"
    if program.startswith("test_"):
        wanted = suites_of(names)
        found = set(tests.glob("*/*.h")) | {path for path in (tests / program.removeprefix("test_")).rglob("*") if path.suffix != ".cpp"
                                            or wanted.search(path.read_text(encoding="utf-8"))}
    else:
        own = tests / program / f"{names.partition('.')[0]}.py"
        found = {own, *(path for path in (tests / program).rglob("*") if path.suffix != ".pyc" and not path.name.endswith("_test.py"))}
    return sorted(path for path in found if path.is_file())


class Kept:
    """One line of JSON a verdict, appended as it is known. A later line of the same mutant counts."""

    def __init__(self, root: Path, path: Path, isa: str):
        self.root, self.path, self.isa = root, path, isa
        self.contents: dict[Path, bytes] = {}
        self.lines: dict[str, dict] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:  # an empty line, or one that a killed run left half
                    continue
                self.lines[entry["mutant"]] = entry

    def read(self, path: Path) -> bytes:
        if path not in self.contents:
            self.contents[path] = path.read_bytes() if path.exists() else b""
        return self.contents[path]

    def key(self, mutant: Mutant) -> str:
        """Of the mutant, the sources that are compiled with it, its tests' sources and the processor. Of the rest of the library nothing:
        --anew judges all again."""
        digest = hashlib.sha256(repr((mutant, self.isa)).encode())
        files = [self.root / "funicular" / file for file in (mutant.file, *mutant.through)]
        files += [source for test in mutant.tests for source in sources_of_test(self.root, test)]
        for file in files:
            digest.update(str(file.relative_to(self.root)).encode() + b"\0" + self.read(file))
        return digest.hexdigest()

    def verdict(self, mutant: Mutant) -> Verdict | None:
        entry = self.lines.get(f"{mutant.layer}/{mutant.name}")
        if entry is None or entry["state"] == "broken" or entry["key"] != self.key(mutant):
            return None
        return Verdict(mutant, entry["state"], entry["by"])

    def add(self, verdict: Verdict):
        entry = {"mutant": f"{verdict.mutant.layer}/{verdict.mutant.name}", "key": self.key(verdict.mutant),
                 "state": verdict.state, "by": verdict.by}
        self.lines[entry["mutant"]] = entry
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps(entry))  # not behind a line that a killed run left half
