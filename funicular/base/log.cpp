#include "funicular/base/log.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace funicular::log {

namespace {

Level level_from_environment() {
  const char* text = std::getenv("FUNICULAR_LOG");
  const std::string_view name = text ? text : "";
  if (name == "debug") return Level::debug;
  if (name == "warning") return Level::warning;
  if (name == "error") return Level::error;
  if (!name.empty() && name != "info")
    fmt::print(stderr,
               "warning: FUNICULAR_LOG expects debug, info, warning or error, found \"{}\"; taken as info\n",
               name);
  return Level::info;
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

void write(Level level, fmt::string_view format, fmt::format_args arguments) {
  if (!enabled(level)) return;
  static constexpr const char* kPrefix[] = {"debug: ", "", "warning: ", "error: "};
  // One write call a message, so that lines of several threads or processes do not mix.
  const std::string line =
      fmt::format("{}{}\n", kPrefix[static_cast<int>(level)], fmt::vformat(format, arguments));
  if (auto* hook = before_message.load()) hook();
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

}  // namespace funicular::log
