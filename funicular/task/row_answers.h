#pragma once
// Answers of tasks that read a whole row at once: one sample and one row of scores per row of text.

#include <span>
#include <string>
#include <vector>

#include "funicular/task/answers.h"

namespace funicular::task {

class RowAnswers : public Answers {
 public:
  explicit RowAnswers(std::vector<std::string> labels);
  Answer answer(const TokenisedRow& row, std::span<const SampleScores> scores) const override {
    static_cast<void>(row);
    return answer_of(scores.front().row(0));
  }
  std::string example() const override;

 protected:
  virtual Answer answer_of(std::span<const float> scores) const = 0;
  /// The class's name as a string of JSON.
  const std::string& key(int64_t label) const { return keys_[static_cast<size_t>(label)]; }
  /// "probabilities": {"NAME": …, …}
  std::string probabilities(std::span<const float> scores) const;

 private:
  std::vector<std::string> keys_;
};

}  // namespace funicular::task
