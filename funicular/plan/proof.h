#pragma once
// Whether two layouts train alike: the same seed and global batches under both, and what differs.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/parallel/strategy.h"
#include "funicular/train/trainer.h"

namespace funicular::plan {

/// How a global batch is cut.
struct Layout {
  std::string text;  ///< as it was given
  std::string strategy = "single";
  int ranks = 1;
  int devices = 1;               ///< of dp, which -n tells instead of ranks
  int64_t threads = 1;           ///< of each rank
  int64_t micro_batch_size = 0;  ///< sequences; 0: a rank's share in one piece
  Recompute recompute = Recompute::none;
  bool deterministic = false;
  int servers = 1;  ///< of ps-sync
  parallel::Fault fault = parallel::Fault::none;

  /// "STRATEGY [-n RANKS] [--threads N] [--micro-batch-size N] [--recompute NAME] [--deterministic]
  /// [--servers N] [--fault NAME]". Throws InputError naming the word.
  static Layout parse(const std::string& text);
};

/// What both layouts train.
struct ProofTask {
  fs::path model{};  ///< a folder or a config.json; empty: a small BERT with random weights
  fs::path data{};   ///< a token store; empty: generated rows
  int64_t steps = 5, batch_size = 16, max_length = 64;
  train::Precision precision = train::Precision::fp64;
  optim::OptimizerSpec optimizer = optim::AdamW{.learning_rate = 1e-3, .weight_decay = 0.01};
  double max_grad_norm = 1;
  uint64_t seed = 42;
};

/// Trains under `layout` on the ranks of `group`, whose number must be the layout's, and leaves in `folder`
/// for each step the gradients before the update, the weights and optimiser state after it, and the losses.
/// Collective.
void run_layout(const ProofTask& task, const Layout& layout, const comm::Group& group,
                const fs::path& folder);

/// ‖a − b‖ / max(‖b‖, 10⁻⁶ ‖b_all‖), the largest over steps and tensors (docs/numerics.md).
struct Difference {
  double relative = 0;
  double absolute = 0;  ///< of two elements
  std::string tensor;   ///< of the largest relative one
  int64_t step = 0;
};
struct Proof {
  Difference gradient, weight, state;
  double loss = 0;  ///< largest |a − b| / |b|
  /// The first step and tensor with a difference above the bound, gradients before weights; "" if there is
  /// none.
  std::string first;
  bool bit_identical = true;
  int64_t tensors = 0;  ///< compared, over all steps
  /// Weights that are left out because their gradient is rounding noise in every step (below 10⁻⁶ of the
  /// whole; the attention's key bias has none in theory): an optimiser that divides by the gradient's size
  /// makes steps of it.
  std::vector<std::string> noise;
};

/// What docs/numerics.md promises of two layouts.
struct Promise {
  bool bit_identical = false;
  double bound = 0;  ///< on every relative difference
  std::string why;
};
Promise promise_of(const Layout& a, const Layout& b, const ProofTask& task);

/// Throws InputError where a folder is not what run_layout leaves.
Proof compare_layouts(const fs::path& a, const fs::path& b, int64_t steps, const Promise& promise);
bool holds(const Proof& proof, const Promise& promise);
OrderedJson to_json(const Proof& proof, const Promise& promise);

}  // namespace funicular::plan
