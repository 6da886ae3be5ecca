"""usage: ./run package [KIND…] [--check [--record]]; docs/how_to/install.md tells how the files are used."""

import argparse
import pathlib
import shutil
import sys
import time

import archives
import wheel
from parts import ROOT, Parts

KINDS = {"wheel": wheel.build, "tarball": archives.tarball, "deb": archives.deb}


def arguments():
    parser = argparse.ArgumentParser(prog="./run package", description="Writes what people install into dist/.")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)} (default: all)")
    parser.add_argument("--check", action="store_true", help="install each on an empty Debian, and train, evaluate and predict there")
    parser.add_argument("--record", action="store_true", help="write what --check measured into docs/how_to/install.md")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="a finished build (default: build/release)")
    parser.add_argument("--keep", action="store_true", help="with --check: take the files that are in dist/ already")
    given = parser.parse_args()
    unknown = set(given.kinds) - KINDS.keys()
    if unknown:
        parser.error(f"there is no kind {', '.join(sorted(unknown))}; expected {', '.join(KINDS)}")
    return given


def make(kinds, build):
    scratch, dist = ROOT / "build/package", ROOT / "dist"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    dist.mkdir(exist_ok=True)
    parts = Parts(build.resolve(), scratch / "installed")
    for kind in kinds:
        start = time.monotonic()
        for old in dist.glob({"wheel": "*.whl", "tarball": "*.tar.gz", "deb": "*.deb"}[kind]):
            old.unlink()
        path = KINDS[kind](parts, scratch, dist)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB, made in {time.monotonic() - start:.0f} s", flush=True)
    shutil.rmtree(scratch)


def main():
    given = arguments()
    kinds = given.kinds or list(KINDS)
    if not given.keep:
        make(kinds, given.build)
    if given.check:
        import check
        return check.check(ROOT / "dist", kinds, given.record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
