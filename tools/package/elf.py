"""What an ELF file needs of the system, and where it looks for libraries."""

import re
import subprocess

# The oldest glibc of a distribution whose libstdc++ has these symbols, as the manylinux policies have it, and the GCC that brought them.
LIBSTDCXX = {(3, 4, 28): ((2, 31), 10), (3, 4, 29): ((2, 34), 11), (3, 4, 30): ((2, 35), 12), (3, 4, 32): ((2, 38), 13),
             (3, 4, 33): ((2, 40), 14)}


def output(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


def numbers(text):
    return tuple(int(part) for part in text.split("."))


def versions(dump, symbol):
    """The versions of a symbol set, such as GLIBC, that a dump of `readelf --version-info` asks for."""
    asked = dump[dump.find("Version needs section"):] if "Version needs section" in dump else ""
    return {numbers(found) for found in re.findall(rf"Name: {symbol}_([0-9.]+)\b", asked)}


def newest(dumps, symbol):
    return max((version for dump in dumps for version in versions(dump, symbol)), default=(0,))


def libstdcxx(dumps):
    """(oldest glibc beside it, GCC) of the libstdc++ that the files need."""
    wanted = newest(dumps, "GLIBCXX")
    for version, found in LIBSTDCXX.items():
        if wanted <= version:
            return found
    raise ValueError(f"GLIBCXX_{'.'.join(map(str, wanted))} is newer than the versions in tools/package/elf.py; add it")


def glibc(dumps):
    """The oldest glibc on which the files run, as (2, 35)."""
    return max(newest(dumps, "GLIBC"), libstdcxx(dumps)[0])


def version_info(files):
    return [output("readelf", "--version-info", "--wide", file) for file in files]


def platform_tag(needed, machine):
    """The wheel's platform tag."""
    return f"manylinux_{needed[0]}_{needed[1]}_{machine}"


def dynamic(file, key):
    """The values of NEEDED, RUNPATH, SONAME of a file."""
    return re.findall(rf"\({key}\).*\[(.*)\]", output("readelf", "--dynamic", "--wide", file))


def refuse_path(file, folder):
    """Stops if a path below the folder is in the file: what is installed must not tell where it was built."""
    if f"{folder}/".encode() in file.read_bytes():
        raise SystemExit(f"{file.name} holds paths below {folder}; expected none (cmake/compiler.cmake maps them). Build it again: ./run build")


def set_runpath(file, runpath):
    subprocess.run(["patchelf", "--set-rpath", runpath, str(file)], check=True)


def closure(names, folder):
    """The files in the folder that these libraries are or need, by name."""
    found, left = {}, list(names)
    while left:
        name = left.pop()
        if name not in found and (folder / name).is_file():
            found[name] = folder / name
            left += dynamic(folder / name, "NEEDED")
    return dict(sorted(found.items()))
