"""The parts of ./run package: tags, RUNPATH, the wheel's RECORD, and the reader of the Containerfile."""

import base64
import csv
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/package"))
import archives  # noqa: E402
import check  # noqa: E402
import containerfile  # noqa: E402
import elf  # noqa: E402
import parts  # noqa: E402
import wheel  # noqa: E402
from machine import mounts_below  # noqa: E402

BUILD = pathlib.Path(os.environ["FUNICULAR_BUILD_DIR"])
DUMP = """Version definition section '.gnu.version_d' contains 1 entry:
  000000: Rev: 1  Flags: none  Index: 1  Cnt: 1  Name: GLIBC_9.99
Version needs section '.gnu.version_r' contains 2 entries:
  0x0010:   Name: GLIBC_2.4  Flags: none  Version: 6
  0x0020:   Name: GLIBC_2.17  Flags: none  Version: 5
  0x0030:   Name: GLIBCXX_3.4.{}  Flags: none  Version: 4
"""


class Scratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="packaging-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)


class ManualPages(unittest.TestCase):
    def test_are_there_for_every_command_that_the_overview_lists(self):
        overview = "Run:\n  launch        Start a program\n  label-errors  Find labels\n  funicular COMMAND --help      the options\n"
        self.assertEqual(archives.commands_of(overview), ["launch", "label-errors"])


class Paths(Scratch):
    def test_of_the_builder_are_refused_in_a_program(self):
        file = self.folder / "program"
        for text, refused in (("FAILED at /home/me/clone/a.cpp", True), ("FAILED at a.cpp in /home/me/clones", False)):
            file.write_bytes(b"\x7fELF\0" + text.encode() + b"\0")
            if refused:
                with self.assertRaisesRegex(SystemExit, "program holds paths below /home/me/clone"):
                    elf.refuse_path(file, pathlib.Path("/home/me/clone"))
            else:
                elf.refuse_path(file, pathlib.Path("/home/me/clone"))


class Tags(unittest.TestCase):
    def test_the_newest_symbol_that_is_needed_decides(self):
        self.assertEqual(elf.newest([DUMP.format(9)], "GLIBC"), (2, 17))
        self.assertEqual(elf.glibc([DUMP.format(9)]), (2, 31))
        self.assertEqual(elf.glibc([DUMP.format(30)]), (2, 35))
        self.assertEqual(elf.platform_tag((2, 35), "x86_64"), "manylinux_2_35_x86_64")

    def test_an_unknown_libstdcxx_is_refused(self):
        with self.assertRaisesRegex(ValueError, "GLIBCXX_3.4.99"):
            elf.glibc([DUMP.format(99)])

    def test_the_program_needs_no_newer_glibc_than_this_machine_has(self):
        here = elf.numbers(os.confstr("CS_GNU_LIBC_VERSION").split()[1])
        self.assertLessEqual(elf.glibc(elf.version_info([BUILD / "funicular", BUILD / "libfunicular.so"])), here)

    def test_a_deb_depends_on_what_the_symbols_need(self):
        self.assertEqual(archives.depends([DUMP.format(30)]), ["libc6 (>= 2.17)", "libgcc-s1", "libstdc++6 (>= 12)"])

    def test_every_place_has_the_headers_version(self):
        self.assertIn(f"funicular {parts.version()} (", elf.output(BUILD / "funicular", "--version"))
        self.assertIn(f"\n## {parts.version()}", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))


@unittest.skipUnless(shutil.which("patchelf"), "patchelf is not installed (./run package installs it)")
class Runpath(Scratch):
    def test_is_set_and_holds_nothing_of_this_machine(self):
        library = self.folder / "libfunicular_plain.so"
        shutil.copy2(BUILD / "libfunicular_plain.so", library)
        elf.set_runpath(library, f"$ORIGIN:{wheel.TORCH}")
        self.assertEqual(elf.dynamic(library, "RUNPATH"), ["$ORIGIN:$ORIGIN/../../torch/lib"])

    def test_the_wheel_holds_what_the_program_needs(self):
        made = parts.Parts(BUILD, self.folder / "installed")
        path = wheel.build(made, self.folder, self.folder)
        subprocess.run([sys.executable, "-m", "zipfile", "-e", str(path), str(self.folder / "site")], check=True)
        site = self.folder / "site"
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            self.assertEqual(archive.getinfo("funicular/bin/funicular").external_attr >> 16 & 0o777, 0o755)
        with (site / f"funicular-{made.version}.dist-info/RECORD").open(newline="") as lines:
            recorded = {name: (digest, size) for name, digest, size in csv.reader(lines)}
        self.assertEqual(sorted(recorded), sorted(names))
        for name, (digest, size) in recorded.items():
            data = (site / name).read_bytes()
            if not name.endswith("/RECORD"):
                hashed = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                self.assertEqual((digest, size), (f"sha256={hashed}", str(len(data))), name)
        ours = {file.name for file in (site / "funicular/lib").iterdir()}
        for file in [site / "funicular/bin/funicular", *(site / "funicular/lib").iterdir()]:
            self.assertTrue(all(path.startswith("$ORIGIN") for path in elf.dynamic(file, "RUNPATH")[0].split(":")), file)
            self.assertEqual([name for name in elf.dynamic(file, "NEEDED") if name.startswith("libfunicular") and name not in ours], [])
            self.assertNotIn(".symtab", elf.output("readelf", "--sections", "--wide", file))
        (site / "torch").mkdir()
        (site / "torch/lib").symlink_to(made.torch)
        (site / "funicular/bin/funicular").chmod(0o755)
        self.assertIn("doctor", elf.output(site / "funicular/bin/funicular", "--help"))
        self.assertIn("--train FILE", elf.output(site / "funicular/bin/funicular", "finetune", "--help"))
        self.assertTrue(path.name.endswith(f"{elf.platform_tag(elf.glibc(made.dumps), made.machine)}.whl"))


class Containerfile(Scratch):
    class Machine:
        def __init__(self, root):
            self.root, self.ran, self.variables, self.folder = root, [], {}, "/root"

        def run(self, words):
            self.ran.append(words)

    def test_ours_is_read_and_copies_what_the_other_stage_has_made(self):
        stages = containerfile.stages((ROOT / "tools/package/Containerfile").read_text(encoding="utf-8"))
        self.assertEqual([stage.name for stage in stages], ["unpack", "1"])
        context = self.folder / "dist"
        context.mkdir()
        (context / "funicular-1-linux-x86_64.tar.gz").write_text("x")
        machines = {stage.name: self.Machine(self.folder / stage.name) for stage in stages}
        containerfile.carry_out(stages[0], machines["unpack"], context, machines)
        self.assertTrue((machines["unpack"].root / "tmp/funicular-1-linux-x86_64.tar.gz").is_file())
        self.assertIn("--strip-components=1 && rm -r", machines["unpack"].ran[0])
        (machines["unpack"].root / "opt/funicular/bin").mkdir(parents=True)
        start = containerfile.carry_out(stages[1], machines["1"], context, machines)
        self.assertTrue((machines["1"].root / "opt/funicular/bin").is_dir())
        self.assertEqual((start["ENTRYPOINT"], machines["1"].folder), (["funicular"], "/work"))

    def test_what_it_does_not_know_is_refused(self):
        for text, phrase in (("ADD a /b", "unknown instruction ADD"), ("RUN true", "before FROM"), ("FROM alpine", "no chroot"),
                             ("FROM debian:bookworm\nRUN a \\", "line 2: the file ends"), ("", "no FROM")):
            with self.assertRaisesRegex(ValueError, phrase):
                containerfile.stages(text)

    def test_a_copy_that_finds_nothing_is_an_error(self):
        stage, = containerfile.stages("FROM debian:bookworm\nCOPY none /there/\n")
        with self.assertRaisesRegex(ValueError, "line 2: COPY finds no none"):
            containerfile.carry_out(stage, self.Machine(self.folder), self.folder, {})


class Mounts(Scratch):
    def test_a_bind_mount_of_the_same_disk_is_seen_in_folders_of_any_name(self):
        table = self.folder / "mountinfo"
        table.write_text("21 1 254:0 / / rw - ext4 /dev/vda rw\n"
                         "40 21 254:0 /opt/a /m/root\\040one/opt/a ro - ext4 /dev/vda rw\n"
                         "41 21 0:5 / /m/root\\040one/dev rw - devtmpfs udev rw\n"
                         "42 21 0:5 / /m/root\\040oneself/dev rw - devtmpfs udev rw\n")
        self.assertEqual(mounts_below(pathlib.Path("/m/root one"), table), ["/m/root one/opt/a", "/m/root one/dev"])


class Page(unittest.TestCase):
    def test_the_measured_table_has_a_row_for_each_way(self):
        page = check.PAGE.read_text(encoding="utf-8")
        for name, *_ in check.WAYS:
            self.assertIn(f"| {name} |", page)
        self.assertEqual(check.recorded(page, "x\n").count(check.MARKS[0]), 1)


if __name__ == "__main__":
    unittest.main()
