#include "funicular/task/staged_answers.h"

#include <fmt/format.h>
#include <torch/types.h>

namespace funicular::task {

StagedAnswers::StagedAnswers(std::unique_ptr<const Answers> inner, std::string key)
    : Answers(inner->labels()), inner_(std::move(inner)), key_(std::move(key)) {}

at::Tensor StagedAnswers::scores(const at::Tensor& logits) const {
  const int64_t last = logits.size(1) - 1;
  return at::cat({inner_->scores(logits.narrow(1, 0, last)), logits.narrow(1, last, 1)}, 1);
}

Answer StagedAnswers::answer(const TokenisedRow& row, std::span<const SampleScores> scores) const {
  SampleScores own = scores.front();
  const auto number = static_cast<int64_t>(own.values.back());
  own.values.pop_back();
  --own.width;
  Answer answer = inner_->answer(row, {&own, 1});
  answer.json = with_key(std::move(answer.json), number);
  return answer;
}

std::string StagedAnswers::example() const {
  return with_key(inner_->example(), 1);
}

/// `json` is one object.
std::string StagedAnswers::with_key(std::string json, int64_t number) const {
  json.pop_back();
  return json + fmt::format(", \"{}\": {}}}", key_, number);
}

}  // namespace funicular::task
