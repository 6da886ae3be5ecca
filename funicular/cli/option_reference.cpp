#include "funicular/cli/option_reference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "funicular/cli/arguments_help.h"
#include "funicular/cli/command_list.h"

namespace funicular::cli {

namespace {

constexpr const char* kIntroduction = R"(# Options

All options of all commands. `funicular help --markdown` prints this page from the declarations in the program.

An option may be written with dashes or underscores, on the command line or as a key of the TOML file of `--config`. "no-" before the
name of a switch clears it: `--no-shuffle`. An option whose value ends in "…" takes several values. The names after the first one
are aliases.

The column "affects" says what another value changes. Chains and ranks compare options by it:

| affects | what another value changes |
|---|---|
| result | the result |
| rounding | the result up to rounding: sums are added up in another order |
| none | speed, memory, messages, or how often something is saved; the result has the same bits |
| presence | the result, by whether the option is given |
| input | the file or folder that is read |
| tokenizer | the folder whose tokeniser files are read |
| input or name | a file or folder that is read, or a name that decides the result |
| output | the file or folder that is written |
)";

/// A table that several commands have in common.
struct SharedTable {
  OptionTable table;
  std::vector<std::string> commands;
};

std::vector<SharedTable> tables_of_all_commands() {
  std::vector<SharedTable> all;
  for (const std::string& name : command_names())
    for (OptionTable& table : option_tables(make_command(name)->arguments)) {
      const auto same = std::find_if(all.begin(), all.end(), [&](const SharedTable& other) {
        return other.table.title == table.title && other.table.text == table.text;
      });
      if (same == all.end())
        all.push_back({std::move(table), {name}});
      else
        same->commands.push_back(name);
    }
  return all;
}

std::string example_lines(const Arguments& arguments) {
  std::string text;
  for (const Arguments::Example& example : arguments.examples())
    text += fmt::format("# {}\n{}\n", example.purpose, example.command);
  return text.empty() ? "" : "\n```text\n" + text + "```\n";
}

}  // namespace

std::string option_reference() {
  const std::vector<SharedTable> tables = tables_of_all_commands();
  std::string text = kIntroduction;
  for (const std::string& name : command_names()) {
    text += fmt::format("\n## funicular {}\n\n{}.\n{}", name, command_summary(name),
                        example_lines(make_command(name)->arguments));
    std::vector<std::string> shared;
    for (const auto& [table, commands] : tables) {
      if (std::find(commands.begin(), commands.end(), name) == commands.end()) continue;
      if (commands.size() == 1)
        text += fmt::format("\n### {} ({})\n\n{}", table.title, name, table.text);
      else
        shared.push_back("\"" + table.title + "\"");
    }
    if (!shared.empty())
      text += fmt::format("\n[Shared groups](#shared-groups): {}.\n", fmt::join(shared, ", "));
  }
  text += "\n## Shared groups\n";
  for (const auto& [table, commands] : tables)
    if (commands.size() > 1)
      text += fmt::format("\n### {} ({})\n\n{}", table.title, fmt::join(commands, ", "), table.text);
  return text;
}

}  // namespace funicular::cli
