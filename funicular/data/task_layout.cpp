#include "funicular/data/task_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "funicular/base/error.h"

namespace funicular::data {

namespace {

TextFileSourceOptions tsv(bool header, std::vector<format::Column> text, format::Column label) {
  TextFileSourceOptions columns;
  columns.format = format::TextFormat::tsv;
  columns.header = header;
  columns.text_columns = std::move(text);
  columns.label_column = std::move(label);
  return columns;
}

}  // namespace

TaskLayout task_layout(std::string_view name) {
  const std::vector<std::string> digits{"0", "1"};
  if (name == "cola")  // source, label, the author's mark, sentence
    return {tsv(false, {size_t{3}}, size_t{1}), {"unacceptable", "acceptable"}, digits};
  if (name == "sst2") return {tsv(true, {"sentence"}, "label"), {"negative", "positive"}, digits};
  if (name == "mrpc")
    return {tsv(true, {"#1 String", "#2 String"}, "Quality"), {"not_equivalent", "equivalent"}, digits};
  if (name == "stsb") return {tsv(true, {"sentence1", "sentence2"}, "score"), {}, {}};
  if (name == "rte")
    return {tsv(true, {"sentence1", "sentence2"}, "label"), {"entailment", "not_entailment"}, {}};
  throw InputError("task", "there is no layout of files of a task \"{}\"", name);
}

NamedLabelSource::NamedLabelSource(const fs::path& file, const TextFileSourceOptions& columns,
                                   std::vector<std::string> names, std::vector<std::string> spellings)
    : names_(std::move(names)), spellings_(std::move(spellings)), rows_({file}, columns) {}

std::string_view NamedLabelSource::name_of(std::string_view label) const {
  if (spellings_.empty()) return label;
  for (size_t i = 0; i < spellings_.size(); ++i)
    if (label == spellings_[i] || label == names_[i]) return names_[i];
  throw BadRow(fmt::format("expected one of the labels {} ({}), found \"{}\"", fmt::join(spellings_, ", "),
                           fmt::join(names_, ", "), label));
}

uint64_t NamedLabelSource::read(size_t piece, const RowSink& sink) const {
  return rows_.read(piece, [&](const SourceRow& row) {
    SourceRow named = row;
    if (has_labels()) named.label = name_of(row.label);
    sink(named);
  });
}

}  // namespace funicular::data
