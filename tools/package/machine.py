"""An empty Debian in a chroot, made by debootstrap, with the network settings of this machine. Needs root."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

BASES = pathlib.Path(os.environ.get("FUNICULAR_MACHINES") or pathlib.Path.home() / ".cache/funicular-machines")
# Mounted into each. Folders of /opt are read-only there: pip's configuration may name them, and images write beside them.
MOUNTED = ("proc", "sys", "dev", *(str(folder)[1:] for folder in sorted(pathlib.Path("/opt").glob("*/"))))
SETTINGS = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
PASSED_ON = ("PIP_", "SSL_CERT_", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def base(suite):
    """The archive of the empty system; made once."""
    archive = BASES / f"{suite}.tar"
    if not archive.is_file():
        BASES.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BASES) as folder:
            subprocess.run(["debootstrap", "--variant=minbase", "--include=ca-certificates", suite, folder], check=True,
                           stdout=subprocess.DEVNULL)
            subprocess.run(["tar", "-C", folder, "-cf", f"{archive}.part", "."], check=True)
        os.replace(f"{archive}.part", archive)
    return archive


def own_mounts():
    """Mounts that this process makes are seen by it alone, and go with it."""
    os.unshare(os.CLONE_NEWNS) if hasattr(os, "unshare") else unshare_by_libc()
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def unshare_by_libc():  # Python 3.11
    import ctypes
    if ctypes.CDLL(None, use_errno=True).unshare(0x00020000) != 0:
        raise OSError(ctypes.get_errno(), "cannot make mounts of our own; --check needs root")


def mounts_below(root, table=pathlib.Path("/proc/self/mountinfo")):
    """The folders below root on which something is mounted, in the order of the mounts. os.path.ismount() does not see a bind mount of
    the same disk."""
    folders = (re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[4]) for line in table.read_text().splitlines())
    return [folder for folder in folders if folder.startswith(f"{root}/")]


class Machine:
    """root: its folder. Used in a with statement, behind own_mounts()."""

    def __init__(self, suite):
        self.suite, self.variables, self.folder = suite, {}, "/root"

    def __enter__(self):
        archive = base(self.suite)
        self.root = pathlib.Path(tempfile.mkdtemp(prefix=f"run-{self.suite}-", dir=BASES)).resolve()
        try:
            self.fill(archive)
        except BaseException:
            self.__exit__()
            raise
        return self

    def fill(self, archive):
        subprocess.run(["tar", "-C", self.root, "-xf", archive], check=True)
        for name in MOUNTED:
            (self.root / name).mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "--bind", f"/{name}", str(self.root / name)], check=True)
            if name.startswith("opt/"):
                subprocess.run(["mount", "-o", "remount,bind,ro", str(self.root / name)], check=True)
        for file in [*SETTINGS, *map(str, pathlib.Path("/etc/apt/apt.conf.d").glob("99*"))]:
            if os.path.isfile(file):
                there = self.root / file[1:]
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, there)

    def __exit__(self, *_):
        for mount in reversed(mounts_below(self.root)):
            subprocess.run(["umount", "--lazy", mount], check=True)
        if mounts_below(self.root):  # or this machine's own folder would be emptied
            raise OSError(f"{mounts_below(self.root)[0]} is still mounted; unmount it and remove {self.root}")
        shutil.rmtree(self.root)

    def run(self, command):
        """Seconds that a shell command took there. Raises RuntimeError with its output if it fails."""
        given = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        variables = {"HOME": "/root", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8",
                     "DEBIAN_FRONTEND": "noninteractive", **given, **self.variables}
        words = command if isinstance(command, list) else ["sh", "-ec", command]
        start = time.monotonic()
        done = subprocess.run(["chroot", str(self.root), "sh", "-c", 'cd "$0" && exec "$@"', self.folder, *words], env=variables, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.said = done.stdout
        if done.returncode:
            raise RuntimeError(f"{self.suite}: {command}: exit code {done.returncode}\n{done.stdout[-4000:]}")
        return time.monotonic() - start

    def megabytes(self):
        """What lies on its own disk."""
        return int(subprocess.run(["du", "-sxk", str(self.root)], check=True, capture_output=True, text=True).stdout.split()[0]) * 1024 / 1e6
