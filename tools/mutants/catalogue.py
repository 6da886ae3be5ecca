"""The list of mutants: tests/mutants/LAYER.toml, checked against the sources, and chosen from."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import tomllib
import zlib
from pathlib import Path

FIELDS = {"name", "file", "old", "new", "within", "tests", "through", "alone", "isa", "survives", "chance"}
ISAS = ("baseline", "avx2", "avx512", "avx512_bf16", "amx")


class Invalid(Exception):
    """The list or the run is not what it must be; the text says which mutant, and what to do."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    layer: str
    file: str  # below funicular/
    old: str
    new: str
    within: str  # a longer text around `old`, where that alone is not unique; empty for none
    tests: tuple[str, ...]
    through: tuple[str, ...]  # the sources that are compiled with it
    alone: bool  # a library of its own, where no `if` can switch it
    isa: str  # the instruction set whose kernels are meant; empty for the processor's best
    survives: str  # why no test can notice it
    chance: str  # why some runs notice it, and others do not

    @property
    def explained(self) -> str:
        return self.survives or self.chance

    @property
    def number(self) -> int:
        """Its number in FUNICULAR_MUTANT: of the name alone, so that other mutants do not change compiled files."""
        return (zlib.crc32(self.name.encode()) & 0x7FFFFFFF) or 1


def sources_of(root: Path, file: str, through: list[str]) -> tuple[str, ...]:
    if through:
        return tuple(through)
    if file.endswith(".cpp"):
        return (file,)
    folder = root / "funicular" / Path(file).parent
    if folder.name == "kernels":
        return tuple(sorted(str(source.relative_to(root / "funicular")) for source in folder.glob("*.cpp")))
    beside = Path(file).with_suffix(".cpp")
    return (str(beside),) if (root / "funicular" / beside).exists() else ()


def parse(root: Path, layer: str, entry: dict) -> Mutant:
    name = entry.get("name", "without a name")
    if unknown := set(entry) - FIELDS:
        raise Invalid(f"mutant {layer}/{name}: unknown field '{sorted(unknown)[0]}'; there are {', '.join(sorted(FIELDS))}")
    if missing := {"name", "file", "old", "new", "tests"} - set(entry):
        raise Invalid(f"mutant {layer}/{name}: field '{sorted(missing)[0]}' is missing")
    if entry.get("isa", "baseline") not in ISAS:
        raise Invalid(f"mutant {layer}/{name}: no instruction set '{entry['isa']}'; there are {', '.join(ISAS)}")
    through = sources_of(root, entry["file"], entry.get("through", []))
    if not through:
        raise Invalid(f"mutant {layer}/{name}: {entry['file']} is a header; name the sources that compile it in 'through'")
    return Mutant(name, layer, entry["file"], entry["old"], entry["new"], entry.get("within", ""), tuple(entry["tests"]), through,
                  entry.get("alone", False), entry.get("isa", ""), entry.get("survives", ""), entry.get("chance", ""))


def load(root: Path) -> list[Mutant]:
    mutants = []
    for file in sorted((root / "tests/mutants").glob("*.toml")):
        try:
            entries = tomllib.loads(file.read_text(encoding="utf-8")).get("mutant", [])
        except tomllib.TOMLDecodeError as error:
            raise Invalid(f"{file}: {error}") from None
        mutants += [parse(root, file.stem, entry) for entry in entries]
    return mutants


def place(root: Path, mutant: Mutant) -> tuple[int, int]:
    """Where its old text begins and ends in its file."""
    path = root / "funicular" / mutant.file
    if not path.exists():
        raise Invalid(f"mutant {mutant.layer}/{mutant.name}: there is no {path.relative_to(root)}")
    text = path.read_text(encoding="utf-8")
    begin = 0
    for part in filter(None, (mutant.within, mutant.old)):
        if (count := text.count(part)) != 1:
            raise Invalid(f"mutant {mutant.layer}/{mutant.name}: this text occurs {count} times in funicular/{mutant.file}, "
                          f"not once; the code has moved on, so write the mutant anew:\n  {part}")
        begin += text.index(part)
        text = part
    return begin, begin + len(mutant.old)


def test_exists(root: Path, test: str) -> bool:
    """Whether "test_nn Suite.Name*:Other.*" or "cli file.Class.method" names something that is there."""
    program, _, names = test.partition(" ")
    if not program.startswith("test_"):
        file, _, rest = names.partition(".")
        script = root / "tests" / program / f"{file}.py"
        return script.exists() and all(re.search(rf"\b(class|def) {word}\b", script.read_text(encoding="utf-8"))
                                       for word in rest.split(".") if word)
    folder = root / "tests" / program.removeprefix("test_")
    text = "\n".join(file.read_text(encoding="utf-8") for file in sorted(folder.glob("*_test.cpp")))
    tests = [f"{suite}.{name}" for suite, name in re.findall(r"\bTEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", text)]
    patterns = names.split("-")[0].split(":")
    return bool(names) and all(any(re.fullmatch(as_regex(pattern), name) for name in tests) for pattern in patterns)


def as_regex(pattern: str) -> str:
    """A pattern of GoogleTest's filter, for the names in the sources: without the parts that parameters add."""
    pattern = re.sub(r"^[^.]*/(?=[^.]*\.)", "", pattern)
    pattern = re.sub(r"/[^.]*$", "", pattern)
    return "".join(".*" if letter == "*" else "." if letter == "?" else re.escape(letter) for letter in pattern)


def problems(root: Path, mutants: list[Mutant]) -> list[str]:
    """What is wrong with the list as a whole; empty if nothing."""
    found, names, numbers, places = [], set(), {}, {}
    for mutant in mutants:
        title = f"mutant {mutant.layer}/{mutant.name}"
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", mutant.name):
            found.append(f"{title}: a name is words of small letters and digits joined by '-'")
        if mutant.name in names:
            found.append(f"{title}: the name is taken")
        names.add(mutant.name)
        if numbers.setdefault(mutant.number, mutant.name) != mutant.name:
            found.append(f"{title}: has the number of {numbers[mutant.number]}; choose another name")
        if mutant.old == mutant.new:
            found.append(f"{title}: changes nothing")
        if not mutant.tests:
            found.append(f"{title}: names no test")
        found += [f"{title}: there is no test '{test}'" for test in mutant.tests if not test_exists(root, test)]
        try:
            begin, end = place(root, mutant)
        except Invalid as error:
            found.append(str(error))
            continue
        if mutant.alone:
            continue
        if is_list(mutant.old):
            found.append(f"{title}: its text is a list, of which a switch would keep the last part; give it 'alone = true'")
        for other, (first, last) in places.get(mutant.file, {}).items():
            if begin < last and first < end and (begin, end) != (first, last):
                found.append(f"{title}: its text overlaps that of {other}; give one of them 'alone = true'")
        places.setdefault(mutant.file, {})[mutant.name] = (begin, end)
    return found


def is_list(text: str) -> bool:
    """Whether an expression has a comma outside of all brackets."""
    depth = 0
    text = re.sub(r"'(\\.|[^'\\])'|\"(\\.|[^\"\\])*\"", "0", text)
    for letter in "" if text.rstrip().endswith((";", "}")) else text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            return True
    return False


def choose(mutants: list[Mutant], only: str = "", sample: int = 0, seed: str = "") -> list[Mutant]:
    """Those whose LAYER/NAME or file matches `only`; of these `sample` by seed, without the survivors that are explained.

    The seed draws a mutant, and the others of its source come with it: compiling one source costs more than judging many mutants.
    """
    if only:
        mutants = [mutant for mutant in mutants if re.search(only, f"{mutant.layer}/{mutant.name} {mutant.file}")]
    if not sample:
        return mutants
    able = [mutant for mutant in mutants if not mutant.explained]
    # By a hash of each name, so that a new mutant hardly changes what a seed chooses.
    able.sort(key=lambda mutant: hashlib.sha256(f"{seed} {mutant.name}".encode()).digest())
    first: dict[str, int] = {}
    for at, mutant in enumerate(able):
        first.setdefault(mutant.file, at)
    return sorted(able, key=lambda mutant: first[mutant.file])[:sample]


def switched(root: Path, file: str, mutants: list[Mutant]) -> tuple[str, dict[str, range]]:
    """The file's text with all of its mutants in it, each behind an `if` on its number; and the lines of each, by its name."""
    path = root / "funicular" / file
    text = path.read_text(encoding="utf-8")
    by_place: dict[tuple[int, int], list[Mutant]] = {}
    for mutant in mutants:
        by_place.setdefault(place(root, mutant), []).append(mutant)
    changed, copied, lines = "", 0, {}
    for (begin, end), group in sorted(by_place.items()):
        changed += text[copied:begin]
        first = changed.count("\n") + 1
        changed += switch(text[begin:end], group)
        copied = end
        lines |= {mutant.name: range(first, changed.count("\n") + 2) for mutant in group}
    return f'extern "C" int funicular_mutant;\n#line 1 "{path}"\n' + changed + text[copied:], lines


def condition_of(text: str) -> tuple[str, str, str] | None:
    """Of "if (A) B" or "while (A) B": what is before A, A, and what is behind it."""
    head = re.match(r"(else )?(if|while) \(", text)
    if not head:
        return None
    depth = 1
    for place in range(head.end(), len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return head[0], text[head.end():place], text[place:]
    return None


def switch(old: str, mutants: list[Mutant]) -> str:
    """C++ that is `old` unless one of the mutants is on: a condition, a statement or an expression, as `old` is."""
    mine, theirs = condition_of(old), [condition_of(mutant.new) for mutant in mutants]
    if mine and all(other and other[::2] == mine[::2] for other in theirs):
        inner = [dataclasses.replace(mutant, new=f"bool({other[1]})") for mutant, other in zip(mutants, theirs)]
        return f"{mine[0]}{switch(f'bool({mine[1]})', inner)}{mine[2]}"
    if old.rstrip().endswith((";", "}")):
        cases = [f"if (::funicular_mutant == {mutant.number}) {{ {mutant.new} }} else " for mutant in mutants]
        return "".join(cases) + f"{{ {old} }}"
    cases = [f"::funicular_mutant == {mutant.number} ? ({mutant.new}) : " for mutant in mutants]
    return f"({''.join(cases)}({old}))"


def replaced(root: Path, mutant: Mutant) -> str:
    """The file's text with this mutant alone in it."""
    path = root / "funicular" / mutant.file
    text = path.read_text(encoding="utf-8")
    begin, end = place(root, mutant)
    return f'#line 1 "{path}"\n' + text[:begin] + mutant.new + text[end:]
