#include "funicular/launch/repeated_errors.h"

#include <algorithm>

namespace funicular::launch {

namespace {

constexpr std::string_view kError = "error: ";

/// The message of an error, without its time and without the rank that reported it; empty for other lines.
std::string_view message_of(std::string_view line) {
  constexpr size_t kStamp = 20;  // "2026-11-24 06:58:03 ", see base/log.h
  const bool stamped = line.size() > kStamp && line[4] == '-' && line[7] == '-' && line[10] == ' ' &&
                       line[13] == ':' && line[16] == ':' && line[19] == ' ';
  if (stamped) line.remove_prefix(kStamp);
  if (!line.starts_with(kError)) return {};
  line.remove_prefix(kError.size());
  // See comm/together: "[ranks] rank 0 stopped: ".
  constexpr std::string_view kOfRank = "[ranks] rank ", kStopped = " stopped: ";
  if (!line.starts_with(kOfRank)) return line;
  const size_t end = line.find_first_not_of("0123456789", kOfRank.size());
  if (end != line.npos && line.substr(end).starts_with(kStopped)) line.remove_prefix(end + kStopped.size());
  return line;
}

}  // namespace

bool RepeatedErrors::is_repeated(std::string_view line, Reader& reader) {
  if (reader.within_repetition && line.starts_with("  ")) return true;
  const std::string_view message = message_of(line);
  reader.within_repetition = !message.empty() && !told_.emplace(message).second;
  return reader.within_repetition;
}

}  // namespace funicular::launch
