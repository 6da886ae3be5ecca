// The kernels of optim/device for CUDA; see nn/device/cuda.cu.
#include "funicular/base/cuda_team.cuh"
#include "funicular/optim/device/square_sum.h"
#include "funicular/optim/device/update.h"

namespace funicular::device {

using namespace funicular::optim::device;

template <class Kernel>
void run_on_cuda(const Launch& how, const Kernel& kernel) {
  launch(how, kernel);
}

#define FUNICULAR_INSTANTIATE(T, G, S)                                   \
  template void run_on_cuda(const Launch&, const AdamBlocks<T, G, S>&);  \
  template void run_on_cuda(const Launch&, const SgdBlocks<T, G, S>&);   \
  template void run_on_cuda(const Launch&, const SquareSums<T, G, S>&);  \
  template void run_on_cuda(const Launch&, const LambMoments<T, G, S>&); \
  template void run_on_cuda(const Launch&, const LambApply<T, G, S>&);
FUNICULAR_INSTANTIATE(double, double, double)
FUNICULAR_INSTANTIATE(float, float, float)
FUNICULAR_INSTANTIATE(float, float, BFloat16)
FUNICULAR_INSTANTIATE(float, BFloat16, BFloat16)
FUNICULAR_INSTANTIATE(float, float, Half)
FUNICULAR_INSTANTIATE(float, Half, Half)
#undef FUNICULAR_INSTANTIATE
template void run_on_cuda(const Launch&, const SquareSum<float>&);
template void run_on_cuda(const Launch&, const SquareSum<double>&);
template void run_on_cuda(const Launch&, const SquareSum<BFloat16>&);
template void run_on_cuda(const Launch&, const SquareSum<Half>&);

}  // namespace funicular::device
