#pragma once
// The interface of the optimisers (AdamW, LAMB and others), which update flat buffers of weights.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/core/flat_parameters.h"
#include "funicular/optim/lamb.h"
#include "funicular/optim/lars.h"

namespace funicular::optim {

/// What one step needs besides gradients.
struct StepInput {
  double learning_rate = 0;
  double gradient_scale = 1;  ///< gradients are multiplied by this first: clipping, loss scale
  int64_t step = 1;           ///< 1-based count of updates, for bias correction
  /// Leaves all gradients zero that are not freed, which costs less here, while they are in the cache, than a
  /// pass of its own.
  bool zero_gradients = false;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Allocates the state for these blocks; called once. Throws InputError for parameters that it cannot
  /// update.
  virtual void attach(std::shared_ptr<const UpdateTarget> target) = 0;
  /// All of the parameters.
  void attach(const FlatParameters& parameters) { attach(parameters.target()); }
  /// Updates parameters in place from their gradients.
  virtual void step(const StepInput& input) = 0;
  /// Whether gradients may be sparse tensors of rows (optim/sparse_rows.h), where they are freed.
  virtual bool takes_row_gradients() const { return false; }
  /// Whether an update needs the norms of whole layers, and so all ranks that hold parts of one.
  virtual bool needs_layer_norms() const { return false; }
  /// Flat state tensors [UpdateTarget::state_size] by name ("exp_avg", …). Whoever writes to them does so
  /// before the next step, and asks again for another time: a step may know which of them are zero.
  virtual std::vector<std::pair<std::string, at::Tensor>> state() const = 0;
  /// One with the same settings, not attached, for a strategy whose ranks are in this process. Null: there is none.
  virtual std::unique_ptr<Optimizer> another() const { return nullptr; }
};

/// Decoupled weight decay: Loshchilov, Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, Algorithm
/// 2; the decay is multiplied by the learning rate, as in PyTorch.
struct AdamW {
  double learning_rate = 1e-3;  ///< the peak; schedules scale it
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.0;    ///< on weights that decay (Parameter::decays)
  bool bias_correction = true;  ///< false: as BERT was trained at first
};

/// Kingma, Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, Algorithm 1; the decay is an L2
/// penalty: it is added to the gradient.
struct Adam {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.0;  ///< L2 penalty on weights that decay
  bool bias_correction = true;
};

/// Gradient descent with heavy-ball or Nesterov momentum, as torch.optim.SGD without dampening.
struct Sgd {
  double learning_rate = 1e-2;
  double momentum = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;  ///< L2 penalty on weights that decay
};

/// Which optimiser with which settings.
using OptimizerSpec = std::variant<AdamW, Adam, Sgd, Lamb, Lars>;

/// Throws InputError naming the first setting that is out of range.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec);
double peak_learning_rate(const OptimizerSpec& spec);
/// "adamw", "adam", "sgd", "lamb", "lars".
std::string optimizer_name(const OptimizerSpec& spec);
/// Name and settings, for run.json.
OrderedJson describe(const OptimizerSpec& spec);

}  // namespace funicular::optim
