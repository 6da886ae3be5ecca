#pragma once
// Prediction: turns rows of text into answers, in the same order.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "funicular/core/model.h"
#include "funicular/data/cut_rows.h"
#include "funicular/data/missing_texts.h"
#include "funicular/model/early_exit.h"
#include "funicular/objective/objective.h"
#include "funicular/objective/sequence.h"
#include "funicular/parallel/graphed_passes.h"
#include "funicular/task/answers.h"
#include "funicular/task/row_input.h"
#include "funicular/task/row_share.h"
#include "funicular/text/tokenizer.h"

namespace funicular::task {

class Predictor;

struct PredictorOptions {
  objective::SequenceOptions sequence;  ///< longer rows are truncated
  int64_t batch_tokens = 4096;          ///< the most tokens per forward pass; a longer row has its own pass
  /// The number of rows that are read ahead and sorted by length, so that a batch has similar rows. It bounds the
  /// memory.
  int64_t window = 1024;
  /// The rule of early exit: for a model with exits, or for a cascade, in which confident answers of `small` are
  /// final. The answers are StagedAnswers.
  std::optional<model::ExitRule> exits = {};
  const Predictor* small =
      nullptr;  ///< a cascade's small model, with the same classes and the same tokeniser
  /// A GPU repeats recorded passes (parallel/graphed_passes.h); without early exit.
  bool cuda_graphs = false;
};

/// Counts of a stream of rows.
struct StreamCounts {
  int64_t rows = 0;
  data::CutRows cut;      ///< rows longer than PredictorOptions::sequence.max_length
  RemarkedRows textless;  ///< rows without a token, whose answers are meaningless
  RemarkedRows missing;   ///< rows with a text that denotes a missing value, see data::MissingTexts
};

/// Keeps references to the model and the tokeniser, which must outlive it.
class Predictor {
 public:
  /// `objective`: makes the model's batches, without labels. Throws InputError for a window or a batch below 1.
  Predictor(const Model& model, const text::Tokenizer& tokenizer,
            std::unique_ptr<const objective::Objective> objective, std::unique_ptr<const Answers> answers,
            PredictorOptions options);

  /// Throws InputError if the model has other classes than the answers, and RunError if its output is not finite. If
  /// an interrupt is requested (base/interrupt.h), throws Error with ExitCode::interrupted.
  std::vector<Answer> answer(std::vector<InputRow> rows) const;

  /// Reads rows to the end, and calls `write` with one JSON line per row: window by window, with the rows of all
  /// ranks. A thread reads and tokenises the next window during the computation. With a model on a GPU, another thread
  /// computes a window while the answers to the one before are written. A bad row is answered by {"error": …}. Throws
  /// what the input throws; earlier windows have been written by then.
  StreamCounts stream(RowInput& input, const std::function<void(std::string_view)>& write,
                      const RowShare& share = {}) const;

  const Answers& answers() const { return *answers_; }

 private:
  struct Window;
  struct Scored;
  struct Pass;
  Window read_window(RowInput& input, const RowShare& share) const;
  TokenisedRow tokenise(InputRow row) const;
  std::vector<SampleScores> score(std::span<const TokenisedRow> rows) const;
  std::vector<SampleScores> score(std::span<const data::Sample> samples) const;
  std::vector<Answer> answers_of(std::span<const TokenisedRow> rows,
                                 std::span<const SampleScores> scores) const;
  std::vector<size_t> left_by_small(std::span<const data::Sample> samples,
                                    std::vector<SampleScores>& scores) const;
  at::Tensor logits_of(const MicroBatch& batch) const;
  Pass start(std::span<const data::Sample> samples, std::vector<size_t> places) const;
  void finish(const Pass& pass, std::vector<SampleScores>& scores) const;
  std::string lines(const Scored& scored) const;
  void count(const Window& window, StreamCounts& done) const;

  const Model& model_;
  const text::Tokenizer& tokenizer_;
  std::unique_ptr<const objective::Objective> objective_;
  std::unique_ptr<const Answers> answers_;
  PredictorOptions options_;
  std::unique_ptr<parallel::GraphedPasses> graphed_;  ///< null without PredictorOptions::cuda_graphs
  data::MissingTexts missing_;
};

}  // namespace funicular::task
