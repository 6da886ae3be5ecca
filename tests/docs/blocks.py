"""Code in Markdown: fenced blocks and code spans; and, as a program, the C++ blocks as files to compile.

usage: blocks.py FOLDER FILE.md …    writes the ```cpp blocks to files in FOLDER and prints the paths
"""

import pathlib
import re
import sys
from typing import NamedTuple


class Block(NamedTuple):
    line: int  # of the first line of the code, from 1
    language: str
    code: str


def blocks(text):
    """The fenced blocks. Raises ValueError for one that is never closed."""
    found, open_at, language, code = [], None, "", []
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.match(r" {0,3}```(.*)$", line)
        if open_at is None and fence:
            open_at, language, code = number + 1, fence.group(1).strip(), []
        elif fence:
            found.append(Block(open_at, language, "\n".join(code) + "\n"))
            open_at = None
        elif open_at is not None:
            code.append(line)
    if open_at is not None:
        raise ValueError(f"line {open_at - 1}: the block is never closed")
    return found


def without_blocks(text):
    """Blocks become empty lines, so that line numbers stay."""
    return re.sub(r"(?ms)^ {0,3}```.*?^ {0,3}```[^\n]*$", lambda block: "\n" * block.group().count("\n"), text)


def spans(text):
    """(line, code) of each `code span` outside the blocks; a span may go on in the next line."""
    outside = without_blocks(text)
    return [(outside.count("\n", 0, span.start()) + 1, " ".join(span.group(1).split()))
            for span in re.finditer(r"(?<!`)`([^`]+)`(?!`)", outside)]


def write_cpp_blocks(folder, files):
    """The paths of the C++ files: one for each block with a main(), and one for all others. A file that is there with the same code is left, so that it
    need not be compiled again."""
    folder.mkdir(parents=True, exist_ok=True)
    sources, includes, parts = {}, {}, []
    for file in map(pathlib.Path, files):
        for block in blocks(file.read_text()):
            name, place = f"{file.stem.lower()}_{block.line}", f'#line {block.line} "{file.name}"\n'
            if block.language not in ("cpp", "c++"):
                continue
            if "int main(" in block.code:
                sources[name] = place + block.code
                continue
            includes |= dict.fromkeys(re.findall(r"(?m)^#include .*$", block.code))
            code = re.sub(r"(?m)^#include .*$", "", block.code)
            parts.append(f"namespace {name} {{\n{place}{code}}}\n")
    sources["blocks_without_main"] = "\n".join([*includes, *parts])
    paths = [folder / f"{name}.cpp" for name in sources]
    for path, code in zip(paths, sources.values()):
        if not path.exists() or path.read_text() != code:
            path.write_text(code)
    return paths


if __name__ == "__main__":
    for written in write_cpp_blocks(pathlib.Path(sys.argv[1]), sys.argv[2:]):
        print(written)
