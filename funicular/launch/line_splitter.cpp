#include "funicular/launch/line_splitter.h"

#include <algorithm>

namespace funicular::launch {

void LineSplitter::add(std::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    if (after_return_ && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      after_return_ = false;
      continue;
    }
    after_return_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    const size_t take = std::min({end, bytes.size(), kLongest - partial_.size()});
    partial_ += bytes.substr(0, take);
    bytes.remove_prefix(take);
    const bool ended = take == end;
    if (ended) {
      after_return_ = bytes.front() == '\r';
      bytes.remove_prefix(1);
    }
    if (ended || partial_.size() == kLongest) {
      sink(partial_);
      partial_.clear();
    }
  }
}

void LineSplitter::finish(const Sink& sink) {
  if (!partial_.empty()) sink(partial_);
  partial_.clear();
  after_return_ = false;
}

void WholeLines::add(std::string_view bytes, const Sink& sink) {
  const size_t last = bytes.rfind('\n');
  size_t whole = last == bytes.npos ? 0 : held_.size() + last + 1;
  held_ += bytes;
  if (whole == 0 && held_.size() > kLongest) whole = held_.size();
  if (whole > 0) sink(std::string_view(held_).substr(0, whole));
  held_.erase(0, whole);
}

void WholeLines::finish(const Sink& sink) {
  if (!held_.empty()) sink(held_);
  held_.clear();
}

}  // namespace funicular::launch
