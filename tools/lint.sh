#!/usr/bin/env bash
# usage: ./run lint [--all]: checks formatting, layers, sizes and prose, and what clang-tidy finds in changed sources; changes nothing.
# --all: clang-tidy reads all sources, which takes an hour on two cores.
set -euo pipefail
. tools/common.sh
need_packages clang-format clang-tidy python3

status=0
# shellcheck disable=SC2046
clang-format --dry-run --Werror --ferror-limit=3 $(git ls-files '*.h' '*.cpp' '*.cu' '*.cuh') || status=1
python3 tools/check_layers.py || status=1
python3 tools/check_sizes.py || status=1
python3 tools/check_prose.py || status=1
python3 tools/check_prose.py --changed || status=1
[ ! -f build/release/compile_commands.json ] || python3 tools/alone.py || status=1

# Whatever the commit before the last one does not have. Kernels are left out: they compile for one instruction set at a time.
sources() {
  if [ "${1:-}" = --all ]; then git ls-files 'funicular/*.cpp'; else git diff --name-only --diff-filter=d HEAD~1 -- 'funicular/*.cpp'; fi |
    grep -v -e /kernels/ -e unicode_tables || true
}
torch=${TORCH_DIR:-.deps/python}
include=$(find -L "$torch" -type d -path '*/include/torch' -prune -print -quit 2>/dev/null)
include=${include%/torch}
if [ -n "$include" ]; then
  # _Float16 is known to clang 14 with these instructions only.
  sources "$@" | xargs -r -P "$(jobs)" -I{} clang-tidy --quiet {} -- -std=c++20 -fopenmp -mavx512fp16 -I. -DFMT_HEADER_ONLY=1 -DUSE_C10D_GLOO \
    -DUSE_DISTRIBUTED -isystem funicular/comm/gloo_declarations -isystem "$include" -isystem "$include/torch/csrc/api/include" -Wno-everything 2>/dev/null || status=1
fi
[ "$status" = 0 ] && say "lint: all is well"
exit "$status"
