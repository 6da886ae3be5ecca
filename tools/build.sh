#!/usr/bin/env bash
# usage: ./run build [--native] [TARGET…]: builds the program and the library; other targets (all, test_nn …) and ninja's options may follow.
# --native leaves out kernels that this processor cannot use, until something else is built.
set -euo pipefail
. tools/common.sh
bash tools/setup.sh

kernels=all
if [ "${1:-}" = --native ]; then
  shift
  # A build that has the others already keeps them.
  grep -qs '^FUNICULAR_KERNELS:STRING=all$' build/release/CMakeCache.txt && [ -x build/release/funicular ] || kernels=native
fi
start=$SECONDS
step configure "Configuring build/release" \
  cmake --preset release "-DTORCH_DIR=${TORCH_DIR:-$PWD/.deps/python}" "-DFUNICULAR_KERNELS=$kernels" -Wno-dev
sed -n '/^CMake Warning/,/^$/p' "$logs/configure.log"  # such as that of a program for the CPU only
jobs=$(jobs)
[ $# -gt 0 ] || set -- funicular funicular_cli
if [ -t 1 ]; then
  say "Building with $jobs jobs (ninja $*)"
  ninja -C build/release -j "$jobs" "$@"
else
  step build "Building with $jobs jobs (ninja $*)" ninja -C build/release -j "$jobs" "$@"
fi
say "Built in $(minutes $((SECONDS - start))): build/release/funicular"
