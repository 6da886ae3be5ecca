"""Every code block and command of README.md and docs/ is compiled (CMakeLists.txt here), run, or read by the real program."""

import functools
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

import blocks
import commands  # which finds harness
import harness
import running

DOCUMENTS = [commands.ROOT / "README.md", commands.ROOT / "CONTRIBUTING.md", *sorted((commands.ROOT / "docs").glob("**/*.md"))]
SHELL = ("sh", "bash", "console")
COMPILED = ("cpp", "c++")  # by CMakeLists.txt
PYTHON = ("python",)  # run here
ONLY_SHOWN = ("text",)
LONGEST = 128  # the default of --max-length
# Commands with these words are read by the program and not carried out. Those of the first list need another machine.
# bench --floor computes steps of BERT's size for most of a minute; tests/cli/bench_test.py runs it on a small model.
NOT_EVERYWHERE = ("--device cuda", "mpirun", "--nproc", "srun", "sbatch", "--nnodes")
TOO_LONG = ("bench --floor",)


def shell_code(block):
    """Of console blocks the lines after a prompt."""
    if block.language != "console":
        return block.code
    return "".join(line[2:] + "\n" for line in block.code.splitlines() if line.startswith("$ "))


def commands_of(text):
    """(line, command) of each command of a document."""
    found = []
    for block in blocks.blocks(text):
        if block.language in SHELL:
            found += [(block.line, command) for command in commands.split(shell_code(block))]
    for line, span in blocks.spans(text):
        if commands.looks_like_a_command(span):
            found += [(line, command) for command in commands.split(span)]
    return found


@functools.cache
def problem_of(*command):
    """Many commands stand on several pages."""
    return commands.problem_of(list(command))


def problems_of_commands(text):
    """(line, command, problem) of each command of a document that does not exist so."""
    return [(line, command, problem) for line, command in commands_of(text) for problem in [problem_of(*command)] if problem]


def problem_of_block(block):
    """Why a block would be covered by no test, or is wrong by itself."""
    if block.language in (*SHELL, *COMPILED, *PYTHON, *ONLY_SHOWN):
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
        not any(words in code for words in (*NOT_EVERYWHERE, *TOO_LONG))


def known_options():
    """Every option of the program and of our scripts."""
    text = "".join(path.read_text() for pattern in ("run", "tools/**/*.sh", "tools/**/*.py", "bench/**/*.py", "bench/**/*.cpp", "tests/golden/*.py")
                   for path in sorted(commands.ROOT.glob(pattern)))
    for name in re.findall(r"^  ([a-z-]+)  ", harness.run("--help").out, re.M):
        text += harness.run(name, "--help-all").out
    return set(re.findall(r"--[a-z][a-z0-9-]*", text)) | {"--help", "--markdown"}


def declared_fields(header, name):
    """The names of the data members of a structure, in order."""
    body = re.search(rf"^struct {name} {{\n(.*?)^}};", header, re.M | re.S)[1]
    code = re.sub(r"//.*", "", body)
    fields = []
    for declaration in code.split(";"):
        declaration = re.sub(r"\{.*|=.*", "", declaration, flags=re.S).split()
        if declaration:
            fields.append(declaration[-1])
    return fields


def listed_options(text):
    """The names that docs/how_to/cpp_train_module.md lists, in order."""
    listed = re.search(r"order in which `TrainerOptions` declares them: (.*?)\. You can also set them", text, re.S)[1]
    return re.findall(r"`(\w+)`", listed)


def sections(path):
    """The anchors of a page's headings, as the site and code hosts make them."""
    headings = re.findall(r"^#+ (.*)$", blocks.without_blocks(path.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


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

    def test_the_options_of_a_training_are_in_the_order_in_which_they_are_declared(self):
        header = (commands.ROOT / "funicular/train/trainer_options.h").read_text(encoding="utf-8")
        text = (commands.ROOT / "docs/how_to/cpp_train_module.md").read_text(encoding="utf-8")
        self.assertEqual(listed_options(text), declared_fields(header, "TrainerOptions"))
        self.assertGreaterEqual(len(declared_fields(header, "TrainerOptions")), 30)

    def test_every_link_leads_to_a_file(self):
        found = [f"{path.name}: {target}" for path in [*DOCUMENTS, commands.ROOT / "CHANGELOG.md"]
                 for target in re.findall(r"\]\(([^)#]+)[^)]*\)", blocks.without_blocks(path.read_text()))
                 if "://" not in target and not (path.parent / target).exists()]
        self.assertEqual(found, [])

    def test_every_page_that_the_sources_name_is_there(self):
        files = [commands.ROOT / "run", *(path for folder in ("funicular", "python", "bench", "tools", "examples")
                                          for path in sorted((commands.ROOT / folder).rglob("*")) if path.suffix in (".cpp", ".h", ".cu", ".py", ".sh"))]
        found = [f"{path.relative_to(commands.ROOT)}: {page}" for path in files
                 for page in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(encoding="utf-8")) if not (commands.ROOT / page).exists()]
        self.assertEqual(found, [])

    def test_the_index_links_to_every_page_but_single_measurements(self):
        index = commands.ROOT / "docs/index.md"
        linked = set(re.findall(r"\]\(([^)#]+\.md)", index.read_text(encoding="utf-8")))
        pages = {path.relative_to(index.parent).as_posix() for path in DOCUMENTS if path.is_relative_to(index.parent)}
        single = {page for page in pages if page.startswith("project/measurements/")} - {"project/measurements/README.md"}
        self.assertEqual(sorted(pages - single - {"index.md"}), sorted(linked))

    def test_every_page_is_in_the_navigation_of_the_site_and_no_other(self):
        listed = re.findall(r"^ *- (?:.*: )?(\S+\.md)$", (commands.ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
        pages = [path.relative_to(commands.ROOT / "docs").as_posix() for path in DOCUMENTS if path.is_relative_to(commands.ROOT / "docs")]
        self.assertEqual(sorted(listed), sorted(pages))

    def test_every_link_to_a_section_leads_to_one(self):
        found = [f"{path.name}: {target}#{anchor}" for path in DOCUMENTS
                 for target, anchor in re.findall(r"\]\(([^)#]*)#([^)]+)\)", blocks.without_blocks(path.read_text()))
                 if "://" not in target and anchor not in sections((path.parent / target) if target else path)]
        self.assertEqual(found, [])

    def test_the_pictures_are_what_the_scripts_draw(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([commands.ROOT / "tools/site/pictures.py", folder], check=True)
            harness.run("plan", "--schedule", "1f1b", "-p", "4", "-m", "8", "--draw", f"{folder}/schedule.svg")
            for drawn in sorted(pathlib.Path(folder).glob("*.svg")):
                self.assertEqual(drawn.read_text(encoding="utf-8"), (commands.ROOT / "docs/images" / drawn.name).read_text(encoding="utf-8"), drawn.name)
            self.assertEqual(len(list(pathlib.Path(folder).glob("*.svg"))), 4)

    def test_the_chart_is_what_the_script_draws_of_what_was_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            drawn = pathlib.Path(folder) / "peers.svg"
            subprocess.run([commands.ROOT / "bench/chart.py", commands.ROOT / "docs/project/measurements/2026-11-24-zen4.toml", drawn], check=True)
            self.assertEqual(drawn.read_text(encoding="utf-8"), (commands.ROOT / "docs/images/peers.svg").read_text(encoding="utf-8"))

    def test_the_blocks_of_funicular_commands_run_as_they_are_written(self):
        ran = 0
        for path in DOCUMENTS:
            for block in blocks.blocks(path.read_text()):
                if block.language in SHELL and can_be_run(shell_code(block)):
                    with self.subTest(document=path.name, line=block.line):
                        self.run_block(shell_code(block))
                        ran += 1
        self.assertGreater(ran, 0)

    def test_the_blocks_of_python_run_as_they_are_written(self):
        ran = 0
        for path in DOCUMENTS:
            for block in blocks.blocks(path.read_text()):
                if block.language in PYTHON:
                    with self.subTest(document=path.name, line=block.line):
                        done = subprocess.run([sys.executable, "-B", "-W", "error", "-c", block.code], cwd=readers_folder(self),
                                              capture_output=True, text=True, check=False,
                                              env={**os.environ, "PYTHONPATH": str(commands.ROOT / "python"), "OMP_NUM_THREADS": "1",
                                                   "FUNICULAR_PROGRAM": str(commands.BIN / "funicular")})
                        self.assertEqual(done.returncode, 0, done.stderr)
                        ran += 1
        self.assertGreater(ran, 0)

    def run_block(self, code):
        """In a folder with the files that the documents speak of."""
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", code], cwd=readers_folder(self), capture_output=True, text=True,
                              check=False, env={**os.environ, "PATH": f"{commands.BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)


def readers_folder(test):
    """With the files that the documents speak of, until the test ends."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="funicular-docs-"))
    test.addCleanup(shutil.rmtree, folder, ignore_errors=True)
    harness.write_model(folder / "MODEL", max_position_embeddings=LONGEST,
                        extra_shapes={"embeddings.position_embeddings.weight": [LONGEST, harness.HIDDEN]})
    shutil.copytree(folder / "MODEL", folder / "TEACHER")
    rows = harness.sentiment_rows(40)
    for name in ("train.tsv", "eval.tsv", "test.tsv", "calibration.tsv"):
        harness.write_rows(folder / name, ("label", "text"), rows)
    harness.write_rows(folder / "texts.tsv", ("text",), [(text,) for _, text in rows])
    with_sections(folder)
    for name in ("train.conll", "eval.conll"):
        (folder / name).write_text("".join("".join(f"{word} {'B-PRAISE' if word == 'good' else 'O'}\n" for word in text.split()) + "\n"
                                           for _, text in rows))
    questions = next(block.code for block in blocks.blocks((commands.ROOT / "docs/how_to/spans.md").read_text()) if block.language == "json")
    for name in ("train.json", "dev.json"):
        (folder / name).write_text(questions)
    for name in ("pairs.jsonl", "held_out.jsonl"):
        (folder / name).write_text("".join(json.dumps({"anchor": text, "positive": f"{text} again"}) + "\n" for _, text in rows))
    chain = blocks.blocks((commands.ROOT / "docs/how_to/chain.md").read_text())
    (folder / "chain.toml").write_text(next(block.code for block in chain if block.language == "toml"))
    (folder / "lines.txt").write_text("".join(text + "\n" for _, text in rows))
    (folder / "texts.txt").write_text("\n\n".join(text for _, text in rows) + "\n")
    return folder


def with_sections(folder):
    """The tables of docs/tutorials/csv_to_model.md: texts of five sections, of which each has a word of its own."""
    sections, source = ["fonts", "games", "net", "science", "sound"], random.Random(8)
    rows = [(sections[number % 5], " ".join(source.choices(["the", "a", "old", "very"], k=6)) + f" {harness.WORDS[number % 5]} {number}")
            for number in range(2000)]
    (folder / "packages.csv").write_text("section,description\n" + "".join(f'{label},"{text}"\n' for label, text in rows))
    (folder / "reviews.csv").write_text("sentiment,review\n" + "".join(f'{label},"{text}"\n' for label, text in rows[:100]))
    (folder / "new.csv").write_text("description,review\n" + "".join(f'"{text}","{text}"\n' for _, text in rows[:4]))


def pattern_of(line):
    """What a line of a terminal session shows of any data and processor: its numbers and labels are others."""
    if line.startswith("precision: "):
        return r"precision: (bf16|fp32), .* \(--precision auto\)"
    text = re.escape(line)
    text = re.sub(r"(?<![\w])(\d|\\\.(?=\d)|\\-(?=\d)|e\\-\d)+", lambda number: r"[-+.e\d]+", text)
    return re.sub(r'("label":\\ "|always\\ ")\w+', lambda found: found[1] + r"\w+", text)


class TerminalSession(unittest.TestCase):
    """That of the README: what it shows is what the program prints, some messages left out."""

    def answers(self, block):
        """The lines that the commands print, in a folder with rows of the same labels."""
        folder, printed = readers_folder(self), []
        for command in shell_code(block).splitlines():
            done = subprocess.run(["bash", "-c", command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                                  env={**os.environ, "PATH": f"{commands.BIN}:{os.environ['PATH']}", "FUNICULAR_LOG_TIMES": "off",
                                       "OMP_NUM_THREADS": "1"})
            self.assertEqual(done.returncode, 0, done.stdout)
            printed += done.stdout.splitlines()
        return printed

    def test_shows_only_lines_that_the_program_prints(self):
        block, = [block for block in blocks.blocks((commands.ROOT / "README.md").read_text()) if block.language == "console"]
        shown = [line for line in block.code.splitlines() if not line.startswith("$ ")]
        self.assertGreater(len(shown), 7)
        printed = self.answers(block)
        self.assertEqual([line for line in shown if not any(re.fullmatch(pattern_of(line), one) for one in printed)], [], printed)

    def test_numbers_and_labels_may_differ_and_words_may_not(self):
        line = 'evaluation at step 268 of 804: accuracy 0.7040; {"label": "net", "p": 1.5e-05}'
        self.assertRegex('evaluation at step 2 of 6: accuracy 1; {"label": "sound", "p": 0.5}', pattern_of(line))
        self.assertNotRegex('evaluation at step 2 of 6: exactness 1; {"label": "net", "p": 0.5}', pattern_of(line))


class EveryCommandRuns(unittest.TestCase):
    maxDiff = None
    """As it stands where it is short, else shortened (running.py)."""

    def check(self, *programs):
        folder, seen, problems = self.folder(), set(), []
        for path in DOCUMENTS:
            for line, command in commands_of(path.read_text()):
                if not command[0].startswith(programs):
                    continue
                for way in running.ways(command):
                    problem = None if str(way) in seen else running.run(way, folder)
                    seen.add(str(way))
                    problems += [f"{path.name}:{line}: {' '.join(map(str, way.words))}: {problem}"] if problem else []
        self.assertEqual(problems, [])
        self.assertGreater(len(seen), 0)

    def folder(self):
        folder = readers_folder(self)
        shapes = {"classifier.weight": [2, harness.HIDDEN], "classifier.bias": [2]}
        harness.write_model(folder / "CLASSIFIER", extra_shapes={**harness.encoder_shapes(), **shapes},
                            id2label={"0": "contra", "1": "pro"}, label2id={"contra": 0, "pro": 1})
        subprocess.run([harness.PROGRAM, "tokenize", "--tokenizer", "MODEL", "--input", "texts.txt", "--output", "texts.tokens"],
                       cwd=folder, check=True, capture_output=True)
        return folder

    def test_of_run(self):
        self.check("./run")

    def test_of_ctest(self):
        self.check("ctest")

    def test_of_the_scripts(self):
        self.check("bench/", "tests/", "tools/", ".deps/")  # test_of_the_programs_that_measure runs those of build/

    @harness.counting
    def test_of_funicular(self):
        self.check("funicular")

    def test_of_the_programs_that_measure(self):
        programs = {path.stem for path in (commands.ROOT / "bench").glob("*_bench.cpp")}
        self.assertEqual(programs, set(running.BENCHES))
        if "benchmark_DIR:PATH=benchmark_DIR-NOTFOUND" in (commands.BUILD / "CMakeCache.txt").read_text():
            self.skipTest("google-benchmark is not installed (./run setup installs it): the programs of bench/ are not built")
        folder = readers_folder(self)
        for program in sorted(programs):
            ways = running.of_built([f"build/release/bench/{program}"])
            self.assertTrue(ways, f"{program} was not built")
            for way in ways:
                with self.subTest(words=way.words):
                    self.assertIsNone(running.run(way, folder))

    def test_of_torchrun(self):
        self.check_launcher("torchrun")

    def test_of_mpirun(self):
        self.check_launcher("mpirun")

    def test_of_srun(self):
        self.check_launcher("srun")

    def test_of_sbatch(self):
        self.check_launcher("sbatch")

    def check_launcher(self, name):
        shown = [command for path in DOCUMENTS for _, command in commands_of(path.read_text()) if command[0] == name]
        self.assertTrue(shown, f"no document shows {name}")
        if not running.of_launcher(shown[0]):
            self.skipTest(f"{name} is not installed, or has nothing to run on")
        self.check(name)

    def test_is_one_that_the_tests_know_how_to_run(self):
        unknown = []
        for path in DOCUMENTS:
            for line, command in commands_of(path.read_text()):
                try:
                    running.ways(command)
                except KeyError:
                    unknown.append(f"{path.name}:{line}: {' '.join(command)}")
        self.assertEqual(unknown, [])
        with self.assertRaises(KeyError):
            running.ways(["make", "all"])

    def test_what_a_command_shows_that_does_not_run_is_told(self):
        folder = readers_folder(self)
        (folder / "fails.py").write_text("#!/usr/bin/env python3\nimport sys\nsys.exit('no luck')\n")
        self.assertIn("cannot be executed", running.run(running.Way([folder / "fails.py"]), folder))
        (folder / "fails.py").chmod(0o755)
        self.assertIn("no luck", running.run(running.Way([folder / "fails.py"]), folder))
        named = running.ways(["bench/kill_ranks.py", "--kils", "40"])[-1]
        self.assertIn("--kils", running.run(named, folder))
        lacking = running.ways(["bench/loss_curves.py", "--steps", "3"])[-1]
        self.assertIn("arguments are required", running.run(lacking, folder))


class Scripts(unittest.TestCase):
    def test_that_name_their_interpreter_can_be_executed_and_no_others(self):
        wrong = []
        for folder in ("bench", "tests", "tools", ".ci"):
            for path in sorted((commands.ROOT / folder).rglob("*")):
                if path.suffix in (".py", ".sh", "") and path.is_file() and "__pycache__" not in path.parts:
                    if path.read_bytes().startswith(b"#!") != os.access(path, os.X_OK):
                        wrong.append(str(path.relative_to(commands.ROOT)))
        self.assertEqual(wrong, [])

    def test_go_on_in_the_python_that_has_their_packages(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="funicular-docs-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        (folder / "packages").mkdir()
        (folder / "packages" / "only_there.py").write_text("")
        other = folder / "python"
        other.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}/packages" exec "{sys.executable}" "$@"\n')
        other.chmod(0o755)
        script = folder / "script.py"
        script.write_text(f"import sys\nsys.path.insert(0, {str(commands.ROOT / 'bench/peers')!r})\nimport environment\n"
                          "environment.need(sys.argv[1])\n__import__(sys.argv[1])\nprint(*sys.argv[1:])\n")

        def run(package, python):
            return subprocess.run([sys.executable, "-B", script, package, "more"], capture_output=True, text=True, check=False,
                                  env={**os.environ, "FUNICULAR_PYTHON": str(python)})
        self.assertEqual(run("only_there", other).stdout, "only_there more\n")
        self.assertEqual(run("json", folder / "none").stdout, "json more\n", "this Python has it")
        for package, python in (("only_there", folder / "none"), ("nowhere_at_all", other)):
            done = run(package, python)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f"the Python package {package} is missing", done.stderr)
            self.assertIn("./run setup makes .deps/python", done.stderr)


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
                ("torchrun --no-python --nproc-per-node 2 funicular pretrain --modell X", "--modell"),
                ("mpirun -n 2 funicular no-command", "no-command"),
                ("sbatch --wrap 'srun funicular pretrain --modell X'", "--modell"),
                ("sudo rm x", "sudo")):
            with self.subTest(mistake=mistake):
                for text in (f"```sh\n{mistake}\n```\n", f"```console\n$ {mistake}\nanswer\n```\n"):
                    problems = [problem for problem in problems_of_commands(text) if problem[1][0] not in ("true", "cat")]
                    self.assertEqual(len(problems), 1, problems)
                    self.assertIn(phrase, " ".join(problems[0][1]) + problems[0][2])

    def test_spans(self):
        self.assertEqual(len(problems_of_commands("Type `funicular predict\n--modle X` and `./run tset`, or `--x`.")), 2)

    def test_blocks(self):
        for text in ("```perl\nx\n```\n", "```\nfunicular\n```\n", "```json\n{,}\n```\n", "```toml\na = \n```\n"):
            block, = blocks.blocks(text)
            self.assertIsNotNone(problem_of_block(block), text)
        with self.assertRaises(ValueError):
            blocks.blocks("```sh\nls\n")

    def test_cpp_blocks_become_files(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="funicular-docs-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        (folder / "Page.md").write_text("a\n```cpp\nint main() {}\n```\n```sh\nls\n```\n```cpp\n#include <string>\nint f();\n```\n")
        program, others = blocks.write_cpp_blocks(folder / "out", [folder / "Page.md"])
        self.assertEqual(program.name, "page_3.cpp")
        self.assertEqual(program.read_text(), '#line 3 "Page.md"\nint main() {}\n')
        self.assertEqual(others.read_text(), '#include <string>\nnamespace page_9 {\n#line 9 "Page.md"\n\nint f();\n}\n')


if __name__ == "__main__":
    unittest.main()
