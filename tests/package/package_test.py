"""The library as other projects take it: installed, or as a folder of theirs."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["FUNICULAR_BUILD_DIR"])
# The programs of examples/package that are built beside the installed library.
PROGRAMS = ("own_model", "own_objective")
# LibTorch's inline functions keep state of which a process must have one copy, so its names stay visible beside ours.
VISIBLE = re.compile(r"\b(funicular|torch|c10|c10d|at)::")


def run(*command, folder=None):
    done = subprocess.run([str(word) for word in command], cwd=folder, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}:\n{done.stdout[-4000:]}")
    return done.stdout


def cached(name):
    cache = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
    return re.search(rf"^{name}:\w+=(.*)$", cache, re.MULTILINE)[1]


class Package(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="package-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def install(self):
        run("cmake", "--install", BUILD, "--prefix", self.folder / "there")
        return self.folder / "there"

    def test_programs_outside_the_tree_use_the_installed_library(self):
        there = self.install()
        shutil.copytree(ROOT / "examples/package", self.folder / "project")
        made = self.folder / "made"
        # A sanitized library needs a program that is, too: the sanitizer has to be loaded first.
        sanitizer = f"-fsanitize={cached('FUNICULAR_SANITIZE')}" if cached("FUNICULAR_SANITIZE") else ""
        run("cmake", "-S", self.folder / "project", "-B", made, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={there}",
            "-DCMAKE_BUILD_TYPE=None", f"-DCMAKE_CXX_FLAGS=-O0 -Wall -Wextra -Werror {sanitizer}")
        # The other two are built and run as examples of the tree: outside it each takes half a minute.
        run("cmake", "--build", made, "--target", *PROGRAMS)
        self.assertNotIn(str(ROOT / "funicular"), (made / "build.ninja").read_text(encoding="utf-8"))
        for program in (ROOT / "examples/package").glob("*.cpp"):
            for header in re.findall(r'#include "(funicular/.*)"', program.read_text(encoding="utf-8")):
                self.assertTrue((there / "include" / header).is_file(), f"{program.name}: {header}")
        for name in PROGRAMS:  # before LibTorch, whose own std::filesystem may be unusable: cmake/torch.cmake
            needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "--dynamic", "--wide", made / name))
            needed = [name for name in needed if not re.match(r"lib[aut]b?san\.", name)]
            self.assertTrue(needed[0].startswith("libstdc++"), needed)
        output = run("env", "OMP_DISPLAY_ENV=verbose", "ctest", "--output-on-failure", "-V", "-R", "|".join(PROGRAMS), folder=made)
        self.assertIn("100% tests passed, 0 tests failed out of 3", output)
        if "GOMP_SPINCOUNT" in output:  # their threads wait as briefly as the program's: cmake/brief_waits.cpp
            self.assertNotRegex(output, r"GOMP_SPINCOUNT = '(?!5000')")

    def test_a_program_finds_the_libraries_of_the_tarball_and_no_others(self):
        there = self.install()
        config = next(there.rglob("FunicularConfig.cmake"))
        torch = pathlib.Path(re.search(r'AND EXISTS "(.+)"\)', config.read_text(encoding="utf-8"))[1]) / "lib"
        libraries = config.parents[2]
        for library in ("libtorch.so", "libtorch_cpu.so", "libc10.so", *(found.name for found in torch.glob("libgomp*"))):
            (libraries / library).symlink_to(torch / library)
        (self.folder / "empty.cpp").write_text("int main() {}\n")
        (self.folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.20)\nproject(empty CXX)\nfind_package(Funicular REQUIRED)\n"
                                                    "add_executable(empty empty.cpp)\ntarget_link_libraries(empty PRIVATE Funicular::funicular)\n")
        made = self.folder / "made"
        said = run("cmake", "-S", self.folder, "-B", made, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={there}", "-DCMAKE_BUILD_TYPE=None")
        self.assertNotIn("cycle", said)
        run("cmake", "--build", made)
        self.assertEqual(re.findall(r"RUNPATH.*\[(.*)\]", run("readelf", "--dynamic", "--wide", made / "empty")), [str(libraries)])

    def test_the_installed_program_runs_and_tells_the_version_of_the_header(self):
        there = self.install()
        header = (there / "include/funicular/base/version.h").read_text(encoding="utf-8")
        version = ".".join(re.findall(r"^#define FUNICULAR_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", header, re.MULTILINE))
        self.assertIn(f"funicular {version} ", run(there / "bin/funicular", "--version"))

    def test_every_installed_header_can_be_found_by_those_that_include_it(self):
        include = self.install() / "include"
        headers = list(include.rglob("*.h"))
        self.assertGreater(len(headers), 50)
        for header in headers:
            for name in re.findall(r'^#include "(funicular/[^"]+)"', header.read_text(encoding="utf-8"), re.MULTILINE):
                self.assertTrue((include / name).is_file(), f"{header.relative_to(include)} includes {name}")

    def test_only_our_names_and_libtorchs_are_visible(self):
        for library in ("libfunicular.so", "libfunicular_plain.so"):
            symbols = run("nm", "--dynamic", "--defined-only", "--demangle", BUILD / library).splitlines()
            self.assertGreater(len(symbols), 500)
            self.assertEqual([line for line in symbols if not VISIBLE.search(line)], [], library)

    def test_the_installed_program_tokenises_and_trains(self):
        there = self.install()
        (self.folder / "a.txt").write_text("a b\n\nb a a\n" * 8, encoding="utf-8")
        (self.folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n", encoding="utf-8")
        (self.folder / "config.json").write_text(
            '{"model_type": "bert", "vocab_size": 7, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, '
            '"intermediate_size": 8, "max_position_embeddings": 16, "type_vocab_size": 2}', encoding="utf-8")
        program = there / "bin/funicular"
        run(program, "tokenize", "--tokenizer", self.folder, "--input", self.folder / "a.txt", "--output", self.folder / "a.tokens")
        run(program, "pretrain", "--model", self.folder / "config.json", "--tokenizer", self.folder, "--train", self.folder / "a.tokens", "--output", self.folder / "run",
            "--max-steps", "1", "--max-length", "16", "--batch-size", "2")
        self.assertTrue((self.folder / "run/model/model.safetensors").is_file())

    def test_another_project_can_hold_the_tree_as_a_folder_of_its_own(self):
        (self.folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(holds_it LANGUAGES CXX)\n"
            f'add_subdirectory("{ROOT}" funicular)\nadd_library(user OBJECT user.cpp)\n'
            "set_target_properties(user PROPERTIES UNITY_BUILD OFF)\n"
            "target_link_libraries(user PRIVATE Funicular::funicular)\n", encoding="utf-8")
        (self.folder / "user.cpp").write_text(
            '#include "funicular/base/version.h"\n#include "funicular/train/trainer.h"\n'
            "const char* version() { return FUNICULAR_VERSION; }\n", encoding="utf-8")
        made = self.folder / "made"
        run("cmake", "-S", self.folder, "-B", made, "-G", "Ninja", f"-DTORCH_DIR={cached('TORCH_DIR')}", "-DCMAKE_BUILD_TYPE=None",
            "-DCMAKE_CXX_FLAGS=-O0", "-DCMAKE_UNITY_BUILD=ON")
        targets = run("ninja", "-C", made, "-t", "targets", "all")
        self.assertIn("libfunicular.so", targets)
        self.assertNotIn("test_base", targets)
        self.assertNotIn("funicular_cli", targets)
        # The whole library again would take minutes: one of its small layers, and a file that includes what
        # users include.
        run("ninja", "-C", made, "funicular_pipeline", "CMakeFiles/user.dir/user.cpp.o")


if __name__ == "__main__":
    unittest.main()
