#pragma once
// Rows of text files that make no sense: an error, or left out, counted and told.

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace funicular::format {

/// The rule for rows that cannot be read (--skip-bad-rows), and the rows that were met. Readers of several threads
/// may share it.
class BadRows {
 public:
  /// `skip`: leave such a row out; otherwise it is an error. `remedy` is what the error says of the option.
  /// `kind` ends the first line of the summary: what is wrong with the rows.
  explicit BadRows(bool skip, std::string remedy = "--skip-bad-rows leaves such rows out",
                   std::string kind = "that could not be read")
      : skip_(skip), remedy_(std::move(remedy)), kind_(std::move(kind)) {}

  bool skip() const { return skip_; }
  const std::string& remedy() const { return remedy_; }

  /// Notes a row of a file whose first byte is at `offset`; a row that was noted before counts once. `where`:
  /// "FILE:LINE", asked for if the row is one of the first. `reason`: what is wrong with it. `lines`: how many it
  /// has.
  void note(const std::string& file, uint64_t offset, const std::function<std::string()>& where,
            std::string_view reason, uint64_t lines = 1);

  /// Number of bad rows in all files.
  uint64_t count() const;
  uint64_t count(const std::string& file) const;
  /// Whether the row that begins there was noted.
  bool has(const std::string& file, uint64_t offset) const;
  /// How many rows of the file that begin before `offset` were noted.
  uint64_t count_before(const std::string& file, uint64_t offset) const;
  /// "DONE 2 rows KIND:", as "left out 2 rows that could not be read:", or "DONE 2 rows (5 lines) KIND:". A line for
  /// each of the first few bad rows (by file, then by place) says where it stands and what is wrong with it. For one
  /// file, or for all.
  std::string summary(std::string_view done, const std::string& file) const;
  std::string summary(std::string_view done) const;

 private:
  struct OfFile {
    mutable std::vector<uint64_t> offsets;  ///< see sorted()
    mutable bool in_order = true;
    std::map<uint64_t, std::string> first;  ///< what is shown of the first few, by offset
    std::map<uint64_t, uint64_t> longer;    ///< rows of several lines, by offset
    /// Ascending, none twice.
    const std::vector<uint64_t>& sorted() const;
  };
  using Files = std::map<std::string, OfFile>;
  std::string describe(std::string_view done, Files::const_iterator begin, Files::const_iterator end) const;

  const bool skip_;
  const std::string remedy_, kind_;
  mutable std::mutex mutex_;
  Files files_;
};

}  // namespace funicular::format
