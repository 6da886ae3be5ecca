#include "funicular/cli/help_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "funicular/cli/command_list.h"

namespace funicular::cli {

namespace {

struct CommandGroup {
  std::string_view title;
  std::vector<std::string> commands;
};

/// A command that no group names stands under the last title.
std::vector<CommandGroup> command_groups() {
  std::vector<CommandGroup> groups{
      {"Learn from rows with labels",
       {"finetune", "evaluate", "predict", "distill", "augment", "probe", "label-errors", "average"}},
      {"Learn from texts", {"tokenize", "vocabulary", "mask", "pretrain", "vectors", "compare"}},
      {"Vectors of texts", {"embed", "search", "mine"}},
      {"Run", {"chain", "report", "launch", "prove", "plan"}},
      {"This machine", {"bench", "doctor", "completion"}},
      {"More", {}}};
  for (const std::string& name : command_names()) {
    const auto has = [&](const CommandGroup& group) {
      return std::find(group.commands.begin(), group.commands.end(), name) != group.commands.end();
    };
    if (std::none_of(groups.begin(), groups.end(), has)) groups.back().commands.push_back(name);
  }
  std::erase_if(groups, [](const CommandGroup& group) { return group.commands.empty(); });
  return groups;
}

struct Variable {
  std::string_view name, help;
};

constexpr std::array kVariables{
    Variable{"FUNICULAR_LOG=debug|info|warning|error", "the messages that are shown [info]"},
    Variable{"FUNICULAR_LOG_TIMES=off", "no time before each message where standard error is no terminal"},
    Variable{"FUNICULAR_ALLOCATOR=caching|small-pages|system",
             "where tensors take their memory from [caching]"},
    Variable{"FUNICULAR_VERIFY_FIRST=BYTES",
             "how much of a token store is verified before it is used [268435456]"},
    Variable{"FUNICULAR_ISA=baseline|avx2|avx2_vnni|avx512|avx512_vnni|avx512_bf16|amx",
             "the largest instruction set that kernels use [the processor's]"},
    Variable{"FUNICULAR_ATTENTION=tensor_cores|flash|tiles",
             "the kernels of attention on a GPU, for benchmarks [the ones that fit]"},
    Variable{
        "FUNICULAR_SECRET=TEXT",
        "what ranks of one training prove to each other, 16 to 256 characters [funicular launch makes one]"},
    Variable{"FUNICULAR_NCCL=FILE",
             "the NCCL library [the one beside LibTorch, else the system's libnccl.so.2]"},
    Variable{
        "FUNICULAR_TRANSPORT=host|staged|nccl",
        "how ranks exchange tensors [nccl with --device cuda, staged with --deterministic; host on CPUs]"},
    Variable{"FUNICULAR_RESTART", "number of restarts so far; funicular launch sets it for each rank"},
    Variable{"FUNICULAR_PROGRAM=FILE", "the program that the Python module starts [the wheel's]"},
    Variable{"HF_HUB_CACHE, HF_HOME",
             "the local Hub cache in which --model NAME is looked up [~/.cache/huggingface]"},
};

}  // namespace

std::string overview() {
  std::string text =
      "Usage: funicular COMMAND [options]\n\n"
      "Trains BERT-family language models: from raw text to a fine-tuned model that answers.\n\n"
      "  funicular finetune reviews.csv --model MODEL    a table with texts and labels is enough\n"
      "  funicular predict runs/reviews new.csv          the model answers\n";
  for (const CommandGroup& group : command_groups()) {
    text += fmt::format("\n{}:\n", group.title);
    for (const std::string& name : group.commands)
      text += fmt::format("  {:<14}{}\n", name, command_summary(name));
  }
  return text +
         "\n  funicular COMMAND --help      the command's common options and examples\n"
         "  funicular COMMAND --help all  all of its options, in groups\n"
         "  funicular help environment    environment variables\n"
         "  funicular --version           versions of Funicular and LibTorch\n\n"
         "Exit codes: 0 done; 1 the run failed; 2 wrong usage or input; 75 interrupted: repeat the command "
         "to resume.\n";
}

std::string environment_help() {
  std::string text = "Environment variables:\n";
  for (const Variable& variable : kVariables)
    text += fmt::format("  {}\n      {}\n", variable.name, variable.help);
  return text;
}

}  // namespace funicular::cli
