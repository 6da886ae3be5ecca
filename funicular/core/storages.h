#pragma once
// Counts the bytes of tensors of which several may lie in one buffer.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <set>

namespace funicular {

/// Bytes of the storages of tensors. Each storage is counted once, however many tensors are views of it. The tensors
/// must live as long as more are added.
class Storages {
 public:
  void add(const at::Tensor& tensor) {
    if (tensor.defined() && seen_.insert(tensor.storage().data()).second)
      bytes_ += static_cast<int64_t>(tensor.storage().nbytes());
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::set<const void*> seen_;
  int64_t bytes_ = 0;
};

}  // namespace funicular
