#include "funicular/format/bad_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace funicular::format {

namespace {

constexpr size_t kShown = 5;

/// The list of rows has a line for each.
std::string one_line(std::string text) {
  for (size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at + 2)) text.replace(at, 1, "\\n");
  return text;
}

}  // namespace

const std::vector<uint64_t>& BadRows::OfFile::sorted() const {
  if (!in_order) {
    std::sort(offsets.begin(), offsets.end());
    offsets.erase(std::unique(offsets.begin(), offsets.end()), offsets.end());
    in_order = true;
  }
  return offsets;
}

void BadRows::note(const std::string& file, uint64_t offset, const std::function<std::string()>& where,
                   std::string_view reason, uint64_t lines) {
  const std::lock_guard lock(mutex_);
  OfFile& of = files_[file];
  of.in_order = of.in_order && (of.offsets.empty() || of.offsets.back() < offset);
  of.offsets.push_back(offset);
  if (lines > 1) of.longer[offset] = lines;
  // Asking for the line reads the file up to there.
  if (of.first.contains(offset) || (of.first.size() == kShown && of.first.rbegin()->first < offset)) return;
  of.first.emplace(offset, one_line(fmt::format("{}: {}", where(), reason)));
  if (of.first.size() > kShown) of.first.erase(std::prev(of.first.end()));
}

uint64_t BadRows::count() const {
  const std::lock_guard lock(mutex_);
  uint64_t count = 0;
  for (const auto& [file, of] : files_) count += of.sorted().size();
  return count;
}

uint64_t BadRows::count(const std::string& file) const {
  return count_before(file, UINT64_MAX);
}

bool BadRows::has(const std::string& file, uint64_t offset) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(file);
  if (found == files_.end()) return false;
  const std::vector<uint64_t>& offsets = found->second.sorted();
  return std::binary_search(offsets.begin(), offsets.end(), offset);
}

uint64_t BadRows::count_before(const std::string& file, uint64_t offset) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(file);
  if (found == files_.end()) return 0;
  const std::vector<uint64_t>& offsets = found->second.sorted();
  return static_cast<uint64_t>(std::lower_bound(offsets.begin(), offsets.end(), offset) - offsets.begin());
}

std::string BadRows::summary(std::string_view done, const std::string& file) const {
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = files_.equal_range(file);
  return describe(done, begin, end);
}

std::string BadRows::summary(std::string_view done) const {
  const std::lock_guard lock(mutex_);
  return describe(done, files_.begin(), files_.end());
}

std::string BadRows::describe(std::string_view done, Files::const_iterator begin,
                              Files::const_iterator end) const {
  size_t count = 0, told = 0, lines = 0;
  std::string shown;
  for (; begin != end; ++begin) {
    count += begin->second.sorted().size();
    for (const auto& [offset, own] : begin->second.longer) lines += own - 1;
    for (const auto& [offset, line] : begin->second.first)
      if (told < kShown) shown += "\n  " + line, ++told;
  }
  lines += count;
  if (count > told) shown += fmt::format("\n  and {} more", count - told);
  return fmt::format("{} {} {}{} {}:{}", done, count, count == 1 ? "row" : "rows",
                     lines > count ? fmt::format(" ({} lines)", lines) : "", kind_, shown);
}

}  // namespace funicular::format
