#!/bin/sh
# usage: with_isa.sh ISA FUNICULAR COMMAND…: runs the command with the kernels of this instruction set. Exit code 77 where the
# processor has no such kernels, or the program takes them by itself: the run would only repeat that of other tests.
set -eu
isa=$1 funicular=$2
shift 2
flags=$(grep -m 1 '^flags' /proc/cpuinfo || true)
has() { for flag; do case " $flags " in *" $flag "*) ;; *) return 1 ;; esac; done; }
case $isa in
  baseline) true ;;
  avx2) has avx2 fma bmi2 ;;
  avx2_vnni) has avx_vnni || has avx512_vnni avx512vl ;; # with AVX-512 in its encoding
  avx512) has avx512f avx512bw avx512vl avx512dq ;;
  avx512_vnni) has avx512f avx512bw avx512vl avx512dq avx512_vnni ;;
  avx512_bf16) has avx512f avx512bw avx512vl avx512dq avx512_vnni avx512_bf16 ;;
  *) echo "with_isa.sh: unknown instruction set $isa" >&2 && exit 2 ;;
esac || { echo "this processor has no $isa" && exit 77; }
own=$("$funicular" doctor --output "${TMPDIR:-/tmp}" | sed -n 's/.*kernels for \([a-z0-9_]*\);.*/\1/p')
[ "$own" != "$isa" ] || { echo "this processor's own instruction set: tests outside with_isa.sh use its kernels" && exit 77; }
export FUNICULAR_ISA="$isa"
exec "$@"
