#include "funicular/data/row_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <unordered_map>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/text/normalizer.h"
#include "funicular/text/unicode_tables.h"
#include "funicular/text/utf8.h"

namespace funicular::data {

namespace {

/// A label with fewer rows keeps all of them for training.
constexpr uint64_t kFewestRows = 5;

/// Numbers labels by their names.
class LabelNumbers {
 public:
  uint32_t of(const std::string& label) {
    return numbers_.emplace(label, static_cast<uint32_t>(numbers_.size())).first->second;
  }
  size_t size() const { return numbers_.size(); }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
};

/// Groups of texts that share rows, by hashes. The smallest hash represents all joined texts.
class JoinedTexts {
 public:
  void join(std::span<const uint64_t> texts) {
    for (const uint64_t text : texts) {
      const uint64_t a = root(texts.front()), b = root(text);
      parents_[std::max(a, b)] = std::min(a, b);
    }
  }

  /// The group of each text: the hash of the group's smallest hash. The smallest hash itself would be smaller for
  /// large groups, so they would be held out first.
  std::unordered_map<uint64_t, uint64_t> groups() {
    std::unordered_map<uint64_t, uint64_t> groups;
    for (const auto& [text, parent] : parents_) {
      const uint64_t smallest = root(text);
      groups[text] = hash_bytes(&smallest, sizeof(smallest));
    }
    return groups;
  }

 private:
  uint64_t root(uint64_t text) {
    auto at = parents_.try_emplace(text, text).first;
    while (at->second != at->first) {
      const auto parent = parents_.find(at->second);
      at->second = parent->second;  // halves the path
      at = parent;
    }
    return at->first;
  }

  std::unordered_map<uint64_t, uint64_t> parents_;
};

/// The number of rows of a label that may be held out.
uint64_t share_of(uint64_t rows, double fraction) {
  if (rows < kFewestRows) return 0;
  const auto share = static_cast<uint64_t>(std::llround(fraction * static_cast<double>(rows)));
  return std::clamp<uint64_t>(share, 1, rows - 1);
}

/// Returns the text in lower case, with one blank for each run of blanks and none at the ends.
std::string comparable(std::string_view text) {
  constexpr uint8_t kBlank = text::unicode::space | text::unicode::white;
  std::string found;
  found.reserve(text.size());
  bool blank = false;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const uint32_t code = text::next_code_point(at, end);
    if ((text::flags_of(code) & kBlank) != 0) {
      blank = true;
      continue;
    }
    if (blank && !found.empty()) found += ' ';
    blank = false;
    for (const uint32_t lower : text::lower_case(code)) text::append_code_point(lower, found);
  }
  return found;
}

}  // namespace

RowSplit::RowSplit(double fraction, uint64_t seed, LabelsOf labels_of, size_t columns)
    : fraction_(fraction), seed_(seed), labels_of_(std::move(labels_of)), columns_(columns) {}

RowSplit::RowSplit(Fold fold, uint64_t seed, LabelsOf labels_of, size_t columns)
    : fold_(std::move(fold)), seed_(seed), labels_of_(std::move(labels_of)), columns_(columns) {}

std::string RowSplit::key() const {
  std::string columns = columns_ == kAnyColumn    ? " by any column"
                        : columns_ == kLastColumn ? " by the last column"
                        : columns_ > 0            ? fmt::format(" by {} columns", columns_)
                                                  : "";
  if (labels_of_) columns += ", labels counted by row";
  if (fold_.count > 1)
    return fmt::format("fold {} of {}, {} comparable{}", fold_.number, fold_.count, seed_, columns);
  return fmt::format("{:g} {} comparable{}", fraction_, seed_, columns);
}

uint64_t RowSplit::hash_of(const SourceRow& row) const {
  if (columns_ == kAnyColumn) {
    const uint64_t first = hashes_of_texts(row).front();
    if (!groups_) return first;
    const auto group = groups_->find(first);
    return group == groups_->end() ? first : group->second;
  }
  if (columns_ == kLastColumn) return hash_of_columns(row.columns.last(1));
  const size_t compared = columns_ > 0 ? std::min(columns_, row.columns.size()) : row.columns.size();
  return hash_of_columns(row.columns.first(compared));
}

/// The texts of a row, each by itself. At least one.
std::vector<uint64_t> RowSplit::hashes_of_texts(const SourceRow& row) const {
  std::vector<uint64_t> hashes;
  for (size_t column = 0; column < row.columns.size(); ++column)
    if (!row.columns[column].empty()) hashes.push_back(hash_of_columns(row.columns.subspan(column, 1)));
  if (hashes.empty()) hashes.push_back(hash_of_columns({}));
  return hashes;
}

void RowSplit::join_rows(const RowSource& rows) const {
  JoinedTexts texts;
  for (size_t piece = 0; piece < rows.pieces(); ++piece)
    rows.read(piece, [&](const SourceRow& row) { texts.join(hashes_of_texts(row)); });
  groups_ = std::make_shared<const Groups>(texts.groups());
}

uint64_t RowSplit::hash_of_columns(std::span<const std::string_view> columns) const {
  std::string text(reinterpret_cast<const char*>(&seed_), sizeof(seed_));
  for (const std::string_view written : columns) {
    const std::string column = comparable(written);
    const uint64_t size = column.size();  // so that ("ab", "c") differs from ("a", "bc")
    text.append(reinterpret_cast<const char*>(&size), sizeof(size));
    text += column;
  }
  return hash_bytes(text);
}

std::vector<RowSplit::Text> RowSplit::read_texts(const RowSource& rows, std::vector<uint64_t>& rows_of_label,
                                                 std::vector<std::string>& names) const {
  if (columns_ == kAnyColumn) join_rows(rows);
  std::vector<Text> texts;
  std::unordered_map<uint64_t, size_t> places;
  LabelNumbers numbers;
  for (size_t piece = 0; piece < rows.pieces(); ++piece)
    rows.read(piece, [&](const SourceRow& row) {
      const uint64_t hash = hash_of(row);
      const auto [place, is_new] = places.emplace(hash, texts.size());
      if (is_new) texts.push_back({.hash = hash});
      Text& text = texts[place->second];
      ++text.rows;
      for (const std::string& label : labels_of_ ? labels_of_(row.label) : std::vector<std::string>{""}) {
        const uint32_t number = numbers.of(label);
        if (numbers.size() > names.size()) names.push_back(label);
        rows_of_label.resize(numbers.size());
        ++rows_of_label[number];
        const auto same = std::find_if(text.labels.begin(), text.labels.end(),
                                       [&](const LabelRows& counted) { return counted.label == number; });
        if (same == text.labels.end())
          text.labels.push_back({number, 1});
        else
          ++same->rows;
      }
    });
  std::sort(texts.begin(), texts.end(), [](const Text& a, const Text& b) { return a.hash < b.hash; });
  return texts;
}

void RowSplit::hold_out(const Text& text) const {
  held_out_.insert(text.hash);
  held_out_rows_ += text.rows;
}

/// `left`: the rows of each label.
void RowSplit::choose_share(const std::vector<Text>& texts, std::vector<uint64_t> left) const {
  for (uint64_t& count : left) count = share_of(count, fraction_);  // rows that may still be held out
  for (const Text& text : texts) {
    const auto allows = [&](const LabelRows& counted) { return left[counted.label] >= counted.rows; };
    if (text.labels.empty() || !std::all_of(text.labels.begin(), text.labels.end(), allows)) continue;
    for (const auto [label, rows] : text.labels) left[label] -= rows;
    hold_out(text);
  }
}

void RowSplit::require_two_texts(const std::vector<uint64_t>& texts_of_label,
                                 const std::vector<std::string>& names) const {
  if (!fold_.needs_two_texts) return;
  for (size_t label = 0; label < names.size(); ++label)
    if (texts_of_label[label] < 2 && !names[label].empty())  // "": rows without a label
      throw InputError(
          "labels",
          "{}{}the label \"{}\" has one text, so no model could learn it without the fold that holds "
          "it; expected two texts or more. Leave its row out, or give it another label",
          fold_.file, fold_.file.empty() ? "" : ": ", names[label]);
}

/// Each text goes to the fold that has the smallest share of its rows' labels, and of these to the smallest fold. No
/// fold gets all texts of a label that a model must know, if another fold can take the text.
std::vector<size_t> RowSplit::assign_folds(const std::vector<Text>& texts,
                                           const std::vector<uint64_t>& rows_of_label,
                                           const std::vector<std::string>& names) const {
  std::vector<uint64_t> texts_of_label(names.size());
  for (const Text& text : texts)
    for (const LabelRows& counted : text.labels) ++texts_of_label[counted.label];
  require_two_texts(texts_of_label, names);
  std::vector<size_t> fold_of;
  const auto folds = static_cast<size_t>(fold_.count);
  std::vector<std::vector<uint64_t>> taken(folds, std::vector<uint64_t>(rows_of_label.size()));
  auto texts_taken = taken;
  std::vector<uint64_t> rows(folds);
  for (const Text& text : texts) {
    std::vector<std::tuple<bool, double, uint64_t>> fill(folds);
    for (size_t fold = 0; fold < folds; ++fold) {
      auto& [takes_all, share, size] = fill[fold];
      size = rows[fold];
      for (const auto [label, own] : text.labels) {
        share += static_cast<double>(own) *
                 (static_cast<double>(taken[fold][label]) / static_cast<double>(rows_of_label[label]));
        takes_all |= fold_.needs_two_texts && texts_taken[fold][label] + 1 == texts_of_label[label];
      }
    }
    const auto least = static_cast<size_t>(std::min_element(fill.begin(), fill.end()) - fill.begin());
    rows[least] += text.rows;
    for (const auto [label, own] : text.labels) {
      taken[least][label] += own;
      ++texts_taken[least][label];
    }
    fold_of.push_back(least);
  }
  return fold_of;
}

std::vector<std::shared_ptr<const RowSplit>> RowSplit::all_folds(const RowSource& rows, const Fold& fold,
                                                                 uint64_t seed, const LabelsOf& labels_of,
                                                                 size_t columns) {
  std::vector<std::shared_ptr<const RowSplit>> splits;
  for (int64_t number = 0; number < fold.count; ++number)
    splits.push_back(std::make_shared<RowSplit>(Fold{number, fold.count, fold.file, fold.needs_two_texts},
                                                seed, labels_of, columns));
  std::vector<uint64_t> rows_of_label;
  std::vector<std::string> names;
  const std::vector<Text> texts = splits.front()->read_texts(rows, rows_of_label, names);
  const std::vector<size_t> fold_of = splits.front()->assign_folds(texts, rows_of_label, names);
  for (size_t text = 0; text < texts.size(); ++text) splits[fold_of[text]]->hold_out(texts[text]);
  for (const auto& split : splits) {
    split->groups_ = splits.front()->groups_;
    std::call_once(split->chosen_, [] {});
  }
  return splits;
}

void RowSplit::choose(const RowSource& rows) const {
  std::call_once(chosen_, [&] {
    std::vector<uint64_t> rows_of_label;
    std::vector<std::string> names;
    const std::vector<Text> texts = read_texts(rows, rows_of_label, names);
    if (fold_.count == 1) return choose_share(texts, std::move(rows_of_label));
    const std::vector<size_t> fold_of = assign_folds(texts, rows_of_label, names);
    for (size_t text = 0; text < texts.size(); ++text)
      if (static_cast<int64_t>(fold_of[text]) == fold_.number) hold_out(texts[text]);
  });
}

bool RowSplit::holds_out(const SourceRow& row) const {
  return held_out_.contains(hash_of(row));
}

uint64_t SplitSource::read(size_t piece, const RowSink& sink) const {
  split_->choose(*rows_);
  return rows_->read(piece, [&](const SourceRow& row) {
    if (split_->holds_out(row) == held_out_) sink(row);
  });
}

}  // namespace funicular::data
