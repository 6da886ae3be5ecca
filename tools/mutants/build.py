"""Builds libraries, a program and test programs with mutants in them, from an ordinary build and few compiled files.

Only the sources that a mutant changes are compiled again. Their objects are linked before those of the ordinary build,
and the linker keeps the first definition of each symbol. All code is compiled with -fPIC, so the compiler has taken
for granted that any function of external linkage may be another one in the end.
"""

from __future__ import annotations

import concurrent.futures
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from catalogue import ISAS, Invalid, Mutant, replaced, switched

SWITCH = """// The number of the mutant that is on; 0 for none.
#include <dlfcn.h>
#include <cstdlib>
#include <mutex>
#include <set>
#include <tuple>
extern "C" {
int funicular_mutant = 0;
__attribute__((constructor(101))) static void read_mutant() {
  const char* text = std::getenv("FUNICULAR_MUTANT");
  funicular_mutant = text ? std::atoi(text) : 0;
}
// An object of namespace scope is initialised twice where its source is there twice, but it may be destroyed only once.
__attribute__((visibility("hidden"))) int __cxa_atexit(void (*destroy)(void*), void* object, void* library) {
  using Register = int (*)(void (*)(void*), void*, void*);
  static const auto pass_on = reinterpret_cast<Register>(dlsym(RTLD_DEFAULT, "__cxa_atexit"));
  static auto* const lock = new std::mutex;
  static auto* const known = new std::set<std::tuple<void (*)(void*), void*>>;
  const std::lock_guard<std::mutex> guard(*lock);
  return object && !known->emplace(destroy, object).second ? 0 : pass_on(destroy, object, library);
}
}
"""
# The ordinary source's initialisation of such an object would undo that of the mutated one: the latter comes last.
LAST = """// Linked behind all objects, so that this runs when theirs are initialised.
using Initialise = void (*)(int, char**, char**);
extern "C" {
__attribute__((weak, visibility("hidden"))) extern Initialise __start_mutant_init[], __stop_mutant_init[];
__attribute__((constructor)) static void initialise_mutants() {
  for (Initialise* each = __start_mutant_init; each != __stop_mutant_init; ++each) (*each)(0, nullptr, nullptr);
}
}
"""


def native_isa() -> str:
    """The instruction set that funicular/base/isa.cpp would choose."""
    try:
        processor = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        processor = ""
    match = re.search(r"^flags\s*:(.*)$", processor, re.MULTILINE)
    flags = set(match[1].split()) if match else set()
    needs = (("avx2", "fma", "bmi2"), ("avx512f", "avx512bw", "avx512vl", "avx512dq"), ("avx512_bf16", "avx512_vnni"),
             ("amx_tile", "amx_bf16", "amx_int8"))
    best = 0
    while best < len(needs) and flags.issuperset(needs[best]):
        best += 1
    slow = "GenuineIntel" in processor and "avx512_fp16" in flags  # VDPBF16PS is
    return "avx512" if ISAS[best] == "avx512_bf16" and slow else ISAS[best]


def sources_of(file: Path) -> list[str]:
    """The sources of cli/ that a compiled file is, or includes where several are compiled together."""
    text = file.read_text(encoding="utf-8") if file.name.startswith("unity_") and file.exists() else f'"{file}"'
    return re.findall(r'/funicular/(cli/[^"/]+\.cpp)"', text)


class Build:
    """An ordinary build of this tree that mutated objects are compiled as parts of."""

    def __init__(self, root: Path, folder: Path, jobs: int):
        self.root, self.folder, self.jobs = root, folder, jobs
        self.isa = native_isa()
        try:
            entries = json.loads((folder / "compile_commands.json").read_text(encoding="utf-8"))
        except OSError as error:
            raise Invalid(f"{folder} is not a build of this tree ({error}); ./run build makes it") from None
        self.compilers: dict[str, list[str]] = {}
        self.owners: dict[str, set[str]] = {}  # the targets of a source of cli/: the program, a library, a test program
        for entry in entries:
            target = re.search(r"/?CMakeFiles/([^/]+)\.dir/", entry["command"].rpartition(" -o ")[2])
            if target and "cmake_pch" not in entry["file"]:
                self.compilers.setdefault(target[1], shlex.split(entry["command"].rpartition(" -o ")[0]))
                for source in sources_of(Path(entry["file"])):
                    self.owners.setdefault(source, set()).add(target[1])
        self.links: dict[str, str] = {}

    def compiler(self, target: str, source: str) -> list[str]:
        if target not in self.compilers:
            raise Invalid(f"{source} belongs to {target}, of which {self.folder}/compile_commands.json has no file")
        return self.compilers[target]

    def link(self, output: str) -> str:
        """The command that links an output of the ordinary build, as in tests/test_base."""
        if output not in self.links:
            done = subprocess.run(["ninja", "-C", str(self.folder), "-t", "commands", output], text=True, check=False,
                                  capture_output=True)
            lines = [line for line in done.stdout.splitlines() if f" -o {output} " in line]
            if not lines:
                raise Invalid(f"{self.folder} has no command that links {output}: {done.stderr.strip()}")
            self.links[output] = lines[-1]
        return self.links[output]

    def can_run(self, mutant: Mutant) -> bool:
        return not mutant.isa or ISAS.index(mutant.isa) <= ISAS.index(self.isa)


class Failed(Invalid):
    """A command failed; `output` is all that it said."""

    def __init__(self, what: str, output: str):
        super().__init__(what)
        self.output = output


def run(command, cwd: Path, what: str):
    done = subprocess.run(command, cwd=cwd, shell=isinstance(command, str), text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        errors = [line for line in done.stdout.splitlines() if "error" in line or "undefined" in line][:8]
        raise Failed(f"{what}:\n  " + "\n  ".join(errors or done.stdout.splitlines()[-8:]), done.stdout)


class Variant:
    """Libraries with some mutants in them, and the programs that need to be linked anew to meet them."""

    def __init__(self, build: Build, out: Path, mutants: list[Mutant], alone: bool = False):
        self.build, self.out, self.mutants, self.alone = build, out, mutants, alone
        self.objects: dict[str, list[Path]] = {}  # of each target of the ordinary build
        self.programs: dict[str, Path] = {}
        self.broken: dict[str, str] = {}  # why the mutants of a source cannot be judged
        self.lines: dict[str, dict[str, range]] = {}  # of the mutants of a file
        self.separate: set[str] = set()  # names of mutants that no `if` can switch: each needs a library of its own

    def make(self):
        shutil.rmtree(self.out, ignore_errors=True)
        self.write_sources()
        self.compile()
        self.link_library()

    def write_sources(self):
        for file in sorted({mutant.file for mutant in self.mutants}):
            self.write_source(file)
        (self.out / "objects").mkdir(parents=True, exist_ok=True)
        (self.out / "switch.cpp").write_text(SWITCH, encoding="utf-8")
        (self.out / "last.cpp").write_text(LAST, encoding="utf-8")

    def write_source(self, file: str):
        path = self.out / "src/funicular" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        mutants = [mutant for mutant in self.mutants if mutant.file == file and mutant.name not in self.separate]
        if self.alone:
            text = replaced(self.build.root, mutants[0])
        else:
            text, self.lines[file] = switched(self.build.root, file, mutants)
        path.write_text(text, encoding="utf-8")

    def compile(self):
        through: dict[str, list[Mutant]] = {}
        for mutant in self.mutants:
            for source in mutant.through:
                through.setdefault(source, []).append(mutant)
        tasks = [(source, target, mutants) for source, mutants in through.items() for target in self.targets(source, mutants)]
        # Kernels take the longest.
        tasks.sort(key=lambda task: "/kernels/" not in task[0])
        failures = self.compile_all(tasks)
        while failures and not self.alone:
            found = [(task, error, self.culprits(error) or self.left(task[2])) for task, error in failures]
            self.broken |= {task[0]: str(error) for task, error, mutants in found if not mutants}
            wrong = [mutant for _, _, mutants in found for mutant in mutants]
            self.separate |= {mutant.name for mutant in wrong}
            for file in {mutant.file for mutant in wrong}:
                self.write_source(file)
            failures = self.compile_all([task for task, _, mutants in found if mutants])
        self.broken |= {task[0]: str(error) for task, error in failures}
        for name in ("switch", "last"):
            run(["c++", "-O2", "-fPIC", "-c", str(self.out / f"{name}.cpp"), "-o", str(self.out / f"objects/{name}.o")],
                self.out, f"{name}.cpp of the mutants cannot be compiled")

    def compile_all(self, tasks: list) -> list[tuple[tuple, Invalid]]:
        """Returns what failed, and why."""
        failures = []
        with concurrent.futures.ThreadPoolExecutor(self.build.jobs) as pool:
            for task, future in [(task, pool.submit(self.compile_one, *task)) for task in tasks]:
                try:
                    future.result()
                except Invalid as error:
                    failures.append((task, error))
        return failures

    def culprits(self, error: Invalid) -> list[Mutant]:
        """The mutants in whose lines the compiler found errors."""
        wrong: dict[str, set[int]] = {}
        for file, line in re.findall(r"/funicular/(\S+?):(\d+):\d+: error:", getattr(error, "output", "")):
            wrong.setdefault(file, set()).add(int(line))
        return [mutant for mutant in self.mutants
                if not wrong.get(mutant.file, set()).isdisjoint(self.lines.get(mutant.file, {}).get(mutant.name, ()))]

    def left(self, mutants: list[Mutant]) -> list[Mutant]:
        """Those that are still behind a switch: an error may lie far behind the mutant that causes it."""
        return [mutant for mutant in mutants if mutant.name not in self.separate]

    def targets(self, source: str, mutants: list[Mutant]) -> list[str]:
        layer, folder = source.split("/")[0], source.split("/")[-2]
        if folder == "bytes":  # which of them a processor takes is its own business (funicular/base/isa.h)
            return sorted(target for target in self.build.compilers if re.fullmatch(f"funicular_{layer}_.*vnni.*", target))
        if folder != "kernels":
            return sorted(self.build.owners.get(source, {f"funicular_{layer}"}))
        return sorted({self.kernels(layer, mutant.isa or self.build.isa) for mutant in mutants})

    def kernels(self, layer: str, isa: str) -> str:
        """Layers without kernels for the newest instruction sets use those of the best before."""
        for one in reversed(ISAS[:ISAS.index(isa) + 1]):
            if f"funicular_{layer}_{one}" in self.build.compilers:
                return f"funicular_{layer}_{one}"
        raise Invalid(f"layer {layer} has no kernels for {isa}")

    def compile_one(self, source: str, target: str, mutants: list[Mutant]):
        copy = self.out / "src/funicular" / source
        path = copy if copy.exists() else self.build.root / "funicular" / source
        item = self.out / "objects" / f"{target}-{source.replace('/', '-')}.o"
        compiler = self.build.compiler(target, source)
        # Mutated headers hide those of the tree.
        first = next(index for index, word in enumerate(compiler) if word.startswith(("-I", "-D")))
        # Speed matters in kernels alone; the rest compiles in less time without most of the optimisations.
        level = [] if "/kernels/" in source else ["-O1"]
        command = [*compiler[:first], f"-I{self.out / 'src'}", *compiler[first:], *level, "-w", "-o", str(item), "-c", str(path)]
        names = ", ".join(mutant.name for mutant in mutants)
        run(command, self.build.folder, f"funicular/{source} cannot be compiled with the mutants {names}")
        run(["objcopy", "--rename-section", ".init_array=mutant_init", str(item)], self.out, f"{item} cannot be changed")
        self.objects.setdefault(target, []).append(item)

    def all_objects(self, command: str) -> list[str]:
        """The mutated objects of the layers that a link command names, the switch first."""
        chosen = [str(self.out / "objects/switch.o")]
        for target, objects in sorted(self.objects.items()):
            if f"/{target}.dir/" in f"/{command}":
                chosen += map(str, sorted(objects))
        return chosen

    def link(self, output: str, flags: list[str], into: Path) -> Path:
        command = self.build.link(output)
        objects = self.all_objects(command)
        compiler = re.match(r"(: && )?\S+ ", command)[0]
        into.parent.mkdir(parents=True, exist_ok=True)
        rpath = f"-Wl,-rpath,{self.out / 'lib'}"  # before that of the ordinary build
        added = " ".join([*flags, rpath, "-Wl,--allow-multiple-definition", *map(shlex.quote, objects)])
        rest, end, after = command[len(compiler):].partition(" && :")
        rest = rest.replace(f" -o {output} ", f" -o {shlex.quote(str(into))} ")
        command = f"{compiler}{added} {rest} {shlex.quote(str(self.out / 'objects/last.o'))}{end}{after}"
        run(command, self.build.folder, f"{output} cannot be linked with mutants")
        return into

    def link_library(self):
        (self.out / "lib").mkdir(parents=True, exist_ok=True)
        (self.out / "lib/tests").symlink_to(self.build.folder / "tests")  # what tests of the program seek beside it
        # The libraries' inline functions may be mutants; those of a test program must not take their place.
        for name in ("libfunicular_plain.so", "libfunicular.so", "libfunicular_commands.so"):
            library = (self.build.folder / name).resolve().name  # with its version, as programs ask for it
            self.link(library, ["-Wl,-Bsymbolic-functions"], self.out / "lib" / library)

    def program(self, name: str) -> Path:
        """`funicular` or a test program that meets these mutants, linked if need be."""
        if name not in self.programs:
            output = name if name == "funicular" else f"tests/{name}"
            if name == "funicular" or "libfunicular.so" not in self.build.link(output):
                self.programs[name] = self.link(output, [], self.out / "lib" / name)
            else:
                self.programs[name] = self.build.folder / output
        return self.programs[name]
