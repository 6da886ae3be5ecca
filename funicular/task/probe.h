#pragma once
// Probing: measures with linear classifiers how much each layer of a frozen encoder knows about a user's task. Tenney
// et al., "BERT Rediscovers the Classical NLP Pipeline", ACL 2019; Jawahar et al., "What Does BERT Learn about the
// Structure of Language?", ACL 2019.

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/format/bad_rows.h"
#include "funicular/task/run.h"
#include "funicular/task/task.h"

namespace funicular::task {

struct ProbeOptions : RunOptions {
  fs::path model{};                             ///< folder of any encoder
  fs::path train_file{}, eval_file{};           ///< the rows
  std::shared_ptr<const Task> task{};           ///< of classes per text or per word
  std::shared_ptr<format::BadRows> bad_rows{};  ///< null: a bad row is an error
  std::set<int64_t> layers{};                   ///< counted from 1, 0 the embeddings; empty: all
  bool mean = true;                             ///< of texts: the mean of all tokens; false: the first token
  double margin = 0.01;  ///< a layer is as good as the best if its accuracy is lower by less than this
  std::optional<int64_t> max_length{};  ///< none: 128, or the model's longest
};

/// The file of the probes, in the run's model folder.
inline constexpr const char* kProbesFile = "probes.safetensors";

struct ProbeResult {
  RunResult run;
  /// {"layers": [{"layer", "accuracy", "macro_f1"}, …], "most_frequent": the accuracy without reading a text,
  /// "best_layer", "student_layers": the lowest layer within the margin, "margin", "standard_error", "thirds":
  /// {"lower", "middle", "upper"}}.
  OrderedJson probe = {};
};

/// Trains a linear classifier on each layer's hidden states, all at once with one pass of the encoder, without
/// dropout and gradients. Writes the run's folder as finetune() does, and evaluation.json for `report`. Throws
/// InputError for options, files or a model that do not fit.
ProbeResult probe(const ProbeOptions& options);

}  // namespace funicular::task
