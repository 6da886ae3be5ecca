#include "funicular/runtime/dry_run.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "funicular/runtime/allocator.h"
#include "funicular/runtime/boxed_tensors.h"

namespace funicular {

namespace {

// LibTorch's own key for tensors without data. Nothing in LibTorch's C++ library uses it, and it lies below autograd.
constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

using torch::jit::Stack;

bool is_small(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.nbytes()) < kSmallestCached;
}

/// Clears a small tensor: malloc's memory may hold NaN, and losses and norms are looked at.
void set_to_zero(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided) return;
  const size_t bytes = tensor.storage().nbytes();
  if (bytes > 0 && static_cast<int64_t>(bytes) < kSmallestCached)
    std::memset(tensor.storage().mutable_data(), 0, bytes);
}

/// One call of an operator: its arguments are the last of the stack.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack& stack)
      : op_(op), schema_(op.schema()), stack_(stack), first_(stack.size() - schema_.arguments().size()) {}

  void answer() {
    if (schema_.name() == "aten::_local_scalar_dense" && stack_.back().toTensor().is_floating_point())
      stack_.back() = c10::Scalar(1.0);
    else if (makes_empty_tensors())
      carry_out(), for_each_tensor(stack_.back(), set_to_zero);
    else if (gives_views() || works_on_little())
      carry_out();
    else if (writes())
      give_back_what_it_writes();
    else
      make_results();
  }

 private:
  void carry_out() { op_.callBoxed(&stack_); }
  bool makes_empty_tensors() const {
    return schema_.name().starts_with("aten::empty") || schema_.name().starts_with("aten::new_empty");
  }
  bool writes() const {
    for (const auto& argument : schema_.arguments())
      if (argument.alias_info() && argument.alias_info()->isWrite()) return true;
    return false;
  }
  bool gives_views() const {
    if (writes()) return false;
    for (const auto& result : schema_.returns())
      if (result.alias_info()) return true;
    return false;
  }

  /// Whether there are tensors, and all are small, of integers, or not of the kind that a step computes with.
  bool works_on_little() {
    bool any = false, little = true;
    for (size_t i = first_; i < stack_.size(); ++i)
      for_each_tensor(stack_[i], [&](const at::Tensor& tensor) {
        any = true;
        if (tensor.layout() == at::kStrided && tensor.is_cpu() && tensor.is_floating_point() &&
            !is_small(tensor))
          little = false;
      });
    return any && little;
  }

  void give_back_what_it_writes() {
    std::vector<c10::IValue> results;
    for (const auto& result : schema_.returns())
      for (size_t i = 0; result.alias_info() && i < schema_.arguments().size(); ++i) {
        const auto* const alias = schema_.arguments()[i].alias_info();
        if (alias && *alias == *result.alias_info()) {
          results.push_back(stack_[first_ + i]);
          break;
        }
      }
    stack_.erase(stack_.begin() + static_cast<std::ptrdiff_t>(first_), stack_.end());
    for (auto& result : results) stack_.push_back(std::move(result));
  }

  /// Shapes and types come from LibTorch's kernels for tensors without data. An operator without such a kernel is
  /// carried out. So is an operator that reads no tensor and makes small tensors or integers: places, rows, ranges.
  void make_results() {
    const std::vector<c10::IValue> arguments(stack_.begin() + static_cast<std::ptrdiff_t>(first_),
                                             stack_.end());
    bool known = true, reads = false, large = false;
    for (size_t i = first_; i < stack_.size(); ++i) {
      if (schema_.arguments()[i - first_].name() == "device") stack_[i] = c10::Device(c10::kMeta);
      for_each_tensor(stack_[i], [&](at::Tensor& tensor) {
        reads = true;
        tensor = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta));
      });
    }
    try {
      carry_out();
    } catch (const c10::Error&) {
      known = false;
    }
    for (size_t i = first_; known && i < stack_.size(); ++i)
      for_each_tensor(stack_[i], [&](const at::Tensor& tensor) {
        if (tensor.layout() != at::kStrided)
          known = false;
        else
          large = large || (tensor.is_floating_point() && !is_small(tensor));
      });
    if (!known || (!reads && !large)) {
      stack_.resize(first_);
      stack_.insert(stack_.end(), arguments.begin(), arguments.end());
      return carry_out();
    }
    for (size_t i = first_; i < stack_.size(); ++i)
      for_each_tensor(stack_[i], [](at::Tensor& tensor) {
        tensor = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kCPU));
        set_to_zero(tensor);
      });
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  Stack& stack_;
  size_t first_;
};

void without_computing(const c10::OperatorHandle& op, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard inside(kKey);
  Call(op, *stack).answer();
}

/// From the first dry run on; costs other calls nothing.
void intercept_operators() {
  static torch::Library* const library = [] {
    auto* const made = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&without_computing>());
    return made;
  }();
  (void)library;
}

}  // namespace

class DryRun::Interception {
 public:
  Interception() : guard_((intercept_operators(), kKey)) {}

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

DryRun::DryRun() : interception_(std::make_unique<Interception>()) {
  ++depth_;
}

DryRun::~DryRun() {
  --depth_;
}

}  // namespace funicular
