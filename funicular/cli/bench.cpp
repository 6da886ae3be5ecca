// funicular bench: measures how fast a training step is on this machine and where its time goes. It also compares
// the step with its matrix products alone, and measures memory by kind and the gain of each technique.

#include <fmt/ranges.h>

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/cli/bench_modes.h"
#include "funicular/cli/command.h"
#include "funicular/nn/precision_choice.h"

namespace funicular::cli {

namespace {

class Bench final : public Command {
 public:
  Bench();
  int run() override;

 private:
  std::vector<std::string> what_;
  BenchOptions options_;
};

Bench::Bench()
    : Command("bench",
              "Times the masked-language-model step of a BERT: forward, backward, clipping and AdamW, with "
              "dropout. Prints real tokens per second, the share of the step by part, and memory. --floor "
              "times the matrix products alone. funicular bench memory measures peak memory by kind beside "
              "the prediction, for all combinations of the given values. funicular bench techniques measures "
              "the gain of each technique of fast training, alone and combined. funicular bench ranks, under "
              "funicular launch, measures the time and memory of a rank by strategy.") {
  arguments.example("time a training step", "funicular bench --model bert-base --batch-size 16");
  arguments.example("measure the memory of ranks", "funicular bench memory --model bert-base --ranks 4");
  arguments.positional("[memory|techniques|ranks]", what_, "what to measure; nothing: the time of a step");
  options_.declare(arguments);
}

int Bench::run() {
  if (what_.size() > 1 ||
      (what_.size() == 1 && what_[0] != "memory" && what_[0] != "techniques" && what_[0] != "ranks"))
    throw InputError("usage", "funicular bench expects memory, techniques, ranks or nothing; found \"{}\"",
                     fmt::join(what_, " "));
  require_parent_folder(options_.trace, "--trace");
  require_ending(options_.trace, "--trace", {"json"});
  require_parent_folder(options_.plot, "--plot");
  require_ending(options_.plot, "--plot", {"svg"});
  options_.device.apply();
  if (options_.cuda_graphs && (options_.device.device == "cpu" || options_.recompute.text("none") != "none"))
    throw InputError("usage",
                     "--cuda-graphs times steps on a GPU without recomputation; expected --device cuda, and "
                     "no --recompute");
  const std::vector<std::string>& precisions = options_.precision.given;
  if (std::find(precisions.begin(), precisions.end(), "tf32") != precisions.end())
    nn::require_tf32(options_.device.place());
  if (what_.empty()) return bench_time(options_);
  if (what_[0] == "ranks") return bench_ranks(options_);
  return what_[0] == "memory" ? bench_memory(options_) : bench_techniques(options_);
}

}  // namespace

std::unique_ptr<Command> make_bench() {
  return std::make_unique<Bench>();
}

}  // namespace funicular::cli
