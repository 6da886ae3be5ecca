#pragma once
// Metrics of an evaluation besides the loss.

#include <map>
#include <string>

#include "funicular/base/json.h"
#include "funicular/core/batch.h"

namespace funicular {

/// Metrics over an evaluation, fed one micro-batch at a time, in the order of the data.
class Metrics {
 public:
  virtual ~Metrics() = default;
  virtual void start() = 0;
  /// Adds the outputs that the segments gave to LossSink::output for one micro-batch.
  virtual void add(const TensorMap& outputs) = 0;
  /// The mean of each loss term, before finish.
  virtual void losses(const std::map<std::string, double>& /*terms*/) {}
  /// By name, without "eval_". `loss` is the mean of the loss terms, which is recorded as "loss" unless a metric has
  /// that name.
  virtual std::map<std::string, double> finish(double loss) = 0;
  /// Note on the last evaluation for the folder of the best model, in config.json's key "funicular": an
  /// object; empty: nothing.
  virtual Json kept() const { return Json::object(); }
};

}  // namespace funicular
