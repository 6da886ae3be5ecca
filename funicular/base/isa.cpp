#include "funicular/base/isa.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/error.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace funicular {

namespace {

#if defined(__x86_64__) && defined(__linux__)
/// Intel's tiles of 16 rows by 64 bytes. Their registers are so large that Linux hands them out to processes
/// that ask (Documentation/arch/x86/xstate.rst); threads and forked processes inherit the answer.
bool may_use_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

std::string_view wanted_isa() {
  const char* text = std::getenv("FUNICULAR_ISA");
  return text ? text : "";
}

ProcessorFlags read_flags() {
  ProcessorFlags flags;
#if defined(__x86_64__)
  __builtin_cpu_init();
  flags.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("bmi2");  // F16C is older than AVX2
  flags.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  flags.bf16 = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
  flags.intel = __builtin_cpu_is("intel");
  flags.avx512_vnni = __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl");
#if defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    constexpr unsigned kTiles = 1u << 22 | 1u << 24 | 1u << 25;  // AMX-BF16, AMX-TILE, AMX-INT8
    flags.tiles = (d & kTiles) == kTiles;
    flags.fp16 = (d & 1u << 23) != 0;
  }
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) flags.avx_vnni = (a & 1u << 4) != 0;
#endif
#endif
  return flags;
}

Isa detect() {
  ProcessorFlags flags = read_flags();
  const Isa isa = choose_isa(flags, wanted_isa());
#if defined(__x86_64__) && defined(__linux__)
  // Asked for only where it is used: from then on Linux refuses small alternate signal stacks.
  if (isa == Isa::amx && !may_use_tiles()) {
    flags.tiles = false;
    return choose_isa(flags, wanted_isa());
  }
#endif
  return isa;
}

}  // namespace

Isa choose_isa(const ProcessorFlags& processor, std::string_view wanted) {
  Isa best = Isa::baseline;
  if (processor.avx2) best = Isa::avx2;
  if (best == Isa::avx2 && processor.avx512) best = Isa::avx512;
  if (best == Isa::avx512 && processor.bf16) best = Isa::avx512_bf16;
  if (wanted == "baseline") return Isa::baseline;
  if (wanted == "avx2" || wanted == "avx2_vnni") return std::min(best, Isa::avx2);
  if (wanted == "avx512" || wanted == "avx512_vnni") return std::min(best, Isa::avx512);
  if (wanted == "avx512_bf16" || best < Isa::avx512_bf16) return best;
  if (processor.tiles) return Isa::amx;
  // Intel's processors that have AMX do one VDPBF16PS in the time of four VFMADD, which is half as many multiplications.
  // They tell themselves by AVX512-FP16 where a virtual machine or the system keeps AMX from us.
  return processor.intel && processor.fp16 ? Isa::avx512 : Isa::avx512_bf16;
}

ByteProducts choose_byte_products(const ProcessorFlags& processor, Isa isa, std::string_view wanted) {
  if (wanted == "avx2" || wanted == "avx512") return ByteProducts::of_isa;
  if (isa == Isa::avx2 && processor.avx_vnni) return ByteProducts::avx_vnni;
  if (isa == Isa::avx2 && processor.avx512_vnni && wanted == "avx2_vnni") return ByteProducts::avx_vnni_evex;
  if (isa == Isa::avx512 && processor.avx512_vnni) return ByteProducts::avx512_vnni;
  return ByteProducts::of_isa;
}

ByteProducts byte_products() {
  static const ByteProducts products = choose_byte_products(read_flags(), best_isa(), wanted_isa());
  return products;
}

void check_isa_environment() {
  static const std::vector<std::string> names{"baseline",    "avx2",        "avx2_vnni", "avx512",
                                              "avx512_vnni", "avx512_bf16", "amx"};
  const std::string wanted(wanted_isa());
  if (wanted.empty() || std::find(names.begin(), names.end(), wanted) != names.end()) return;
  const std::string near = nearest(wanted, names.data(), names.data() + names.size());
  throw InputError("environment", "FUNICULAR_ISA expects one of {}, found \"{}\"{}", fmt::join(names, ", "),
                   wanted, near.empty() ? "" : "; did you mean " + near + "?");
}

const char* processor_isa_name() {
  if (byte_products() == ByteProducts::of_isa) return isa_name(best_isa());
  return best_isa() == Isa::avx2 ? "avx2_vnni" : "avx512_vnni";
}

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

void throw_missing_kernels() {
  throw RunError("kernels",
                 "this program has no kernels for {}; it has only kernels for the processor that built it. "
                 "./run build adds kernels for other processors",
                 processor_isa_name());
}

}  // namespace funicular
