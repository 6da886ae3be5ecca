#pragma once
// The subcommands. Each lies in a file of its own and holds parsing and wiring only; command_list.h lists them.

#include <memory>
#include <string>
#include <vector>

#include "funicular/cli/arguments.h"

namespace funicular::cli {

/// A subcommand: its arguments, and what it does once they are parsed.
class Command {
 public:
  Command(std::string name, std::string description) : arguments(std::move(name), std::move(description)) {}
  virtual ~Command() = default;
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  /// Returns the exit code (see base/error.h); throws Error.
  virtual int run() = 0;

  Arguments arguments;
};

std::unique_ptr<Command> make_tokenize();
std::unique_ptr<Command> make_vocabulary();
std::unique_ptr<Command> make_mask();
std::unique_ptr<Command> make_pretrain();
std::unique_ptr<Command> make_finetune();
std::unique_ptr<Command> make_augment();
std::unique_ptr<Command> make_vectors();
std::unique_ptr<Command> make_distill();
std::unique_ptr<Command> make_probe();
std::unique_ptr<Command> make_evaluate();
std::unique_ptr<Command> make_predict();
std::unique_ptr<Command> make_embed();
std::unique_ptr<Command> make_search();
std::unique_ptr<Command> make_mine();
std::unique_ptr<Command> make_label_errors();
std::unique_ptr<Command> make_average();
std::unique_ptr<Command> make_compare();
std::unique_ptr<Command> make_chain();
std::unique_ptr<Command> make_report();
std::unique_ptr<Command> make_bench();
std::unique_ptr<Command> make_launch();
std::unique_ptr<Command> make_prove();
std::unique_ptr<Command> make_plan();
std::unique_ptr<Command> make_doctor();
std::unique_ptr<Command> make_completion();

/// Does what main does, in a fork of this process. `arguments` is its command line, the program's name first.
int run_as(const std::vector<std::string>& arguments);

}  // namespace funicular::cli
