"""Every code block and command of README.md and docs/ is compiled (CMakeLists.txt here), run, or read by the real program."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import blocks  # noqa: E402
import commands  # noqa: E402
import harness  # noqa: E402

DOCUMENTS = [commands.ROOT / "README.md", *sorted((commands.ROOT / "docs").glob("**/*.md"))]
SHELL = ("sh", "bash", "console")
COMPILED = ("cpp", "c++")  # by CMakeLists.txt
ONLY_SHOWN = ("text",)
LONGEST = 128  # the default of --max-length
# Commands with these words are read by the program and not carried out: they need another machine.
NOT_EVERYWHERE = ("--device cuda", "mpirun", "--nproc")


def shell_code(block):
    """Of console blocks the lines after a prompt."""
    if block.language != "console":
        return block.code
    return "".join(line[2:] + "\n" for line in block.code.splitlines() if line.startswith("$ "))


def problems_of_commands(text):
    """(line, command, problem) of each command of a document that does not exist so."""
    found = []
    for block in blocks.blocks(text):
        if block.language in SHELL:
            found += [(block.line, command) for command in commands.split(shell_code(block))]
    for line, span in blocks.spans(text):
        if commands.looks_like_a_command(span):
            found += [(line, command) for command in commands.split(span)]
    return [(line, command, problem) for line, command in found for problem in [commands.problem_of(command)] if problem]


def problem_of_block(block):
    """Why a block would be covered by no test, or is wrong by itself."""
    if block.language in (*SHELL, *COMPILED, *ONLY_SHOWN):
        return None
    try:
        if block.language == "json":
            json.loads(block.code)
        elif block.language == "toml":
            tomllib.loads(block.code)
        else:
            return f"no test covers blocks of the language \"{block.language}\""
    except ValueError as error:
        return str(error)
    return None


def can_be_run(code):
    programs = {command[0] for command in commands.split(code)}
    return "funicular" in programs and programs <= {"funicular", "export", "echo", "printf", "head", "cat"} and \
        not any(words in code for words in NOT_EVERYWHERE)


def known_options():
    """Every option of the program and of our scripts."""
    text = "".join(path.read_text() for pattern in ("run", "tools/**/*.sh", "tools/**/*.py", "bench/**/*.py", "bench/**/*.cpp")
                   for path in sorted(commands.ROOT.glob(pattern)))
    listed = subprocess.run([harness.PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout
    for name in re.findall(r"^  ([a-z]+)  ", listed, re.M):
        text += subprocess.run([harness.PROGRAM, name, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"--[a-z][a-z0-9-]*", text)) | {"--help"}


class Documents(unittest.TestCase):
    def test_every_block_is_covered(self):
        found = [f"{path.name}:{block.line}: {problem_of_block(block)}" for path in DOCUMENTS
                 for block in blocks.blocks(path.read_text()) if problem_of_block(block)]
        self.assertEqual(found, [])

    def test_every_command_is_one_that_exists(self):
        found = [f"{path.name}:{line}: {' '.join(command)}: {problem}" for path in DOCUMENTS
                 for line, command, problem in problems_of_commands(path.read_text())]
        self.assertEqual(found, [])

    def test_every_option_in_the_text_is_one_of_ours(self):
        known = known_options()
        found = [f"{path.name}:{line}: {option}" for path in DOCUMENTS for line, span in blocks.spans(path.read_text())
                 if span.startswith("--") for option in commands.options_of(span.split()) if option not in known]
        self.assertEqual(found, [])

    def test_every_link_leads_to_a_file(self):
        found = [f"{path.name}: {target}" for path in DOCUMENTS
                 for target in re.findall(r"\]\(([^)#]+)[^)]*\)", blocks.without_blocks(path.read_text()))
                 if "://" not in target and not (path.parent / target).exists()]
        self.assertEqual(found, [])

    def test_the_blocks_of_funicular_commands_run_as_they_are_written(self):
        ran = 0
        for path in DOCUMENTS:
            for block in blocks.blocks(path.read_text()):
                if block.language in SHELL and can_be_run(shell_code(block)):
                    with self.subTest(document=path.name, line=block.line):
                        self.run_block(shell_code(block))
                        ran += 1
        self.assertGreater(ran, 0)

    def run_block(self, code):
        """In a folder with the files that the documents speak of."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="funicular-docs-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        harness.write_model(folder / "MODEL", max_position_embeddings=LONGEST,
                            extra_shapes={"embeddings.position_embeddings.weight": [LONGEST, harness.HIDDEN]})
        rows = harness.sentiment_rows(40)
        for name in ("train.tsv", "eval.tsv", "test.tsv"):
            harness.write_rows(folder / name, ("label", "text"), rows)
        (folder / "lines.txt").write_text("".join(text + "\n" for _, text in rows))
        (folder / "texts.txt").write_text("\n\n".join(text for _, text in rows) + "\n")
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", code], cwd=folder, capture_output=True, text=True, check=False,
                              env={**os.environ, "PATH": f"{commands.BUILD}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)


class PlantedMistakes(unittest.TestCase):
    """The checks above find what they are for."""

    def test_commands(self):
        for mistake, phrase in (
                ("funicular finetune --modle X --task custom --train a --output b", "--modle"),
                ("funicular fine-tune --help", "fine-tune"),
                ("funicular finetune --task kola", "kola"),
                ("cat texts.txt | funicular predict --modell X", "--modell"),
                ("true && ./run quickstrat", "quickstrat"),
                ("./run quickstart --faster", "--faster"),
                ("cmake --preset fast", "fast"),
                ("cmake --preset release -DFUNICULAR_BENCH=ON", "FUNICULAR_BENCH"),
                ("ninja -C build/fast", "build/fast"),
                ("ctest --test-dir build/release -R NoSuchTestAtAll", "NoSuchTestAtAll"),
                ("build/release/bench/no_bench", "no_bench"),
                (".deps/python/bin/python bench/peers/none.py", "none.py"),
                (".deps/python/bin/python bench/peers/compare_finetune.py --no-such-option", "--no-such-option"),
                ("sudo rm x", "sudo")):
            with self.subTest(mistake=mistake):
                for text in (f"```sh\n{mistake}\n```\n", f"```console\n$ {mistake}\nanswer\n```\n"):
                    problems = [problem for problem in problems_of_commands(text) if problem[1][0] not in ("true", "cat")]
                    self.assertEqual(len(problems), 1, problems)
                    self.assertIn(phrase, " ".join(problems[0][1]) + problems[0][2])

    def test_spans(self):
        self.assertEqual(len(problems_of_commands("Type `funicular predict\n--modle X` and `./run tset`, or `--x`.")), 2)

    def test_blocks(self):
        for text in ("```python\nx\n```\n", "```\nfunicular\n```\n", "```json\n{,}\n```\n", "```toml\na = \n```\n"):
            block, = blocks.blocks(text)
            self.assertIsNotNone(problem_of_block(block), text)
        with self.assertRaises(ValueError):
            blocks.blocks("```sh\nls\n")

    def test_cpp_blocks_become_files(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="funicular-docs-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        (folder / "Page.md").write_text("a\n```cpp\nint main() {}\n```\n```sh\nls\n```\n")
        path, = blocks.write_cpp_blocks(folder / "out", [folder / "Page.md"])
        self.assertEqual(path.name, "page_3.cpp")
        self.assertEqual(path.read_text(), '#line 3 "Page.md"\nint main() {}\n')


if __name__ == "__main__":
    unittest.main()
