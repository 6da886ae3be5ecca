#pragma once
// Scores of answers to questions: exact match and F1, as SQuAD and (for Chinese) CMRC2018 define them.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/core/metrics.h"
#include "funicular/objective/spans.h"
#include "funicular/task/questions.h"
#include "funicular/text/tokenizer.h"

namespace funicular::task {

/// Scores of one answer, from 0 to 1.
struct SpanScore {
  double exact = 0, f1 = 0;
};

/// SQuAD's words of a text: lower-cased, without ASCII punctuation and the words a, an and the.
std::vector<std::string> squad_words(std::string_view text);
/// CMRC2018's words of a text: lower-cased, without its marks. Each Chinese character and each mark of ASCII is a word;
/// all other text is split at white space. As in NLTK's tokeniser, a comma before a digit and a full stop within a word
/// do not split ("1,000", "3.5", "u.s").
std::vector<std::string> cmrc_words(std::string_view text);
/// The best score over the gold answers; none: the right answer is "". `chinese`: by CMRC2018's rules.
SpanScore score_answer(std::string_view answer, const std::vector<std::string>& gold, bool chinese);

/// The threshold of BestSpan::null_odds, above which a question has no answer, that gives the best mean.
struct BestThreshold {
  double mean = 0, threshold = 0;
};
/// One question: its null odds, its score if it is answered, its score if it is not.
struct ThresholdPoint {
  double odds = 0, answered = 0, unanswered = 0;
};
BestThreshold best_threshold(std::vector<ThresholdPoint> points);

/// exact, f1, and for Chinese `average`, the mean of both, by which CMRC2018 ranks. If questions without an answer
/// occur, also the scores by kind of question, and the best thresholds.
std::vector<std::string> span_metric_names();

/// One answered question.
struct AnsweredQuestion {
  objective::BestSpan span;
  std::string answer;          ///< before the threshold
  text::CharacterRange place;  ///< of the answer in the context
  SpanScore score;             ///< of `answer`
};

/// Metrics of outputs "logits", "samples" and "lengths" of windows; see objective::span_reader. The tokeniser must
/// outlive it.
class SpanMetrics final : public Metrics {
 public:
  SpanMetrics(QuestionFile file, std::shared_ptr<const objective::SpanWindows> windows,
              const text::Tokenizer& tokenizer);
  /// Sets the null odds above which a question gets no answer. Without it, the threshold is 0 if some questions of
  /// the file have no answer; otherwise every question gets its answer.
  void set_threshold(double threshold) { threshold_ = threshold; }
  void start() override;
  void add(const TensorMap& outputs) override;
  std::map<std::string, double> finish(double loss) override;
  /// {"null_threshold": …}, if questions of the file have no answer.
  Json kept() const override;

  const QuestionFile& file() const { return file_; }
  const std::vector<AnsweredQuestion>& answered() const { return answered_; }
  /// Whether the threshold removes the answer.
  bool is_null(size_t question) const;
  SpanScore score_of(size_t question) const;

 private:
  void read_answers();
  std::vector<ThresholdPoint> points(double SpanScore::*part) const;

  const QuestionFile file_;
  const std::shared_ptr<const objective::SpanWindows> windows_;
  const text::Tokenizer& tokenizer_;
  std::optional<double> threshold_;
  std::vector<AnsweredQuestion> answered_;
  std::optional<double> best_f1_threshold_;
};

}  // namespace funicular::task
