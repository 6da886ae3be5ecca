#include "funicular/base/log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/visible.h"

namespace funicular::log {

namespace {

const std::vector<std::string> kLevels{"debug", "info", "warning", "error"};  // in the order of Level

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

Level level_from_environment() {
  const auto found = std::find(kLevels.begin(), kLevels.end(), variable("FUNICULAR_LOG"));
  return found == kLevels.end() ? Level::info : static_cast<Level>(found - kLevels.begin());
}

void require_one_of(const char* name, const std::vector<std::string>& values) {
  const std::string value = variable(name);
  if (value.empty() || std::find(values.begin(), values.end(), value) != values.end()) return;
  const std::string near = nearest(value, values.data(), values.data() + values.size());
  throw InputError("environment", "{} expects one of {}, found \"{}\"{}", name, fmt::join(values, ", "),
                   value, near.empty() ? "" : "; did you mean " + near + "?");
}

std::atomic<Level>& current_level() {
  static std::atomic<Level> level{level_from_environment()};
  return level;
}

std::atomic<void (*)()> before_message{nullptr};

}  // namespace

void set_level(Level level) {
  current_level() = level;
}

bool enabled(Level level) {
  return level >= current_level().load(std::memory_order_relaxed);
}

void set_before_message(void (*hook)()) {
  before_message = hook;
}

std::string time_stamp() {
  const bool wanted = ::isatty(STDERR_FILENO) == 0 && variable("FUNICULAR_LOG_TIMES") != "off";
  if (!wanted) return "";
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} ", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

void check_environment() {
  require_one_of("FUNICULAR_LOG", kLevels);
  require_one_of("FUNICULAR_LOG_TIMES", {"on", "off"});
}

void write(Level level, fmt::string_view format, fmt::format_args arguments) {
  if (!enabled(level)) return;
  static constexpr const char* kPrefix[] = {"debug: ", "", "warning: ", "error: "};
  // One write call a message, so that lines of several threads or processes do not mix.
  const std::string line = fmt::format("{}{}{}\n", time_stamp(), kPrefix[static_cast<int>(level)],
                                       visible(fmt::vformat(format, arguments)));
  if (auto* hook = before_message.load()) hook();
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

}  // namespace funicular::log
