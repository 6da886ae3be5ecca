// funicular completion bash: a script that completes commands, options and their values.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "funicular/base/error.h"
#include "funicular/cli/command_list.h"

namespace funicular::cli {

namespace {

std::string bash_script() {
  std::string names, options, choices;
  for (const std::string& name : command_names()) {
    const std::unique_ptr<Command> command = make_command(name);
    const Arguments& arguments = command->arguments;
    names += " " + arguments.command();
    options += fmt::format("    {}) words=\"{}\" ;;\n", arguments.command(),
                           fmt::join(arguments.option_names(), " "));
    for (const auto& [option, values] : arguments.option_choices())
      choices += fmt::format("    {}:{}) COMPREPLY=($(compgen -W \"{}\" -- \"$word\")); return ;;\n",
                             arguments.command(), option, fmt::join(values, " "));
  }
  return fmt::format(R"(# Completion for funicular. To load it now: source <(funicular completion bash)
_funicular() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}" words
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "--help --version{names}" -- "$word"))
    return
  fi
  case "$command:$previous" in
    completion:completion) COMPREPLY=($(compgen -W "bash" -- "$word")); return ;;
{choices}  esac
  case "$command" in
{options}  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
    *) COMPREPLY=() ;;
  esac
}}
complete -o default -o bashdefault -F _funicular funicular
)",
                     fmt::arg("names", names), fmt::arg("choices", choices), fmt::arg("options", options));
}

class Completion final : public Command {
 public:
  Completion()
      : Command("completion",
                "Prints a script that completes commands, options and their values. To load it now: "
                "source <(funicular completion bash); for every new shell, add that line to ~/.bashrc.") {
    arguments.positional("SHELL", shells_, "the shell: bash");
  }

  int run() override {
    if (shells_.size() != 1 || shells_[0] != "bash")
      throw InputError("usage", "funicular completion expects one shell: bash; found \"{}\"",
                       fmt::join(shells_, " "));
    const std::string script = bash_script();
    std::fwrite(script.data(), 1, script.size(), stdout);
    return 0;
  }

 private:
  std::vector<std::string> shells_;
};

}  // namespace

std::unique_ptr<Command> make_completion() {
  return std::make_unique<Completion>();
}

}  // namespace funicular::cli
