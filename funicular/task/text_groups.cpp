#include "funicular/task/text_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "funicular/format/column_list.h"
#include "funicular/task/ranked_texts.h"

namespace funicular::task {

namespace {

using Texts = std::vector<std::string_view>;

std::string shown_column(const format::Column& column) {
  return std::holds_alternative<size_t>(column) ? fmt::format("{}", std::get<size_t>(column) + 1)
                                                : fmt::format("\"{}\"", std::get<std::string>(column));
}

bool is_list(std::string_view text) {
  return text.starts_with(format::kListMark);
}

bool is_blank(std::string_view text) {
  return format::without_blanks(text).empty();
}

data::TextFileSourceOptions with_own_columns(data::TextFileSourceOptions options) {
  options.separate_columns = true;
  options.lists = format::Lists::all;
  return options;
}

/// Leaving out a negative would give its margin to another one. A list of one empty text is read as an empty list.
void refuse_blank_negatives(const Texts& negatives, const std::string& column) {
  const auto blank = std::find_if(negatives.begin(), negatives.end(), is_blank);
  if (negatives.size() > 1 && blank != negatives.end())
    throw data::BadRow(
        fmt::format("the column {}: text {} of the list is empty; leave it out, and its margin", column,
                    blank - negatives.begin() + 1));
  if (negatives.empty() || blank != negatives.end())
    throw data::BadRow(
        fmt::format("the column {} is empty; expected a text for each margin. For rows with fewer negatives, "
                    "write all of a row's negatives as one list, in JSON lines",
                    column));
}

/// The texts of a row, with its list split and without missing negatives.
Texts texts_of(const data::SourceRow& row, const std::vector<std::string>& names, bool has_margins) {
  Texts texts;
  for (size_t i = 0; i < row.columns.size(); ++i) {
    const bool list = is_list(row.columns[i]);
    if (list && (i < 2 || i + 1 < row.columns.size()))
      throw data::BadRow(
          fmt::format("the column {} is a list; expected a text{}", names[i],
                      i < 2 ? ": write a row per text" : ", or lists in the last column alone"));
    const Texts own = elements_of(row.columns[i]);
    if (has_margins && i > 1) refuse_blank_negatives(own, names[i]);
    texts.insert(texts.end(), own.begin(), own.end());
  }
  const size_t needed = std::min<size_t>(names.size(), 2);
  for (size_t i = 0; i < needed; ++i)
    if (is_blank(texts[i]))
      throw data::BadRow(fmt::format("the column {} is empty; expected a text in each row", names[i]));
  texts.erase(std::remove_if(texts.begin() + static_cast<ptrdiff_t>(needed), texts.end(), is_blank),
              texts.end());
  if (names.size() > 2 && texts.size() < 3)
    throw data::BadRow(
        fmt::format("the column {} has no text; expected a negative in each row", names.back()));
  return texts;
}

/// The positive's margin over each negative.
std::vector<double> margins_of(const data::SourceRow& row, size_t negatives) {
  std::vector<double> given(1);
  // One number for several negatives is refused below, whatever it is.
  if (is_list(row.label) || negatives == 1) given = numbers_of_label(row);
  if (given.size() == negatives) return given;
  if (given.size() != negatives + 1)
    throw data::BadRow(fmt::format(
        "expected a margin for each negative, or a score for the positive and each negative; found {} "
        "for {} negatives{}",
        given.size(), negatives, is_list(row.label) ? "" : "; write a list, in JSON lines"));
  std::vector<double> margins;
  for (size_t i = 1; i < given.size(); ++i) margins.push_back(given[0] - given[i]);
  return margins;
}

}  // namespace

TextGroupSource::TextGroupSource(const fs::path& file, data::TextFileSourceOptions columns, bool with_margins)
    : rows_({file}, with_own_columns(columns)),
      fixed_(static_cast<int>(columns.text_columns.size())),
      has_margins_(with_margins && rows_.has_labels()) {
  for (const format::Column& column : columns.text_columns) names_.push_back(shown_column(column));
  const auto format = columns.format ? *columns.format : format::guess_text_format(file);
  if (format != format::TextFormat::jsonl || fixed_ < 3) return;
  size_t most = 0;
  for (size_t piece = 0; piece < pieces(); ++piece)
    rows_.read(piece, [&](const data::SourceRow& row) {
      if (is_list(row.columns.back()))
        most = std::max(most, row.columns.size() - 1 + format::split_list(row.columns.back(), ",").size());
    });
  lists_ = std::max(0, static_cast<int>(most) - fixed_);
}

std::vector<std::string> TextGroupSource::share_names() const {
  std::vector<std::string> names;
  for (int column = 2; has_margins_ && column < columns(); ++column)
    names.push_back(std::to_string(column - 1));
  return names;
}

uint64_t TextGroupSource::read(size_t piece, const data::RowSink& sink) const {
  std::vector<double> margins;
  return rows_.read(piece, [&](const data::SourceRow& row) {
    Texts texts = texts_of(row, names_, has_margins_);
    if (has_margins_) {
      margins = margins_of(row, texts.size() - 2);
      margins.resize(static_cast<size_t>(columns()) - 2);
    }
    texts.resize(static_cast<size_t>(columns()));
    data::SourceRow given = row;
    given.columns = texts;
    given.shares = margins;
    sink(given);
  });
}

NumberedRows::NumberedRows(std::unique_ptr<data::RowSource> rows, int64_t first) : rows_(std::move(rows)) {
  for (size_t piece = 0; piece < rows_->pieces(); ++piece) {
    first_of_piece_.push_back(first);
    if (piece + 1 < rows_->pieces()) rows_->read(piece, [&](const data::SourceRow& /*row*/) { ++first; });
  }
}

uint64_t NumberedRows::read(size_t piece, const data::RowSink& sink) const {
  int64_t number = first_of_piece_[piece];
  return rows_->read(piece, [&](const data::SourceRow& row) {
    const std::string label = std::to_string(number++);
    data::SourceRow given = row;
    given.label = label;
    sink(given);
  });
}

}  // namespace funicular::task
