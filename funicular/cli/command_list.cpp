#include "funicular/cli/command_list.h"

#include <algorithm>
#include <array>

#include "funicular/base/error.h"
#include "funicular/cli/commands_library.h"

namespace funicular::cli {

namespace {

struct Entry {
  std::string_view name, summary;
  /// Null for a command that the library makes.
  std::unique_ptr<Command> (*make)() = nullptr;
};

constexpr std::array kEntries{
    Entry{"tokenize", "Turn text into a memory-mapped token store", make_tokenize},
    Entry{"vocabulary", "Train a vocabulary, or give a model the words of a domain as tokens",
          make_vocabulary},
    Entry{"mask", "Show what pretrain would hide, with statistics"},
    Entry{"pretrain", "Train a masked language model, or adapt one to a domain"},
    Entry{"finetune", "Train a model for classes, labels, numbers, tags, spans, embeddings or rankings"},
    Entry{"vectors", "Train small word vectors on texts"},
    Entry{"augment", "Make variants of a task's rows, for training"},
    Entry{"distill", "Train a small model to do what a large one does"},
    Entry{"probe", "Show what each layer of an encoder knows of a task"},
    Entry{"evaluate", "Measure a model on labelled data"},
    Entry{"average", "Average the weights of several fine-tuned models"},
    Entry{"label-errors", "Find labels that are probably wrong"},
    Entry{"predict", "Answer texts with a fine-tuned model"},
    Entry{"embed", "Turn texts into vectors"},
    Entry{"search", "Find the nearest vectors of queries, and measure how well"},
    Entry{"mine", "Find hard negatives for pairs of texts, with an embedder"},
    Entry{"compare", "Compare masked language models by what they know of texts"},
    Entry{"chain", "Run commands that build on each other, and resume them", make_chain},
    Entry{"report", "Show runs, evaluations and chains beside each other, as one page", make_report},
    Entry{"launch", "Start a program as several ranks that train together", make_launch},
    Entry{"prove", "Train under two layouts, and say what differs"},
    Entry{"plan", "Show what a pipeline schedule costs: bubbles, activations, a drawing", make_plan},
    Entry{"bench", "Measure a training step on this machine: time, memory, techniques"},
    Entry{"doctor", "Check the machine, a model folder and a token store"},
    Entry{"completion", "Print a completion script for the shell", make_completion},
};

const Entry* find(std::string_view name) {
  const auto found =
      std::find_if(kEntries.begin(), kEntries.end(), [&](const Entry& entry) { return entry.name == name; });
  return found == kEntries.end() ? nullptr : &*found;
}

const Entry& entry_of(std::string_view name) {
  if (const Entry* entry = find(name)) return *entry;
  throw RunError("internal", "there is no command {}", name);
}

}  // namespace

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

std::string_view command_summary(std::string_view name) {
  return entry_of(name).summary;
}

bool is_in_library(std::string_view name) {
  const Entry* entry = find(name);
  return entry && !entry->make;
}

std::unique_ptr<Command> make_command(std::string_view name) {
  const Entry& entry = entry_of(name);
  std::unique_ptr<Command> command = entry.make ? entry.make() : commands_library().make(name);
  if (!command) throw RunError("internal", "the library of commands has no {}", name);
  return command;
}

}  // namespace funicular::cli
