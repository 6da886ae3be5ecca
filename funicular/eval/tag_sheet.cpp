#include "funicular/eval/tag_sheet.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "funicular/eval/evaluation_record.h"
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
  const auto [scores, tags] = at::softmax(on_host("logits").to(at::kDouble), 1).max(1);
  for (int64_t i = 0; i < tags.numel(); ++i)
    words_[samples.const_data_ptr<int64_t>()[i]].push_back({labels.const_data_ptr<int64_t>()[i],
                                                            tags.const_data_ptr<int64_t>()[i],
                                                            scores.const_data_ptr<double>()[i]});
}

OrderedJson TagSheet::mistakes(const Task& task, const fs::path& file, size_t most) const {
  using Place = std::tuple<double, int64_t, size_t>;  // the surest first, then in the order of the file
  std::vector<Place> wrong;
  for (const auto& [sample, words] : words_)
    for (size_t at = 0; at < words.size(); ++at)
      if (words[at].predicted != words[at].label) wrong.emplace_back(-words[at].score, sample, at);
  std::sort(wrong.begin(), wrong.end());
  wrong.resize(std::min(most, wrong.size()));
  std::vector<OrderedJson> found(wrong.size());
  int64_t sample = 0;
  for_each_row(task, file, [&](int64_t number, const data::SourceRow& row) {
    for (size_t i = 0; i < wrong.size(); ++i) {
      const auto& [score, of, at] = wrong[i];
      if (of != sample) continue;
      const Word& word = words_.at(of).at(at);
      const auto texts = format::split_list(row.columns[0], " ");
      found[i] = {{"row", number},
                  {"label", tags_.at(static_cast<size_t>(word.label))},
                  {"predicted", tags_.at(static_cast<size_t>(word.predicted))},
                  {"score", word.score},
                  {"texts", {fmt::format("{}", fmt::join(texts, " ")), std::string(texts.at(at))}}};
    }
    ++sample;
  });
  return found;
}

void TagSheet::write(const fs::path& path, const Task& task, const fs::path& file) const {
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
    text += line.dump() + "\n";
  });
  write_file_atomically(path, text);
}

}  // namespace funicular::eval
