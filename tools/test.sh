#!/usr/bin/env bash
# usage: ./run test [ROOM [FILTER] | CTEST-OPTION…]: builds and runs all tests, or those of one folder of tests/; the last line counts.
# Options such as -R tokenizer go to ctest. FILTER is a part of the tests' names.
set -euo pipefail
. tools/common.sh

# One folder alone: only what its tests need is built, and they run without ctest, which would ask every program for its tests.
room_test() {
  local room=$1 filter=${2:-} log=$logs/room.log status=0 passed=0 failed=0
  temporary_in_memory
  if [ -n "$(find "tests/$room" -maxdepth 1 -name '*_test.cpp' -print -quit)" ]; then
    bash tools/build.sh "tests/test_$room"
    "build/release/tests/test_$room" --gtest_filter="*$filter*" --gtest_brief=1 2>&1 | tee "$log" || status=$?
    add_counts 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' 's/^ *\([0-9]*\) FAILED TESTS\{0,1\}$/\1/p'
  fi
  if [ -n "$(find "tests/$room" -maxdepth 1 -name '*_test.py' -print -quit)" ]; then
    bash tools/build.sh
    (cd "tests/$room" && FUNICULAR_BUILD_DIR=$PWD/../../build/release FUNICULAR_PYTHON=$PWD/../../.deps/python/bin/python \
      python3 -B -m unittest -k "*$filter*" ./*_test.py) 2>&1 | tee "$log" || status=$?
    local total wrong
    total=$(sed -n 's/^Ran \([0-9]*\) test.*/\1/p' "$log")
    wrong=$(sed -n 's/^FAILED (\(.*\))$/\1/p' "$log" | tr ',' '\n' | awk -F= '/failures|errors/ { sum += $2 } END { print sum + 0 }')
    passed=$((passed + ${total:-0} - wrong)) failed=$((failed + wrong))
  fi
  [ "$passed" -gt 0 ] || [ "$failed" -gt 0 ] || { say "no test of tests/$room matches '$filter'"; status=1; }
  echo "$passed passed, $failed failed"
  exit "$status"
}

# Adds what two expressions of sed find in the log.
add_counts() {
  local more
  more=$(sed -n "$1" "$log") && passed=$((passed + ${more:-0}))
  more=$(sed -n "$2" "$log") && failed=$((failed + ${more:-0}))
}

# Tests save thousands of small files, each flushed to the disk: those that save models take half the time where the files lie in
# memory. Only where memory and /dev/shm have 12 GB to spare, and programs can be started there.
temporary_in_memory() {
  local folder free
  free=$({ df --output=avail /dev/shm | tail -n 1; awk '/^MemAvailable/ { print $2 }' /proc/meminfo; } 2>/dev/null | sort -n | head -n 1)
  [ -z "${TMPDIR:-}" ] && [ "${free:-0}" -ge 12000000 ] && folder=$(mktemp -d /dev/shm/tests-XXXXXX 2>/dev/null) || return 0
  # shellcheck disable=SC2064
  trap "rm -rf '$folder'" EXIT
  printf '#!/bin/sh\n' >"$folder/starts" && chmod +x "$folder/starts" && "$folder/starts" 2>/dev/null || return 0
  rm "$folder/starts"
  export TMPDIR=$folder
}

case "${1:-}" in
  "" | -*) ;;
  *)
    [ -n "$(find "tests/$1" -maxdepth 1 -name '*_test.*' -print -quit 2>/dev/null)" ] ||
      die "./run test: there are no tests in tests/$1; its folders are $(find tests -maxdepth 2 -name '*_test.*' -printf '%h\n' | sed 's|tests/||' | sort -u | tr '\n' ' ')"
    room_test "$@" ;;
esac
bash tools/build.sh all
temporary_in_memory

results=$PWD/build/release/tests.xml
rm -f "$results"
start=$SECONDS
status=0
# Tests may use threads of their own; one a test keeps parallel tests from fighting over the cores. One test more than there are
# cores, since tests also wait: for files, for timeouts, for other ranks.
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} ctest --test-dir build/release --parallel "$(($(nproc) + 1))" --no-tests=error \
  --output-on-failure --progress --output-junit "$results" "$@" >"$logs/ctest.log" 2>&1 </dev/null || status=$?
[ -f "$results" ] || { tail -n 40 "$logs/ctest.log"; die "ctest left no results (exit code $status); its output is in $logs/ctest.log"; }
if [ "$status" != 0 ]; then
  # Only the part about failed tests: the rest of the log is thousands of lines of passed ones.
  grep -v -E '^ *[0-9]+/[0-9]+ Test +#[0-9]+: .* Passed' "$logs/ctest.log" | tail -n 400
fi
say "Tests ran for $(minutes $((SECONDS - start))); the log is $logs/ctest.log"

# ctest's JUnit file begins with one <testsuite> whose attributes hold the counts. It calls a test that could not be
# started skipped; ctest's summary counts it among the failed.
count() { grep -o -m 1 "[[:space:]]$1=\"[0-9]*\"" "$results" | head -n 1 | tr -dc 0-9; }
total=$(count tests)
failed=$(sed -n 's/^.*tests passed, \([0-9]*\) tests failed out of .*/\1/p' "$logs/ctest.log" | tail -n 1)
failed=${failed:-0}
skipped=$(($(count skipped) + $(count disabled) + $(count failures) - failed))
passed=$((total - failed - skipped))
[ "$passed" -gt 0 ] || status=1
[ "$failed" -eq 0 ] || status=1
[ "$skipped" -eq 0 ] || say "$skipped skipped, since this machine lacks what they need or other tests do the same on it: $(grep -o '[^ ]* (Skipped)' "$logs/ctest.log" | sed 's/ (Skipped)//' | tr '\n' ' ')"
echo "$passed passed, $failed failed"
exit "$status"
