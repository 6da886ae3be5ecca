#include "funicular/task/ranked_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/json_text.h"
#include "funicular/base/number.h"
#include "funicular/format/column_list.h"
#include "funicular/objective/ranking_losses.h"

namespace funicular::task {

namespace {

using Elements = std::vector<std::string_view>;

bool has_list_mark(std::string_view text) {
  return text.starts_with(format::kListMark);
}

bool is_empty_text(std::string_view text) {
  return format::without_blanks(text).empty();
}

std::string column_shown(const format::Column& column) {
  return std::holds_alternative<size_t>(column) ? fmt::format("{}", std::get<size_t>(column) + 1)
                                                : fmt::format("\"{}\"", std::get<std::string>(column));
}

/// The texts of a query.
Elements texts_of_row(const data::SourceRow& row, const std::vector<std::string>& names, bool labelled) {
  const size_t last = row.columns.size() - 1;
  Elements texts;
  for (size_t column = 0; column <= last; ++column) {
    const bool list = has_list_mark(row.columns[column]);
    if (list && column < last)
      throw data::BadRow(fmt::format(
          "the column {} is a list; expected a text, and a list in the last column alone", names[column]));
    const Elements own = elements_of(row.columns[column]);
    if (column == 0 && is_empty_text(row.columns[0]))
      throw data::BadRow(fmt::format("the column {} is empty; expected a query in each row", names[0]));
    if (column == 0) continue;
    for (size_t i = 0; i < own.size(); ++i) {
      if (!is_empty_text(own[i])) {
        texts.push_back(own[i]);
      } else if (column == 1 || labelled) {
        throw data::BadRow(
            list ? fmt::format("the column {}: text {} of the list is empty; leave it out, and its "
                               "label",
                               names[column], i + 1)
                 : fmt::format("the column {} is empty; expected a text in each row", names[column]));
      }
    }
  }
  if (texts.empty())
    throw data::BadRow(
        fmt::format("the list of the column {} is empty; expected a text in each row", names[last]));
  if (last > 1 && texts.size() < 2)
    throw data::BadRow(
        fmt::format("the column {} has no text; expected a negative in each row", names[last]));
  if (std::ssize(texts) > objective::kMostListTexts)
    throw data::BadRow(
        fmt::format("the query has {} texts; expected at most {}", texts.size(), objective::kMostListTexts));
  return texts;
}

std::vector<double> numbers_of(const Elements& written, bool decimal_commas) {
  std::vector<double> numbers;
  for (const std::string_view one : written) {
    const auto number = decimal_commas ? read_number_with_comma(one) : read_number(one);
    if (!number) throw data::BadRow(fmt::format("expected a finite number as label, found \"{}\"", one));
    numbers.push_back(*number);
  }
  return numbers;
}

/// The labels of a positive and its negatives: 1 and 0, scores of all texts, or margins, of which the positive's is 0.
std::vector<double> labels_of_negatives(const data::SourceRow& row, bool has_label, size_t texts) {
  std::vector<double> labels;
  if (!has_label) {
    labels.assign(texts, 0);
    labels.front() = 1;
    return labels;
  }
  const Elements given = elements_of(row.label);
  if (given.size() == texts) return numbers_of(given, row.decimal_commas);
  if (given.size() + 1 != texts)
    throw data::BadRow(
        fmt::format("found {} labels for {} texts; expected a margin for each of the {} negatives, or a "
                    "score for each text",
                    given.size(), texts, texts - 1));
  labels.push_back(0);
  for (const double margin : numbers_of(given, row.decimal_commas)) labels.push_back(0 - margin);
  return labels;
}

std::vector<double> labels_of_texts(const data::SourceRow& row, size_t texts) {
  const bool lists = has_list_mark(row.columns[1]);
  if (lists != has_list_mark(row.label))
    throw data::BadRow(
        lists ? "the texts are a list and the label is none; expected a list with a number per text"
              : "the label is a list and the text is none; expected a list of texts, or a number");
  const Elements given = elements_of(row.label);
  if (given.size() != texts)
    throw data::BadRow(
        fmt::format("found {} labels for {} texts; expected a number per text", given.size(), texts));
  return numbers_of(given, row.decimal_commas);
}

data::TextFileSourceOptions with_lists(data::TextFileSourceOptions options) {
  options.separate_columns = true;
  options.lists = format::Lists::all;
  return options;
}

}  // namespace

std::vector<std::string_view> elements_of(std::string_view text) {
  if (!has_list_mark(text)) return {text};
  Elements elements;
  for (text.remove_prefix(1);;) {
    const size_t end = text.find(format::kListMark);
    if (end == text.npos && text.empty() && elements.empty()) return elements;  // []
    elements.push_back(text.substr(0, end));
    if (end == text.npos) return elements;
    text.remove_prefix(end + 1);
  }
}

std::vector<double> numbers_of_label(const data::SourceRow& row) {
  return numbers_of(elements_of(row.label), row.decimal_commas);
}

RankedTextSource::RankedTextSource(const fs::path& file, data::TextFileSourceOptions columns, bool labelled)
    : rows_({file}, with_lists(columns)), labelled_(labelled) {
  for (const format::Column& column : columns.text_columns) names_.push_back(column_shown(column));
}

uint64_t RankedTextSource::read(size_t piece, const data::RowSink& sink) const {
  return rows_.read(piece, [&](const data::SourceRow& row) {
    const Elements texts = texts_of_row(row, names_, rows_.has_labels());
    std::vector<double> labels;  // all are read before any text of the list is used
    if (labelled_)
      labels = names_.size() > 2 ? labels_of_negatives(row, rows_.has_labels(), texts.size())
                                 : labels_of_texts(row, texts.size());
    for (size_t text = 0; text < texts.size(); ++text) {
      const std::string_view pair[] = {row.columns[0], texts[text]};
      data::SourceRow given = row;
      given.columns = pair;
      const std::string label = labelled_ ? fmt::format("{}", labels[text]) : "";
      given.label = label;
      given.decimal_commas = false;
      given.new_document = text == 0;
      sink(given);
    }
  });
}

// ---- rows to rank

namespace {

format::TextOptions with_lists(format::TextOptions layout) {
  layout.lists = format::Lists::all;
  return layout;
}

}  // namespace

RankedTextInput::RankedTextInput(const fs::path& path, const format::TextOptions& layout, KeptColumns kept)
    : input_(path),
      rows_(input_.descriptor, input_.name, with_lists(layout), kept.columns),
      kept_(std::move(kept)) {}

/// The kept members of each text of the last row.
std::vector<std::string> RankedTextInput::kept_of(size_t texts, bool is_list) const {
  if (kept_.keys.empty()) return {};
  std::vector<std::vector<std::string>> values(texts, rows_.kept());
  for (size_t column = 0; is_list && column < kept_.keys.size(); ++column) {
    const auto list = parse_json_or_null<OrderedJson>(rows_.kept()[column]);
    if (!list.is_array() || list.size() != texts) continue;
    for (size_t text = 0; text < texts; ++text) values[text][column] = json_text(list[text]);
  }
  std::vector<std::string> members;
  for (const std::vector<std::string>& own : values) members.push_back(kept_.members(own));
  return members;
}

void RankedTextInput::check_texts(std::span<const std::string_view> texts, bool list) {
  if (texts.empty() || std::ssize(texts) > objective::kMostListTexts)
    return rows_.refuse(
        fmt::format("expected 1 to {} texts, found {}", objective::kMostListTexts, texts.size()));
  const auto empty = std::find_if(texts.begin(), texts.end(), is_empty_text);
  if (empty == texts.end()) return;
  rows_.refuse(list ? fmt::format("text {} of the list is empty; leave it out", empty - texts.begin() + 1)
                    : "the text is empty; expected a text in each row");
}

/// Refuses rows beyond the longest list, as two rankings of one query would not be comparable.
void RankedTextInput::count_row(std::string_view query, bool list) {
  if (list || query != query_) rows_of_query_ = 0;
  query_ = query;
  if (!list && ++rows_of_query_ > objective::kMostListTexts)
    rows_.refuse(fmt::format("the query has more than {} texts; ask with fewer texts per query",
                             objective::kMostListTexts));
}

/// The next row of the file.
std::optional<RankedTextInput::ReadRow> RankedTextInput::read() {
  const format::Row* const row = rows_.next();
  if (!row) return std::nullopt;
  if (rows_.problem().empty() && row->columns.size() != 2)
    rows_.refuse(
        fmt::format("expected a query and a text separated by a tab, found {} columns", row->columns.size()));
  if (rows_.problem().empty() && has_list_mark(row->columns[0]))
    rows_.refuse("the query is a list; expected a text, and a list of texts beside it");
  if (rows_.problem().empty() && is_empty_text(row->columns[0]))
    rows_.refuse("the query is empty; expected a query in each row");
  Elements texts;
  if (rows_.problem().empty()) texts = elements_of(row->columns[1]);
  if (rows_.problem().empty()) check_texts(texts, has_list_mark(row->columns[1]));
  if (rows_.problem().empty()) count_row(row->columns[0], has_list_mark(row->columns[1]));
  if (!rows_.problem().empty())
    return ReadRow{{{}, fmt::format("{}:{}: {}", input_.name, rows_.line(), rows_.problem()), rows_.line()},
                   true};
  ReadRow given{{{std::string(row->columns[0])}, "", rows_.line()}, has_list_mark(row->columns[1])};
  given.row.texts.insert(given.row.texts.end(), texts.begin(), texts.end());
  given.row.kept_of_texts = kept_of(texts.size(), given.is_list);
  return given;
}

std::optional<InputRow> RankedTextInput::next() {
  std::optional<ReadRow> first = waiting_ ? std::exchange(waiting_, std::nullopt)
                                 : ended_ ? std::nullopt
                                          : read();
  if (!first) return std::nullopt;
  InputRow list = std::move(first->row);
  while (!first->is_list && !ended_) {
    waiting_ = read();
    ended_ = !waiting_;
    if (ended_ || waiting_->is_list || waiting_->row.texts.front() != list.texts.front()) break;
    list.texts.push_back(waiting_->row.texts.at(1));
    std::ranges::move(waiting_->row.kept_of_texts, std::back_inserter(list.kept_of_texts));
    waiting_.reset();
  }
  return list;
}

}  // namespace funicular::task
