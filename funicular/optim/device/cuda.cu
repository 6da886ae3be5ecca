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

#define FUNICULAR_TYPES(X, Update)     \
  X(Update, double, double, double)    \
  X(Update, float, float, float)       \
  X(Update, float, float, BFloat16)    \
  X(Update, float, BFloat16, BFloat16) \
  X(Update, float, float, Half)        \
  X(Update, float, Half, Half)
#define FUNICULAR_UPDATE(Update, T, G, S) \
  template void run_on_cuda(const Launch&, const UpdateBlocks<optim::Update, T, G, S>&);
#define FUNICULAR_DIRECTION(Update, T, G, S)                                              \
  template void run_on_cuda(const Launch&, const MeasureBlocks<optim::Update, T, G, S>&); \
  template void run_on_cuda(const Launch&, const ApplyBlocks<optim::Update, T, G, S>&);
#define FUNICULAR_SUMS(Unused, T, G, S)                                   \
  template void run_on_cuda(const Launch&, const GradientSums<T, G, S>&); \
  template void run_on_cuda(const Launch&, const SquareSums<T, G, S>&);
#define FUNICULAR_INSTANTIATE(Update) FUNICULAR_TYPES(FUNICULAR_UPDATE, Update)
FUNICULAR_UPDATES(FUNICULAR_INSTANTIATE)
#undef FUNICULAR_INSTANTIATE
#define FUNICULAR_INSTANTIATE(Update) FUNICULAR_TYPES(FUNICULAR_DIRECTION, Update)
FUNICULAR_DIRECTIONS(FUNICULAR_INSTANTIATE)
#undef FUNICULAR_INSTANTIATE
FUNICULAR_TYPES(FUNICULAR_SUMS, )
template void run_on_cuda(const Launch&, const SquareSum<float>&);
template void run_on_cuda(const Launch&, const SquareSum<double>&);
template void run_on_cuda(const Launch&, const SquareSum<BFloat16>&);
template void run_on_cuda(const Launch&, const SquareSum<Half>&);

}  // namespace funicular::device
