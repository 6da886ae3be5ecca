// What --help and completion tell of a command's arguments.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "funicular/cli/arguments.h"

namespace funicular::cli {

namespace {

/// Words of `text` in lines of at most `width` characters, each line but the first indented.
std::string wrap(std::string_view text, size_t indent, size_t width) {
  std::string result;
  size_t column = indent;
  while (!text.empty()) {
    const size_t blank = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, blank);
    if (column > indent && column + word.size() + 1 > width) {
      result += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
    text.remove_prefix(std::min(blank + 1, text.size()));
  }
  return result;
}

}  // namespace

std::string Arguments::help() const {
  std::string usage = "Usage: funicular " + command_;
  for (const auto& option : options_)
    if (option->required_)
      usage += fmt::format(" --{} {}{}", option->name_, option->value_, option->many_ ? "…" : "");
  if (positional_) usage += " " + positional_value_;
  usage += " [options]" + (rest_ ? " " + rest_value_ : "");
  std::string text = wrap(usage, 2, 100) + "\n\n" + wrap(description_, 0, 100) + "\n";
  if (positional_) text += fmt::format("\n  {:<28}{}\n", positional_value_, wrap(positional_help_, 30, 100));
  if (rest_) text += fmt::format("\n  {:<28}{}\n", rest_value_, wrap(rest_help_, 30, 100));
  std::string section = "\n";
  for (const auto& option : options_) {
    if (option->hidden_) continue;
    if (option->section_ != section) {
      section = option->section_;
      text += fmt::format("\n{}:\n", section.empty() ? "Options" : section);
    }
    std::string help = option->help_;
    if (!option->choices_.empty()) help += fmt::format(": {}", fmt::join(option->choices_, " | "));
    if (option->required_) {
      help +=
          option->unless_.empty() ? " (required)" : fmt::format(" (required without --{})", option->unless_);
    } else if (!option->default_.empty()) {
      help += fmt::format(" [{}]", option->default_);
    }
    if (!option->aliases_.empty()) help += fmt::format(" (also --{})", fmt::join(option->aliases_, ", --"));
    const std::string left =
        fmt::format("{}--{} {}{}", option->letter_ ? fmt::format("-{}, ", option->letter_) : "",
                    option->name_, option->value_, option->many_ ? "…" : "");
    // In characters: an ellipsis is three bytes.
    const auto shown = static_cast<size_t>(
        std::count_if(left.begin(), left.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
    text += "  " + left + (shown < 28 ? std::string(28 - shown, ' ') : "\n" + std::string(30, ' ')) +
            wrap(help, 30, 100) + "\n";
  }
  if (section != "General")
    text +=
        "\nGeneral:\n  --config FILE               TOML file with the same keys as the options; the command "
        "line wins\n";
  return text + "  --help                      Show this text\n";
}

std::vector<std::string> Arguments::option_names() const {
  std::vector<std::string> names{"--config", "--help"};
  for (const auto& option : options_)
    if (!option->hidden_ && option->name_ != "config") names.push_back("--" + option->name_);
  return names;
}

std::vector<Arguments::Choices> Arguments::option_choices() const {
  std::vector<Choices> result;
  for (const auto& option : options_)
    if (!option->hidden_ && !option->offered().empty())
      result.push_back({"--" + option->name_, option->offered()});
  return result;
}

}  // namespace funicular::cli
