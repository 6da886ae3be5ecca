#include "funicular/base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "funicular/base/clock.h"
#include "funicular/base/log.h"

namespace funicular {

namespace {

constexpr double kRedrawSeconds = 0.1;

std::mutex& display_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// The stream whose line is on the terminal now, and the objects that may draw, newest last.
struct Display {
  std::FILE* drawn_on = nullptr;
  std::vector<const void*> live;
};
Display& display() {
  static Display value;
  return value;
}

void clear_locked() {
  if (std::FILE* stream = std::exchange(display().drawn_on, nullptr)) {
    std::fputs("\r\x1b[K", stream);
    std::fflush(stream);
  }
}

void clear_before_message() {
  const std::lock_guard lock(display_mutex());
  clear_locked();
}

size_t terminal_columns(std::FILE* stream) {
  winsize size{};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

/// The first `columns` characters: a line that wraps could not be redrawn in place. (Code points stand for
/// columns.)
std::string_view fit(std::string_view line, size_t columns) {
  size_t count = 0;
  for (size_t i = 0; i < line.size(); ++i)
    if ((line[i] & 0xC0) != 0x80 && count++ == columns) return line.substr(0, i);
  return line;
}

bool is_terminal(std::FILE* stream) {
  const char* kind = std::getenv("TERM");
  return ::isatty(::fileno(stream)) && !(kind && std::string_view(kind) == "dumb");
}

}  // namespace

std::string short_number(double value) {
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  // 999.5 would print as 1000.
  for (; std::abs(value) >= 999.5 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  if (unit == 0 && value == std::floor(value)) return fmt::format("{:.0f}", value);
  const double size = std::abs(value);
  return fmt::format("{:.{}f}{}", value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0, kUnits[unit]);
}

std::string short_duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "?";
  const auto total = static_cast<int64_t>(std::llround(seconds));
  const int64_t hours = total / 3600, minutes = total / 60 % 60, rest = total % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, rest)
                   : fmt::format("{}:{:02}", minutes, rest);
}

Progress::Progress(std::string name, uint64_t total, Options options)
    : name_(std::move(name)),
      total_(total),
      options_(std::move(options)),
      terminal_(options_.terminal.value_or(is_terminal(options_.stream))),
      start_(Clock::now()),
      last_(start_) {
  log::set_before_message(clear_before_message);
  const std::lock_guard lock(display_mutex());
  display().live.push_back(this);
}

Progress::~Progress() {
  const std::lock_guard lock(display_mutex());
  std::erase(display().live, this);
  if (terminal_) clear_locked();
}

bool Progress::due(Clock::time_point now) {
  if (finished_ || display().live.back() != this) return false;
  const double seconds = terminal_ ? kRedrawSeconds : options_.plain_seconds;
  if (now >= last_ && seconds_between(last_, now) < seconds) return false;
  last_ = now;
  return true;
}

void Progress::update(uint64_t done, std::string_view extra, double beside_left) {
  const std::lock_guard lock(display_mutex());
  last_done_ = done;
  const auto now = Clock::now();
  if (due(now)) draw(line(done, extra, beside_left, now));
}

void Progress::spent_beside(double seconds) {
  const std::lock_guard lock(display_mutex());
  beside_ += seconds;
}

void Progress::show(std::string_view text) {
  const std::lock_guard lock(display_mutex());
  if (due(Clock::now())) draw(fmt::format("{}  {}", name_, text));
}

void Progress::finish(std::string_view message) {
  const std::lock_guard lock(display_mutex());
  if (std::exchange(finished_, true)) return;
  if (terminal_) clear_locked();
  if (terminal_ && message.empty()) return;
  const auto now = Clock::now();
  const double seconds = seconds_between(start_, now);
  std::string text = fmt::format("{}  {}", name_, message);
  if (message.empty() && last_done_ > 0)
    text =
        fmt::format("{}  {} in {}", name_, amount(static_cast<double>(last_done_)), short_duration(seconds));
  else if (message.empty())  // nothing was counted
    text = fmt::format("{}  done in {}", name_, short_duration(seconds));
  std::fputs((stamp() + text + "\n").c_str(), options_.stream);
  std::fflush(options_.stream);
}

std::string Progress::amount(double done) const {
  const std::string number = short_number(done);
  if (options_.unit.empty()) return number;
  if (options_.unit != "B") return number + " " + options_.unit;
  const bool scaled = number.back() > '9';  // "12.3M" + "B" reads "12.3 MB"
  return scaled ? number.substr(0, number.size() - 1) + " " + number.back() + "B" : number + " B";
}

std::string Progress::line(uint64_t done, std::string_view extra, double beside_left,
                           Clock::time_point now) const {
  const double seconds = std::max(0.0, seconds_between(start_, now) - beside_);
  const uint64_t here = done - std::min(done, options_.start);
  const double rate = seconds > 0 ? static_cast<double>(here) / seconds : 0;
  std::string text = name_;
  if (total_ > 0)
    text += fmt::format("  {:.0f}%",
                        100.0 * static_cast<double>(std::min(done, total_)) / static_cast<double>(total_));
  const auto count = static_cast<double>(done);
  const std::string number = options_.unit == "B" ? amount(count) : short_number(count);
  text += total_ > 0 ? fmt::format("  {} of {}", number, amount(static_cast<double>(total_)))
                     : fmt::format("  {}", amount(count));
  // A rate of 0.35 steps per second makes sense, a rate of 0.35 B does not.
  text += fmt::format("  {}/s", amount(options_.unit == "B" ? std::floor(rate) : rate));
  if (total_ > done && rate > 0)
    text += fmt::format("  {} left", short_duration(static_cast<double>(total_ - done) / rate + beside_left));
  if (!extra.empty()) text += fmt::format("  {}", extra);
  return text;
}

/// Returns the time if the line stands among the log messages of a file.
std::string Progress::stamp() const {
  return terminal_ || options_.stream != stderr ? std::string() : log::time_stamp();
}

void Progress::draw(const std::string& text) {
  if (terminal_) {
    const std::string_view shown = fit(text, terminal_columns(options_.stream) - 1);
    fmt::print(options_.stream, "\r{}\x1b[K", shown);
    display().drawn_on = options_.stream;
  } else {
    fmt::print(options_.stream, "{}{}\n", stamp(), text);
  }
  std::fflush(options_.stream);
}

}  // namespace funicular
