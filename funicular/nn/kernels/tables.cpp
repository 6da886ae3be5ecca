// The tables of kernels for one instruction set.

#include "funicular/nn/kernels.h"
#include "funicular/nn/kernels/attention.h"
#include "funicular/nn/kernels/rows.h"

namespace funicular::nn::FUNICULAR_ISA {

template <class T>
constexpr Kernels<T> make_table() {
  return {attention_workspace<T>, attention_forward<T>, attention_backward<T>, norm_forward<T>,
          norm_backward<T>,       dropout_rows<T>,      embedding_rows<T>,     embedding_scatter<T>,
          cross_entropy_rows<T>,  column_sum<T>};
}

extern const Kernels<float> float_kernels;
extern const Kernels<double> double_kernels;
const Kernels<float> float_kernels = make_table<float>();
const Kernels<double> double_kernels = make_table<double>();

}  // namespace funicular::nn::FUNICULAR_ISA
