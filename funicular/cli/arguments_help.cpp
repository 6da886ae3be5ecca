// The texts that follow from the declarations of a command's options: --help, the words of completion, and the tables of
// docs/reference/options.md.

#include "funicular/cli/arguments_help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace funicular::cli {

namespace {

/// --help shows all options of a command that has no more of them.
constexpr int64_t kShortHelp = 17;
constexpr size_t kWidth = 100, kHelpColumn = 30;

/// Words of `text` in lines of at most kWidth characters, each line but the first indented.
std::string wrap(std::string_view text, size_t indent) {
  std::string result;
  size_t column = indent;
  while (!text.empty()) {
    const size_t blank = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, blank);
    if (column > indent && column + word.size() + 1 > kWidth) {
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

/// A line of two columns.
std::string columns(const std::string& left, const std::string& right) {
  // In characters: an ellipsis is three bytes.
  const auto shown = static_cast<size_t>(
      std::count_if(left.begin(), left.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
  const size_t width = kHelpColumn - 2;
  return "  " + left +
         (shown < width ? std::string(width - shown, ' ') : "\n" + std::string(kHelpColumn, ' ')) +
         wrap(right, kHelpColumn) + "\n";
}

}  // namespace

std::string help_text_of(const Declaration& option, bool aliases) {
  std::string help = option.help;
  if (!option.choices.empty()) help += fmt::format(": {}", fmt::join(option.choices, " | "));
  if (option.required) {
    help += option.unless.empty() ? " (required)" : fmt::format(" (required without --{})", option.unless);
  } else if (!option.usual.empty()) {
    help += fmt::format(" [{}]", option.usual);
  }
  if (aliases && !option.aliases.empty())
    help += fmt::format(" (also --{})", fmt::join(option.aliases, ", --"));
  return help;
}

namespace {

std::string line_of(const Declaration& option) {
  std::string name = option.letter ? fmt::format("-{}, ", option.letter) : "";
  if (!option.letters.empty()) name += fmt::format("-{}, ", option.letters);
  return columns(fmt::format("{}--{} {}{}", name, option.name, option.value, option.many ? "…" : ""),
                 help_text_of(option));
}

/// Options that a user may be told of, but for --config.
std::vector<const Declaration*> visible(const Arguments& arguments) {
  std::vector<const Declaration*> found;
  for (const Declaration* option : arguments.declarations())
    if (!option->hidden && option->name != kConfigOption) found.push_back(option);
  return found;
}

/// The values that need no name, as the usage shows them: "RUN [FILE]".
std::string unnamed_values(const Arguments& arguments) {
  std::string text;
  for (const std::string& name : arguments.unnamed_options())
    for (const Declaration* option : arguments.declarations())
      if (option->name == name)
        text += option->required ? " " + option->value : fmt::format(" [{}]", option->value);
  return text;
}

bool is_unnamed(const Arguments& arguments, const std::string& option) {
  const std::vector<std::string>& names = arguments.unnamed_options();
  return std::find(names.begin(), names.end(), option) != names.end();
}

}  // namespace

std::string usage_line_of(const Arguments& arguments) {
  std::string usage = "funicular " + arguments.command() + unnamed_values(arguments);
  for (const Declaration* option : arguments.declarations())
    if (option->required && !is_unnamed(arguments, option->name))
      usage += fmt::format(" --{} {}{}", option->name, option->value, option->many ? "…" : "");
  const auto& [first, last] = arguments.operands();
  if (!first.value.empty()) usage += " " + first.value;
  return usage + " [options]" + (last.value.empty() ? "" : " " + last.value);
}

namespace {

std::string usage_of(const Arguments& arguments) {
  const auto& [first, last] = arguments.operands();
  std::string text =
      wrap("Usage: " + usage_line_of(arguments), 2) + "\n\n" + wrap(arguments.description(), 0) + "\n";
  if (!arguments.terms().empty()) text += "\n";
  for (const Arguments::Term& term : arguments.terms()) text += columns(term.words, term.meaning);
  for (const Arguments::Operand& operand : {first, last})
    if (!operand.value.empty()) text += "\n" + columns(operand.value, operand.help);
  return text;
}

std::string general_lines(size_t left_out) {
  const std::string help = left_out > 0
                               ? fmt::format("Show the common options; --help all shows {} more", left_out)
                               : "Show this text";
  return "\nGeneral:\n" + columns("--config FILE", kConfigHelp) + columns("--help [all]", help);
}

}  // namespace

std::string help_of(const Arguments& arguments, bool all) {
  const std::vector<const Declaration*> options = visible(arguments);
  const bool whole = all || static_cast<int64_t>(options.size()) <= kShortHelp;
  std::string text = usage_of(arguments), group = "\n";
  size_t left_out = 0;
  for (const Declaration* option : options) {
    if (!whole && !option->common && !option->required) {
      ++left_out;
      continue;
    }
    if (option->group != group) {
      group = option->group;
      text += fmt::format("\n{}:\n", group.empty() ? "Options" : group);
    }
    text += line_of(*option);
  }
  text += general_lines(left_out);
  if (!arguments.examples().empty()) text += "\nExamples:\n";
  for (const Arguments::Example& example : arguments.examples())
    text += fmt::format("  # {}\n  {}\n", example.purpose, example.command);
  return text;
}

std::vector<std::string> option_names(const Arguments& arguments) {
  std::vector<std::string> names{"--config", "--help"};
  for (const Declaration* option : visible(arguments)) names.push_back("--" + option->name);
  return names;
}

std::vector<OptionChoices> option_choices(const Arguments& arguments) {
  std::vector<OptionChoices> result;
  for (const Declaration* option : visible(arguments)) {
    const std::vector<std::string>& offered = option->choices.empty() ? option->suggestions : option->choices;
    if (!offered.empty()) result.push_back({"--" + option->name, offered});
  }
  return result;
}

namespace {

std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find_first_of("|<", at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return text;
}

std::string range_of(const Declaration& option) {
  if (!option.choices.empty()) {
    std::string names;
    for (const std::string& name : option.choices) names += (names.empty() ? "`" : ", `") + name + "`";
    return names;
  }
  const std::string high = std::isinf(option.high) ? "" : fmt::format("{:.15g}", option.high);
  if (std::isinf(option.low)) return high.empty() ? "" : "at most " + high;
  if (option.low_excluded)
    return fmt::format("above {:.15g}{}", option.low, high.empty() ? "" : ", at most " + high);
  return high.empty() ? fmt::format("at least {:.15g}", option.low)
                      : fmt::format("{:.15g} to {}", option.low, high);
}

std::string row_of(const Declaration& option) {
  std::string name = fmt::format("`--{}`", option.name);
  if (option.letter) name += fmt::format(", `-{}`", option.letter);
  if (!option.letters.empty()) name += fmt::format(", `-{}`", option.letters);
  for (const std::string& alias : option.aliases) name += fmt::format(", `--{}`", alias);
  std::string value = option.value.empty() ? "switch" : option.value;
  if (option.many) value += "…";
  std::string usual = option.usual;
  if (option.kind == Declaration::Kind::toggle && usual.empty()) usual = "off";
  if (option.required) usual = "required";
  if (!option.unless.empty()) usual += fmt::format(" without `--{}`", option.unless);
  return fmt::format("| {} | {} | {} | {} | {} | {} |\n", name, cell(value), cell(range_of(option)),
                     cell(usual), name_of(option.effect), cell(option.help));
}

}  // namespace

std::vector<OptionTable> option_tables(const Arguments& arguments) {
  std::vector<OptionTable> tables;
  for (const Declaration* option : visible(arguments)) {
    const std::string title = option->group.empty() ? "Options" : option->group;
    if (tables.empty() || tables.back().title != title)
      tables.push_back({title,
                        "| option | value | range | default | affects | meaning |\n"
                        "|---|---|---|---|---|---|\n"});
    tables.back().text += row_of(*option);
  }
  return tables;
}

}  // namespace funicular::cli
