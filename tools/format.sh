#!/usr/bin/env bash
# Formats our C++ files in place.
set -euo pipefail
. tools/common.sh
need_packages clang-format
# shellcheck disable=SC2046
clang-format -i $(git ls-files '*.h' '*.cpp' '*.cu' '*.cuh')
