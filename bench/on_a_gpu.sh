#!/usr/bin/env bash
# Everything that needs a GPU, in under 9 minutes: tests, compute-sanitizer, benchmarks, and the results in one folder.
#
# usage: bench/on_a_gpu.sh [--seconds N] [--results FOLDER] [--packed FILE] [PART…]   runs all parts, or those that are named
#        bench/on_a_gpu.sh --dry-run      lists the parts with their time limits and runs nothing
#        bench/on_a_gpu.sh --build        builds build/gpu for the LibTorch of TORCH_DIR (default: the torch of python3), and for the
#                                         capability of the card here, else 9.0
#        bench/on_a_gpu.sh --pack FILE    packs build/gpu into FILE, a .tar.xz, to carry it to the GPU
#
# --seconds  for all parts together; default 535
# --results  default: $OUT/on_a_gpu, or build/gpu-results/on_a_gpu if OUT is not set
# --packed   unpacks FILE into build/gpu. Without it, and without build/gpu, the parts begin with a build.
#
# Parts run in order: first those that check, at the same time, then those that measure. A part that fails or runs past its limit does
# not stop the others. The folder of results holds summary.txt (a line per part), output.txt (what they printed), goals.txt (the goals beside what was
# measured) and files.tar.gz (JSON files).
set -euo pipefail
self=$(realpath "$0") caller=$PWD
cd "$(dirname "$self")/.."

# As nvidia-smi counts, so that the card that is asked for its capability is the one that computes.
export CUDA_DEVICE_ORDER=PCI_BUS_ID
build=$(realpath -m "${FUNICULAR_GPU_BUILD:-build/gpu}")
program=$build/funicular
total=535 grace=5

# name, how it runs, limit in seconds, what it does. Parts with "+" do not measure: neighbours of them run at the same time,
# and their longest limit is that of all. The most valuable come first. The limits of the rest and one of them, without "build", add up
# to much less than the default of --seconds: archives and the table of goals take time, too.
parts() {
  cat <<'LIST'
machine - 10 the card, its driver, CUDA and the versions of Python's packages
unpack - 20 the program and the tests that were packed
build - 280 the program and the tests, if there is no pack
doctor + 20 funicular doctor
kernels + 90 tests of copies, operations and optimisers on the card
models + 90 tests of whole models and training steps on the card
prove + 90 layouts on the card compared
ranks + 90 several ranks on the card, by NCCL and through pinned memory, and a killed rank
strategies + 90 zero1 to zero3, servers, pipelines and slices on the card, by NCCL
layouts + 90 strategies through pinned memory, compared tensor by tensor
memcheck + 90 compute-sanitizer memcheck on the kernels of operations, attention and optimisers
racecheck + 90 compute-sanitizer racecheck on the same
inputs + 90 models, texts and batches for the parts that measure
steps - 75 training steps of six shapes, their kernels by kind, and their products alone
compile - 125 the same shapes by PyTorch without padding, compiled, alone on the card
finetune - 24 fine-tuning with 32 rows a step
predict - 50 prediction with BERT-base beside transformers, whole commands
distill - 30 the intermediate stage of distillation beside PyTorch
graphs - 10 32 rows a step with recorded passes, for comparison with `steps`
recorded - 40 recorded passes of a distillation and of prediction, beside passes without
attention - 20 steps by our kernels for tensor cores, for comparison with `steps`
LIST
}

say() { printf '%s\n' "$*"; }
die() { say "bench/on_a_gpu.sh: $*" >&2; exit 2; }
now() { date +%s; }
from_caller() { (cd "$caller" && realpath -m -- "$1"); }

# The folder of LibTorch that the program is built for: TORCH_DIR or the torch of its Python environment, else that of python3.
torch_folder() {
  local folder
  for folder in "${TORCH_DIR:-}"/lib/python3*/site-packages/torch "${TORCH_DIR:-}"; do
    [ -n "${TORCH_DIR:-}" ] && [ -d "$folder" ] || continue
    say "$folder"
    return
  done
  python3 -c 'import importlib.util as i; s = i.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")'
}

# Where a packed program of ours finds LibTorch and the CUDA runtime. The peers find their own.
libraries() {
  local torch folders=$build folder
  torch=$(torch_folder)
  for folder in "$torch/lib" "$torch"/../nvidia/*/lib /usr/local/cuda/lib64; do
    [ -z "$torch" ] || [ ! -d "$folder" ] || folders+=":$folder"
  done
  say "$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}
ours() { LD_LIBRARY_PATH=$(libraries) "$@"; }

# The capability of this machine's card without its point; 90, that of the H100, where there is none.
capability() {
  local found
  found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -dc 0-9) || true
  say "${found:-90}"
}

build_all() {
  local torch
  torch=$(torch_folder)
  [ -n "$torch" ] || die "--build: python3 has no torch; set TORCH_DIR to a CUDA build of LibTorch"
  cmake --preset release -B "$build" "-DTORCH_DIR=$torch" "-DFUNICULAR_CUDA_ARCHITECTURES=$(capability)" -Wno-dev
  grep -q '^FUNICULAR_CUDART:' "$build/CMakeCache.txt" ||
    die "--build: $torch is no CUDA build of LibTorch, or there is no nvcc; the program would compute on the CPU only"
  ninja -C "$build" -j "${FUNICULAR_JOBS:-$(nproc)}" funicular funicular_cli tests/test_{core,runtime,nn,optim,bench,model,train,parallel}
}

pack() {
  [ -x "$program" ] || die "--pack: there is no $program; run bench/on_a_gpu.sh --build first"
  local folder
  folder=$(mktemp -d)
  mkdir "$folder/tests"
  cp "$program" "$folder"
  cp -P "$build"/lib*.so* "$folder"
  cp "$build"/tests/test_{core,runtime,nn,optim,bench,model,train,parallel} "$folder/tests"
  find "$folder" -type f -exec strip --strip-unneeded {} +
  tar -C "$folder" -cJf "$1" .
  rm -r "$folder"
  say "$(du -h "$1" | cut -f 1) in $1"
}

part_machine() {
  nproc
  python3 -c 'import importlib.metadata as m; print(*(f"{d.name} {d.version}" for d in map(m.distribution, ("torch", "transformers"))))' || true
  nvcc --version || true
  nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv
}

part_unpack() {
  mkdir -p "$build"
  tar -C "$build" -xJf "$packed"
}

part_build() { build_all; }
part_doctor() { ours "$program" doctor --output "$files"; }

part_kernels() {
  local status=0
  ours "$build/tests/test_core" --gtest_brief=1 '--gtest_filter=DeviceCopy.*' || status=1
  ours "$build/tests/test_runtime" --gtest_brief=1 '--gtest_filter=GpuCards.*' || status=1
  ours "$build/tests/test_nn" --gtest_brief=1 '--gtest_filter=*Attention*:*Joined*:*Team*:*Gpu*:Rounding*:KeyedGenerator*' || status=1
  ours "$build/tests/test_optim" --gtest_brief=1 '--gtest_filter=DevicePasses.*:*PassesOfGpus*' || status=1
  return $status
}

part_models() {
  local status=0
  ours "$build/tests/test_bench" --gtest_brief=1 '--gtest_filter=TeamStep.*:GraphedPasses.*:PaddedPasses.*' || status=1
  ours "$build/tests/test_model" --gtest_brief=1 '--gtest_filter=*Team*' || status=1
  ours "$build/tests/test_train" --gtest_brief=1 '--gtest_filter=Autocast*' || status=1
  ours "$build/tests/test_parallel" --gtest_brief=1 '--gtest_filter=BatchNorm*' || status=1
  return $status
}

# bench_step NAME OPTION…: one JSON object into NAME.json.
bench_step() {
  local name=$1
  shift
  ours "$program" bench --device cuda --precision bf16 --warmup "${WARMUP:-12}" --steps 20 --json "$@" >"$files/$name.json" &&
    python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(sys.argv[2], round(d["tokens_per_second"]), "tokens/s, step", round(1e3 * d["step_seconds_median"], 2), "ms")' \
      "$files/$name.json" "$name"
}

# The kernels by kind and the products alone are further measurements of the same command. If they fail, the steps come without them.
watched='--profile --floor'
watch_step() {
  bench_step "$@" $watched || { [ -n "$watched" ] && watched='' && bench_step "$@"; }
}

part_steps() {
  local status=0
  watch_step base-ragged --model base --batch-size 256 || status=1
  watch_step base-full --model base --batch-size 256 --rows full || status=1
  watch_step base-full-512 --model base --batch-size 64 --rows full --max-length 512 || status=1
  watch_step base-32-rows --model base --batch-size 32 || status=1
  watch_step minilm-ragged --model minilm --batch-size 256 || status=1
  make_large
  watch_step large-ragged-476 --model "$files/large" --batch-size 64 --max-length 476 || status=1  # 254 tokens on average
  return $status
}

make_large() {
  mkdir -p "$files/large"
  echo '{"model_type": "bert", "vocab_size": 30522, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
    "intermediate_size": 4096, "max_position_embeddings": 512}' >"$files/large/config.json"
}

# A size repeats its recording from its fourth micro-batch on.
part_graphs() { WARMUP=60 bench_step graphs-base --model base --batch-size 32 --cuda-graphs; }

part_recorded() {
  local status=0
  make_base
  python3 bench/gpu_finetune.py --work distill --results "$files/recorded" --model "$files/predict/base" --program "$program" --library-path "$(libraries)" || status=1
  python3 bench/gpu_predict.py --recorded --results "$files/predict" --program "$program" --library-path "$(libraries)" --rows 10000 || status=1
  return $status
}

# `steps` measures these shapes with FlashAttention.
part_attention() {
  local status=0
  export FUNICULAR_ATTENTION=tensor_cores
  bench_step attention-own-ragged --model base --batch-size 256 || status=1
  bench_step attention-own-512 --model base --batch-size 64 --rows full --max-length 512 || status=1
  return $status
}

# peer MODEL ROWS OPTION…: PyTorch's side alone. Compiled under load, it would keep the kernels that were fastest then.
peer() { python3 bench/gpu_step.py --results "$files/peers/$(basename "$1")" --models "$1" --rows "$2" --peers layers --alone --repetitions 1 "${@:3}"; }

part_compile() {
  local status=0
  peer base full,ragged,full-512 || status=1
  peer minilm ragged || status=1
  make_large
  peer "$files/large" ragged-476 || status=1
  return $status
}

part_ranks() { ours python3 bench/gpu_ranks.py --results "$files/ranks" --program "$program" --limit 30; }

part_strategies() { ours python3 bench/gpu_ranks.py --results "$files/strategies" --program "$program" --limit 30 --strategies; }
part_layouts() {
  local status=0 layout
  for layout in "zero3 -n 4" "pipeline-zero2 -n 4 --pipeline-parallel 2 --schedule zb-h1" "tensor -n 2 --sequence-parallel" "ps-sync -n 3" "dp -n 2" \
    "pipeline --devices 2"; do
    ours "$program" prove "$layout" single --device cuda --share-device --steps 2 || status=1
  done
  return $status
}

# BERT-base with a classifier, which three parts need.
make_base() {
  [ -f "$files/predict/base/model.safetensors" ] ||
    python3 bench/gpu_predict.py --results "$files/predict" --make-model "$files/predict/base"
}

part_inputs() {
  local status=0
  make_base &&
    python3 bench/distillation_step.py --results "$files/distill" --model "$files/predict/base" --make-teacher || status=1
  make_large
  peer base full,ragged,full-512 --inputs-only || status=1
  peer minilm ragged --inputs-only || status=1
  peer "$files/large" ragged-476 --inputs-only || status=1
  return $status
}

part_finetune() {
  make_base
  python3 bench/gpu_finetune.py --results "$files/finetune" --model "$files/predict/base" --program "$program" --library-path "$(libraries)"
}

part_predict() {
  make_base
  python3 bench/gpu_predict.py --results "$files/predict" --program "$program" --library-path "$(libraries)" --rows 20000,40000 --repetitions 1
}

part_distill() {
  make_base
  python3 bench/distillation_step.py --library-path "$(libraries)" --results "$files/distill" --program "$program" --python "$(command -v python3)" --device cuda \
    --model "$files/predict/base" --layers 6 --batch-size 128 --steps 15 --repetitions 1 --without-published --peer-dtype bfloat16 --stages intermediate
}

part_prove() {
  local status=0
  ours "$program" prove single "single --micro-batch-size 2" --device cuda || status=1
  ours "$program" prove reference single --device cuda || status=1
  ours "$program" prove single "single --micro-batch-size 2" --device cuda --precision bf16 || status=1
  return $status
}

sanitize() {
  ours compute-sanitizer --tool "$1" --error-exitcode 3 "$build/tests/$2" --gtest_brief=1 "--gtest_filter=$3"
}
part_memcheck() {
  local status=0
  sanitize memcheck test_optim 'DevicePasses.*' || status=1
  sanitize memcheck test_nn '*Joined*:Rounding*Residual*Team*:FusedOperations.*Team*:Functional.*/Team:Gated.*/Team:*OnACardWithLittleMemory*Team*:ShortAttention.*/HeadsOf*:ShortAttention.*/Some*:ShortAttention.*/Plain:ShortAttention.*/Dropout:ShortAttention.*/Half:ShortAttention.*/NarrowWindow' || status=1
  return $status
}
# It takes several times as long.
part_racecheck() {
  local status=0
  sanitize racecheck test_optim 'DevicePasses.GiveTheNorm' || status=1
  sanitize racecheck test_nn 'FusedOperations.ResidualNorm*Team*:Functional.VocabularyCrossEntropyEqualsItsFormulaOverSeveralTiles/Team:ShortAttention.*/HeadsOf12:ShortAttention.*/HeadsOf64:ShortAttention.*/SomeQueries:ShortAttention.*/NarrowWindow' || status=1
  return $status
}

# Whether a part has anything to do on this machine.
wanted() {
  case $1 in
    unpack) [ -n "$packed" ] ;;
    build) [ -z "$packed" ] && [ ! -x "$program" ] ;;
    *) true ;;
  esac
}

# run_part NAME LIMIT: ends with a line in summary.txt; NAME.txt in the folder of files holds what was printed.
run_part() {
  local name=$1 limit=$2 start status=0 left group
  left=$((deadline - $(now)))
  if [ "$left" -lt 3 ]; then
    say "$name: left out, the time is used up" | tee -a "$results/summary.txt"
    return
  fi
  [ "$limit" -le "$left" ] || limit=$left
  start=$(now)
  timeout -k "$grace" "$limit" bash "$self" --packed "$packed" --results "$results" --part "$name" >"$files/$name.txt" 2>&1 &
  group=$!  # timeout leads a process group of its own
  wait "$group" || status=$?
  kill -KILL -- "-$group" 2>/dev/null || true  # what a part left running would disturb the next
  case $status in
    0) left=done ;;
    124 | 137) left="ended after its limit of $limit s" ;;
    *) left="FAILED, exit code $status" ;;
  esac
  say "$name: $left ($(($(now) - start)) s)" | tee -a "$results/summary.txt"
}

# What has been printed and written so far, into the folder of results: a time-out of all may come at any time.
keep_output() {
  local name
  python3 -B bench/gpu_goals.py "$files" >"$results/goals.txt" || true
  for name in $started; do
    say "== $name" && cat "$files/$name.txt" 2>/dev/null || true
  done >"$results/output.txt"
}

keep_files() {  # slow
  tar -C "$files" --exclude='*.safetensors' --exclude=runs --exclude='*.txt' --exclude='*-peer.json' --exclude='*-ours.json' -czf "$results/files.tar.gz" . ||
    say "files.tar.gz is not complete" | tee -a "$results/summary.txt"
}

end_checks() {
  [ -n "$checking" ] || return 0
  wait
  checking=''
  keep_output
  keep_files
}

run_all() {
  deadline=$(($(now) + total - grace))
  rm -rf -- "$files"  # of an earlier run
  mkdir -p "$files" "$results"
  : >"$results/summary.txt"
  local name how limit what started='' checking=''
  while read -r name how limit what; do
    chosen "$name" && wanted "$name" || continue
    if [ "$how" = - ]; then
      end_checks
      started+=" $name"
      run_part "$name" "$limit" </dev/null
      keep_output
    else
      started+=" $name"
      checking=yes
      run_part "$name" "$limit" </dev/null &
    fi
  done < <(parts)
  end_checks
  keep_files
  cat "$results/goals.txt"
  say "Results: $results"
  ! grep -qv ': done' "$results/summary.txt"
}

# Without names all parts run; unpacking and building always do.
chosen() {
  case " ${names[*]-} " in
    "  " | *" $1 "*) true ;;
    *) [ "$1" = unpack ] || [ "$1" = build ] ;;
  esac
}

packed='' results='' part='' names=()
while [ $# -gt 0 ]; do
  case $1 in
    --dry-run) parts; exit ;;
    --build) build_all; exit ;;
    --pack | --packed | --results | --seconds | --part)
      [ $# -gt 1 ] || die "$1 expects a value"
      case $1 in
        --pack) pack "$(from_caller "$2")"; exit ;;
        --packed) packed=${2:+$(from_caller "$2")} ;;
        --results) results=$(from_caller "$2") ;;
        --seconds) total=$2 ;;
        --part) part=$2 ;;
      esac
      shift ;;
    -*) die "unknown option $1; the options stand at the top of the script" ;;
    *) parts | grep -q "^$1 " || die "unknown part $1; expected one of $(parts | cut -d ' ' -f 1 | tr '\n' ' ')"
       names+=("$1") ;;
  esac
  shift
done
[[ $total =~ ^[0-9]+$ ]] || die "--seconds expects a whole number, found \"$total\""
[ -z "$packed" ] || [ -f "$packed" ] || die "--packed: there is no file $packed"
results=${results:-$(realpath -m "${OUT:-build/gpu-results}/on_a_gpu")}
files=$(realpath -m "$build-files")  # $OUT takes few files back
if [ -n "$part" ]; then
  mkdir -p "$files"
  trap 'exit 124' TERM  # waits for the program that runs, so that timeout kills it if it ignores TERM
  "part_$part"
else
  run_all
fi
