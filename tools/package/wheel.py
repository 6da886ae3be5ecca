"""The wheel: the module funicular with the program inside, beside the torch that pip installs."""

import base64
import csv
import hashlib
import io
import os
import re
import time
import zipfile

import elf
from parts import ROOT

SUMMARY = "Fast training of BERT-family encoders: tokenise, pre-train, fine-tune, distil, predict"
TORCH = "$ORIGIN/../../torch/lib"  # from site-packages/funicular/lib


def metadata(version, torch_version, licences):
    lines = ["Metadata-Version: 2.4", "Name: funicular", f"Version: {version}", f"Summary: {SUMMARY}", "License-Expression: Apache-2.0",
             *(f"License-File: {name}" for name in licences), "Requires-Python: >=3.10",
             f"Requires-Dist: torch=={torch_version}.*"]
    return "\n".join(lines) + "\n"


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def record(files, own_name):
    """RECORD: each file, its digest and size, and RECORD itself without."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([name, digest(data), len(data)] for name, data in files.items())
    writer.writerow([own_name, "", ""])
    return text.getvalue()


def write(path, files, programs, when):
    """The archive. The same files give the same bytes."""
    date = time.gmtime(max(when, 315532800))[:6]  # zip knows no year before 1980
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, date)
            entry.external_attr = (0o100755 if name in programs else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)


def torch_minor(torch):
    """The version of the LibTorch that the program was built with, such as 2.13: its C++ interface changes with each minor version."""
    for name in ("version.py", "build-version"):  # of a Python package, of LibTorch's own archive
        file = torch.parent / name
        if file.is_file():
            return re.search(r"(\d+\.\d+)\.\d+", file.read_text(encoding="utf-8"))[1]
    raise SystemExit(f"neither version.py nor build-version is in {torch.parent}; expected the LibTorch of TORCH_DIR")


def build(parts, scratch, dist):
    tag = f"py3-none-{elf.platform_tag(elf.glibc(parts.dumps), parts.machine)}"
    package = scratch / "wheel/funicular"
    parts.copy_to(package, TORCH)
    files = {f"funicular/{file.name}": file.read_bytes() for file in sorted((ROOT / "python/funicular").glob("*.py"))}
    files |= {os.fspath(file.relative_to(package.parent)): file.read_bytes() for file in sorted(package.rglob("*")) if file.is_file()}
    information = f"funicular-{parts.version}.dist-info"
    licences = parts.licences(with_torch=False)
    files |= {f"{information}/licenses/{name}": text.encode() for name, text in licences.items()}
    files[f"{information}/METADATA"] = metadata(parts.version, torch_minor(parts.torch), licences).encode()
    files[f"{information}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: funicular\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[f"{information}/entry_points.txt"] = b"[console_scripts]\nfunicular = funicular._program:main\n"
    files[f"{information}/RECORD"] = record(files, f"{information}/RECORD").encode()
    path = dist / f"funicular-{parts.version}-{tag}.whl"
    write(path, files, {name for name in files if name.startswith("funicular/bin/")}, parts.time)
    return path
