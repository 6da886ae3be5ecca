// New tensors hold NaN until they are written, in every test program this file is linked with: an operation
// that reads what nobody wrote then fails each time, not when memory happens to hold such bits. LibTorch
// fills them in its deterministic mode; it only warns where it has no deterministic algorithm.

#include <ATen/Context.h>

namespace {

const bool filled = [] {
  at::globalContext().setDeterministicAlgorithms(/*b=*/true, /*warn_only=*/true);
  return true;
}();

}  // namespace
