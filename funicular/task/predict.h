#pragma once
// Prediction for a whole input: answers the rows of a file or of standard input line by line.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "funicular/base/file.h"
#include "funicular/comm/group.h"
#include "funicular/task/calibration.h"
#include "funicular/task/early_exit.h"
#include "funicular/task/predictor.h"
#include "funicular/task/task.h"

namespace funicular::task {

struct PredictOptions {
  fs::path model{};      ///< folder of a fine-tuned model
  InputOptions input{};  ///< unset options are as in fine-tuning; `texts` and `model` are filled in
  std::optional<int64_t> max_length{};  ///< none: as in fine-tuning, else the model's longest
  std::string precision = "fp32";       ///< one of model::inference_precisions()
  int64_t batch_tokens = 4096;          ///< the most tokens of a forward pass
  int64_t window = 1024;                ///< rows read before the first answer, and sorted by length for speed
  at::Device device = at::kCPU;
  ExitChoice exits{};  ///< see FolderOptions
  fs::path cascade{};  ///< folder of a cascade's small model, which answers first; empty: none
  Decision decision{};
  bool cuda_graphs = false;  ///< see FolderOptions

  comm::Group group{};                            ///< ranks that share the rows of a file
  std::map<std::string, std::string> identity{};  ///< what else must be the same on all ranks, by name
};

/// Receives the answers; called only on rank 0.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  /// Called once model and input are open, before the first answer.
  virtual void begin(const Task& /*task*/, const Answers& /*answers*/) {}
  /// Whole JSON lines, each with its end, in the order of the rows.
  virtual void write(std::string_view lines) = 0;
  /// Called after the last answer.
  virtual void end() {}
};

/// Answers each row of the input, and warns of doubtful rows. All ranks must call it with the same options. Throws
/// InputError for a model, an input or options that do not fit, and Error with ExitCode::interrupted if an interrupt
/// is requested.
StreamCounts predict(const PredictOptions& options, AnswerSink& sink);
StreamCounts predict(const PredictOptions& options, const std::function<void(std::string_view)>& write);

}  // namespace funicular::task
