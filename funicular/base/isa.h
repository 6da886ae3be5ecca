#pragma once
// Finds which of the instruction sets that kernels are compiled for this processor has.
//
// Files under <layer>/kernels/ are compiled once for each (see cmake/layers.cmake) into a namespace of that name;
// FUNICULAR_ISA is the name at hand. Such files must keep to plain C++ without the standard library's templates.
// The linker keeps one copy of an inline function, which might be compiled for a newer processor.

#include <string_view>

namespace funicular {

enum class Isa { baseline, avx2, avx512, avx512_bf16, amx };  // each holds those before it

/// Returns the instruction set whose kernels are fastest on this processor. If the environment variable
/// FUNICULAR_ISA names one that the processor has, returns that one.
Isa best_isa();

/// Flags of a processor that the choice needs.
struct ProcessorFlags {
  bool avx2 = false;      ///< AVX2, FMA and BMI2
  bool avx512 = false;    ///< AVX-512 F, BW, VL and DQ
  bool bf16 = false;      ///< AVX512-BF16, which is VDPBF16PS, and AVX512-VNNI
  bool fp16 = false;      ///< AVX512-FP16
  bool tiles = false;     ///< AMX-TILE, AMX-BF16 and AMX-INT8, and a system that lets this process use them
  bool intel = false;     ///< made by Intel
  bool avx_vnni = false;  ///< VPDPBUSD of 32 bytes in AVX's encoding
  bool avx512_vnni = false;  ///< VPDPBUSD of 32 and 64 bytes in AVX-512's encoding
};

/// The instruction set that best_isa() takes on a processor. `wanted` is FUNICULAR_ISA's value, or empty.
Isa choose_isa(const ProcessorFlags& processor, std::string_view wanted);

/// VPDPBUSD, the product of bytes, on processors that have it without the next instruction set. Newer laptops have
/// AVX2 and VPDPBUSD in AVX-VNNI's encoding; servers from Cascade Lake on have it beside AVX-512. The value
/// avx_vnni_evex is for tests: AVX-VNNI's width in AVX-512's encoding, which only FUNICULAR_ISA asks for.
enum class ByteProducts { of_isa, avx_vnni, avx_vnni_evex, avx512_vnni };

/// Returns the byte_products() of a processor whose kernels have the instruction set `isa`. `wanted` is
/// FUNICULAR_ISA's value, or empty.
ByteProducts choose_byte_products(const ProcessorFlags& processor, Isa isa, std::string_view wanted);

/// Returns the byte products of this processor, in addition to best_isa(). FUNICULAR_ISA=avx2 and avx512 leave them
/// out; avx2_vnni and avx512_vnni ask for them.
ByteProducts byte_products();

/// Throws InputError where FUNICULAR_ISA names no instruction set.
void check_isa_environment();

/// "baseline", "avx2", "avx512", "avx512_bf16" or "amx".
const char* isa_name(Isa isa);

/// Returns the name of best_isa() with byte_products(), such as "avx2_vnni".
const char* processor_isa_name();

/// Throws RunError: this build has no kernels for processor_isa_name().
[[noreturn]] void throw_missing_kernels();

/// Marks the declaration of a kernel that a build may leave out (FUNICULAR_KERNELS in cmake/layers.cmake).
#define FUNICULAR_OPTIONAL_KERNEL __attribute__((weak))

/// Returns a kernel or its table. Throws RunError if this build has left it out.
template <class T>
T* built(T* kernel) {
  if (!kernel) throw_missing_kernels();
  return kernel;
}

}  // namespace funicular
