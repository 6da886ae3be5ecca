// The kernels of nn/device/row_kernels.h and nn/device/attention.h for CUDA. No header of LibTorch: nvcc alone
// compiles this file, also where there is no GPU.
#include "funicular/base/cuda_team.cuh"
#include "funicular/nn/device/attention.h"
#include "funicular/nn/device/row_kernels.h"

namespace funicular::device {

using namespace funicular::nn::device;

template <class Kernel>
void run_on_cuda(const Launch& how, const Kernel& kernel) {
  launch(how, kernel);
}

#define FUNICULAR_INSTANTIATE(S)                                           \
  template void run_on_cuda(const Launch&, const NormForward<S>&);         \
  template void run_on_cuda(const Launch&, const NormBackward<S>&);        \
  template void run_on_cuda(const Launch&, const NormVectorGradients<S>&); \
  template void run_on_cuda(const Launch&, const DropoutRows<S>&);         \
  template void run_on_cuda(const Launch&, const EmbeddingNorm<S>&);       \
  template void run_on_cuda(const Launch&, const ScatterRows<S, S>&);      \
  template void run_on_cuda(const Launch&, const ColumnSum<S>&);           \
  template void run_on_cuda(const Launch&, const ActivationForward<S>&);   \
  template void run_on_cuda(const Launch&, const ActivationBackward<S>&);  \
  template void run_on_cuda(const Launch&, const CrossEntropyRows<S>&);    \
  template void run_on_cuda(const Launch&, const AttentionForward<S>&);    \
  template void run_on_cuda(const Launch&, const QueryGradients<S>&);      \
  template void run_on_cuda(const Launch&, const KeyValueGradients<S>&);
FUNICULAR_INSTANTIATE(float)
FUNICULAR_INSTANTIATE(double)
FUNICULAR_INSTANTIATE(BFloat16)
FUNICULAR_INSTANTIATE(Half)
#undef FUNICULAR_INSTANTIATE
template void run_on_cuda(const Launch&, const ScatterRows<BFloat16, float>&);
template void run_on_cuda(const Launch&, const ScatterRows<Half, float>&);

}  // namespace funicular::device
