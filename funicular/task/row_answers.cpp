#include "funicular/task/row_answers.h"

#include <fmt/format.h>

#include <utility>

#include "funicular/base/json.h"
#include "funicular/base/json_text.h"

namespace funicular::task {

RowAnswers::RowAnswers(std::vector<std::string> labels) : Answers(std::move(labels)) {
  for (const std::string& label : this->labels()) keys_.push_back(json_text(Json(label)));
}

std::string RowAnswers::example() const {
  return answer_of(std::vector<float>(static_cast<size_t>(width()))).json;
}

std::string RowAnswers::probabilities(std::span<const float> scores) const {
  std::string text = "\"probabilities\": {";
  for (size_t i = 0; i < keys_.size(); ++i)
    text += fmt::format("{}{}: {:.6g}", i == 0 ? "" : ", ", keys_[i], scores[i]);
  return text + "}";
}

}  // namespace funicular::task
