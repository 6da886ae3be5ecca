#pragma once
// Sums of tensors in the order of a binary tree, for terms that come one by one and whose number is not known in
// advance.

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace funicular::parallel {

/// ((0 + 1) + (2 + 3)) + …, with the remaining terms last. So the sum of 2^k neighbours is the same wherever it is
/// made. Holds one sum per level of the tree.
class TreeSum {
 public:
  using Tensors = std::vector<at::Tensor>;

  /// Copies the term.
  void add(const Tensors& term) {
    Tensors sum;
    for (const at::Tensor& tensor : term) sum.push_back(tensor.clone());
    int level = 0;
    for (; !levels_.empty() && levels_.back().first == level; ++level) {
      add_to(levels_.back().second, sum);
      sum = std::move(levels_.back().second);
      levels_.pop_back();
    }
    levels_.emplace_back(level, std::move(sum));
  }

  /// Writes the sum to `result` and starts again; leaves `result` unchanged if there was no term.
  void finish(const Tensors& result) {
    while (levels_.size() > 1) {
      Tensors smaller = std::move(levels_.back().second);
      levels_.pop_back();
      add_to(levels_.back().second, smaller);
    }
    if (!levels_.empty())
      for (size_t i = 0; i < result.size(); ++i) result[i].copy_(levels_.back().second[i]);
    levels_.clear();
  }

 private:
  static void add_to(const Tensors& sums, const Tensors& more) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i].add_(more[i]);
  }

  std::vector<std::pair<int, Tensors>> levels_;  ///< of sums of 2^level terms, the largest first
};

}  // namespace funicular::parallel
