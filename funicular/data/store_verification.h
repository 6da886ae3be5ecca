#pragma once
// Compares the blocks of a store's files with the checksums in meta.json. The first blocks are verified before the
// store is used, the rest in a thread while it is used.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <stop_token>
#include <string_view>
#include <thread>
#include <vector>

#include "funicular/base/file.h"

namespace funicular::data {

/// A part of a file with its own checksum; in older stores, a whole file.
struct StoreBlock {
  std::string_view file;                ///< the file's name
  std::span<const std::byte> contents;  ///< mapped
  uint64_t begin = 0;                   ///< offset in the file
  uint64_t number = 1, count = 1;       ///< its number among the file's `count` blocks, from 1
  uint64_t checksum = 0;                ///< expected
};

/// Throws InputError, naming file, block and both checksums, if the checksum differs. `folder` is the store's.
/// Returns early if `stop` is requested.
void verify_block(const fs::path& folder, const StoreBlock& block, const std::stop_token& stop = {});

class StoreVerification {
 public:
  /// Verifies the first blocks, at most `first` bytes together, and starts a thread for all later blocks. Throws
  /// InputError if one of the first blocks is damaged. The contents must stay mapped.
  StoreVerification(fs::path folder, std::vector<StoreBlock> blocks, uint64_t first);
  /// Ends the thread.
  ~StoreVerification();
  StoreVerification(const StoreVerification&) = delete;
  StoreVerification& operator=(const StoreVerification&) = delete;

  /// Whether the thread has found a damaged block.
  bool failed() const { return failed_; }
  /// Waits until all blocks are verified. Throws InputError if one is damaged.
  void wait() const;

 private:
  void verify_rest(const std::stop_token& stop, size_t next);

  const fs::path folder_;
  const std::vector<StoreBlock> blocks_;
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  bool done_ = true;
  std::exception_ptr error_;
  std::atomic<bool> failed_ = false;
  std::jthread thread_;  ///< last member: the thread reads all members above
};

}  // namespace funicular::data
