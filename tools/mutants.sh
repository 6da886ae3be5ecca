#!/usr/bin/env bash
# usage: ./run mutants [OPTIONS]: plants small bugs and sees whether the tests notice; --help tells how to choose.
set -euo pipefail
. tools/common.sh

case " $* " in *" --help "* | *" -h "* | *" --list "*) exec python3 -B tools/mutants "$@" ;; esac
bash tools/build.sh all
FUNICULAR_JOBS=$(jobs) exec python3 -B tools/mutants "$@"
