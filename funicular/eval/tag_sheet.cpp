#include "funicular/eval/tag_sheet.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "funicular/base/json_text.h"
#include "funicular/eval/evaluation_record.h"
#include "funicular/eval/row_ids.h"
#include "funicular/format/list.h"

namespace funicular::eval {

TagSheet::TagSheet(std::vector<std::string> tags) : tags_(tags), metrics_(std::move(tags)) {}

void TagSheet::start() {
  words_.clear();
  metrics_.start();
}

void TagSheet::add(const TensorMap& outputs) {
  metrics_.add(outputs);  // refuses outputs that are missing
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

namespace {

constexpr size_t kMostAround = 20;  ///< words of a text that are shown on each side of one

/// The word and those around it.
std::string around(std::span<const std::string_view> words, size_t at) {
  const size_t begin = at > kMostAround ? at - kMostAround : 0,
               end = std::min(words.size(), at + kMostAround + 1);
  return fmt::format("{}{}{}", begin > 0 ? "… " : "", fmt::join(words.subspan(begin, end - begin), " "),
                     end < words.size() ? " …" : "");
}

}  // namespace

OrderedJson TagSheet::mistakes(const Task& task, const fs::path& file) const {
  using Place =
      std::tuple<double, int64_t, size_t>;  // the least probable first, then in the order of the file
  std::vector<Place> wrong;
  for (const auto& [sample, words] : words_)
    for (size_t at = 0; at < words.size(); ++at)
      if (words[at].predicted != words[at].label) wrong.emplace_back(words[at].label_score, sample, at);
  std::sort(wrong.begin(), wrong.end());
  std::multimap<int64_t, size_t> of_sample;
  for (size_t i = 0; i < wrong.size(); ++i) of_sample.emplace(std::get<1>(wrong[i]), i);
  std::vector<OrderedJson> found(wrong.size());
  RowIds ids(task, file);
  int64_t sample = 0;
  for_each_row(task, file, [&](int64_t number, const data::SourceRow& row) {
    const auto [begin, end] = of_sample.equal_range(sample++);
    if (begin == end) return;
    const auto texts = format::split_list(row.columns[0], " ");
    for (auto place = begin; place != end; ++place) {
      const auto& [score, of, at] = wrong[place->second];
      const Word& word = words_.at(of).at(at);
      found[place->second] = {{"row", number},
                              {"label", tags_.at(static_cast<size_t>(word.label))},
                              {"predicted", tags_.at(static_cast<size_t>(word.predicted))},
                              {"score", word.score},
                              {"label_score", word.label_score},
                              {"texts", {around(texts, at), std::string(texts.at(at))}}};
      ids.want(row.offset, found[place->second]);
    }
  });
  ids.read();
  return found;
}

std::string TagSheet::lines(const Task& task, const fs::path& file) const {
  std::string text;
  int64_t sample = 0;
  for_each_row(task, file, [&](int64_t number, const data::SourceRow& row) {
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

}  // namespace funicular::eval
