#pragma once
// Evaluation: exact metrics of a fine-tuned model on labelled rows, and its answer to each row.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/comm/group.h"
#include "funicular/data/cut_rows.h"
#include "funicular/data/token_store.h"
#include "funicular/format/bad_rows.h"
#include "funicular/task/baseline.h"
#include "funicular/task/early_exit.h"
#include "funicular/task/sheet.h"
#include "funicular/task/task.h"

namespace funicular::task {

/// The default rows of a forward pass: the most rows if tokens are also limited; the number of rows if they are not.
inline constexpr int64_t kMostEvaluatedRows = 512, kEvaluatedRows = 32;

/// The options of evaluate().
struct EvaluateOptions {
  fs::path model{};                             ///< the model's folder
  fs::path data{};                              ///< labelled rows; for a masked language model a token store
  std::shared_ptr<const Task> task{};           ///< none: the task of the model's fine-tuning
  std::shared_ptr<format::BadRows> bad_rows{};  ///< null: a bad row is an error

  std::optional<int64_t> max_length{};  ///< none: as in fine-tuning, else the model's longest
  std::optional<int64_t> batch_size{};  ///< rows of a forward pass at most; none: as `batch_tokens` allows
  int64_t batch_tokens = 8192;          ///< tokens of a forward pass at most; 0: no limit
  std::string precision = "fp32";       ///< one of model::inference_precisions(), or fp64
  at::Device device = at::kCPU;         ///< where the model computes
  uint64_t seed = 42;                   ///< of the masks of a masked language model
  bool cuda_graphs = false;             ///< a GPU repeats recorded passes; not with `exits` or `cascade`

  /// Rule of early exit for a model with exits. None: the whole model answers, and the curve of its exits is
  /// measured, too.
  ExitChoice exits{};
  /// Folder of the small model of a cascade, whose curve is measured, too. Empty: none.
  fs::path cascade{};
  /// Fits a temperature to the rows and writes it into the model's config.json, for predict and later evaluations.
  bool calibrate = false;
  /// With `calibrate`: writes a copy of the model with the temperature here, and leaves the model unchanged. Empty:
  /// no copy.
  fs::path calibrated{};

  std::shared_ptr<const data::TokenStore>
      trained{};  ///< training rows, whose best constant answer is compared

  fs::path stores{};   ///< folder for the tokenised rows; empty: a temporary one
  bool quiet = false;  ///< no messages about the rows, and no progress

  comm::Group group{};  ///< ranks that share the rows; the result has the bits of one process
  std::map<std::string, std::string> identity{};  ///< what else must be the same on all ranks, by name
};

/// Set only on rank 0.
struct Evaluation {
  std::shared_ptr<const Task> task;               ///< the task of the rows
  OrderedJson scores = {};                        ///< the metrics, "loss" and "samples"
  std::unique_ptr<Sheet> sheet = nullptr;         ///< the answers beside the labels
  std::unique_ptr<EvaluatedRows> rows = nullptr;  ///< the rows' texts, for lists of mistakes
  /// Measured curves (task/exit_speed.h) by name: "early_exit" of a model with exits, "cascade".
  OrderedJson curves = OrderedJson::object();
  /// Measures of calibration (Sheet::reliability). After EvaluateOptions::calibrate: of the calibrated model, with
  /// the earlier values in "before". Null: the task has no such measures.
  OrderedJson reliability = nullptr;
  /// The constant answer that is best on EvaluateOptions::trained, or else on these rows. None as in find_baseline().
  std::optional<Baseline> baseline = {};
  data::CutRows cut = {};  ///< texts that were cut
  uint64_t left_out = 0;   ///< bad rows
  OrderedJson record =
      {};  ///< the beginning of evaluation.json: model, data, metrics, the model's size and speed

  /// `json` with "left_out" and "cut" (with_cut), if there are such rows.
  OrderedJson with_rows_left_out(OrderedJson json) const;
  /// Writes the folder that `funicular report` reads, see write_evaluation.
  void write(const fs::path& folder) const;
};

/// All ranks must call it with the same options. Throws InputError for a task, rows or a model that do not fit, and
/// RunError for a loss that is not finite.
Evaluation evaluate(const EvaluateOptions& options);
/// As above, for an open folder.
Evaluation evaluate(model::Pretrained pretrained, const EvaluateOptions& options);

/// The loss and the perplexity of a masked language model on a token store: "loss", "perplexity", "samples".
/// Sequences are 128 tokens long unless `max_length` is given.
OrderedJson evaluate_masked_lm(model::Pretrained pretrained, const EvaluateOptions& options);

}  // namespace funicular::task
