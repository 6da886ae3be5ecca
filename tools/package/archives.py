"""The tarball and the Debian package: the program with LibTorch's libraries beside it, for machines without a network."""

import gzip
import re
import shutil
import subprocess
import tarfile

import elf
import wheel
from parts import ROOT, write_all

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def documents(parts):
    return {**parts.licences(with_torch=True), "CHANGELOG.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")}


def tarball(parts, scratch, dist):
    """Also holds the headers and the CMake package. It may be unpacked anywhere."""
    name = f"funicular-{parts.version}-linux-{parts.machine}"
    folder = scratch / "tarball" / name
    parts.copy_to(folder, None)
    shutil.copytree(parts.folder / "include", folder / "include")
    shutil.copytree(parts.folder / "lib/cmake", folder / "lib/cmake")
    forget_torch(parts, folder / "lib/cmake/Funicular/FunicularConfig.cmake")
    link_for_compilers(parts, folder / "lib")
    write_all(folder / "share/doc/funicular", documents(parts))

    def same_owner(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = parts.time
        return entry

    path = dist / f"{name}.tar.gz"
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=parts.time) as zipped, \
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(folder, name, filter=same_owner)
    return path


def forget_torch(parts, file):
    """The LibTorch of the machine that builds is nobody else's: TORCH_DIR names one."""
    text, root = file.read_text(encoding="utf-8"), str(parts.torch.parent)
    if f'"{root}"' not in text:
        raise SystemExit(f"{file}: expected the folder of LibTorch, {root}")
    file.write_text(text.replace(f'"{root}"', '""'), encoding="utf-8")


def link_for_compilers(parts, folder):
    """libfunicular.so and others that stand for the file with the version."""
    for link in (parts.folder / "lib").glob("lib*.so"):
        if link.is_symlink() and not (folder / link.name).exists():
            (folder / link.name).symlink_to(link.resolve().name)


def control(version, machine, depends, kilobytes):
    return (f"Package: funicular\nVersion: {version}\nArchitecture: {ARCHITECTURES[machine]}\n"
            "Maintainer: The Funicular maintainers <funicular@localhost>\n"
            f"Depends: {', '.join(depends)}\nInstalled-Size: {kilobytes}\nSection: science\nPriority: optional\n"
            f"Description: {wheel.SUMMARY[:1].lower() + wheel.SUMMARY[1:]}\n"
            " One program, from raw text to a small model that answers. LibTorch's libraries are included.\n")


def depends(dumps):
    return [f"libc6 (>= {'.'.join(map(str, elf.newest(dumps, 'GLIBC')))})", "libgcc-s1", f"libstdc++6 (>= {elf.libstdcxx(dumps)[1]})"]


def commands_of(overview):
    """The commands that `funicular --help` lists."""
    return re.findall(r"^  ([a-z-]+)  +[A-Z]", overview, re.M)


def manual_pages(program):
    """name -> text, of the program and of each of its commands."""
    commands = commands_of(elf.output(program, "--help"))
    return {"funicular": elf.output(program, "help", "--man"),
            **{f"funicular-{command}": elf.output(program, "help", "--man", command) for command in commands}}


def deb(parts, scratch, dist):
    root = scratch / "deb"
    folder = root / "usr/lib/funicular"
    parts.copy_to(folder, None)
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/funicular").symlink_to("../lib/funicular/bin/funicular")
    completion = elf.output(folder / "bin/funicular", "completion", "bash")
    texts = documents(parts)
    texts["copyright"] = texts.pop("LICENSE")
    write_all(root / "usr/share/doc/funicular", texts)
    write_all(root / "usr/share/bash-completion/completions", {"funicular": completion})
    manuals = root / "usr/share/man/man1"
    manuals.mkdir(parents=True)
    for page, text in manual_pages(folder / "bin/funicular").items():
        (manuals / f"{page}.1.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    kilobytes = sum(file.lstat().st_size for file in root.rglob("*")) // 1024
    dumps = [*parts.dumps, *elf.version_info(parts.torch_needed().values())]
    write_all(root / "DEBIAN", {"control": control(parts.version, parts.machine, depends(dumps), kilobytes)})
    path = dist / f"funicular_{parts.version}_{ARCHITECTURES[parts.machine]}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zzstd", "-z9", "--build", str(root), str(path)], check=True,
                   stdout=subprocess.DEVNULL)
    return path
