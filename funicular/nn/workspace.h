#pragma once
// Memory that kernels need while they run.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>

namespace funicular::nn {

/// One block for all: something that all threads share, then a workspace for each of them, every one aligned
/// to a cache line. Threads that allocated their own at the same moment would wait for each other's lock.
class Workspace {
 public:
  static constexpr int64_t kAlignment = 64;

  struct Sizes {
    int64_t shared = 0;  ///< bytes for all
    int64_t each = 0;    ///< bytes for each worker
    int64_t workers = 0;
    int64_t total() const { return kAlignment + aligned(shared) + workers * aligned(each); }
  };

  explicit Workspace(const Sizes& sizes) : sizes_(sizes), memory_(at::empty({sizes.total()}, at::kByte)) {}

  unsigned char* shared() const {
    return reinterpret_cast<unsigned char*>(aligned(reinterpret_cast<intptr_t>(memory_.data_ptr())));
  }
  unsigned char* of(int64_t worker) const {
    return shared() + aligned(sizes_.shared) + worker * aligned(sizes_.each);
  }
  int64_t workers() const { return sizes_.workers; }

 private:
  static int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  Sizes sizes_;
  at::Tensor memory_;
};

}  // namespace funicular::nn
