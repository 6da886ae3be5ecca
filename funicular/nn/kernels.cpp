#include "funicular/nn/kernels.h"

#include "funicular/base/isa.h"

namespace funicular::nn {

#define FUNICULAR_TABLES(isa)                                         \
  namespace isa {                                                     \
  FUNICULAR_OPTIONAL_KERNEL const Kernels<float>& table(float);       \
  FUNICULAR_OPTIONAL_KERNEL const Kernels<double>& table(double);     \
  FUNICULAR_OPTIONAL_KERNEL const Kernels<BFloat16>& table(BFloat16); \
  FUNICULAR_OPTIONAL_KERNEL const Kernels<Half>& table(Half);         \
  }
FUNICULAR_TABLES(baseline)
FUNICULAR_TABLES(avx2)
FUNICULAR_TABLES(avx512)
FUNICULAR_TABLES(avx512_bf16)
FUNICULAR_TABLES(amx)
#undef FUNICULAR_TABLES

#define FUNICULAR_BYTE_PRODUCTS(isa)                 \
  namespace isa {                                    \
  QuantizedProduct<float> byte_product(float);       \
  QuantizedProduct<BFloat16> byte_product(BFloat16); \
  QuantizedProduct<Half> byte_product(Half);         \
  }
FUNICULAR_BYTE_PRODUCTS(avx2_vnni)
FUNICULAR_BYTE_PRODUCTS(avx2_vnni_evex)
FUNICULAR_BYTE_PRODUCTS(avx512_vnni)
#undef FUNICULAR_BYTE_PRODUCTS

namespace {

template <class S>
const Kernels<S>& table_of_isa() {
  using Table = const Kernels<S>&(S);
  Table* table = baseline::table;
#ifdef FUNICULAR_X86_KERNELS
  if (best_isa() == Isa::amx) table = amx::table;
  if (best_isa() == Isa::avx512_bf16) table = avx512_bf16::table;
  if (best_isa() == Isa::avx512) table = avx512::table;
  if (best_isa() == Isa::avx2) table = avx2::table;
#endif
  return built(table)(S{});
}

/// The instruction set's table, with products of bytes by what the processor has beside it.
template <class S>
Kernels<S> make_table() {
  Kernels<S> table = table_of_isa<S>();
#ifdef FUNICULAR_X86_KERNELS
  if constexpr (sizeof(S) < sizeof(double)) {  // there are no products of bytes that become double
    switch (byte_products()) {
      case ByteProducts::avx512_vnni:
        table.quantized_product = avx512_vnni::byte_product(S{});
        break;
      case ByteProducts::avx_vnni:
        table.quantized_product = avx2_vnni::byte_product(S{});
        break;
      case ByteProducts::avx_vnni_evex:
        table.quantized_product = avx2_vnni_evex::byte_product(S{});
        break;
      case ByteProducts::of_isa:
        break;
    }
  }
#endif
  return table;
}

template <class S>
const Kernels<S>& best_table() {
  static const Kernels<S> table = make_table<S>();
  return table;
}

}  // namespace

template <>
const Kernels<float>& kernels<float>() {
  return best_table<float>();
}
template <>
const Kernels<double>& kernels<double>() {
  return best_table<double>();
}
template <>
const Kernels<BFloat16>& kernels<BFloat16>() {
  return best_table<BFloat16>();
}
template <>
const Kernels<Half>& kernels<Half>() {
  return best_table<Half>();
}

}  // namespace funicular::nn
