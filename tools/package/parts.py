"""The build, installed into a folder and stripped: the files that every package is made of."""

import os
import pathlib
import platform
import re
import shutil
import subprocess

import elf

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Debian packages whose headers or static libraries are part of the program; their licences go with it.
COMPILED_IN = ("nlohmann-json3-dev", "libtomlplusplus-dev", "libxxhash-dev", "zlib1g-dev", "libzstd-dev")


def cached(build, name):
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    return re.search(rf"^{name}:\w+=(.*)$", cache, re.MULTILINE)[1]


def version():
    header = (ROOT / "funicular/base/version.h").read_text(encoding="utf-8")
    return ".".join(re.findall(r"^#define FUNICULAR_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", header, re.MULTILINE))


class Parts:
    """program; libraries: ours, by the names that the loader asks for; torch: the folder of LibTorch's libraries."""

    def __init__(self, build, folder):
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run(["cmake", "--install", str(build), "--prefix", str(folder), "--strip"], check=True, stdout=subprocess.DEVNULL)
        self.folder, self.version, self.machine = folder, version(), platform.machine()
        self.program = folder / "bin/funicular"
        files = sorted(file for file in (folder / "lib").glob("lib*.so*") if not file.is_symlink())
        self.libraries = {(elf.dynamic(file, "SONAME") or [file.name])[0]: file for file in files}
        self.torch = torch_libraries(pathlib.Path(cached(build, "TORCH_DIR")))
        self.dumps = elf.version_info([self.program, *files])
        self.time = int(os.environ.get("SOURCE_DATE_EPOCH") or elf.output("git", "-C", ROOT, "log", "-1", "--format=%ct"))

    def torch_needed(self):
        """LibTorch's libraries that ours need, by name."""
        return elf.closure([name for file in self.libraries.values() for name in elf.dynamic(file, "NEEDED")], self.torch)

    def copy_to(self, folder, torch):
        """bin/ and lib/ of a package. torch: where lib/ finds LibTorch, as a RUNPATH, or None if it lies in lib/ itself."""
        for name in ("bin", "lib"):
            (folder / name).mkdir(parents=True)
        shutil.copy2(self.program, folder / "bin/funicular")
        elf.set_runpath(folder / "bin/funicular", "$ORIGIN/../lib")
        for name, file in self.libraries.items():
            shutil.copy2(file, folder / "lib" / name)
            elf.set_runpath(folder / "lib" / name, f"$ORIGIN:{torch}" if torch else "$ORIGIN")
        for file in [folder / "bin/funicular", *(folder / "lib" / name for name in self.libraries)]:
            elf.refuse_path(file, ROOT)
        if not torch:
            for name, file in self.torch_needed().items():
                shutil.copy2(file, folder / "lib" / name)

    def licences(self, with_torch):
        """name -> text of each licence that has to go with the files."""
        found = {"LICENSE": (ROOT / "LICENSE").read_text(encoding="utf-8")}
        for package in COMPILED_IN:
            found[f"licenses/{package}"] = licence(pathlib.Path("/usr/share/doc", package, "copyright"))
        if (ROOT / ".deps/uplot/package.json").is_file():  # the program was built with it
            found["licenses/uplot"] = licence(ROOT / ".deps/uplot/LICENSE")
        texts = sorted(self.torch.parents[1].glob("torch-*.dist-info/licenses/**/*")) + [self.torch.parent / "LICENSE"]
        for file in texts:
            where = file.relative_to(self.torch.parents[1])
            if file.is_file() and (with_torch or "fmt" in where.parts):
                name = "-".join(part for part in where.parts if part not in ("licenses", "third_party") and "dist-info" not in part)
                found[f"licenses/torch/{name}"] = file.read_text(encoding="utf-8", errors="replace")
        return found


def licence(file):
    if not file.is_file():
        raise SystemExit(f"{file} is missing: expected the licence of code that is compiled into the program. Install it again")
    return file.read_text(encoding="utf-8")


def torch_libraries(root):
    for folder in [root / "lib", *sorted(root.glob("lib/python3*/site-packages/torch/lib"))]:
        if (folder / "libtorch_cpu.so").is_file():
            return folder
    raise SystemExit(f"there is no libtorch_cpu.so in {root}; set TORCH_DIR and run ./run build")


def write_all(folder, texts):
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
