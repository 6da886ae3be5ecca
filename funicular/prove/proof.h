#pragma once
// Whether two layouts train alike: the same seed and global batches under both, and what differs.
//
// Two layouts share the model, its kernels, its random choices, its loss and its optimiser, so a fault there
// is in both of them, and no comparison of the two can see it. One more layout is there for that:
// `reference`, a step written a second time (prove/reference_step.h). With the others it has in common which
// rows are read, which of their tokens are masked, the weights before the first step, and the generator of
// random numbers.

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

/// How a global batch is cut.
struct Layout {
  std::string text;                 ///< as it was given
  std::string strategy = "single";  ///< or "reference"
  int ranks = 1;                    ///< of dp: 1; -n tells its devices
  int64_t threads = 1;              ///< of each rank
  int64_t micro_batch_size = 0;     ///< sequences; 0: a rank's share in one piece
  Recompute recompute = Recompute::none;
  bool deterministic = false;
  int servers = 1;            ///< of ps-sync
  parallel::Layout shared{};  ///< how ranks share the model; of the reference what it follows
  Fault fault = Fault::none;

  bool is_reference() const { return strategy == "reference"; }
  /// Of a schedule that updates weights while the pipeline is full: its name, and into how many stages the model is
  /// cut; "" of all others, which give the weights of one process.
  std::string recurrence() const;
  /// Stages of an asynchronous pipeline, or of the recurrence that the reference follows.
  int stages() const { return shared.pipeline; }
  bool operator==(const Layout&) const = default;
  /// "STRATEGY [-n RANKS] [--threads N] [--micro-batch-size N] [--recompute NAME] [--deterministic]
  /// [--servers N] [--fault NAME]", and the options of parallel::Layout; or
  /// "reference [--threads N]", of an asynchronous schedule "reference --schedule NAME --pipeline-parallel P
  /// [--threads N]". Throws InputError naming the word.
  static Layout parse(const std::string& text);
};

/// What layouts learn, by its name on the command line.
inline constexpr const char *kMaskedLm = "masked-lm", *kClassification = "classification",
                            *kElectra = "electra", *kMacBert = "macbert", *kTags = "tags",
                            *kMultiLabel = "multi-label", *kDistillation = "distillation",
                            *kDistillationOfTokens = "distillation-tokens",
                            *kDistillationOfAllTokens = "distillation-all-tokens",
                            *kSoftLabels = "soft-labels", *kSoftMultiLabel = "soft-multi-label",
                            *kLongTexts = "long-texts", *kRelatedTexts = "related-texts",
                            *kScoredTexts = "scored-texts", *kRankedTexts = "ranked-texts";

/// What both layouts train.
struct ProofTask {
  fs::path model{};    ///< a folder or a config.json; empty: a small BERT with random weights
  int64_t layers = 3;  ///< of the small BERT
  fs::path data{};     ///< a token store, for classification one with labels; empty: generated rows
  model::Head head = model::Head::masked_lm;
  /// In place of the head's own objective: any other of the names above. kMacBert: n-grams of words, shown as similar
  /// ones, and the order of sentences. kRelatedTexts: multiple negatives in all their forms, at two sizes of vectors.
  /// kScoredTexts: the order of scores in the batch. kRankedTexts: pairs of the texts of a query, of which one is among
  /// the two best; how many there are in the batch, the scores decide. kSoftLabels, kSoftMultiLabel: shares of classes
  /// or of labels at a temperature, and rows with weights. kLongTexts: the windows of texts, each weighted by its
  /// text's weight over the number of its windows. kDistillation: every term of layers, vectors and classes. The words,
  /// labels and tags of generated rows are made up, too.
  std::string objective{};
  int64_t steps = 5, batch_size = 16, max_length = 64;
  Precision precision = Precision::fp64;
  optim::OptimizerSpec optimizer = optim::AdamW{.learning_rate = 1e-3, .weight_decay = 0.01};
  double max_grad_norm = 1;
  uint64_t seed = 42;
  at::Device device = at::kCPU;  ///< of layouts; the reference is always computed on the CPU

  bool ranks() const { return objective == kRankedTexts; }
  bool distils() const { return objective.starts_with(kDistillation); }
  /// Texts of a row that are sequences of their own, and whose vectors are compared; 0: rows are no such groups.
  int64_t texts() const { return objective == kRelatedTexts ? 3 : objective == kScoredTexts ? 2 : 0; }
};

/// Into how many slices the task's weights can be cut: as many as attention has heads, ELECTRA's generator's included.
int64_t most_slices(const ProofTask& task);

/// The file of a step's tensors in a run's folder; kind is "gradient", "weight" or "state".
std::string step_file(const char* kind, int64_t step);

/// Why these two layouts cannot be compared on the task's device; "" if they can. On a GPU only layouts of one rank
/// are compared. In 16 bits there, LibTorch's FlashAttention draws dropout by the batch, unless a layout is
/// deterministic.
std::string device_refuses(const ProofTask& task, const Layout& a, const Layout& b);

/// Trains under `layout` on the ranks of `group`, whose number must be the layout's, and leaves in `folder`
/// for each step the gradients before the update, the weights and optimiser state after it, the loss and its
/// terms. Collective.
void run_layout(const ProofTask& task, const Layout& layout, const comm::Group& group,
                const fs::path& folder);

/// Why the reference cannot train this task; "" if it can.
std::string reference_refuses(const ProofTask& task);

/// ‖a − b‖ / max(‖b‖, 10⁻⁶ ‖b_all‖), the largest over steps and tensors (docs/explanation/numerics.md); of losses
/// |a − b| / |b|.
struct Difference {
  double relative = 0;
  double absolute = 0;  ///< of two elements
  std::string tensor;   ///< of the largest relative one; of losses the term, "total" for their sum
  int64_t step = 0;
};
struct Proof {
  Difference loss, gradient, weight, state;
  /// The first step and loss or tensor with a difference above the bound, losses before gradients before
  /// weights; "" if there is none.
  std::string first;
  bool bit_identical = true;
  int64_t tensors = 0;                    ///< compared, over all steps
  std::vector<HeldBytes> held_a, held_b;  ///< of each rank; of the reference none
  /// Weights that are left out because their gradient is rounding noise in every step (below 10⁻⁶ of the
  /// whole; the attention's key bias has none in theory): an optimiser that divides by the gradient's size
  /// makes steps of it.
  std::vector<std::string> noise;
};

/// What docs/explanation/numerics.md promises of two layouts.
struct Promise {
  bool bit_identical = false;
  double bound = 0;       ///< on every relative difference of tensors
  double loss_bound = 0;  ///< on that of losses
  std::string why;
};
/// Throws InputError for two layouts that follow different recurrences.
Promise promise_of(const Layout& a, const Layout& b, const ProofTask& task);

/// Throws InputError where a folder is not what run_layout leaves.
Proof compare_layouts(const fs::path& a, const fs::path& b, int64_t steps, const Promise& promise);
bool holds(const Proof& proof, const Promise& promise);
OrderedJson to_json(const Proof& proof, const Promise& promise);

}  // namespace funicular::prove
