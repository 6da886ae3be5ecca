#!/usr/bin/env bash
# usage: ./run bench [OPTIONS]: funicular beside its peers; --help tells what it measures and how to choose.
#        ./run bench --kernels [REGEX]: our kernels alone, those whose row matches.
set -euo pipefail
. tools/common.sh

python=.deps/python/bin/python peers=.deps/peers
case " $* " in *" --help "* | *" -h "* | *" --list "*) exec python3 bench/run_peers.py "$@" ;; esac

# The peers of prediction and tokenising see torch and transformers of .deps/python by a path file, not by a copy.
install_peers() {
  local site
  [ -x $peers/bin/python ] || python3 -m venv $peers || return
  site=$($peers/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') &&
    $python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/reference.pth" &&
    $peers/bin/python -m pip --disable-pip-version-check install -r bench/peers/requirements.txt
}

bash tools/build.sh
step configure-bench "Configuring the micro-benchmarks" cmake -S . -B build/release -DFUNICULAR_BENCHMARKS=ON -Wno-dev
step build-bench "Building them" ninja -C build/release -j "$(jobs)" tokenizer_bench kernels_bench
if [ "${1:-}" = --kernels ]; then
  exec build/release/bench/kernels_bench "--benchmark_filter=${2:-.}"
fi
if ! cmp -s bench/peers/requirements.txt $peers/stamp; then
  if step bench-peers "Installing onnxruntime, OpenVINO and flash-tokenizer in $peers" install_peers; then
    cp bench/peers/requirements.txt $peers/stamp
  else
    say "Going on without them: their rows of the table will have gaps."
  fi
fi
exec $python bench/run_peers.py "$@"
