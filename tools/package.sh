#!/usr/bin/env bash
# usage: ./run package [KIND…] [--check [--record]]: builds the program and writes what people install into dist/.
# KIND: wheel, tarball, deb (default: all). tools/package/Containerfile makes an image of the tarball.
# --check: installs each on an empty Debian (as root; the wheel on Debian 12 and 13) and trains, evaluates and predicts there; minutes.
# --record: also writes what --check measured into docs/how_to/install.md.
set -euo pipefail
. tools/common.sh
bash tools/build.sh
need_packages binutils dpkg
case " $* " in *" --check "*) need_packages debootstrap ;; esac
exec python3 -B tools/package "$@"
