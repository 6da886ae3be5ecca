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
#include "funicular/train/trainer.h"

namespace funicular::cli {

/// Of --stages: stages of one rank, or of any number.
inline constexpr const char *kMeasuredStages = "cost", *kReplicatedStages = "cost-replicated";

struct RankOptions {
  std::string strategy = "auto";
  bool deterministic = false, debug_collectives = false;
  std::string reduce_precision = "own";
  std::optional<int64_t> devices;  ///< of dp, where there are 2 without it, and of pipelines
  int64_t servers = 1, staleness = 3;
  std::optional<int64_t> pipeline_parallel;  ///< ranks of a pipeline
  std::optional<int64_t> tensor_parallel;    ///< ranks of a tensor group
  std::optional<int64_t> data_parallel, zero, stages_per_rank;
  bool sequence_parallel = false;
  std::string schedule = "1f1b", stages;
  std::string interface;       ///< empty: chosen
  fs::path offload_optimizer;  ///< empty: none
  fs::path record_interleaving, replay_interleaving, record_passes;

  /// Declares all of them under a heading.
  void declare(Arguments& arguments);
  /// Turns the options into a layout for so many ranks and checks it. `strategy` becomes the layout's name, unless it is auto
  /// and only replicas are asked for. Throws InputError that names the options.
  void settle(int ranks);
  /// After settle().
  const parallel::Layout& layout() const { return layout_; }
  /// Into how many parts a batch is cut among `ranks`, and into how many micro-batches a part, unless options say it.
  int64_t parts(int ranks) const;
  int64_t pieces() const { return layout_.staged ? layout_.pipeline : 1; }
  /// Whether --stages leaves them to what is measured (cli/stage_options.h).
  bool measures_stages() const { return stages == kMeasuredStages || stages == kReplicatedStages; }
  /// Of a layout whose stages are where --stages has them.
  train::StrategyFactory factory(const comm::Group& group) const;
  /// Says which options were given that do nothing beside the others.
  void warn_of_idle_options(const Arguments& arguments) const;
  /// Says what of the layout does nothing on so many ranks.
  void warn_of_layout(int ranks) const;

 private:
  /// Those that made the layout what it is, as they were given: "--strategy zero1", "--pipeline-parallel 2 --zero 1".
  std::string given() const;
  parallel::Layout asked_layout() const;
  void take_stages(parallel::Layout& layout) const;
  parallel::Layout layout_;
  std::string named_ = "auto";  ///< --strategy as it was given
};

/// Warns of those of `options` that were given unless `chosen` is one of `users`. `choice`: what chose it, such as "--optim sgd".
void warn_unless_used(const Arguments& arguments, const std::vector<std::string>& options,
                      const std::string& choice, const std::string& chosen,
                      const std::vector<std::string>& users);

/// A launcher that neither sets the threads of a rank nor binds it to cores (srun, mpirun --bind-to none) leaves all cores
/// to each; ranks that take them all would stand in each other's way. Divides them.
void share_threads(const launch::Environment& place);

}  // namespace funicular::cli
