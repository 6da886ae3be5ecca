#include "funicular/base/memory.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "funicular/base/file.h"

namespace funicular {

namespace {

/// "" where it cannot be read.
std::string text_of(const fs::path& path) {
  try {
    return read_file(path);
  } catch (const Error&) {
    return "";
  }
}

std::optional<double> first_number(const fs::path& path) {
  const std::string text = text_of(path);
  double value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) return std::nullopt;
  return value;
}

/// The value of `field` in a file of lines that begin "field value".
std::optional<double> named_number(const fs::path& path, std::string_view field) {
  std::istringstream lines(text_of(path));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    double value = 0;
    if (words >> name >> value && name == field) return value;
  }
  return std::nullopt;
}

constexpr const char* kSystem = "/proc/meminfo";  // in kB

}  // namespace

double available_memory() {
  const double free =
      static_cast<double>(::sysconf(_SC_AVPHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  const auto kilobytes = named_number(kSystem, "MemAvailable:");
  const double available = kilobytes ? *kilobytes * 1024 : free;
  const auto limit = first_number("/sys/fs/cgroup/memory.max");
  const auto used = first_number("/sys/fs/cgroup/memory.current");
  if (!limit || !used) return available;
  // memory.current includes the cache of files, which gives way to programs.
  const double cache = named_number("/sys/fs/cgroup/memory.stat", "inactive_file").value_or(0);
  return std::min(available, *limit - *used + cache);
}

double available_swap() {
  return named_number(kSystem, "SwapFree:").value_or(0) * 1024;
}

}  // namespace funicular
