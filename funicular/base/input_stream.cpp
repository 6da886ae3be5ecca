#include "funicular/base/input_stream.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"

namespace funicular {

bool InputStream::stopped() const {
  return stopped_ || interrupt_requested() != 0;
}

/// False if the stream is stopped. A signal may reach another thread, so that none ends the wait: it asks.
bool InputStream::wait_for_bytes() const {
  constexpr int kMilliseconds = 100;
  pollfd waited{descriptor_, POLLIN, 0};
  for (;;) {
    if (stopped()) return false;
    const int ready = ::poll(&waited, 1, kMilliseconds);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;  // read() tells what is wrong
  }
}

/// Fills raw_; false at the end.
bool InputStream::read_raw() {
  constexpr size_t kRead = 1 << 16;
  raw_.resize(kRead);
  ssize_t count = 0;
  while (wait_for_bytes()) {
    count = ::read(descriptor_, raw_.data(), raw_.size());
    if (count >= 0 || (errno != EINTR && errno != EAGAIN)) break;
    count = 0;
  }
  if (count < 0) throw InputError("text", "cannot read {}: {}", name_, errno_text(errno));
  raw_.resize(static_cast<size_t>(count));
  return count > 0;
}

/// Reads until the first bytes tell whether they are compressed.
void InputStream::begin() {
  begun_ = true;
  do {
    if (!read_raw()) break;
    first_ += raw_;
  } while (may_be_compressed(first_));
  const Compression compression = compression_of(first_);
  if (compression == Compression::none) return;
  unpacker_.emplace(compression, name_);
  unpacker_->give(first_);
}

std::string_view InputStream::read() {
  if (!begun_) {
    begin();
    if (!unpacker_) {
      raw_ = std::move(first_);
      return raw_;
    }
  }
  if (!unpacker_) return read_raw() ? std::string_view(raw_) : std::string_view();
  for (;;) {
    if (const std::string_view text = unpacker_->take(); !text.empty()) return text;
    if (!read_raw()) break;
    unpacker_->give(raw_);
  }
  if (!stopped()) unpacker_->finish();
  return {};
}

}  // namespace funicular
