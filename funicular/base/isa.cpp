#include "funicular/base/isa.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace funicular {

namespace {

/// Intel's tiles of 16 rows by 64 bytes. Their registers are so large that Linux hands them out to processes
/// that ask (Documentation/arch/x86/xstate.rst); threads and forked processes inherit the answer.
bool may_use_tiles() {
#if defined(__x86_64__) && defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kWanted = 1u << 22 | 1u << 24 | 1u << 25;  // AMX-BF16, AMX-TILE, AMX-INT8
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kWanted) != kWanted) return false;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

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
  if (wanted == "avx512_bf16") return std::min(best, Isa::avx512_bf16);
  // Asked for only where it is used: from then on Linux refuses small alternate signal stacks.
  if (best == Isa::avx512_bf16 && may_use_tiles()) best = Isa::amx;
  return best;
}

}  // namespace

Isa best_isa() {
  static const Isa isa = detect();
  return isa;
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::amx:
      return "amx";
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
