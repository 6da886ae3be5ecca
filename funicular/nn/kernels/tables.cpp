// The tables of kernels for one instruction set.

#include "funicular/nn/kernels.h"
#include "funicular/nn/kernels/activation.h"
#include "funicular/nn/kernels/attention.h"
#include "funicular/nn/kernels/attention_short.h"
#include "funicular/nn/kernels/distances.h"
#include "funicular/nn/kernels/gated.h"
#include "funicular/nn/kernels/matmul.h"
#include "funicular/nn/kernels/quantized.h"
#include "funicular/nn/kernels/row_kernels.h"
#include "funicular/nn/kernels/sampling.h"

namespace funicular::nn::FUNICULAR_ISA {

namespace {

template <class S>
constexpr Kernels<S> kTable{attention_workspace<S>,
                            attention_forward<S>,
                            attention_backward<S>,
                            short_attention<S>().forward,
                            short_attention<S>().backward,
                            score_distance_workspace<S>,
                            score_distance<S>,
                            squared_difference_rows<S>,
                            scaled_difference_rows<S>,
                            norm_forward<S>,
                            norm_backward<S>,
                            embedding_norm<S>,
                            activation_forward<S>,
                            activation_backward<S>,
                            gated_forward<S>,
                            gated_backward<S>,
                            dropout_rows<S>,
                            add_rows<S>,
                            add_rows_narrow<S>,
                            cross_entropy_rows<S>,
                            sample_rows<S>,
                            column_sum<S>,
                            quantize_rows<S>,
                            quantized_product<S>,
                            matmul_kernels<S>()};

}  // namespace

const Kernels<float>& table(float) {
  return kTable<float>;
}
const Kernels<double>& table(double) {
  return kTable<double>;
}
const Kernels<BFloat16>& table(BFloat16) {
  return kTable<BFloat16>;
}
const Kernels<Half>& table(Half) {
  return kTable<Half>;
}

}  // namespace funicular::nn::FUNICULAR_ISA
