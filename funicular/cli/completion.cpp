// funicular completion SHELL: a script that completes commands, options and their values.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/cli/arguments_help.h"
#include "funicular/cli/command_list.h"

namespace funicular::cli {

namespace {

/// Returns the words that can follow a command, as assignments of an associative array of bash or zsh. The key of
/// the options is the command; the key of an option's values is COMMAND:OPTION.
std::string words_of(const Command& command) {
  const std::string& name = command.arguments.command();
  std::string text =
      fmt::format("_funicular_words[{}]=\"{}\"\n", name, fmt::join(option_names(command.arguments), " "));
  for (const auto& [option, values] : option_choices(command.arguments))
    text += fmt::format("_funicular_words[{}:{}]=\"{}\"\n", name, option, fmt::join(values, " "));
  return text;
}

/// As words_of, but as variables for fish, which has no associative arrays.
std::string fish_words_of(const Command& command) {
  const auto variable = [](std::string name) {
    std::replace(name.begin(), name.end(), '-', '_');
    return "_funicular_words_" + name;
  };
  const std::string& name = command.arguments.command();
  std::string text =
      fmt::format("set -g {} {}\n", variable(name), fmt::join(option_names(command.arguments), " "));
  for (const auto& [option, values] : option_choices(command.arguments))
    text += fmt::format("set -g {} {}\n", variable(name + "_" + option), fmt::join(values, " "));
  return text;
}

/// A starting shell reads only the names of the commands. The script asks the program for a command's words when
/// that command is first completed, because commands that need LibTorch take a while to load.
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
_funicular_words[completion:completion]="bash zsh fish"
complete -o default -o bashdefault -F _funicular funicular
)script";

constexpr const char* kZshScript =
    R"script(#compdef funicular
# Completion for funicular. To load it now, behind compinit: source <(funicular completion zsh)
typeset -gA _funicular_words
_funicular() {{
  local command=$words[2] previous=$words[CURRENT-1] word=$words[CURRENT] values
  if (( CURRENT == 2 )); then
    compadd -- --help --version{names}
    return
  fi
  [[ "{names} " == *" $command "* ]] || return 1
  if [[ -z $_funicular_words[$command] ]]; then
    eval "$($words[1] completion zsh $command 2>/dev/null)"
  fi
  values=$_funicular_words[$command:$previous]
  if [[ -n $values ]]; then
    compadd -- ${{=values}} || _files
  elif [[ $word == -* ]]; then
    compadd -- ${{=_funicular_words[$command]}}
  else
    _files
  fi
}}
_funicular_words[completion:completion]="bash zsh fish"
if [[ $funcstack[1] == _funicular ]]; then
  _funicular "$@"
else
  compdef _funicular funicular
fi
)script";

constexpr const char* kFishScript =
    R"script(# Completion for funicular. To load it now: funicular completion fish | source
function _funicular_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l commands{names}
    if test (count $words) -eq 1
        printf '%s\n' --help --version $commands
        return
    end
    contains -- $words[2] $commands; or return
    set -l own _funicular_words_(string replace -a -- - _ $words[2])
    if not set -q $own
        $words[1] completion fish $words[2] 2>/dev/null | source
    end
    set -l values "$own"_(string replace -a -- - _ $words[-1])
    if set -q $values 2>/dev/null
        printf '%s\n' $$values
    else if string match -q -- '-*' $word
        printf '%s\n' $$own
    else
        __fish_complete_path $word
    end
end
set -g _funicular_words_completion_completion bash zsh fish
complete -c funicular -f -a '(_funicular_complete)'
)script";

struct Shell {
  std::string_view name;
  const char* script;  ///< with {names}
  std::string (*words)(const Command& command);
};

constexpr std::array kShells{Shell{"bash", kBashScript, words_of}, Shell{"zsh", kZshScript, words_of},
                             Shell{"fish", kFishScript, fish_words_of}};

std::string script_of(const Shell& shell) {
  std::string names;
  for (const std::string& name : command_names()) names += " " + name;
  return fmt::format(fmt::runtime(shell.script), fmt::arg("names", names));
}

class Completion final : public Command {
 public:
  Completion()
      : Command(
            "completion",
            "Prints a script that completes commands, options and their values. To load it now: "
            "source <(funicular completion bash), or zsh; in fish: funicular completion fish | source. For "
            "every new shell, add that line to ~/.bashrc, to ~/.zshrc behind compinit, or to "
            "~/.config/fish/config.fish. The script asks with a COMMAND for what can follow that.") {
    arguments.example("load completion into this shell", "source <(funicular completion bash)");
    arguments.example("keep it for zsh", "funicular completion zsh");
    arguments.positional("SHELL [COMMAND]", words_,
                         "the shell: bash, zsh or fish; a command, and its options are printed");
  }

  int run() override {
    const auto shell = std::find_if(kShells.begin(), kShells.end(), [&](const Shell& known) {
      return !words_.empty() && known.name == words_[0];
    });
    if (shell == kShells.end() || words_.size() > 2)
      throw InputError("usage", "funicular completion expects one shell: bash, zsh or fish; found \"{}\"",
                       fmt::join(words_, " "));
    const std::vector<std::string> names = command_names();
    if (words_.size() == 2 && std::find(names.begin(), names.end(), words_[1]) == names.end())
      throw InputError("usage", "funicular completion {}: there is no command \"{}\"; expected one of: {}",
                       shell->name, words_[1], fmt::join(names, ", "));
    const std::string text = words_.size() == 2 ? shell->words(*make_command(words_[1])) : script_of(*shell);
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
