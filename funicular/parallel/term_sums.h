#pragma once
// Sums of loss terms over micro-batches and ranks.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "funicular/comm/group.h"
#include "funicular/core/batch.h"

namespace funicular::parallel {

/// Sums stay tensors until the end: reading one waits for the device.
class TermSums {
 public:
  /// Throws InputError if one name comes with two weights.
  void add(const LossSink& sink);
  void add(const TermSums& other);

  struct Total {
    double sum = 0, weight = 1;
  };
  /// The totals over the micro-batches of this rank.
  std::map<std::string, Total> totals() const;
  /// The sums where they lie, [terms] of double in the order of the terms' names; undefined if there are none.
  at::Tensor values() const;
  /// totals() from values() that were copied to the host.
  std::map<std::string, Total> totals(const at::Tensor& host) const;
  /// Returns the sums over all ranks, with the terms of any rank, as tensors on `device`. No rank waits for its device.
  /// Collective.
  TermSums over_ranks(const comm::Group& group, const at::Device& device) const;
  /// Returns a copy in which terms without items in the global batch are zero. Their sums may be NaN.
  TermSums counted(const Counts& counts) const;

 private:
  struct Sum {
    at::Tensor value;
    double weight = 1;
  };
  void add(const std::string& name, const at::Tensor& value, double weight);
  std::map<std::string, Sum> sums_;
};

/// Adds the totals of all ranks, in the order of the ranks; all get the same result. Collective.
std::map<std::string, TermSums::Total> add_over_ranks(const comm::Group& group,
                                                      const std::map<std::string, TermSums::Total>& own);

}  // namespace funicular::parallel
