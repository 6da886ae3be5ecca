#include "funicular/task/label_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <span>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/base/number.h"
#include "funicular/format/column_list.h"
#include "funicular/task/task.h"

namespace funicular::task {

namespace {

constexpr size_t kClassesShown = 10, kSmallestShown = 5;

std::string_view trimmed(std::string_view text) {
  constexpr const char* kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

/// Adds quotes if the end of the name would not be visible.
std::string show_name(const std::string& name) {
  return name.empty() || trimmed(name).size() != name.size() ? fmt::format("\"{}\"", name) : name;
}

}  // namespace

std::string show_classes(const std::vector<std::string>& classes) {
  std::string text;
  for (size_t i = 0; i < std::min(kClassesShown, classes.size()); ++i)
    text += (i > 0 ? ", " : "") + show_name(classes[i]);
  return text + (kClassesShown < classes.size() ? ", …" : "");
}

// ---- classes

std::vector<int64_t> rows_of_classes(const data::TokenStore& store) {
  std::vector<int64_t> counts(store.meta().label_names.size());
  for (int64_t row = 0; row < store.rows(); ++row) {
    const data::Sample sample = store.row(row);
    if (store.meta().labels == data::LabelKind::set_shares)
      for (size_t label = 0; label < counts.size(); ++label) counts[label] += sample.shares[label] > 0.5;
    else if (!data::has_label_lists(store.meta().labels))
      ++counts.at(static_cast<size_t>(sample.label));
    else
      for (const int32_t label : sample.label_set) ++counts.at(static_cast<size_t>(label));
  }
  return counts;
}

std::vector<int64_t> known_rows_of_labels(const data::TokenStore& store) {
  std::vector<int64_t> counts(store.meta().label_names.size(), store.rows());
  if (store.meta().labels != data::LabelKind::set_shares) return counts;
  for (int64_t row = 0; row < store.rows(); ++row) {
    const data::Sample sample = store.row(row);
    for (size_t label = 0; label < counts.size(); ++label) counts[label] -= std::isnan(sample.shares[label]);
  }
  return counts;
}

void require_known_labels(const FileRows& rows) {
  const std::vector<int64_t> known = known_rows_of_labels(rows.store);
  for (size_t label = 0; label < known.size(); ++label)
    if (known[label] == 0)
      throw InputError("labels",
                       "{}: no row has a share of \"{}\"; expected a share in at least one row. Check the "
                       "spelling of the label, or leave its column or key out",
                       rows.file.string(), rows.store.meta().label_names[label]);
}

void report_known_labels(const data::TokenStore& store) {
  const std::vector<int64_t> known = known_rows_of_labels(store);
  if (std::all_of(known.begin(), known.end(), [&](int64_t rows) { return rows == store.rows(); })) return;
  std::vector<std::string> shown;
  for (size_t label = 0; label < known.size(); ++label)
    shown.push_back(fmt::format("{} ({})", show_name(store.meta().label_names[label]), known[label]));
  log::info("rows with a share of the label, of {} rows: {}", store.rows(), fmt::join(shown, ", "));
}

std::vector<double> shares_of_classes(const data::TokenStore& store) {
  const std::vector<int64_t> rows = rows_of_classes(store);
  if (store.meta().labels != data::LabelKind::shares) return {rows.begin(), rows.end()};
  std::vector<double> sums(rows.size());
  for (int64_t row = 0; row < store.rows(); ++row) {
    const data::Sample sample = store.row(row);
    for (size_t label = 0; label < sums.size(); ++label) sums[label] += sample.shares[label];
  }
  return sums;
}

std::vector<double> balanced_weights(const data::TokenStore& store, const fs::path& file) {
  const std::vector<double> counts = shares_of_classes(store);
  const double all = std::accumulate(counts.begin(), counts.end(), 0.0);
  const auto classes = static_cast<double>(counts.size());
  std::vector<double> weights;
  for (size_t label = 0; label < counts.size(); ++label) {
    if (!(counts[label] > 0))
      throw InputError("labels",
                       "--class-weights balanced: \"{}\" has the share 0 in all rows of {}; leave the class "
                       "out, or give the weights as numbers",
                       store.meta().label_names[label], file.string());
    weights.push_back(all / (classes * counts[label]));
  }
  return weights;
}

namespace {

/// Gives one key to names that differ only by blanks, case (of ASCII letters) or the form of a number.
std::string alike(const std::string& name) {
  std::string key(trimmed(name));
  if (const auto value = read_number(key)) return fmt::to_string(*value);
  for (char& c : key)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return key;
}

void warn_of_like_names(const std::vector<std::string>& names, const fs::path& file) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const std::string& name : names) groups[alike(name)].push_back(fmt::format("\"{}\"", name));
  for (const auto& [key, same] : groups)
    if (same.size() > 1)
      log::warning(
          "{}: the classes {} differ only by blanks, case or the form of a number; if they are one class, "
          "write "
          "them alike",
          file.string(), fmt::join(same, " and "));
}

/// The smallest classes with their rows.
std::string show_smallest(const std::vector<std::string>& names, const std::vector<int64_t>& rows) {
  std::vector<size_t> order(names.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rows[a] < rows[b]; });
  std::string text;
  for (size_t i = 0; i < std::min(kSmallestShown, order.size()); ++i)
    text += fmt::format("{}{} ({})", i > 0 ? ", " : "", show_name(names[order[i]]), rows[order[i]]);
  return text;
}

}  // namespace

void report_classes(const data::TokenStore& store, const fs::path& file) {
  const std::vector<std::string>& names = store.meta().label_names;
  const std::vector<int64_t> rows = rows_of_classes(store);
  const char* const counted = store.meta().labels == data::LabelKind::tags ? " words" : " rows";
  std::string text;
  for (size_t i = 0; i < std::min(kClassesShown, names.size()); ++i)
    text +=
        fmt::format("{}{} ({}{})", i > 0 ? ", " : "", show_name(names[i]), rows.at(i), i > 0 ? "" : counted);
  if (kClassesShown < names.size()) text += ", …; the smallest: " + show_smallest(names, rows);
  log::info("{} classes: {}", names.size(), text);
  warn_of_like_names(names, file);
  if (names.size() > 2 && std::all_of(rows.begin(), rows.end(), [](int64_t count) { return count <= 1; }))
    log::warning("{}: each of the {} classes has one row; is the label column an id?", file.string(),
                 names.size());
}

// ---- several labels a row

namespace {

/// A separator between labels. `common` separators also occur within names ("R&D", "TCP/IP").
struct Separator {
  const char *text, *name;
  bool common;
};
constexpr std::array<Separator, 12> kSeparators{{{",", "comma", false},
                                                 {";", "semicolon", false},
                                                 {"|", "|", false},
                                                 {"\t", "tab", false},
                                                 {"，", "，", false},
                                                 {"、", "、", false},
                                                 {"；", "；", false},
                                                 {"/", "/", true},
                                                 {"+", "+", true},
                                                 {"&", "&", true},
                                                 {":", ":", true},
                                                 {" ", "blank", true}}};

std::string name_of(const std::string& separator) {
  for (const Separator& known : kSeparators)
    if (separator == known.text) return known.name;
  return separator;
}

/// For each class: whether its name would be split.
std::vector<bool> cut_by(const Separator& separator, const std::vector<std::string>& names) {
  std::vector<bool> cut(names.size());
  std::set<std::string_view> parts;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto found = format::split_list(names[i], separator.text);
    cut[i] = found.size() > 1;
    parts.insert(found.begin(), found.end());
  }
  if (separator.common && parts.size() >= names.size()) cut.assign(names.size(), false);
  return cut;
}

template <class Meets>
int64_t count_rows(const data::TokenStore& store, const Meets& meets) {
  int64_t count = 0;
  for (int64_t row = 0; row < store.rows(); ++row) count += meets(store.row(row).label_set);
  return count;
}

}  // namespace

void report_separator(const data::TokenStore& store, const std::string& separator, const fs::path& file) {
  const std::vector<std::string>& names = store.meta().label_names;
  using Labels = std::span<const int32_t>;
  const auto rows_with = [&](const std::vector<bool>& classes) {
    return count_rows(store, [&](Labels labels) {
      return std::any_of(labels.begin(), labels.end(),
                         [&](int32_t label) { return classes[static_cast<size_t>(label)]; });
    });
  };
  std::vector<bool> lists(names.size());
  for (size_t i = 0; i < names.size(); ++i)  // "toys [kids]" is a name.
    lists[i] = names[i].starts_with('[') || (names[i].ends_with(']') && names[i].find('[') == names[i].npos);
  if (const int64_t rows = rows_with(lists); rows > 0)
    log::warning(
        "{}: the labels of {} of {} rows begin or end with a bracket, as {}: a list that was written as "
        "text. Write "
        "lists in JSON lines, or the labels with \"{}\" between them",
        file.string(), rows, store.rows(),
        show_name(names[static_cast<size_t>(std::find(lists.begin(), lists.end(), true) - lists.begin())]),
        separator);
  const int64_t separated = count_rows(store, [](Labels labels) { return labels.size() > 1; });
  int64_t most = separated;
  const Separator* other = nullptr;
  for (const Separator& known : kSeparators) {
    // In correctly separated labels, names may include common separators ("news/world,sport/ball").
    if (separator == known.text || (known.common && separated > 0)) continue;
    if (const int64_t rows = rows_with(cut_by(known, names)); rows > most) {
      most = rows;
      other = &known;
    }
  }
  if (other)
    log::warning(
        "{}: {} a {} between labels, and {} have a {}; if it separates labels, give --label-separator \"{}\"",
        file.string(),
        separated == 0 ? "no row has" : fmt::format("{} of {} rows have", separated, store.rows()),
        name_of(separator), most, other->name, other->text);
}

// ---- labels that are no classes

void require_classes(const FileRows& rows, size_t least) {
  const std::vector<std::string>& labels = rows.store.meta().label_names;
  if (labels.empty()) throw InputError("task", "{}: no row has a label", rows.file.string());
  if (labels.size() < least)
    throw InputError("task", "{}: every row has the label \"{}\"; a classifier needs at least two",
                     rows.file.string(), fmt::join(labels, ""));
}

namespace {

/// Whether all names are numbers, with a decimal point or a decimal comma, and some have a fraction.
bool are_measurements(const std::vector<std::string>& names) {
  return std::all_of(names.begin(), names.end(),
                     [](const std::string& name) { return read_number_with_comma(name).has_value(); }) &&
         std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.find_first_of(".,") != name.npos; });
}

}  // namespace

void refuse_measurements(const FileRows& rows) {
  const std::vector<std::string>& names = rows.store.meta().label_names;
  if (names.size() > kMostGrades && are_measurements(names))
    throw InputError("task",
                     "{}: the labels are {} different numbers ({}), and each would be a class. To learn the "
                     "numbers, give --task custom --regression; to learn a few classes, round them first",
                     rows.file.string(), names.size(), show_classes(names));
}

void warn_of_measurements(const FileRows& rows) {
  const std::vector<std::string>& names = rows.store.meta().label_names;
  if (are_measurements(names))
    log::warning(
        "{}: the labels are {} numbers ({}), and each is a class; --regression learns them as numbers",
        rows.file.string(), names.size(), show_classes(names));
}

}  // namespace funicular::task
