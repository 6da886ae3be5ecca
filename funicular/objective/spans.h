#pragma once
// Extractive question answering: the answer to a question is a span of its context. A long context is split into
// windows.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "funicular/objective/row_objective.h"
#include "funicular/objective/text_windows.h"

namespace funicular::objective {

/// Makes sequences of a question and the windows of its context.
class SpanForm {
 public:
  static constexpr int64_t kMostQuestionTokens = 64, kDefaultStride = 128;

  /// `stride`: tokens that neighbouring windows share; none: kDefaultStride, but at most half a window. Throws
  /// InputError for a stride as long as a window, and for a length without room for a question and a context.
  SpanForm(const text::SequenceTemplate& form, int64_t max_length, std::optional<int64_t> stride);

  /// The number of tokens read from a question with `tokens` tokens: its first ones, at most kMostQuestionTokens.
  int64_t question(int64_t tokens) const { return std::min(tokens, most_question_); }
  /// The windows of a context, at least one. The last window ends where the context ends.
  std::vector<TokenRange> windows(int64_t question_tokens, int64_t context_tokens) const;
  /// The place of a window's first token in its sequence.
  int64_t place(int64_t question_tokens) const { return before_ + question(question_tokens); }
  /// The sample of one window of the row (question, context). It has no label.
  data::Sample sample(const data::Sample& row, TokenRange window) const;

 private:
  int64_t room_ = 0;           ///< for tokens of both texts
  int64_t most_question_ = 0;  ///< tokens of a question
  int64_t before_ = 0;         ///< special tokens before the context
  int64_t stride_ = 0;
};

/// A row's answer, by its first and its last token in the context.
struct AnswerTokens {
  enum Kind : int8_t { there, none, unknown };  ///< unknown: the row is not used in training
  Kind kind = unknown;
  int64_t first = 0, last = 0;
};

/// The windows of rows (question, context), in their order. Sample::label_set is {first, last}, the answer's tokens
/// within the window. It is {-1, -1} if the window does not hold the whole answer. It is {-2, -2} if the answer is
/// not known.
class SpanWindows final : public data::Dataset {
 public:
  struct Window {
    int64_t row = 0;
    TokenRange tokens;
  };
  /// `answers`: one per row of the store; empty: no row's answer is known. Throws InputError for another number.
  SpanWindows(std::shared_ptr<const data::TokenStore> store, const SpanForm& form,
              std::span<const AnswerTokens> answers);
  int64_t size() const override { return static_cast<int64_t>(windows_.size()); }
  data::Sample get(int64_t index) const override;
  int64_t document_of(int64_t index) const override { return window(index).row; }
  uint64_t fingerprint() const override;
  bool found_damaged() const override { return store_->found_damaged(); }
  void require_sound() const override { store_->require_sound(); }
  const Window& window(int64_t index) const { return windows_.at(static_cast<size_t>(index)); }
  int64_t rows() const { return store_->rows(); }
  /// The place in the sequence of the window's first token.
  int64_t place(int64_t index) const;

 private:
  std::shared_ptr<const data::TokenStore> store_;
  SpanForm form_;
  std::vector<Window> windows_;
  std::vector<int32_t> labels_;  ///< two per window
};

/// The best answer of a question over the windows of its context.
struct BestSpan {
  static constexpr int64_t kBest = 20, kMostTokens = 30;
  double score = -std::numeric_limits<double>::infinity();  ///< the sum of both logits
  int64_t first = -1, last = -1;  ///< tokens of the context; -1: no answer was found
  double null_score =
      std::numeric_limits<double>::infinity();  ///< least sum of [CLS]'s logits over the windows

  /// Reads one window. `logits`: two per token of its sequence; `place`: where the window begins in it. Candidates
  /// combine the sequence's kBest starts and kBest ends, if they lie in the window and span at most kMostTokens
  /// tokens.
  void read(std::span<const float> logits, int64_t place, TokenRange window);
  /// How much higher "no answer" scores than the answer.
  double null_odds() const { return null_score - score; }
};

/// A candidate for the answer; see BestSpan.
struct ScoredSpan {
  double score;
  int64_t first, last;  ///< tokens of the context
};

/// The best candidates of a question over the windows of its context, the best first. A span in several windows
/// counts once, with its best score.
class BestSpans {
 public:
  /// `count`: how many are kept.
  explicit BestSpans(int64_t count) : count_(static_cast<size_t>(count)) {}
  /// Reads one window, as BestSpan::read.
  void read(std::span<const float> logits, int64_t place, TokenRange window);
  const std::vector<ScoredSpan>& spans() const { return spans_; }

 private:
  size_t count_;
  std::vector<ScoredSpan> spans_;
};

struct SpanOptions {
  int64_t max_length = 384;
  std::optional<int64_t> stride = {};
  bool labelled = true;  ///< false: for prediction
};

/// Trains a span reader (Devlin et al., "BERT", NAACL 2019, section 4.2). The probability that a token begins (or
/// ends) the answer is a softmax over the tokens of its sequence. In a window without the answer, [CLS] is both begin
/// and end.
///
/// Batch: token_ids, token_type_ids [T]. Also span_places [T] int64, the place of each token in a table [S, longest].
/// Also lengths [S] int64. Also starts, ends [S] int64, -100 for a sample without a known answer. Count: `spans`, the
/// samples with a known answer.
class Spans : public RowObjective {
 public:
  Spans(const text::Tokenizer& tokenizer, const SpanOptions& options);
  /// Makes samples without known answers; SpanWindows makes samples with answers.
  std::shared_ptr<const data::Dataset> samples(std::shared_ptr<const data::TokenStore> store) const override;
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  model::Head head() const override;
  LossOver loss_over() const override { return of_class<Spans>(); }
  std::map<std::string, std::string> identity() const override;
  const SpanForm& span_form() const { return span_form_; }

 private:
  SpanOptions options_;
  SpanForm span_form_;
};

/// transformers' BertForQuestionAnswering, or another family's: the linear layer `qa_outputs` maps the hidden states
/// of all tokens to logits of start and end. Loss term `spans`: half the sum of both cross-entropies. Outputs:
/// `logits` [T, 2], `samples` [S] int64 (Packing::sample_ids), `lengths` [S]. Tap: `logits`.
model::Head span_reader();

/// Whether the configuration describes a model with this head.
bool is_span_reader(const format::ModelConfig& config);

}  // namespace funicular::objective
