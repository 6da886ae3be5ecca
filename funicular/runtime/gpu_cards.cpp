#include "funicular/runtime/gpu_cards.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <fmt/format.h>

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>

#include "funicular/base/error.h"
#include "funicular/runtime/device_kernels.h"

#ifdef FUNICULAR_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#endif

#ifndef FUNICULAR_CUDA_ARCHITECTURES
#define FUNICULAR_CUDA_ARCHITECTURES
#endif

namespace funicular::device {

namespace {

// For tests: kernels on teams of threads, and the stand-in of a card (tests/card/stand_in.h).
constexpr int kCapabilityOfHost = 80;
constexpr int64_t kMemoryOfStandIn = int64_t{8} << 30;

}  // namespace

std::vector<Card> cards() {
  std::vector<Card> found;
#ifdef FUNICULAR_CUDA
  const int count = c10::cuda::device_count();
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    found.push_back({index, properties.name, 10 * properties.major + properties.minor,
                     static_cast<int64_t>(properties.totalGlobalMem),
                     fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID,
                                 properties.pciDeviceID)});
  }
#else
  for (int index = 0; has_cuda_kernels() && index < at::detail::getCUDAHooks().deviceCount(); ++index)
    found.push_back({index, "a stand-in of a card", kCapabilityOfHost, kMemoryOfStandIn});
#endif
  return found;
}

std::string driver_shortfall() {
  int driver = 0, runtime = 0;
#ifdef FUNICULAR_CUDA
  C10_CUDA_CHECK(cudaDriverGetVersion(&driver));
  C10_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
#endif
  return driver_shortfall(driver, runtime);
}

std::string driver_shortfall(int driver, int runtime) {
  if (driver == 0 || driver / 1000 >= runtime / 1000) return "";
  return fmt::format(
      "the NVIDIA driver is for CUDA {}.{}, and this build needs CUDA {}; expected a newer driver "
      "(docs/how_to/gpu.md)",
      driver / 1000, driver % 1000 / 10, runtime / 1000);
}

int capability(const at::Device& device) {
  if (runs_on_host(device)) return kCapabilityOfHost;
#ifdef FUNICULAR_CUDA
  if (c10::cuda::device_count() == 0) return 0;
  const int index = device.has_index() ? device.index() : c10::cuda::current_device();
  int major = 0, minor = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index));
  return 10 * major + minor;
#else
  return 0;
#endif
}

bool multiplies_bf16(const at::Device& gpu) {
  return capability(gpu) >= 80;
}

void use_card(int index) {
#ifdef FUNICULAR_CUDA
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
#else
  if (has_cuda_kernels()) at::detail::getCUDAHooks().setCurrentDevice(static_cast<c10::DeviceIndex>(index));
#endif
}

namespace {

std::atomic<int64_t> allowed_shared_bytes{kMostSharedBytes};

}  // namespace

LimitSharedBytes::LimitSharedBytes(int64_t bytes) {
  allowed_shared_bytes = bytes;
}

LimitSharedBytes::~LimitSharedBytes() {
  allowed_shared_bytes = kMostSharedBytes;
}

int64_t most_shared_bytes([[maybe_unused]] const at::Tensor& where) {
  const int64_t allowed = allowed_shared_bytes.load(std::memory_order_relaxed);
#ifdef FUNICULAR_CUDA
  if (where.is_cuda()) {
    int bytes = 0;
    C10_CUDA_CHECK(
        cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, where.get_device()));
    return std::min<int64_t>(bytes, allowed);
  }
#endif
  return allowed;
}

void check_shared_bytes(const at::Tensor& where, int64_t wanted) {
  const int64_t allowed = most_shared_bytes(where);
  if (wanted <= allowed) return;
  const std::string name =
      where.is_cuda() ? cards().at(static_cast<size_t>(where.get_device())).name : "a team of threads";
  throw InputError(
      "device",
      "{}: a kernel needs {} bytes of shared memory, and {} are allowed; expected narrower heads "
      "or layers, a narrower --precision, or --device cpu",
      name, wanted, allowed);
}

std::vector<int> built_architectures() {
  std::vector<int> architectures{FUNICULAR_CUDA_ARCHITECTURES};
  if (architectures.empty() && has_cuda_kernels()) architectures.push_back(kCapabilityOfHost);
  return architectures;
}

CardKernels kernels_for(int capability, const std::vector<int>& architectures) {
  for (const int architecture : architectures)
    if (architecture / 10 == capability / 10 && architecture <= capability) return CardKernels::machine_code;
  return !architectures.empty() && architectures.back() <= capability ? CardKernels::portable
                                                                      : CardKernels::none;
}

std::vector<int> processors_near(const Card& card, const std::filesystem::path& system) {
  std::vector<int> found;
  std::ifstream file(system / "bus/pci/devices" / card.bus / "local_cpulist");
  if (card.bus.empty()) return found;
  for (std::string range; std::getline(file, range, ',');) {  // "0-15,64-79"
    int first = 0, last = 0;
    const int read = std::sscanf(range.c_str(), "%d-%d", &first, &last);
    for (int one = first; read > 0 && one <= (read == 2 ? last : first); ++one) found.push_back(one);
  }
  return found;
}

int stay_on(const std::vector<int>& wanted) {
  cpu_set_t own, both;
  CPU_ZERO(&own);
  CPU_ZERO(&both);
  ::sched_getaffinity(0, sizeof own, &own);
  for (const int one : wanted)
    if (one >= 0 && one < CPU_SETSIZE && CPU_ISSET(one, &own)) CPU_SET(one, &both);
  if (CPU_COUNT(&both) == 0) return CPU_COUNT(&own);
  ::sched_setaffinity(0, sizeof both, &both);
  return CPU_COUNT(&both);
}

int card_of_rank(int local_rank, int local_size, int cards, bool shared) {
  if (local_size > cards && !shared)
    throw InputError(
        "device",
        "--device cuda: this host has {} ranks and {} visible GPUs; expected at most one rank per GPU. "
        "Start fewer ranks, or let ranks share a GPU by --share-device. Give --device cuda:0 if each rank "
        "sees "
        "only its own GPU",
        local_size, cards);
  return local_rank % cards;
}

}  // namespace funicular::device
