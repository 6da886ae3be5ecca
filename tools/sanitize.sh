#!/usr/bin/env bash
# usage: ./run sanitize [address|thread] [CTEST ARGUMENTS]: every test under AddressSanitizer and
# UndefinedBehaviorSanitizer (address), those of threads and ranks under ThreadSanitizer (thread), or both. Hours.
set -euo pipefail
. tools/common.sh
which=both
case "${1:-}" in address | thread) which=$1; shift ;; esac
bash tools/setup.sh

# Builds the preset and runs ctest with what follows; the report of a sanitizer fails the test that made it.
# Bash ignores set -e in a function whose result is tested, so each step returns its error itself.
check() {
  local preset=$1 results status=0 start=$SECONDS
  shift
  step "configure-$preset" "Configuring build/$preset" \
    cmake --preset "$preset" "-DTORCH_DIR=${TORCH_DIR:-$PWD/.deps/python}" -Wno-dev || return
  step "build-$preset" "Building it with $(jobs) jobs" ninja -C "build/$preset" -j "$(jobs)" all || return
  say "Built in $(minutes $((SECONDS - start)))"
  start=$SECONDS
  OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} ctest --test-dir "build/$preset" --parallel "$(nproc)" --no-tests=error \
    --output-on-failure --timeout 3600 "$@" >"$logs/$preset.log" 2>&1 </dev/null || status=$?
  sed -n '/tests passed,/,$p' "$logs/$preset.log"
  say "Tests under $preset ran for $(minutes $((SECONDS - start))); the log is $logs/$preset.log"
  return "$status"
}

failed=0
if [ $which != thread ]; then
  # LibTorch keeps what it allocates at the start to the end of the process, and the library that watches files is
  # loaded before the sanitizer's own. Memory that cannot be had is an error that we report, not the sanitizer.
  export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=0:verify_asan_link_order=0:detect_stack_use_after_return=1
  export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
  check asan "$@" || failed=1
fi
if [ $which != address ]; then
  # Neither LibTorch nor the OpenMP runtime is instrumented. How the latter orders the threads of a loop runtime/parallel_loop.h tells;
  # tools/tsan.suppressions leaves out what the two read and write themselves.
  # The sanitizer guesses the size of a block of thread-local storage from the bytes before it, and is wrong with some of libgomp's threads.
  export TSAN_OPTIONS="allocator_may_return_null=1 history_size=7 intercept_tls_get_addr=0 suppressions=$PWD/tools/tsan.suppressions ignore_noninstrumented_modules=1 halt_on_error=1"
  threaded='^(base|text|format|data|launch|pipeline|core|runtime|comm|nn|optim|parallel|horovod|train|task|prove|augment)/'
  threaded+='|^cli/.*[Rr]anks|^cli/(AsyncServers|Restarts|Interrupted|OneRankDies|Prove)'
  check tsan -R "$threaded" -E 'nn/kernels_|golden' "$@" || failed=1
fi
exit $failed
