"""Whether a command that the documentation shows is one that exists, with the options that it shows."""

import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import harness  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["FUNICULAR_BUILD_DIR"])
# Holds the program that runs in forks; builds with sanitizers have none.
BIN = BUILD / "tests/bin" if (BUILD / "tests/bin").exists() else BUILD
# What reads the options of a command of ./run, where that is not tools/NAME.sh alone.
SCRIPTS = {"quickstart": ["tools/quickstart/quickstart.sh"], "bench": ["tools/bench.sh", "bench/run_peers.py"],
           "mutants": ["tools/mutants/__main__.py"], "package": ["tools/package/__main__.py"], "evidence": ["tools/evidence.py"], "clean": []}


def split(code):
    """The commands of a shell block, as lists of words, without comments, redirections, and variables set before."""
    commands = []
    for line in code.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        command, skip = [], False  # skip: the next word is the file of a redirection
        for word in lexer:
            if set(word) <= set("|&;"):
                commands.append(command)
                command = []
            elif set(word) <= set("<>"):
                skip = True
            elif skip:
                skip = False
            else:
                command.append(word)
        commands.append(command)
    return [command for command in map(without_assignments, commands) if command]


def without_assignments(command):
    while command and re.match(r"[A-Z_]+=", command[0]):
        command = command[1:]
    return command


def options_of(words):
    """The names of long options among the words."""
    return [word.split("=", 1)[0] for word in words if re.match(r"--[a-z]", word)]


def run(*words):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, cwd=ROOT, check=False,
                          env={**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}"})


def funicular(words):
    """Lets the program itself read the options, without doing anything."""
    done = harness.run(*words[:-1] if words[-1:] == ["--help"] else words, "--help",
                       env={**harness.environment(), "PATH": f"{BUILD}:{os.environ['PATH']}"})
    return None if done.code == 0 else done.err.strip()


@functools.cache
def commands_of_run():
    return re.findall(r"^  ([a-z]+)  ", run("./run").stdout, re.M)


def options_in(files, words):
    text = "".join((ROOT / file).read_text() for file in files)
    missing = [option for option in options_of(words)
               if option != "--help" and not re.search(re.escape(option) + r"(?![a-z-])", text)]
    return f"{', '.join(map(str, files))} knows no {', '.join(missing)}" if missing else None


def run_script(words):
    if not words:
        return None
    if words[0] not in commands_of_run():
        return f"./run has no command {words[0]}"
    return options_in(SCRIPTS.get(words[0], [f"tools/{words[0]}.sh"]), words[1:])


def preset_exists(name):
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    return any(preset["name"] == name and not preset.get("hidden") for preset in presets)


def cmake(words):
    text = (ROOT / "CMakeLists.txt").read_text()
    for word in words:
        variable = re.match(r"-D([A-Za-z0-9_]+)=", word)
        if variable and not variable.group(1).startswith("CMAKE_") and not re.search(variable.group(1) + r"\b", text):
            return f"CMakeLists.txt has no {variable.group(1)}"
    if words[:1] == ["--preset"]:
        return None if preset_exists(words[1]) else f"no preset {words[1]}"
    return None if {"-S", "--build", "--install"} & set(words) else "expected --preset, -S, --build or --install"


def build_folder(word):
    """None if the folder is that of a preset."""
    return None if word.startswith("build/") and preset_exists(word.split("/")[1]) else f"no preset builds in {word}"


def ninja(words):
    if words[:1] != ["-C"]:
        return "expected ninja -C build/PRESET"
    return build_folder(words[1])


@functools.cache
def names_of_tests():
    """Those that ctest lists: it asks every test program for its own, which takes seconds."""
    return re.findall(r"^ *Test +#\d+: (.*)$", run("ctest", "--test-dir", BUILD, "-N").stdout, re.M)


def ctest(words):
    """Whether there is a test of that name. EveryCommandRuns.test_of_ctest lets ctest read the words."""
    if "--test-dir" not in words:
        return "expected ctest --test-dir build/PRESET"
    if "-R" in words and not any(re.search(words[words.index("-R") + 1], name) for name in names_of_tests()):
        return f"ctest finds no test {words[words.index('-R') + 1]}"
    return build_folder(words[words.index("--test-dir") + 1])


def script(words):
    if not (ROOT / words[0]).is_file():
        return f"there is no {words[0]}"
    return options_in([words[0]], words[1:])


def built_program(words):
    """A program of the build: its source has its name, wherever the build is."""
    name = pathlib.PurePath(words[0]).name
    if name == "funicular":
        return funicular(words[1:])
    problem = build_folder(words[0])
    if problem:
        return problem
    sources = [path.relative_to(ROOT) for part in ("bench", "tests", "examples") for path in (ROOT / part).rglob("*.cpp")
               if path.stem == name or f"example_{path.stem}" == name]
    if name.startswith("test_") and (ROOT / "tests" / name[5:]).is_dir():
        return None
    return options_in(sources, words[1:]) if sources else f"no source of a program {name}"


# Of other launchers: what starts our program on several ranks, with the options that take no value.
LAUNCHERS = {"torchrun": {"--no-python"}, "mpirun": set(), "srun": set()}


def launched(command):
    """The words of the program that another launcher starts."""
    rest = command[1:]
    while rest and rest[0].startswith("-"):
        rest = rest[1 if rest[0] in LAUNCHERS[command[0]] or "=" in rest[0] else 2:]
    return rest


def job_of(command):
    """The command that sbatch hands over, as words."""
    return shlex.split(command[command.index("--wrap") + 1])


def problem_of(command):
    """What is wrong with the command (a list of words), or None."""
    program, words = command[0], command[1:]
    if program in LAUNCHERS:
        return problem_of(launched(command)) if launched(command) else "it starts nothing"
    if program == "sbatch":
        return problem_of(job_of(command)) if "--wrap" in words else "expected --wrap and a command"
    if program.endswith(".deps/python/bin/python") or program in ("python", "python3"):
        return script(words)
    if program.startswith("build/"):
        return built_program(command)
    if program.startswith(("tests/", "bench/", "tools/")):
        return script(command)
    if program in ("export", "printf", "head"):
        return None
    known = {**dict.fromkeys(INSTALLERS, installer), "funicular": funicular, "./run": run_script, "cmake": cmake, "ninja": ninja, "ctest": ctest}
    if program not in known:
        return f"the tests do not know how to check a command that begins with {program}; teach them (tests/docs/commands.py)"
    return known[program](words)


# They install what ./run package makes, on machines of their own: ./run package --check does.
INSTALLERS = ("pip", "tar", "apt", "podman")


def installer(words):
    return None if any("funicular" in word for word in words) else "it installs nothing of ours"


def looks_like_a_command(span):
    """Whether a code span is a command of ours with arguments, or the call of a script."""
    return bool(re.match(r"(\./run |funicular [a-z]|ctest |cmake -|ninja -|build/(release|dev|asan|tsan)/\S*[^\s/] |(tests|bench|tools)/\S+\.py )", span + " "))
