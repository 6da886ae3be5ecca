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

/// The texts of a row, with its list split.
Texts texts_of(const data::SourceRow& row, const std::vector<std::string>& names) {
  Texts texts;
  for (size_t i = 0; i < row.columns.size(); ++i) {
    const std::string_view text = row.columns[i];
    if (!is_list(text)) {
      texts.push_back(text);
      continue;
    }
    if (i < 2 || i + 1 < row.columns.size())
      throw data::BadRow(
          fmt::format("the column {} is a list; expected a text{}", names[i],
                      i < 2 ? ": write a row per text" : ", or lists in the last column alone"));
    for (const std::string_view element : format::split_list(text, ",")) texts.push_back(element);
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
  const std::vector<double> given = numbers_of_label(row);
  if (given.size() == negatives) return given;
  if (given.size() != negatives + 1)
    throw data::BadRow(fmt::format(
        "expected a margin for each negative, or a score for the positive and each negative; found {} "
        "for {} negatives",
        given.size(), negatives));
  std::vector<double> margins;
  for (size_t i = 1; i < given.size(); ++i) margins.push_back(given[0] - given[i]);
  return margins;
}

}  // namespace

TextGroupSource::TextGroupSource(const fs::path& file, data::TextFileSourceOptions columns)
    : rows_({file}, with_own_columns(columns)), fixed_(static_cast<int>(columns.text_columns.size())) {
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
  for (int column = 2; has_margins() && column < columns(); ++column)
    names.push_back(std::to_string(column - 1));
  return names;
}

uint64_t TextGroupSource::read(size_t piece, const data::RowSink& sink) const {
  std::vector<double> margins;
  return rows_.read(piece, [&](const data::SourceRow& row) {
    Texts texts = texts_of(row, names_);
    if (has_margins()) {
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
