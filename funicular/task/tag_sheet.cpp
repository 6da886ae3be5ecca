#include "funicular/task/tag_sheet.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <span>
#include <utility>

#include "funicular/base/json_text.h"
#include "funicular/format/column_list.h"
#include "funicular/objective/tag_metrics.h"
#include "funicular/task/row_ids.h"

namespace funicular::task {

TagSheet::TagSheet(std::vector<std::string> tags)
    : Sheet(std::make_unique<objective::TagMetrics>(tags)), tags_(std::move(tags)) {}

void TagSheet::start() {
  words_.clear();
  Sheet::start();
}

void TagSheet::add(const TensorMap& outputs) {
  Sheet::add(outputs);  // refuses outputs that are missing
  const auto on_host = [&](const char* name) { return outputs.at(name).to(at::kCPU).contiguous(); };
  const at::Tensor labels = on_host("labels"), samples = on_host("samples");
  const at::Tensor probabilities = at::softmax(on_host("logits").to(at::kDouble), 1);
  const auto [scores, tags] = probabilities.max(1);
  const at::Tensor own = probabilities.gather(1, labels.unsqueeze(1)).contiguous();
  for (int64_t i = 0; i < tags.numel(); ++i)
    words_[samples.const_data_ptr<int64_t>()[i]].push_back(
        {labels.const_data_ptr<int64_t>()[i], tags.const_data_ptr<int64_t>()[i],
         scores.const_data_ptr<double>()[i], own.const_data_ptr<double>()[i]});
}

void TagSheet::add_details(OrderedJson& found) const {
  found["classes"] = static_cast<const objective::TagMetrics&>(metrics()).classes();
}

namespace {

constexpr size_t kMostAround = 20;  ///< words of a text that are shown on each side of one

/// The word and the words around it.
std::string around(std::span<const std::string_view> words, size_t at) {
  const size_t begin = at > kMostAround ? at - kMostAround : 0,
               end = std::min(words.size(), at + kMostAround + 1);
  return fmt::format("{}{}{}", begin > 0 ? "… " : "", fmt::join(words.subspan(begin, end - begin), " "),
                     end < words.size() ? " …" : "");
}

}  // namespace

/// The least probable first, then in the order of the file.
std::vector<TagSheet::Place> TagSheet::wrong_words() const {
  std::vector<Place> wrong;
  for (const auto& [sample, words] : words_)
    for (size_t at = 0; at < words.size(); ++at)
      if (words[at].predicted != words[at].label) wrong.push_back({words[at].label_score, sample, at});
  std::sort(wrong.begin(), wrong.end());
  return wrong;
}

OrderedJson TagSheet::mistakes(const EvaluatedRows& rows) const {
  const std::vector<Place> wrong = wrong_words();
  std::multimap<int64_t, size_t> of_sample;
  for (size_t i = 0; i < wrong.size(); ++i) of_sample.emplace(wrong[i].sample, i);
  std::vector<OrderedJson> found(wrong.size());
  RowIds ids = rows.ids();
  int64_t sample = 0;
  rows.for_each([&](int64_t number, const data::SourceRow& row) {
    const auto [begin, end] = of_sample.equal_range(sample++);
    if (begin == end) return;
    const auto texts = format::split_list(row.columns[0], " ");
    for (auto place = begin; place != end; ++place) {
      const Place& at = wrong[place->second];
      const Word& word = words_.at(at.sample).at(at.word);
      found[place->second] = {{"row", number},
                              {"label", tags_.at(static_cast<size_t>(word.label))},
                              {"predicted", tags_.at(static_cast<size_t>(word.predicted))},
                              {"score", word.score},
                              {"label_score", word.label_score},
                              {"texts", {around(texts, at.word), std::string(texts.at(at.word))}}};
      ids.want(row.offset, found[place->second]);
    }
  });
  ids.read();
  return found;
}

std::string TagSheet::lines(const EvaluatedRows& rows) const {
  std::string text;
  int64_t sample = 0;
  rows.for_each([&](int64_t number, const data::SourceRow& row) {
    const auto words = format::split_list(row.columns[0], " ");
    OrderedJson predicted = OrderedJson::array(), scores = OrderedJson::array();
    if (const auto found = words_.find(sample++); found != words_.end())
      for (const Word& word : found->second) {
        predicted.push_back(tags_.at(static_cast<size_t>(word.predicted)));
        scores.push_back(word.score);
      }
    while (predicted.size() < words.size()) {
      predicted.push_back(nullptr);
      scores.push_back(nullptr);
    }
    const OrderedJson line = {{"row", number},
                              {"words", words},
                              {"labels", format::split_list(row.label, " ")},
                              {"predicted", predicted},
                              {"scores", scores}};
    text += json_text(line) + "\n";
  });
  return text;
}

}  // namespace funicular::task
