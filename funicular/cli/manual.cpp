#include "funicular/cli/manual.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "funicular/base/version.h"
#include "funicular/cli/arguments_help.h"
#include "funicular/cli/command_list.h"
#include "funicular/cli/help_pages.h"

namespace funicular::cli {

namespace {

/// Text as troff prints it: no letter of it is a request or an escape.
std::string plain(std::string_view text) {
  std::string safe;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\\')
      safe += "\\e";
    else if (c == '-')
      safe += "\\-";
    else
      safe += c;
    // A point or an apostrophe may follow. At the end of the text a request of the page follows, such as .fi.
    if (c == '\n' && at + 1 < text.size()) safe += "\\&";
  }
  return "\\&" + safe;
}

std::string capitals(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return result;
}

std::string heading(const std::string& name, std::string_view summary) {
  return fmt::format(".TH {} 1 \"\" \"funicular {}\" \"Funicular\"\n.SH NAME\n{} \\- {}\n",
                     plain(capitals(name)).substr(2), FUNICULAR_VERSION, plain(name), plain(summary));
}

std::string option_entry(const Declaration& option) {
  std::string names = fmt::format("\\fB{}\\fR", plain("--" + option.name));
  if (option.letter) names = fmt::format("\\fB{}\\fR, {}", plain(std::string("-") + option.letter), names);
  for (const std::string& alias : option.aliases) names += fmt::format(", \\fB{}\\fR", plain("--" + alias));
  if (!option.value.empty())
    names += fmt::format(" \\fI{}\\fR", plain(option.value + (option.many ? "…" : "")));
  return fmt::format(".TP\n{}\n{}\n", names, plain(help_text_of(option, /*aliases=*/false)));
}

std::string options_of(const Arguments& arguments) {
  std::string text = ".SH OPTIONS\n", group;
  for (const Declaration* option : arguments.declarations()) {
    if (option->hidden) continue;
    if (option->group != group && !option->group.empty())
      text += fmt::format(".SS {}\n", plain(option->group));
    group = option->group;
    text += option_entry(*option);
  }
  return text;
}

std::string terms_of(const Arguments& arguments) {
  std::string text;
  for (const Arguments::Term& term : arguments.terms())
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", plain(term.words), plain(term.meaning));
  return text;
}

std::string examples_of(const Arguments& arguments) {
  std::string text = ".SH EXAMPLES\n";
  for (const Arguments::Example& example : arguments.examples())
    text += fmt::format(".TP\n{}\n\\fB{}\\fR\n", plain(example.purpose), plain(example.command));
  return text;
}

constexpr const char* kExitStatus =
    ".SH EXIT STATUS\n.TP\n0\ndone\n.TP\n1\nthe run failed\n.TP\n2\nwrong usage or "
    "input\n.TP\n75\ninterrupted; repeat the "
    "command to resume\n";

}  // namespace

std::string manual_page(const std::string& command) {
  const std::unique_ptr<Command> made = make_command(command);
  const Arguments& arguments = made->arguments;
  return heading("funicular-" + command, command_summary(command)) +
         fmt::format(".SH SYNOPSIS\n\\fB{}\\fR\n.SH DESCRIPTION\n{}\n", plain(usage_line_of(arguments)),
                     plain(arguments.description())) +
         terms_of(arguments) + options_of(arguments) + examples_of(arguments) + kExitStatus +
         ".SH SEE ALSO\n\\fBfunicular\\fR(1)\n";
}

std::string manual_page() {
  std::string text = heading("funicular", "train BERT-family language models") +
                     ".SH SYNOPSIS\n\\fBfunicular\\fR \\fICOMMAND\\fR [options]\n.SH COMMANDS\n";
  for (const std::string& name : command_names())
    text += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", plain("funicular-" + name), plain(command_summary(name)));
  return text + ".SH ENVIRONMENT\n.nf\n" + plain(environment_help()) + ".fi\n" + kExitStatus;
}

}  // namespace funicular::cli
