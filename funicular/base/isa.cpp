#include "funicular/base/isa.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace funicular {

namespace {

Isa detect() {
  Isa best = Isa::baseline;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2"))  // F16C is older than AVX2
    best = Isa::avx2;
  if (best == Isa::avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    best = Isa::avx512;
  if (best == Isa::avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni"))
    best = Isa::avx512_bf16;
#endif
  const char* text = std::getenv("FUNICULAR_ISA");
  const std::string_view wanted = text ? text : "";
  if (wanted == "baseline") return Isa::baseline;
  if (wanted == "avx2") return std::min(best, Isa::avx2);
  if (wanted == "avx512") return std::min(best, Isa::avx512);
  return best;
}

}  // namespace

Isa best_isa() {
  static const Isa isa = detect();
  return isa;
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::avx512_bf16:
      return "avx512_bf16";
    case Isa::avx512:
      return "avx512";
    case Isa::avx2:
      return "avx2";
    case Isa::baseline:
      break;
  }
  return "baseline";
}

}  // namespace funicular
