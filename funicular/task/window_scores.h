#pragma once
// Combines the scores of a long text's windows (objective/text_windows.h), for evaluations and answers.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/core/metrics.h"
#include "funicular/objective/text_windows.h"
#include "funicular/task/answers.h"

namespace funicular::task {

/// Means count a window by its new tokens, which no earlier window has.
enum class Combination {
  mean_probabilities,  ///< the mean of the windows' probabilities
  mean_logits,         ///< the mean of the windows' logits
  maximum,             ///< the greatest probability of each label; for classes, scaled to the sum 1
};
/// The kind of scores that a model's logits give.
enum class ScoreKind { softmax, sigmoid, number };

/// "mean-probabilities", "mean-logits", "maximum": in the order of Combination.
const std::vector<std::string>& combination_names();
/// The distinct combinations for scores of this kind. The first is the default, unless an evaluation chose another
/// one.
const std::vector<Combination>& combinations_of(ScoreKind kind);
/// The key of the combination in config.json's "funicular".
inline constexpr const char* kWindowsNote = "windows";
/// Reads the combination in `note` (config.json's key "funicular"); none: no evaluation chose one. Throws InputError
/// for an unknown name.
std::optional<Combination> combination_in(const Json& note);

/// Turns the logits of windows [windows, columns] into logits of texts [texts, columns] in fp64. The logits of a text
/// with one window stay bit-identical. `text_of`: the text of each window; `new_tokens`: of each window. Every text
/// has a window.
at::Tensor combine_windows(const at::Tensor& logits, std::span<const int64_t> text_of,
                           std::span<const int64_t> new_tokens, int64_t texts, Combination how,
                           ScoreKind kind);

/// Metrics of windows' outputs "logits" [S, columns], "labels" and "samples" [S]. Once all windows are known,
/// `of_texts` gets the logits and labels of whole texts and measures them.
class WindowMetrics final : public Metrics {
 public:
  /// `windows` and `of_texts` must outlive it. `how`: none: each evaluation chooses the combination with the best
  /// `metric`, and notes it (kWindowsNote).
  WindowMetrics(const objective::TextWindows& windows, Metrics& of_texts, ScoreKind kind,
                std::optional<Combination> how, std::string metric);
  void start() override;
  void add(const TensorMap& outputs) override;
  void losses(const std::map<std::string, double>& terms) override { of_texts_.losses(terms); }
  std::map<std::string, double> finish(double loss) override;
  Json kept() const override;

 private:
  std::map<std::string, double> measure(Combination how, double loss);

  const objective::TextWindows& windows_;
  Metrics& of_texts_;
  ScoreKind kind_;
  std::optional<Combination> how_, chosen_ = {};
  std::string metric_;
  std::vector<at::Tensor> logits_, labels_;
  std::vector<int64_t> samples_;
};

/// Metrics of windows' words: outputs "logits" [R, tags], "labels" [R] and "samples" [R]. `of_texts` is fed with the
/// words of whole texts, and "samples" are texts.
class WindowWordMetrics final : public Metrics {
 public:
  /// Both must outlive it.
  WindowWordMetrics(const objective::TextWindows& windows, Metrics& of_texts)
      : windows_(windows), of_texts_(of_texts) {}
  void start() override;
  void add(const TensorMap& outputs) override;
  void losses(const std::map<std::string, double>& terms) override { of_texts_.losses(terms); }
  std::map<std::string, double> finish(double loss) override;
  Json kept() const override { return of_texts_.kept(); }

 private:
  const objective::TextWindows& windows_;
  Metrics& of_texts_;
  TensorMap rest_ = {};  ///< the words of a text that may have more
};

/// The answers of `texts`, for rows of one text whose windows are samples.
class WindowAnswers final : public Answers {
 public:
  /// `how`: none: the first of combinations_of(kind).
  WindowAnswers(std::unique_ptr<const Answers> texts, int64_t stride, ScoreKind kind,
                std::optional<Combination> how);
  int64_t width() const override { return texts_->width(); }
  void tokenise(const text::Tokenizer& tokenizer, TokenisedRow& row) const override;
  /// Windows cut no text.
  void count_cut(const TokenisedRow& /*row*/, int64_t /*room*/, data::CutRows& /*cut*/) const override {}
  at::Tensor scores(const at::Tensor& logits) const override { return logits; }
  Answer answer(const TokenisedRow& row, std::span<const SampleScores> scores) const override;
  std::string example() const override { return texts_->example(); }

 private:
  std::unique_ptr<const Answers> texts_;
  int64_t stride_;
  ScoreKind kind_;
  Combination how_;
};

/// Makes the samples and windows of a row's only text, which is tokenised already. A sample marks the tokens for
/// which `is_read` holds; with several windows, only in its own part. `stride`: none: one sample has the whole text.
void add_windows(const text::Tokenizer& tokenizer, TokenisedRow& row, std::optional<int64_t> stride,
                 const std::function<bool(size_t token)>& is_read);

/// If `samples` are TextWindows, logs how many texts of `file` have several windows.
void report_windows(const data::Dataset& samples, const fs::path& file);

}  // namespace funicular::task
