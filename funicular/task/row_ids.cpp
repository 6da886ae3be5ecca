#include "funicular/task/row_ids.h"

#include <algorithm>
#include <array>

#include "funicular/task/task.h"

namespace funicular::task {

namespace {

constexpr size_t kMostIds = 4;  ///< columns

bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}

bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}

/// The words of a name in lower case: "#1 ID" has "1" and "id", "pairID" has "pair" and "id".
std::vector<std::string> parts_of(std::string_view name) {
  std::vector<std::string> parts{""};
  for (size_t at = 0; at < name.size(); ++at) {
    const char c = name[at];
    const bool letter = is_upper(c) || is_lower(c) || (c >= '0' && c <= '9');
    if (!letter || (is_upper(c) && at > 0 && is_lower(name[at - 1]))) parts.emplace_back();
    if (letter) parts.back() += is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
  }
  std::erase(parts, "");
  return parts;
}

bool names(const format::Column& column, const std::string& name) {
  const auto* const own = std::get_if<std::string>(&column);
  return own && *own == name;
}

}  // namespace

bool is_id_name(std::string_view name) {
  constexpr std::array kIds{"id", "ids", "idx", "index", "guid", "uuid", "uid"};
  const std::vector<std::string> parts = parts_of(name);
  const auto is_id = [&](const std::string& part) {
    return std::find(kIds.begin(), kIds.end(), part) != kIds.end();
  };
  return !parts.empty() && (is_id(parts.front()) || is_id(parts.back()));
}

RowIds::RowIds(const Task& task, const fs::path& file) : file_(file) {
  const std::optional<data::TextFileSourceOptions> table = task.table(file);
  if (!table) return;
  layout_ = *table;
  layout_.bad_rows = std::make_shared<format::BadRows>(/*skip=*/true);
  layout_.lists = format::Lists::all;
  const auto texts = layout_.text_columns;
  for (const std::string& name : data::TextFileSource({file}, layout_).column_names()) {
    const auto is_this = [&](const format::Column& column) { return names(column, name); };
    const bool used = std::any_of(texts.begin(), texts.end(), is_this) ||
                      (layout_.label_column && is_this(*layout_.label_column));
    if (!used && is_id_name(name) && names_.size() < kMostIds) names_.push_back(name);
  }
  layout_.text_columns.assign(names_.begin(), names_.end());
  layout_.label_column.reset();
  layout_.separate_columns = true;
}

void RowIds::want(uint64_t offset, OrderedJson& place) {
  if (!names_.empty()) wanted_.emplace(offset, &place);
}

void RowIds::read() {
  if (wanted_.empty()) return;
  const data::TextFileSource source({file_}, layout_);
  for (size_t piece = 0; piece < source.pieces(); ++piece)
    source.read(piece, [&](const data::SourceRow& row) {
      const auto [begin, end] = wanted_.equal_range(row.offset);
      for (auto place = begin; place != end; ++place)
        for (size_t at = 0; at < names_.size(); ++at) (*place->second)["ids"][names_[at]] = row.columns[at];
    });
}

}  // namespace funicular::task
