// funicular bench: how fast a training step is on this machine, where its time goes, and how near it is to
// the time of its matrix products alone; what memory it takes, by kind; what each technique gains.

#include <fmt/ranges.h>

#include "funicular/base/error.h"
#include "funicular/cli/bench_modes.h"
#include "funicular/cli/command.h"

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
    : Command(
          "bench",
          "Times the masked-language-model step of a BERT: forward, backward, clipping and AdamW, with "
          "dropout. Prints real tokens per second, the share of the step by part, memory, and with --floor "
          "how "
          "near the step is to the time of its matrix products alone. funicular bench memory measures the "
          "peak of memory by kind, beside what is predicted, for all combinations of the values given. "
          "funicular bench techniques tells what each technique of fast training gains, alone and together "
          "with the others. funicular bench ranks, under funicular launch, tells what each strategy costs a "
          "rank "
          "in time and memory.") {
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
  if (options_.device.device != "cpu" && (!what_.empty() || options_.profile))
    throw InputError("device",
                     "funicular bench times a step on --device {}, and traces it; expected --device cpu "
                     "for memory, techniques, ranks and --profile, which count what the processor does",
                     options_.device.device);
  if (what_.empty()) return bench_time(options_);
  if (what_[0] == "ranks") return bench_ranks(options_);
  return what_[0] == "memory" ? bench_memory(options_) : bench_techniques(options_);
}

}  // namespace

std::unique_ptr<Command> make_bench() {
  return std::make_unique<Bench>();
}

}  // namespace funicular::cli
