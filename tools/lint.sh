#!/usr/bin/env bash
# Checks formatting, layers, sizes and prose; changes nothing.
set -euo pipefail
. tools/common.sh
need_packages clang-format python3

status=0
# shellcheck disable=SC2046
clang-format --dry-run --Werror --ferror-limit=3 $(git ls-files '*.h' '*.cpp' '*.cu' '*.cuh') || status=1
python3 tools/check_layers.py || status=1
python3 tools/check_sizes.py || status=1
python3 tools/check_prose.py || status=1
[ "$status" = 0 ] && say "lint: all is well"
exit "$status"
