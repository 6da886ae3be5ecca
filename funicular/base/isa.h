#pragma once
// Which of the instruction sets that kernels are compiled for this processor has.
//
// Files under <layer>/kernels/ are compiled once for each (see cmake/layers.cmake) into a namespace of that
// name; FUNICULAR_ISA is the name at hand. Such files must keep to plain C++ without the standard library's
// templates, since the linker keeps one copy of an inline function and it might be the one compiled for a
// newer processor.

namespace funicular {

enum class Isa { baseline, avx2, avx512, avx512_bf16, amx };  // each holds those before it

/// The best one of this processor, or the one that the environment variable FUNICULAR_ISA names if it is
/// lower.
Isa best_isa();

/// "baseline", "avx2", "avx512", "avx512_bf16" or "amx".
const char* isa_name(Isa isa);

}  // namespace funicular
