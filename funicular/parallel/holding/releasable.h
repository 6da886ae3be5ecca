#pragma once
// A tensor whose memory can be given back and taken again, for weights that a rank holds only while it uses them.

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <utility>

namespace funicular::parallel {

/// A flat tensor whose memory can be released and restored, while the views into it remain.
class Releasable {
 public:
  Releasable() = default;
  explicit Releasable(at::Tensor tensor) : tensor_(std::move(tensor)), bytes_(tensor_.nbytes()) {}

  const at::Tensor& tensor() const { return tensor_; }
  bool present() const { return present_; }

  void release() {
    storage().set_data_ptr_noswap(at::DataPtr(nullptr, tensor_.device()));
    storage().set_nbytes(0);
    present_ = false;
  }
  /// Allocates the memory again, with undefined contents.
  void restore() {
    storage().set_data_ptr_noswap(c10::GetAllocator(tensor_.device().type())->allocate(bytes_));
    storage().set_nbytes(bytes_);
    present_ = true;
  }

 private:
  c10::StorageImpl& storage() const { return *tensor_.storage().unsafeGetStorageImpl(); }

  at::Tensor tensor_;
  size_t bytes_ = 0;
  bool present_ = true;
};

}  // namespace funicular::parallel
