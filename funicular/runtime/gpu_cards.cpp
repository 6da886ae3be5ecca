#include "funicular/runtime/gpu_cards.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>

#include "funicular/base/error.h"

#ifdef FUNICULAR_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#endif

#ifndef FUNICULAR_CUDA_ARCHITECTURES
#define FUNICULAR_CUDA_ARCHITECTURES
#endif

namespace funicular::device {

std::vector<Card> cards() {
  std::vector<Card> found;
#ifdef FUNICULAR_CUDA
  const int count = c10::cuda::device_count();
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    found.push_back({index, properties.name, 10 * properties.major + properties.minor,
                     static_cast<int64_t>(properties.totalGlobalMem)});
  }
#endif
  return found;
}

void use_card([[maybe_unused]] int index) {
#ifdef FUNICULAR_CUDA
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
#endif
}

namespace {

std::atomic<int64_t> host_shared_bytes{kMostSharedBytes};

}  // namespace

SharedBytesOnHost::SharedBytesOnHost(int64_t bytes) {
  host_shared_bytes = bytes;
}

SharedBytesOnHost::~SharedBytesOnHost() {
  host_shared_bytes = kMostSharedBytes;
}

int64_t most_shared_bytes([[maybe_unused]] const at::Tensor& where) {
#ifdef FUNICULAR_CUDA
  if (where.is_cuda()) {
    int bytes = 0;
    C10_CUDA_CHECK(
        cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, where.get_device()));
    return bytes;
  }
#endif
  return host_shared_bytes.load(std::memory_order_relaxed);
}

void check_shared_bytes(const at::Tensor& where, int64_t wanted) {
  const int64_t allowed = most_shared_bytes(where);
  if (wanted <= allowed) return;
  const std::string name =
      where.is_cuda() ? cards().at(static_cast<size_t>(where.get_device())).name : "a team of threads";
  throw InputError(
      "device",
      "{}: a kernel needs {} bytes of shared memory, and {} are allowed; expected narrower heads, a "
      "narrower --precision, or --device cpu",
      name, wanted, allowed);
}

const std::vector<int>& built_architectures() {
  static const std::vector<int> architectures{FUNICULAR_CUDA_ARCHITECTURES};
  return architectures;
}

CardKernels kernels_for(int capability, const std::vector<int>& architectures) {
  for (const int architecture : architectures)
    if (architecture / 10 == capability / 10 && architecture <= capability) return CardKernels::machine_code;
  return !architectures.empty() && architectures.back() <= capability ? CardKernels::portable
                                                                      : CardKernels::none;
}

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10'000, version / 100 % 100, version % 100);
}

std::string nccl_version() {
  void* const library = ::dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
  if (!library) return "";
  using GetVersion = int (*)(int*);
  const auto get_version = reinterpret_cast<GetVersion>(::dlsym(library, "ncclGetVersion"));
  int version = 0;
  return get_version && get_version(&version) == 0 ? nccl_version_text(version) : "";
}

int card_of_rank(int local_rank, int local_size, int cards) {
  if (local_size > cards)
    throw InputError(
        "device",
        "--device cuda: this host has {} ranks and {} visible GPUs; expected at most one rank per GPU. "
        "Start fewer ranks, or give --device cuda:0 to have all of them share one",
        local_size, cards);
  return local_rank;
}

}  // namespace funicular::device
