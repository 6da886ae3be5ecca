#include "funicular/cli/verify_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "funicular/base/clock.h"
#include "funicular/base/log.h"
#include "funicular/data/token_store.h"

namespace funicular::cli {

std::string verify_store(const fs::path& folder) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto store = data::TokenStore::open(folder, {.verify = false});
  store->verify();
  const double seconds = seconds_since(start);
  const data::StoreMeta& meta = store->meta();
  uint64_t bytes = 0;
  size_t blocks = 0;
  for (const auto& file : meta.files) {
    bytes += file.bytes;
    blocks += file.blocks.size();
  }
  const double megabytes = static_cast<double>(bytes) / 1e6;
  const std::string parts = meta.block_bytes > 0
                                ? fmt::format("{} blocks of at most {} bytes", blocks, meta.block_bytes)
                                : std::string("whole files, being made before blocks had checksums");
  return fmt::format("{}: verified: {} rows, {} tokens; {} files, {:.1f} MB, {}; {:.3f} s, {:.0f} MB/s",
                     folder.string(), meta.rows, meta.tokens, meta.files.size(), megabytes, parts, seconds,
                     megabytes / std::max(seconds, 1e-9));
}

void warn_of_unknown_tokens(const data::StoreMeta& meta, const fs::path& store) {
  constexpr double kMost = 0.2;
  if (static_cast<double>(meta.unknown_tokens) > kMost * static_cast<double>(meta.tokens))
    log::warning("{}: many tokens are unknown ({:.0f} %); is this the right tokeniser for this text?",
                 store.string(),
                 100.0 * static_cast<double>(meta.unknown_tokens) / static_cast<double>(meta.tokens));
}

}  // namespace funicular::cli
