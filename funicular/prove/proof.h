#pragma once
// Checks whether two layouts train alike: runs both with the same seed and global batches, and compares the results.
//
// Two layouts share the model, its kernels, its random choices, its loss and its optimiser. A bug there affects both,
// so comparing them cannot find it. A further layout, `reference`, can: it is a second implementation of the step
// (prove/reference_step.h). It shares only four things with the first implementation: the rows, their masked tokens,
// the initial weights, and the random number generator.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/comm/group.h"
#include "funicular/core/precision.h"
#include "funicular/core/recompute.h"
#include "funicular/model/encoder.h"
#include "funicular/optim/optimizer.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/strategy.h"
#include "funicular/prove/faults.h"
#include "funicular/prove/held_bytes.h"

namespace funicular::prove {

/// How a global batch is split and trained.
struct Layout {
  std::string text;                 ///< as given
  std::string strategy = "single";  ///< or "reference"
  int ranks = 1;                    ///< dp has 1; its -n gives the number of devices
  int64_t threads = 1;              ///< per rank
  int64_t micro_batch_size = 0;     ///< sequences; 0: a rank's share in one piece
  Recompute recompute = Recompute::none;
  bool deterministic = false;
  int servers = 1;            ///< for ps-sync
  parallel::Layout shared{};  ///< how ranks share the model; for the reference, the recurrence to follow
  Fault fault = Fault::none;

  bool is_reference() const { return strategy == "reference"; }
  /// Name and number of stages of a schedule that updates weights while the pipeline is full. "" for all other
  /// schedules, which give the same weights as a single process.
  std::string recurrence() const;
  /// Stages of an asynchronous pipeline, or of the recurrence that the reference follows.
  int stages() const { return shared.pipeline; }
  bool operator==(const Layout&) const = default;
  /// Parses "STRATEGY [-n RANKS] [--threads N] [--micro-batch-size N] [--recompute NAME] [--deterministic] [--servers
  /// N] [--fault NAME]", and the options of parallel::Layout. The reference is "reference [--threads N]". For an
  /// asynchronous schedule it is "reference --schedule NAME --pipeline-parallel P [--threads N]". Throws InputError
  /// naming the bad word.
  static Layout parse(const std::string& text);
};

/// The objectives, by their names on the command line.
inline constexpr const char *kMaskedLm = "masked-lm", *kClassification = "classification",
                            *kElectra = "electra", *kMacBert = "macbert", *kTags = "tags",
                            *kMultiLabel = "multi-label", *kDistillation = "distillation",
                            *kDistillationOfTokens = "distillation-tokens",
                            *kDistillationOfAllTokens = "distillation-all-tokens",
                            *kSoftLabels = "soft-labels", *kSoftMultiLabel = "soft-multi-label",
                            *kLongTexts = "long-texts", *kRelatedTexts = "related-texts",
                            *kScoredTexts = "scored-texts", *kRankedTexts = "ranked-texts";

/// The task that both layouts train.
struct ProofTask {
  fs::path model{};    ///< a folder or a config.json; empty: a small BERT with random weights
  int64_t layers = 3;  ///< for the small BERT
  fs::path data{};     ///< a token store (for classification, with labels); empty: generated rows
  model::Head head = model::Head::masked_lm;
  /// Replaces the head's own objective by one of the names above. kMacBert: n-grams masked by similar words, and
  /// sentence order. kRelatedTexts: multiple negatives in all variants, at two vector sizes. kScoredTexts: the order
  /// of scores in the batch. kRankedTexts: pairs of a query's texts with one of them among the two best. The scores
  /// decide how many such pairs a batch has. kSoftLabels, kSoftMultiLabel: shares of classes or labels at a
  /// temperature, and rows with weights. kLongTexts: windows of texts, each weighted by its text's weight over the
  /// number of the text's windows. kDistillation: every term on layers, vectors and classes that the model's family
  /// can compare. Generated rows have random words, labels and tags.
  std::string objective{};
  int64_t steps = 5, batch_size = 16, max_length = 64;
  Precision precision = Precision::fp64;
  optim::OptimizerSpec optimizer = optim::AdamW{.learning_rate = 1e-3, .weight_decay = 0.01};
  double max_grad_norm = 1;
  uint64_t seed = 42;
  at::Device device = at::kCPU;  ///< for layouts; the reference always runs on the CPU

  bool ranks() const { return objective == kRankedTexts; }
  bool distils() const { return objective.starts_with(kDistillation); }
  /// Number of texts in a row, if each is a sequence and their vectors are compared; else 0.
  int64_t texts() const { return objective == kRelatedTexts ? 3 : objective == kScoredTexts ? 2 : 0; }
};

/// The largest degree of tensor parallelism: the least number of attention heads of the task's encoders, including
/// ELECTRA's generator.
int64_t most_slices(const ProofTask& task);

/// The file of a step's tensors in a run's folder; kind is "gradient", "weight" or "state".
std::string step_file(const char* kind, int64_t step);

/// Whether attention on a GPU leaves out LibTorch's FlashAttention (ModelOptions::repeatable). FlashAttention's dropout
/// depends on how a batch is cut, so layouts would differ. Attention by vectors of distances never uses it, and
/// the gradients of these vectors do not repeat on a GPU, so `layout` decides there.
bool repeats_attention(const Layout& layout, const format::ModelConfig& config);

/// Trains under `layout` on the ranks of `group`, whose number must be the layout's. Writes to `folder` for each
/// step: the gradients before the update, the weights and optimiser state after it, the loss and its terms.
/// Collective.
void run_layout(const ProofTask& task, const Layout& layout, const comm::Group& group,
                const fs::path& folder);

/// Returns why the reference cannot train this task; "" if it can.
std::string reference_refuses(const ProofTask& task);

/// The largest difference over steps and tensors: ‖a − b‖ / max(‖b‖, 10⁻⁶ ‖b_all‖) (docs/explanation/numerics.md).
/// For losses: |a − b| / |b|.
struct Difference {
  double relative = 0;
  double absolute = 0;  ///< between two elements
  std::string
      tensor;  ///< the one with the largest relative difference; for losses the term, "total" for their sum
  int64_t step = 0;
};
struct Proof {
  Difference loss, gradient, weight, state;
  /// The first step and loss or tensor with a difference above the bound, losses before gradients before
  /// weights; "" if there is none.
  std::string first;
  bool bit_identical = true;
  int64_t tensors = 0;                    ///< compared tensors, over all steps
  std::vector<HeldBytes> held_a, held_b;  ///< per rank; empty for the reference
  /// Weights that are left out because their gradient is rounding noise in every step: its norm is below 10⁻⁶ of the
  /// whole. An optimiser that divides by the gradient's size would turn this noise into full steps. An example is the
  /// attention's key bias, whose gradient is 0 in theory.
  std::vector<std::string> noise;
};

/// The agreement of two layouts that docs/explanation/numerics.md promises.
struct Promise {
  bool bit_identical = false;
  double bound = 0;       ///< for relative differences of tensors
  double loss_bound = 0;  ///< for relative differences of losses
  std::string why;
};
/// Throws InputError for two layouts that follow different recurrences.
Promise promise_of(const Layout& a, const Layout& b, const ProofTask& task);

/// Throws InputError if a folder does not have the files of run_layout.
Proof compare_layouts(const fs::path& a, const fs::path& b, int64_t steps, const Promise& promise);
bool holds(const Proof& proof, const Promise& promise);
OrderedJson to_json(const Proof& proof, const Promise& promise);

}  // namespace funicular::prove
