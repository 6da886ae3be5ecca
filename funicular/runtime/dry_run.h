#pragma once
// A step without its arithmetic: tensors are made and freed as usual, so that their bytes can be counted, but no
// number is computed. So the code of a step itself tells what the step will need.

#include <atomic>
#include <memory>

namespace funicular {

/// While one lives, LibTorch's operators on its thread give results of the right shape and type, with undefined
/// values. Some operators are carried out: views, operators that make empty tensors, and operators on small or
/// integral tensors. In the whole process pieces of work (runtime/work_items.h) are passed over. Large tensors are
/// then addresses of which no page is ever touched. So a step of a model of many times the machine's memory takes a
/// moment. A number that is read from a floating-point tensor is 1.
///
/// Works below autograd, so the backward pass saves and makes the same tensors as in a real step. Not for use while
/// another thread computes. May be nested.
class DryRun {
 public:
  DryRun();
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  static bool is_on() { return depth_.load(std::memory_order_relaxed) > 0; }

 private:
  class Interception;
  std::unique_ptr<Interception> interception_;
  inline static std::atomic<int> depth_{0};
};

}  // namespace funicular
