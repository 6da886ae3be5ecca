#pragma once
// Bytes from a pipe, a terminal or a file, as they arrive.

#include <atomic>
#include <optional>
#include <string>
#include <string_view>

#include "funicular/base/decompressor.h"

namespace funicular {

/// Reads a descriptor piece by piece. Unpacks what gzip or zstd has compressed. Does not close the descriptor.
class InputStream {
 public:
  /// `name` stands for the file in messages, e.g. "standard input".
  InputStream(int descriptor, std::string name) : descriptor_(descriptor), name_(std::move(name)) {}
  /// The next bytes, valid until the next call; "" at the end, after stop() and after an interrupt (interrupt.h).
  /// Throws InputError if the system cannot read, or the compressed data are damaged or end early.
  std::string_view read();
  /// From another thread: read() gives no more bytes, even while it waits for them.
  void stop() { stopped_ = true; }
  bool stopped() const;

 private:
  void begin();
  bool read_raw();
  bool wait_for_bytes() const;
  int descriptor_;
  std::string name_;
  std::atomic<bool> stopped_{false};
  std::string raw_, first_;
  bool begun_ = false;
  std::optional<Decompressor> unpacker_;
};

}  // namespace funicular
