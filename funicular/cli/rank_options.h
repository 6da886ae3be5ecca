#pragma once
// The options that say how ranks share the training of a model, and the layout that they make.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "funicular/cli/arguments.h"
#include "funicular/launch/environment.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/strategy.h"
#include "funicular/train/trainer.h"

namespace funicular::cli {

/// Values of --stages that measure: for stages of one rank, and of any number.
inline constexpr const char *kMeasuredStages = "cost", *kReplicatedStages = "cost-replicated";

struct RankOptions : parallel::LayoutOptions {
  parallel::StrategyOptions strategy_options{};  ///< but for reduction.type, which factory() sets
  std::string reduce_precision = "own";
  bool debug_collectives = false;
  std::string stages_or_rule;  ///< --stages as it was given: stages, or how they are found
  std::string interface;       ///< empty: chosen

  /// Declares all of them under a heading.
  void declare(Arguments& arguments);
  /// Turns the options into a layout for so many ranks and checks it. `strategy` becomes the layout's name, unless it is auto
  /// and only replicas are asked for. Throws InputError that names the options.
  void settle(int ranks);
  /// After settle().
  const parallel::Layout& layout() const { return layout_; }
  /// The number of parts into which `ranks` cut a batch, and the number of micro-batches of a part, unless options
  /// set it.
  int64_t parts(int ranks) const;
  int64_t pieces() const { return layout_.staged ? layout_.pipeline : 1; }
  /// Whether --stages asks for measured stages (cli/stage_options.h).
  bool measures_stages() const {
    return stages_or_rule == kMeasuredStages || stages_or_rule == kReplicatedStages;
  }
  /// Takes stages that were measured.
  void take_stages(const parallel::StageList& measured) { layout_.stages = measured; }
  /// Returns a maker of strategies with layout().
  train::StrategyFactory factory(const comm::Group& group) const;
  /// Warns of given options that have no effect in this combination.
  void warn_of_idle_options(const Arguments& arguments) const;
  /// Warns of parts of the layout that have no effect on so many ranks.
  void warn_of_layout(int ranks) const;

 private:
  /// Returns the options that made the layout, as the user gave them: "--strategy zero1", "--pipeline-parallel 2
  /// --zero 1".
  std::string given() const;
  parallel::Layout layout_;
  std::string named_ = "auto";  ///< --strategy as it was given
};

/// Warns of the given ones among `options` unless `chosen` is one of `users`. `choice`: what chose it, such
/// as "--optim sgd".
void warn_unless_used(const Arguments& arguments, const std::vector<std::string>& options,
                      const std::string& choice, const std::string& chosen,
                      const std::vector<std::string>& users);

/// Sets the threads of this rank, unless the launcher has set OMP_NUM_THREADS. A launcher that does not bind ranks
/// to cores (srun, mpirun --bind-to none) leaves all cores to each rank. The ranks would then slow each other down,
/// so this divides the cores among them.
void share_threads(const launch::Environment& place);

}  // namespace funicular::cli
