#pragma once
// Bytes as they come from a pipe, as whole lines.

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

}  // namespace funicular::launch
