#pragma once
// Messages for the person at the terminal, on standard error; standard output is for results.

#include <fmt/base.h>

#include <string>
#include <string_view>

namespace funicular::log {

enum class Level { debug, info, warning, error };

/// Messages below this level are not shown. Default: info, or the environment variable FUNICULAR_LOG
/// (debug | info | warning | error; anything else is refused by check_environment).
void set_level(Level level);
bool enabled(Level level);

/// Called before each message, so that a progress line can clear itself.
void set_before_message(void (*hook)());

/// The local time as "2026-11-24 06:58:03 ", for the beginning of a line; empty where standard error is a
/// terminal, or FUNICULAR_LOG_TIMES is "off".
std::string time_stamp();

/// Throws InputError where an environment variable of the messages holds none of its values.
void check_environment();

void write(Level level, fmt::string_view format, fmt::format_args arguments);

template <class... A>
void debug(fmt::format_string<A...> format, A&&... arguments) {
  if (enabled(Level::debug)) write(Level::debug, format, fmt::make_format_args(arguments...));
}
template <class... A>
void info(fmt::format_string<A...> format, A&&... arguments) {
  write(Level::info, format, fmt::make_format_args(arguments...));
}
template <class... A>
void warning(fmt::format_string<A...> format, A&&... arguments) {
  write(Level::warning, format, fmt::make_format_args(arguments...));
}
template <class... A>
void error(fmt::format_string<A...> format, A&&... arguments) {
  write(Level::error, format, fmt::make_format_args(arguments...));
}

}  // namespace funicular::log
