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

}  // namespace funicular::launch
