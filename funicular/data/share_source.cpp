#include "funicular/data/share_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/number.h"
#include "funicular/data/store_writer.h"
#include "funicular/format/column_list.h"

namespace funicular::data {

namespace {

constexpr double kSumBound = 1e-3, kMostRounding = 0.05;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// The number in a cell that was read as JSON; none for an empty cell and for null. Throws BadRow.
std::optional<double> number_in(const Json& cell, bool decimal_commas, const std::string& what) {
  if (cell.is_null()) return {};
  if (cell.is_number()) return cell.get<double>();
  if (!cell.is_string())
    throw BadRow(fmt::format("{}: expected a number, found {}", what, cell.dump().substr(0, 40)));
  const auto text = cell.get<std::string>();
  if (format::without_blanks(text).empty()) return {};
  if (const auto value = decimal_commas ? read_number_with_comma(text) : read_number(text)) return *value;
  throw BadRow(fmt::format(
      "{}: expected a number, found \"{}\"{}", what, text,
      read_number_with_comma(text)
          ? "; write a decimal point, not a comma (a comma is read where semicolons separate the columns)"
          : ""));
}

void require_share(double share, bool normalizes, const std::string& name) {
  if (share >= 0 && std::isfinite(share) && (normalizes || share <= 1)) return;
  throw BadRow(fmt::format("the share of \"{}\" is {}; expected {}", name, share,
                           normalizes ? "a number of at least 0" : "a number from 0 to 1"));
}

}  // namespace

std::string ShareColumns::key() const {
  std::string text;
  for (const std::string& column : columns) text += fmt::format(" share {}:{}", column.size(), column);
  if (objects) text += " shares in objects";
  if (normalize) text += " normalized";
  if (!weight.empty()) text += fmt::format(" weight {}:{}", weight.size(), weight);
  return text;
}

double share_sum_bound(size_t classes, int decimals) {
  const double rounding = 0.5 * static_cast<double>(classes) * std::pow(10.0, -decimals) + 1e-9;
  return std::max(kSumBound, std::min(rounding, kMostRounding));
}

int decimals_of(double value) {
  const std::string text = fmt::format("{}", static_cast<float>(value));
  const size_t exponent = text.find('e'), point = text.find('.');
  const size_t end = std::min(exponent, text.size());
  const int behind = point < end ? static_cast<int>(end - point - 1) : 0;
  const int power = exponent == text.npos
                        ? 0
                        : read_whole_number<int>(std::string_view(text).substr(exponent + 1)).value_or(0);
  return std::max(behind - power, 0);
}

ShareSource::ShareSource(const fs::path& file, TextFileSourceOptions layout, const ShareColumns& columns,
                         bool independent, std::vector<std::string> names)
    : is_object_(columns.objects),
      normalizes_(columns.normalize),
      independent_(independent),
      has_weight_(!columns.weight.empty()) {
  const format::Column label = layout.label_column.value_or(format::Column("label"));
  if (columns.has_shares()) {
    layout.label_column.reset();
    layout.lists = format::Lists::none;
  }
  name_columns(file, columns, layout);
  for (const std::string& column : share_columns_) layout.kept.push_back(format::column_from_text(column));
  if (is_object_) layout.kept.push_back(label);
  if (has_weight_) layout.kept.push_back(format::column_from_text(columns.weight));
  rows_ = std::make_unique<TextFileSource>(std::vector<fs::path>{file}, std::move(layout));
  if (is_object_ && names.empty()) name_keys();
  if (is_object_ && names.empty() && names_.empty())
    throw InputError("labels",
                     "{}: no row has an object with shares at {}; expected {{\"LABEL\": SHARE, …}} there. "
                     "--label-column names another key",
                     file.string(),
                     std::holds_alternative<std::string>(label)
                         ? fmt::format("the key \"{}\"", std::get<std::string>(label))
                         : "that column");
  if (!names.empty()) put_in_order(names, file);
  for (size_t i = places_.size(); i < share_columns_.size(); ++i) places_.push_back(i);
  if (has_shares() && !independent_ && names_.size() < 2)
    throw InputError("labels", "{}: expected shares of at least two classes, found {}{}", file.string(),
                     names_.size(), names_.empty() ? "" : fmt::format(" ({})", names_.front()));
  if (names_.size() > StoreMeta::kMostShares)
    throw InputError("labels", "{}: expected shares of at most {} labels, found {}", file.string(),
                     StoreMeta::kMostShares, names_.size());
}

/// Takes the columns' names, or for "NAME*" the part matched by the star.
void ShareSource::name_columns(const fs::path& file, const ShareColumns& columns,
                               const TextFileSourceOptions& layout) {
  std::vector<std::string> header;
  const auto known = [&]() -> const std::vector<std::string>& {
    if (header.empty()) header = TextFileSource({file}, layout).column_names();
    return header;
  };
  const auto add = [&](const std::string& column, const std::string& name) {
    share_columns_.push_back(column);
    names_.push_back(name);
  };
  for (const std::string& written : columns.columns) {
    const format::Column column = format::column_from_text(written);
    if (const size_t* number = std::get_if<size_t>(&column)) {
      add(written, *number < known().size() ? known()[*number] : written);
    } else if (!written.ends_with('*')) {
      add(written, written);
    } else {
      const std::string_view beginning = std::string_view(written).substr(0, written.size() - 1);
      const size_t before = share_columns_.size();
      for (const std::string& each : known())
        if (each.starts_with(beginning) && each.size() > beginning.size())
          add(each, each.substr(beginning.size()));
      if (share_columns_.size() == before)
        throw InputError("labels", "{}: no column begins with \"{}\"; the columns are {}", file.string(),
                         beginning, fmt::join(known(), ", "));
    }
  }
  const std::set<std::string> different(names_.begin(), names_.end());
  if (different.size() < names_.size())
    throw InputError("labels", "{}: two columns of shares have one name: {}", file.string(),
                     fmt::join(names_, ", "));
}

/// Takes the keys that the file's objects have.
void ShareSource::name_keys() {
  std::set<std::string> keys;
  for (size_t piece = 0; piece < pieces(); ++piece)
    rows_->read(piece, [&](const SourceRow& row) {
      const Json object = parse_json_or_null(row.kept.front());
      if (!object.is_object()) return;  // told when the row is read for its shares
      for (const auto& [key, value] : object.items()) keys.insert(key);
    });
  names_.assign(keys.begin(), keys.end());
  sort_label_names(names_);
}

void ShareSource::put_in_order(const std::vector<std::string>& wanted, const fs::path& file) {
  if (!is_object_ && !std::is_permutation(names_.begin(), names_.end(), wanted.begin(), wanted.end()))
    throw InputError("labels", "{}: expected columns for the labels {}, found {}", file.string(),
                     fmt::join(wanted, ", "), fmt::join(names_, ", "));
  if (!is_object_)
    for (const std::string& name : names_)
      places_.push_back(static_cast<size_t>(std::find(wanted.begin(), wanted.end(), name) - wanted.begin()));
  names_ = wanted;
}

void ShareSource::take_object(const std::string& text, std::vector<double>& shares) const {
  const Json object = parse_json_or_null(text);
  if (!object.is_object())
    throw BadRow(
        fmt::format("expected an object with a share of each label, such as {{\"{}\": 0.9}}, found {}",
                    names_.empty() ? "pro" : names_.front(), text.substr(0, 40)));
  for (const auto& [key, value] : object.items()) {
    const auto found = std::find(names_.begin(), names_.end(), key);
    if (found == names_.end())
      throw BadRow(
          fmt::format("expected shares of the labels {}, found \"{}\"", fmt::join(names_, ", "), key));
    if (const auto share = number_in(value, false, fmt::format("the share of \"{}\"", key)))
      shares[static_cast<size_t>(found - names_.begin())] = *share;
    else if (!independent_)
      throw BadRow(
          fmt::format("the share of \"{}\" is empty; expected a number. A class without a share may be "
                      "left out of the object",
                      key));
  }
}

void ShareSource::take(const SourceRow& row, std::vector<double>& shares) const {
  // A class that an object does not name has the share 0. With independent labels, its share is unknown.
  shares.assign(names_.size(), is_object_ && !independent_ ? 0 : kUnknown);
  if (is_object_) take_object(row.kept.front(), shares);
  for (size_t i = 0; i < share_columns_.size(); ++i) {
    const std::string what = fmt::format("the column \"{}\"", share_columns_[i]);
    const auto share = number_in(parse_json_or_null(row.kept[i]), row.decimal_commas, what);
    if (share) shares[places_[i]] = *share;
    if (!share && !independent_)
      throw BadRow(fmt::format("{} is empty; expected the share of the class", what));
  }
  int decimals = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (std::isnan(shares[i])) continue;
    require_share(shares[i], normalizes_ && !independent_, names_[i]);
    decimals = std::max(decimals, decimals_of(shares[i]));
  }
  if (!independent_) return check_sum(shares, decimals);
  if (std::all_of(shares.begin(), shares.end(), [](double share) { return std::isnan(share); }))
    throw BadRow("the row has no share; expected at least one, or leave the row out");
}

/// Divides by the sum: rounding to the written decimals moves it away from 1.
void ShareSource::check_sum(std::vector<double>& shares, int decimals) const {
  double sum = 0;
  for (const double share : shares) sum += share;
  const double bound = share_sum_bound(shares.size(), decimals);
  if (normalizes_ ? !(sum > 0 && std::isfinite(sum)) : std::abs(sum - 1) > bound)
    throw BadRow(fmt::format("the shares sum to {:.6g}; expected {}", sum,
                             normalizes_
                                 ? "more than 0"
                                 : fmt::format("1, or within {:.3g} of it. --normalize-shares divides "
                                               "them by their sum",
                                               bound)));
  if (sum != 1)
    for (double& share : shares) share /= sum;
}

double ShareSource::weight_of(const SourceRow& row) const {
  const auto weight = number_in(parse_json_or_null(row.kept.back()), row.decimal_commas, "the weight");
  if (weight && *weight > 0 && std::isfinite(*weight)) return *weight;
  throw BadRow(fmt::format("the weight is {}; expected a number above 0, or leave the row out",
                           weight ? fmt::format("{}", *weight) : "empty"));
}

std::string ShareSource::label_of(const std::vector<double>& shares) const {
  std::string label;
  const auto greatest = std::max_element(shares.begin(), shares.end());
  for (auto share = shares.begin(); share != shares.end(); ++share)
    if (independent_ ? *share > 0.5 : share == greatest)
      label += format::kListMark + names_[static_cast<size_t>(share - shares.begin())];
  return label.empty() ? std::string(1, format::kListMark) : label;
}

uint64_t ShareSource::read(size_t piece, const RowSink& sink) const {
  std::vector<double> shares;
  std::string label;
  return rows_->read(piece, [&](const SourceRow& row) {
    SourceRow given = row;
    if (has_weight_) given.weight = weight_of(row);
    if (has_shares()) {
      take(row, shares);
      label = label_of(shares);
      given.shares = shares;
      given.label = label;
    }
    sink(given);
  });
}

}  // namespace funicular::data
