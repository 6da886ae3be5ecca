// funicular completion bash: a script that completes commands, options and their values.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/cli/command_list.h"

namespace funicular::cli {

namespace {

/// What can follow a command, as assignments: its options under its name, the values of an option under both.
std::string words_of(const std::string& name) {
  const std::unique_ptr<Command> command = make_command(name);
  std::string text =
      fmt::format("_funicular_words[{}]=\"{}\"\n", name, fmt::join(command->arguments.option_names(), " "));
  for (const auto& [option, values] : command->arguments.option_choices())
    text += fmt::format("_funicular_words[{}:{}]=\"{}\"\n", name, option, fmt::join(values, " "));
  return text;
}

/// A shell that starts reads no more than the names of the commands: what can follow one is asked of the program when it is
/// first completed, for the commands that need LibTorch take a while to load.
constexpr const char* kBashScript =
    R"script(# Completion for funicular. To load it now: source <(funicular completion bash)
declare -gA _funicular_words  # global, also where a function loads this
_funicular() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}"
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "--help --version{names}" -- "$word"))
    return
  fi
  case "{names} " in
    *" $command "*) ;;
    *) COMPREPLY=(); return ;;
  esac
  if [ -z "${{_funicular_words[$command]}}" ]; then
    eval "$("${{COMP_WORDS[0]}}" completion bash "$command" 2>/dev/null)"
  fi
  local values="${{_funicular_words[$command:$previous]}}"
  if [ -n "$values" ]; then
    COMPREPLY=($(compgen -W "$values" -- "$word"))
    return
  fi
  case "$word" in
    -*) COMPREPLY=($(compgen -W "${{_funicular_words[$command]}}" -- "$word")) ;;
    *) COMPREPLY=() ;;
  esac
}}
_funicular_words[completion:completion]="bash"
complete -o default -o bashdefault -F _funicular funicular
)script";

std::string bash_script() {
  std::string names;
  for (const std::string& name : command_names()) names += " " + name;
  return fmt::format(kBashScript, fmt::arg("names", names));
}

class Completion final : public Command {
 public:
  Completion()
      : Command("completion",
                "Prints a script that completes commands, options and their values. To load it now: "
                "source <(funicular completion bash); for every new shell, add that line to ~/.bashrc. The "
                "script asks with a COMMAND for what can follow that.") {
    arguments.positional("SHELL [COMMAND]", words_,
                         "the shell: bash; a command, and its options are printed");
  }

  int run() override {
    if (words_.empty() || words_.size() > 2 || words_[0] != "bash")
      throw InputError("usage", "funicular completion expects one shell: bash; found \"{}\"",
                       fmt::join(words_, " "));
    const std::vector<std::string> names = command_names();
    if (words_.size() == 2 && std::find(names.begin(), names.end(), words_[1]) == names.end())
      throw InputError("usage", "funicular completion bash: there is no command \"{}\"; expected one of: {}",
                       words_[1], fmt::join(names, ", "));
    const std::string text = words_.size() == 2 ? words_of(words_[1]) : bash_script();
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
  }

 private:
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> make_completion() {
  return std::make_unique<Completion>();
}

}  // namespace funicular::cli
