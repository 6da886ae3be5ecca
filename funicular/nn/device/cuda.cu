// The kernels of nn/device for CUDA. No header of LibTorch: nvcc alone compiles this file, also where there is no GPU.
#include "funicular/base/cuda_team.cuh"
#include "funicular/nn/device/activation.h"
#include "funicular/nn/device/attention.h"
#include "funicular/nn/device/column_sum.h"
#include "funicular/nn/device/gated.h"
#include "funicular/nn/device/join.h"
#include "funicular/nn/device/norm.h"
#include "funicular/nn/device/row_kernels.h"
#include "funicular/nn/device/scatter.h"
#include "funicular/nn/device/short_attention_gradients.h"

namespace funicular::device {

using namespace funicular::nn::device;

template <class Kernel>
void run_on_cuda(const Launch& how, const Kernel& kernel) {
  launch(how, kernel);
}

#define FUNICULAR_INSTANTIATE(S)                                          \
  template void run_on_cuda(const Launch&, const NormForward<S>&);        \
  template void run_on_cuda(const Launch&, const NormBackward<S>&);       \
  template void run_on_cuda(const Launch&, const DropoutRows<S>&);        \
  template void run_on_cuda(const Launch&, const EmbeddingNorm<S>&);      \
  template void run_on_cuda(const Launch&, const ScatterChunks<S, S>&);   \
  template void run_on_cuda(const Launch&, const ScatterSpans<S, S>&);    \
  template void run_on_cuda(const Launch&, const ColumnSum<S>&);          \
  template void run_on_cuda(const Launch&, const JoinParts<S>&);          \
  template void run_on_cuda(const Launch&, const ActivationForward<S>&);  \
  template void run_on_cuda(const Launch&, const ActivationBackward<S>&); \
  template void run_on_cuda(const Launch&, const GatedForward<S>&);       \
  template void run_on_cuda(const Launch&, const GatedBackward<S>&);      \
  template void run_on_cuda(const Launch&, const CrossEntropyRows<S>&);   \
  template void run_on_cuda(const Launch&, const AttentionForward<S>&);   \
  template void run_on_cuda(const Launch&, const QueryGradients<S>&);     \
  template void run_on_cuda(const Launch&, const KeyValueGradients<S>&);
FUNICULAR_INSTANTIATE(float)
FUNICULAR_INSTANTIATE(double)
FUNICULAR_INSTANTIATE(BFloat16)
FUNICULAR_INSTANTIATE(Half)
#undef FUNICULAR_INSTANTIATE
template void run_on_cuda(const Launch&, const CollectSums<float>&);
template void run_on_cuda(const Launch&, const CollectSums<double>&);
template void run_on_cuda(const Launch&, const ScatterChunks<BFloat16, float>&);
template void run_on_cuda(const Launch&, const ScatterChunks<Half, float>&);
template void run_on_cuda(const Launch&, const ScatterSpans<BFloat16, float>&);
template void run_on_cuda(const Launch&, const ScatterSpans<Half, float>&);

#define FUNICULAR_INSTANTIATE(width)                                                        \
  template void run_on_cuda(const Launch&, const ShortForward<BFloat16, width>&);           \
  template void run_on_cuda(const Launch&, const ShortQueryGradients<BFloat16, width>&);    \
  template void run_on_cuda(const Launch&, const ShortKeyValueGradients<BFloat16, width>&); \
  template void run_on_cuda(const Launch&, const ShortForward<Half, width>&);               \
  template void run_on_cuda(const Launch&, const ShortQueryGradients<Half, width>&);        \
  template void run_on_cuda(const Launch&, const ShortKeyValueGradients<Half, width>&);
FUNICULAR_INSTANTIATE(64)
#ifndef FUNICULAR_ONE_WIDTH  // the test that only compiles this file defines it, to save minutes
FUNICULAR_INSTANTIATE(32)
FUNICULAR_INSTANTIATE(96)
FUNICULAR_INSTANTIATE(128)
#endif
#undef FUNICULAR_INSTANTIATE

}  // namespace funicular::device
