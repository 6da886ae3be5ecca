#pragma once
// How a global batch becomes one optimiser step on this rank.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "funicular/core/model.h"
#include "funicular/core/recompute.h"
#include "funicular/optim/optimizer.h"

namespace funicular::parallel {

/// Which part of every global batch this rank reads: parts [index] of [count].
struct DataShare {
  int64_t index = 0, count = 1;
};

struct StepSettings {
  double learning_rate = 0;
  double max_gradient_norm = 0;  ///< 0: no clipping
  int64_t update = 1;            ///< 1-based count of updates; steps without one do not count
  /// What the loss is multiplied by before the backward pass, and gradients are divided by after it (fp16).
  double loss_scale = 1;
  Recompute recompute = Recompute::none;  ///< activations to compute again in the backward pass
};

struct StepResult {
  std::map<std::string, double> losses;  ///< mean of each loss term over the global batch
  double loss = 0;                       ///< weighted total
  double gradient_norm = 0;              ///< global L2 norm before clipping, without the loss scale
  bool finite = true;                    ///< false: loss or norm is NaN or infinite, and nothing was updated
  std::string non_finite_loss;           ///< the first loss term that is not finite, if any
  std::string non_finite_gradient;       ///< the first parameter whose gradient is not finite, if any
};

/// One evaluated micro-batch: sums and counts of the loss terms, and the outputs the metrics need.
struct EvalResult {
  std::map<std::string, double> sums;
  std::map<std::string, double> weights;  ///< of each term in the total; two for one name are an InputError
  Counts counts;
  std::vector<TensorMap> outputs;  ///< one a micro-batch, in order
};

/// A named slice of a logical tensor, read or written in place.
class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  /// `local` holds rows [begin, end) of the logical tensor `name` with shape `shape`; kind is "model",
  /// "buffer" or "optimizer.<state name>".
  virtual void visit(const std::string& kind, const std::string& name, const std::vector<int64_t>& shape,
                     int64_t begin, int64_t end, at::Tensor local) = 0;
};

/// The number formats of training beside the master weights' own.
struct Numerics {
  std::optional<at::ScalarType> compute{};  ///< kBFloat16 or kHalf: mixed precision; none: the masters' type
  bool accumulates =
      true;  ///< a step may have several micro-batches, whose gradients are added in the masters' type
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  /// Replicates, shards or cuts the model; called once. The model must outlive the strategy.
  virtual void attach(Model& model, std::unique_ptr<optim::Optimizer> optimizer,
                      const Numerics& numerics = {}) = 0;
  virtual DataShare data_share() const = 0;
  virtual StepResult step(std::span<const MicroBatch> micro_batches, const Counts& global,
                          const StepSettings& settings) = 0;
  virtual EvalResult evaluate(std::span<const MicroBatch> micro_batches) = 0;
  virtual void visit_state(StateVisitor& visitor) = 0;
  /// To be called when tensors that visit_state gave have been written to: copies of them follow.
  virtual void state_changed() = 0;
};

/// One process, one device.
std::unique_ptr<Strategy> make_single();

/// Forward passes without gradients and without the modules' training mode; what evaluation is made of
/// everywhere.
EvalResult evaluate_micro_batches(const Model& model, std::span<const MicroBatch> micro_batches);

}  // namespace funicular::parallel
