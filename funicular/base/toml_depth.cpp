#include "funicular/base/toml_depth.h"

#include <fmt/format.h>

#include <vector>

namespace funicular {

namespace {

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::optional<TomlDepthProblem> run() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"' || c == '\'')
        skip_string(c);
      else if (c == '#')
        skip_comment();
      else
        take(c);
      if (depth() > kMaximumTomlDepth)
        return TomlDepthProblem{
            line_, fmt::format("tables, arrays and dotted keys are nested more than {} deep, which is "
                               "the limit",
                               kMaximumTomlDepth)};
    }
    return std::nullopt;
  }

 private:
  /// The depth of the current table, the open values and the key that is being read, together.
  int depth() const {
    int all = table_ + dots_ + in_value_;
    for (const int open : open_) all += open;
    return all;
  }

  void take(char c) {
    switch (c) {
      case '\n':
        ++line_;
        if (open_.empty()) end_line();
        break;
      case '.':
        // In a value, a dot is part of a number or a date.
        if (in_header_ || !after_equals_) ++dots_;
        break;
      case '=':
        after_equals_ = true;
        in_value_ = 1 + dots_;
        dots_ = 0;
        break;
      case '[':
      case '{':
        if (c == '[' && open_.empty() && !after_equals_) {
          in_header_ = true;
          table_ = 0;
          break;
        }
        open_.push_back(1 + in_value_);
        in_value_ = 0;
        after_equals_ = c == '[';  // an array holds values, a table keys
        break;
      case ']':
      case '}':
        if (in_header_ && open_.empty()) break;
        if (!open_.empty()) open_.pop_back();
        after_equals_ = true;
        in_value_ = dots_ = 0;
        break;
      case ',':
        // In a table a key follows. In an array a value follows, whose dots also count, but a number or a date has
        // at most one.
        after_equals_ = false;
        in_value_ = dots_ = 0;
        break;
      default:
        break;
    }
  }

  void end_line() {
    if (in_header_) table_ = 1 + dots_;
    in_header_ = after_equals_ = false;
    in_value_ = dots_ = 0;
  }

  void skip_comment() {
    while (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
  }

  /// Leaves the place at the closing quote.
  void skip_string(char quote) {
    const bool is_long = text_.substr(at_, 3) == std::string(3, quote);
    at_ += is_long ? 3 : 1;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') {
        ++line_;
        if (!is_long) return end_line();  // no TOML
      }
      if (quote == '"' && text_[at_] == '\\') {
        line_ += at_ + 1 < text_.size() && text_[at_ + 1] == '\n';
        ++at_;
      } else if (text_[at_] == quote && (!is_long || text_.substr(at_, 3) == std::string(3, quote))) {
        if (is_long) at_ += 2;
        // Up to two quotes may stand before the three that end a long string.
        for (int more = 0; is_long && more < 2 && at_ + 1 < text_.size() && text_[at_ + 1] == quote; ++more)
          ++at_;
        return;
      }
    }
  }

  std::string_view text_;
  size_t at_ = 0, line_ = 1;
  std::vector<int> open_;  ///< what each open array or inline table adds
  int table_ = 0;          ///< of the last [header]
  int dots_ = 0;           ///< in the key so far
  int in_value_ = 0;       ///< what the key before the value adds
  bool in_header_ = false, after_equals_ = false;
};

}  // namespace

std::optional<TomlDepthProblem> toml_depth_problem(std::string_view text) {
  return Scanner(text).run();
}

}  // namespace funicular
