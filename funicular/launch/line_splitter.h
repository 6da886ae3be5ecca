#pragma once
// Splits the bytes from a pipe into whole lines.

#include <functional>
#include <string>
#include <string_view>

namespace funicular::launch {

/// Collects bytes and gives out each line once it is whole, without its end. A line ends with "\n", "\r\n" or
/// a "\r" alone (progress bars). A line longer than kLongest bytes is given out in pieces of that size.
class LineSplitter {
 public:
  static constexpr size_t kLongest = 1 << 20;
  using Sink = std::function<void(std::string_view line)>;

  void add(std::string_view bytes, const Sink& sink);
  /// The end of the stream: a last line without an end is a line too.
  void finish(const Sink& sink);

 private:
  std::string partial_;
  bool after_return_ = false;
};

/// Collects bytes and gives them out unchanged once their line is whole, so that lines of other streams do not come in
/// between. A line longer than kLongest bytes is given out in parts.
class WholeLines {
 public:
  static constexpr size_t kLongest = LineSplitter::kLongest;
  /// Gets one or more whole lines with their ends, or a part of a long line.
  using Sink = std::function<void(std::string_view bytes)>;

  void add(std::string_view bytes, const Sink& sink);
  /// The end of the stream: a last line without an end is given out as it is.
  void finish(const Sink& sink);

 private:
  std::string held_;  ///< of a line that is not whole yet
};

}  // namespace funicular::launch
