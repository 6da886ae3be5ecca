"""How a command that the documentation names is run by the tests: as it stands where it is short, else shortened.

A script answers --help, and its own parser reads the options that are named: an option that no script has comes last, and is all
that it complains of. What sets up, builds or tests everything answers --help; ctest lists its tests.
"""

import os
import pathlib
import shutil
import subprocess
from typing import NamedTuple

import commands

PYTHON = pathlib.Path(os.environ.get("FUNICULAR_PYTHON") or commands.ROOT / ".deps/python/bin/python")
UNKNOWN = "--an-option-that-no-script-has"
SMALL = ["--max-length", "32", "--batch-size", "2"]
# Of funicular bench in its modes.
SHORTER = {"memory": [], "ranks": ["--steps", "1", "--warmup", "0"], "techniques": ["--steps", "1", "--repetitions", "1", "--run-steps", "2"]}
# Scripts that are run to their end, with these options after those that are named.
TO_THE_END = {"bench/precision_accuracy.py": [], "bench/shared_pages.py": ["--ranks", "2"]}
# Scripts that are tests themselves (tests/tools), and have no --help.
TESTS = ("tools/check_layers.py", "tools/check_sizes.py")
# What stands for a value of the reader's own; the tests have files of these names.
OWN = {"FOLDER": ".", "FOLDER_WITH_MRPC": ".", "TASK": "custom", "FILE": "test.tsv", "STORE": "texts.tokens", "MODEL": "CLASSIFIER",
       "MODEL…": "CLASSIFIER"}
BUILD_THEMSELVES = ("cmake", "ninja", "export", "printf", "head")  # of these the tests are made, or they only set a variable, or make a text


class Way(NamedTuple):
    words: list
    code: int = 0
    says: str = ""  # on standard error, as its last line


def is_script(path):
    return (commands.ROOT / path).is_file() and (commands.ROOT / path).read_text().startswith("#!")


def of_script(path, arguments, start):
    """start: the words that start the script."""
    if not is_script(path) or path in TESTS:
        return []
    arguments = [OWN.get(word, word) for word in arguments]
    found = [Way([*start, "--help"])]
    if arguments and arguments != ["--help"]:
        found.append(Way([*start, *arguments, UNKNOWN], 2, f"unrecognized arguments: {UNKNOWN}"))
        if path in TO_THE_END:
            found.append(Way([*start, *arguments, *TO_THE_END[path], "--program", commands.BUILD / "funicular"]))
    return found


def of_funicular(words):
    """Blocks are run as they stand by another test; of these, measurements of the step are run on a tiny model."""
    program = str(commands.BIN / "funicular")
    if words[:1] == ["launch"] and words[-2:] == ["bench", "ranks"]:
        return [Way([program, *words[:4], program, "bench", "ranks", "--model", "MODEL", *SMALL, *SHORTER["ranks"]])]
    if words[:1] == ["bench"] and "--floor" not in words and "--model" not in words:  # the floor takes seconds
        mode = words[1] if len(words) > 1 and not words[1].startswith("-") else None
        return [Way([program, *words, "--model", "MODEL", *SMALL, *SHORTER.get(mode, ["--steps", "1", "--warmup", "0"])])]
    if words == ["doctor"]:
        return [Way([program, "doctor"])]
    return [Way([program, *words[:1], "--help"])]


def of_run(words):
    if not words or words[0] in ("bench", "quickstart") and {"--help", "--list"} & set(words):
        return [Way(["./run", *words])]
    if words[0] == "bench":
        return [Way(["./run", *[OWN.get(word, word) for word in words], "--list"])]
    return [Way(["./run", words[0], "--help"])]


def of_ctest(words):
    at = words.index("--test-dir")
    return [Way(["ctest", "--test-dir", commands.BUILD, "-N", *words[:at], *words[at + 2:]])]


# The programs of bench/, at a size that takes a second. Those of google-benchmark list their rows and run one.
BENCHES = {"all_reduce_bench": [["1000", "1"]],
           "kernels_bench": [["--benchmark_list_tests"], ["--benchmark_filter=^attention/fp32", "--benchmark_min_time=0.001"]],
           "masking_bench": [["32"]],
           "optimizer_bench": [["1", "1", "sgd", "1"]],
           "store_bench": [["1", "100", "1"]],
           "tokenizer_bench": [["--benchmark_list_tests"], ["--benchmark_filter=ids_in_one_array/alphabetic", "--benchmark_min_time=0.001"]]}


def of_built(command):
    """A program that not every build has: those of bench/ need google-benchmark."""
    built = commands.BUILD / pathlib.PurePath(*pathlib.PurePath(command[0]).parts[2:])
    if not built.exists():
        return []
    launch = [commands.BUILD / "funicular", "launch", "-n", "2", "--"] if built.name == "all_reduce_bench" else []
    return [Way([*launch, built, *words]) for words in BENCHES.get(built.name, [])]


def of_launcher(command):
    """As it stands, but for a short training, where the launcher is installed; sbatch hands its job over there and then."""
    if command[0] == "sbatch":
        return [] if not shutil.which("sbatch") else of_launcher(commands.job_of(command))
    program = shutil.which(command[0]) or shutil.which(command[0], path=PYTHON.parent)
    if not program or (command[0] == "srun" and not shutil.which("sinfo")):
        return []
    own = commands.launched(command)
    options = command[1:len(command) - len(own)]
    if command[0] == "mpirun":
        options = ["--allow-run-as-root", "--oversubscribe", *options]
    output = own.index("--output") + 1
    return [Way([program, *options, commands.BUILD / "funicular", *own[1:output], f"RUN-{command[0]}", *own[output + 1:], "--max-steps", "1"])]


def ways(command):
    """How the command is run. Raises KeyError where nothing is known of such a command."""
    program, words = command[0], command[1:]
    if program in (*commands.LAUNCHERS, "sbatch"):
        return of_launcher(command)
    if program in BUILD_THEMSELVES or program in commands.INSTALLERS:
        return []
    if program.startswith("build/"):
        return of_built(command)
    if program.startswith(("bench/", "tests/", "tools/")):
        return of_script(program, words, [commands.ROOT / program])
    if program.endswith("/python"):
        return of_script(words[0], words[1:], [commands.ROOT / program, commands.ROOT / words[0]])
    return {"funicular": of_funicular, "./run": of_run, "ctest": of_ctest}[program](words)


def run(way, folder):
    """What is wrong with it, or None. Runs in the folder with the reader's own files."""
    words = [commands.ROOT / "run" if word == "./run" else word for word in way.words]
    if not os.access(words[0], os.X_OK) and "/" in str(words[0]):
        return f"{words[0]} cannot be executed"
    done = subprocess.run(list(map(str, words)), cwd=folder, capture_output=True, text=True, check=False, timeout=300,
                          env={**os.environ, "PATH": f"{commands.BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"})
    if "./run setup makes .deps/python" in done.stderr and not (commands.ROOT / ".deps/python/bin/python").exists():
        return None  # it says what it lacks
    last = done.stderr.strip().splitlines()[-1:]
    if done.returncode != way.code or (way.says and not (last and last[0].endswith(way.says))):
        return f"exit code {done.returncode}: {done.stderr[-500:]}"
    return None
