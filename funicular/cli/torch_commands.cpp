// The functions that the library of commands with LibTorch gives to the program.

#include <algorithm>
#include <array>

#include "funicular/cli/commands_library.h"
#include "funicular/core/error_text.h"
#include "funicular/runtime/allocator.h"
#include "funicular/runtime/product_cache.h"

namespace funicular::cli {

namespace {

struct TorchCommand {
  std::string_view name;
  std::unique_ptr<Command> (*make)();
};

constexpr std::array kTorchCommands{
    TorchCommand{"mask", make_mask},
    TorchCommand{"pretrain", make_pretrain},
    TorchCommand{"finetune", make_finetune},
    TorchCommand{"vectors", make_vectors},
    TorchCommand{"augment", make_augment},
    TorchCommand{"distill", make_distill},
    TorchCommand{"evaluate", make_evaluate},
    TorchCommand{"predict", make_predict},
    TorchCommand{"compare", make_compare},
    TorchCommand{"prove", make_prove},
    TorchCommand{"bench", make_bench},
    TorchCommand{"doctor", make_doctor},
    TorchCommand{"probe", make_probe},
    TorchCommand{"embed", make_embed},
    TorchCommand{"search", make_search},
    TorchCommand{"mine", make_mine},
    TorchCommand{"label-errors", make_label_errors},
    TorchCommand{"average", make_average},
};

std::unique_ptr<Command> make_torch_command(std::string_view name) {
  for (const TorchCommand& command : kTorchCommands)
    if (command.name == name) return command.make();
  return nullptr;
}

void prepare_torch() {
  use_caching_allocator();
  limit_product_cache();
}

}  // namespace

}  // namespace funicular::cli

const funicular::cli::CommandsLibrary funicular_commands_library{
    funicular::cli::make_torch_command, funicular::cli::prepare_torch, funicular::error_text,
    funicular::is_out_of_memory, funicular::model::extend_vocabulary};
