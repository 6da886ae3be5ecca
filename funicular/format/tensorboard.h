#pragma once
// TensorBoard event files: TFRecord frames (length, masked CRC-32C, payload, masked CRC-32C) of Event
// protocol buffers.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "funicular/base/file.h"

namespace funicular::format {

/// CRC-32C (Castagnoli, polynomial 0x1EDC6F41 reflected; RFC 3720, appendix B.4).
uint32_t crc32c(std::span<const std::byte> data);
/// TFRecord's mask: rotate right by 15, add 0xA282EAD8.
uint32_t masked_crc32c(std::span<const std::byte> data);

/// Appends scalars to folder/events.out.tfevents.<seconds>.<host>.<pid>.<n>. Not thread-safe.
class EventWriter {
 public:
  /// Makes the folder if need be. Throws RunError.
  explicit EventWriter(const fs::path& folder);
  ~EventWriter();  ///< flushes; errors are ignored
  const fs::path& path() const { return path_; }

  /// One point of the curve `tag`, e.g. "train/loss". `wall_seconds` since 1970; negative: now.
  void scalar(std::string_view tag, double value, int64_t step, double wall_seconds = -1);
  /// Text shown in TensorBoard's text tab (Markdown), e.g. the configuration.
  void text(std::string_view tag, std::string_view markdown, int64_t step);
  /// Makes what was written visible to readers (not to the disk: events are no state).
  void flush();

 private:
  void record(const std::string& event);
  fs::path path_;
  FileWriter file_;
};

}  // namespace funicular::format
