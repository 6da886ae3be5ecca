#pragma once
// Errors that several ranks report in equal words: only the first is shown.

#include <set>
#include <string>
#include <string_view>

namespace funicular::launch {

/// Errors that the ranks of one launch have reported so far. A wrong option or a missing file is found by
/// every rank, and a person needs to read it once.
class RepeatedErrors {
 public:
  /// State of a rank's lines: within a repeated error, or not.
  struct Reader {
    bool within_repetition = false;
  };

  /// Whether this line of a rank belongs to an error that was shown before. An error is a line with "error: ", perhaps
  /// behind a time stamp, and the following lines that begin with two blanks.
  bool is_repeated(std::string_view line, Reader& reader);

 private:
  std::set<std::string, std::less<>> told_;
};

}  // namespace funicular::launch
