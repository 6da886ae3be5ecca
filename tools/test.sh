#!/usr/bin/env bash
# Builds everything and runs every test; arguments go to ctest (as in -R tokenizer). The last line counts.
set -euo pipefail
. tools/common.sh
bash tools/build.sh all

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
[ "$skipped" -eq 0 ] || say "$skipped skipped, since this machine lacks what they need: $(grep -o '[^ ]* (Skipped)' "$logs/ctest.log" | sed 's/ (Skipped)//' | tr '\n' ' ')"
echo "$passed passed, $failed failed"
exit "$status"
