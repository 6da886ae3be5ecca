#include "funicular/data/named_tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

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

const std::vector<NamedTask>& named_tasks() {
  static const std::vector<std::string> digits{"0", "1"};
  static const std::vector<NamedTask> rows{
      // Columns: source, label, the author's mark, sentence.
      {"cola",
       "classes",
       tsv(false, {size_t{3}}, size_t{1}),
       {"unacceptable", "acceptable"},
       digits,
       {"matthews_correlation", "accuracy"}},
      {"sst2", "classes", tsv(true, {"sentence"}, "label"), {"negative", "positive"}, digits, {"accuracy"}},
      {"mrpc",
       "classes",
       tsv(true, {"#1 String", "#2 String"}, "Quality"),
       {"not_equivalent", "equivalent"},
       digits,
       {"accuracy", "f1"}},
      {"stsb", "numbers", tsv(true, {"sentence1", "sentence2"}, "score"), {}, {}, {}},
      {"rte",
       "classes",
       tsv(true, {"sentence1", "sentence2"}, "label"),
       {"entailment", "not_entailment"},
       {},
       {"accuracy"}},
      {"qnli",
       "classes",
       tsv(true, {"question", "sentence"}, "label"),
       {"entailment", "not_entailment"},
       {},
       {"accuracy"}},
      {"qqp",
       "classes",
       tsv(true, {"question1", "question2"}, "is_duplicate"),
       {"not_duplicate", "duplicate"},
       digits,
       {"accuracy", "f1"}},
      // The order of the classes in GLUE's own programs and TinyBERT's; train.tsv, dev_matched.tsv, dev_mismatched.tsv.
      {"mnli",
       "classes",
       tsv(true, {"sentence1", "sentence2"}, "gold_label"),
       {"contradiction", "entailment", "neutral"},
       {},
       {"accuracy"}},
      {"wnli",
       "classes",
       tsv(true, {"sentence1", "sentence2"}, "label"),
       {"not_entailment", "entailment"},
       digits,
       {"accuracy"}}};
  return rows;
}

const NamedTask* find_named_task(std::string_view name) {
  const auto& rows = named_tasks();
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const NamedTask& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
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
