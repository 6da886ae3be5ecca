#!/usr/bin/env bash
# Builds the program and the library; other targets (all, test_nn …) and ninja's options may follow.
set -euo pipefail
. tools/common.sh
bash tools/setup.sh

start=$SECONDS
step configure "Configuring build/release" \
  cmake --preset release "-DTORCH_DIR=${TORCH_DIR:-$PWD/.deps/python}" -Wno-dev
jobs=$(jobs)
[ $# -gt 0 ] || set -- funicular funicular_cli
if [ -t 1 ]; then
  say "Building with $jobs jobs (ninja $*)"
  ninja -C build/release -j "$jobs" "$@"
else
  step build "Building with $jobs jobs (ninja $*)" ninja -C build/release -j "$jobs" "$@"
fi
say "Built in $(minutes $((SECONDS - start))): build/release/funicular"
