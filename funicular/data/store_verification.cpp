#include "funicular/data/store_verification.h"

#include "funicular/base/clock.h"
#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/log.h"
#include "funicular/data/mapped_pages.h"
#include "funicular/data/store_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace funicular::data {

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void damaged(const fs::path& folder, const StoreBlock& block, uint64_t found) {
  const std::string part =
      block.count == 1 ? std::string("its contents have")
                       : fmt::format("bytes {} to {} (block {} of {}) have", block.begin,
                                     block.begin + block.contents.size() - 1, block.number, block.count);
  throw InputError("token store", "{}: damaged: {} the checksum {} (XXH3), expected {}; {}",
                   (folder / block.file).string(), part, hash_text(found), hash_text(block.checksum),
                   kStoreRemedy);
}

}  // namespace

void verify_block(const fs::path& folder, const StoreBlock& block, const std::stop_token& stop) {
  constexpr size_t kPiece = size_t{4} << 20;  // bytes to read between checks for a stop
  StreamHash hash;
  for (size_t begin = 0; begin < block.contents.size(); begin += kPiece) {
    if (stop.stop_requested()) return;
    const auto piece = block.contents.subspan(begin, std::min(kPiece, block.contents.size() - begin));
    hash.update(piece.data(), piece.size());
    give_back(piece);
  }
  const uint64_t found = hash.digest();
  if (found != block.checksum) damaged(folder, block, found);
}

StoreVerification::StoreVerification(fs::path folder, std::vector<StoreBlock> blocks, uint64_t first)
    : folder_(std::move(folder)), blocks_(std::move(blocks)) {
  size_t next = 0;
  for (; next < blocks_.size() && blocks_[next].contents.size() <= first; ++next) {
    verify_block(folder_, blocks_[next]);
    first -= blocks_[next].contents.size();
  }
  if (next == blocks_.size()) return;
  done_ = false;
  thread_ = std::jthread([this, next](const std::stop_token& stop) { verify_rest(stop, next); });
}

StoreVerification::~StoreVerification() = default;

void StoreVerification::verify_rest(const std::stop_token& stop, size_t next) {
  const auto start = Clock::now();
  uint64_t bytes = 0;
  std::exception_ptr error;
  try {
    for (; next < blocks_.size() && !stop.stop_requested(); ++next) {
      verify_block(folder_, blocks_[next], stop);
      bytes += blocks_[next].contents.size();
    }
  } catch (...) {
    error = std::current_exception();
  }
  if (!error && !stop.stop_requested()) {
    const double seconds = seconds_since(start);
    const double megabytes = static_cast<double>(bytes) / 1e6;
    log::info("{}: {:.1f} MB verified in the background in {:.2f} s, {:.0f} MB/s", folder_.string(),
              megabytes, seconds, megabytes / std::max(seconds, 1e-9));
  }
  const std::lock_guard lock(mutex_);
  error_ = error;
  failed_ = error != nullptr;
  done_ = true;
  ended_.notify_all();
}

void StoreVerification::wait() const {
  std::unique_lock lock(mutex_);
  if (!done_) {
    log::info("waiting until {} is verified", folder_.string());
    ended_.wait(lock, [this] { return done_; });
  }
  if (error_) std::rethrow_exception(error_);
}

}  // namespace funicular::data
