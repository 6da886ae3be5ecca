#include "funicular/cli/judged_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "funicular/base/error.h"
#include "funicular/base/mapped_text.h"

namespace funicular::cli {

namespace {

/// How far from 1 rounding may move the sum of a row's probabilities.
constexpr double kSumTolerance = 0.05;

}  // namespace

JudgedFile::JudgedFile(const fs::path& file) : file_(file) {
  const MappedText mapped(file);
  const std::string_view text = mapped.content();
  for (size_t begin = 0, line = 1; begin < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) add(text.substr(begin, end - begin), line);
    begin = end + 1;
  }
  if (lines_.size() < 2)
    throw InputError("label-errors", "{}: expected two rows or more, one per line; found {}", file.string(),
                     lines_.size());
}

OrderedJson JudgedFile::line(int64_t row) const {
  const OrderedJson& found = lines_.at(static_cast<size_t>(row));
  OrderedJson line{{"row", found.contains("row") ? found["row"] : OrderedJson(row + 1)}};
  for (const char* key : {"text", "texts"})
    if (found.contains(key) && found[key].is_string())
      line["text"] = found[key];
    else if (found.contains(key) && found[key].is_array())
      for (size_t i = 0; i < found[key].size(); ++i)
        line[i == 0 ? "text" : fmt::format("text_{}", i + 1)] = found[key][i];
  return line;
}

void JudgedFile::refuse(size_t line, const std::string& problem) const {
  throw InputError("label-errors", "{}:{}: {}", file_.string(), line, problem);
}

void JudgedFile::add(std::string_view text, size_t line) {
  const auto object = parse_json_or_null<OrderedJson>(text);
  const bool is_object = object.is_object();
  const bool has_list = is_object && object.contains("labels") && object["labels"].is_array();
  const bool has_class = is_object && object.contains("label") && object["label"].is_string();
  if ((!has_list && !has_class) || !object.contains("probabilities") || !object["probabilities"].is_object())
    refuse(
        line,
        "expected an object with the row's label and probabilities, such as {\"label\": \"pro\", "
        "\"probabilities\": {\"contra\": 0.1, \"pro\": 0.9}}, or with a list of labels, \"labels\": "
        "[\"pro\"]; funicular finetune --folds and evaluate --predictions write such lines for classes and "
        "for several labels");
  if (names_.empty()) {
    has_lists_ = !has_class;
    take_names(object["probabilities"], line);
  }
  if (has_lists_ ? !has_list : !has_class)
    refuse(line, has_lists_ ? "expected a list of labels as in the lines before, found one label"
                            : "expected one label as in the lines before, found a list of labels");
  const std::vector<double> probabilities = probabilities_of(object, line);
  has_lists_ ? add_labels(object, probabilities, line) : add_class(object, probabilities, line);
  lines_.push_back(object);
  lines_.back().erase("probabilities");
}

void JudgedFile::take_names(const OrderedJson& probabilities, size_t line) {
  for (const auto& [name, value] : probabilities.items()) names_.push_back(name);
  if (names_.size() < 2)
    refuse(line, fmt::format("expected probabilities of at least two {}", has_lists_ ? "labels" : "classes"));
  classes_.classes = labels_.labels = std::ssize(names_);
}

int64_t JudgedFile::number_of(const OrderedJson& label, size_t line) const {
  const auto found =
      label.is_string() ? std::find(names_.begin(), names_.end(), label.get<std::string>()) : names_.end();
  if (found == names_.end()) refuse(line, fmt::format("the label {} has no probability", label.dump()));
  return found - names_.begin();
}

std::vector<double> JudgedFile::probabilities_of(const OrderedJson& object, size_t line) const {
  const OrderedJson& given = object["probabilities"];
  std::vector<double> probabilities;
  for (const std::string& name : names_) {
    const auto found = given.find(name);
    if (found == given.end() || !found->is_number() || !(found->get<double>() >= 0) ||
        !(found->get<double>() <= 1))
      refuse(line, fmt::format("expected a probability from 0 to 1 of \"{}\"", name));
    probabilities.push_back(found->get<double>());
  }
  if (given.size() != names_.size())
    refuse(line, fmt::format("expected {} probabilities as in the lines before, found {}", names_.size(),
                             given.size()));
  return probabilities;
}

void JudgedFile::add_class(const OrderedJson& object, const std::vector<double>& probabilities, size_t line) {
  const int64_t label = number_of(object["label"], line);
  const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  if (std::abs(sum - 1) > kSumTolerance)
    refuse(line, fmt::format("the probabilities sum to {:.4g}; expected 1, or within {} of it", sum,
                             kSumTolerance));
  classes_.labels.push_back(label);
  classes_.probabilities.insert(classes_.probabilities.end(), probabilities.begin(), probabilities.end());
}

void JudgedFile::add_labels(const OrderedJson& object, const std::vector<double>& probabilities,
                            size_t line) {
  std::vector<bool> given(names_.size()), unknown(names_.size());
  for (const OrderedJson& label : object["labels"]) given[static_cast<size_t>(number_of(label, line))] = true;
  if (const auto found = object.find("unknown"); found != object.end()) {
    if (!found->is_array()) refuse(line, "expected a list of labels for the key \"unknown\"");
    for (const OrderedJson& label : *found) {
      const auto number = static_cast<size_t>(number_of(label, line));
      if (given[number])
        refuse(line,
               fmt::format("the label {} is both given and unknown; expected one of them", label.dump()));
      unknown[number] = true;
    }
  }
  labels_.unknown.insert(labels_.unknown.end(), unknown.begin(), unknown.end());
  labels_.given.insert(labels_.given.end(), given.begin(), given.end());
  labels_.probabilities.insert(labels_.probabilities.end(), probabilities.begin(), probabilities.end());
}

}  // namespace funicular::cli
