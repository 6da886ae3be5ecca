#pragma once
// The layout: how the ranks of a world share one model. This is the only place that reads it from names and
// options, writes it, and checks it.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/comm/mesh.h"
#include "funicular/parallel/strategy.h"
#include "funicular/pipeline/generators.h"

namespace funicular::parallel {

/// Stages, given by their first segments.
struct StageList {
  std::vector<int64_t> begins{};  ///< the first segment of each stage; empty: about as many weights in each
  /// The number of ranks that hold each stage and take its micro-batches in turn; empty: one each. Only the schedules
  /// of pipeline::make_replicated support more than one.
  std::vector<int> replicas{};
  /// Equal if every stage begins and is replicated alike.
  bool operator==(const StageList&) const = default;
};
/// "0,4,8"; "0x2,4" has the first stage on two ranks. Throws InputError.
StageList parse_stages(const std::string& text);

/// A model shared along three axes: replicas, stages, and slices of the weights (comm/mesh.h). Also says what the
/// replicas divide. Some kinds have no axes.
struct Layout {
  /// The ways of sharing.
  enum class Kind {
    ranks,                ///< replicas, stages and slices
    single,               ///< one rank
    devices,              ///< replicas in one process (dp)
    servers,              ///< ps-sync
    asynchronous_servers  ///< ps-async
  };
  Kind kind = Kind::ranks;  ///< the way of sharing
  int data = 0;             ///< replicas; 0: as many as the ranks make
  bool staged = false;      ///< whether the model is cut into stages, even if only into one
  int pipeline = 1;         ///< ranks of a pipeline; 0: all that replicas and slices leave
  bool sliced = false;      ///< whether weights are cut, even if only into one slice
  int tensor = 1;           ///< ranks of a tensor group; 0: all that replicas and stages leave
  int zero = 0;             ///< ZeRO's stage among replicas, 0 to 3
  bool sequence = false;    ///< sequence parallelism: activations between the slices are divided by rows
  /// Pipelines: the number of devices of one process that hold the stages, one each (parallel/device_stages.h); 0:
  /// processes hold them. dp: the number of replicas; 0: two.
  int devices = 0;
  std::string schedule = "1f1b";  ///< a name of pipeline/generators.h, or a file
  int stages_per_rank = 0;        ///< 0: the schedule's minimum
  StageList stages{};             ///< where the pipeline is cut

  /// Equal if all fields are.
  bool operator==(const Layout&) const = default;

  /// The layout that a name of strategy_names() stands for. Throws InputError that lists the names.
  static Layout of_strategy(const std::string& name);
  /// A name with options behind it: "pipeline --schedule gpipe --stages 0,7", "tensor --sequence-parallel". Throws
  /// InputError.
  static Layout parse(const std::string& text);

  /// The nearest name of strategy_names().
  std::string strategy() const;
  /// Whether the schedule updates weights while the pipeline is full.
  bool asynchronous() const { return staged && pipeline::updates_while_full(schedule); }

  /// Returns the layout on this many ranks, with its zeros filled in. Throws InputError if the axes do not make this
  /// number of ranks, or cannot be combined. The message names the options and what would fit.
  Layout on(int ranks) const;
  /// Only for a layout that on() gave.
  comm::MeshShape mesh() const { return {data, pipeline, tensor}; }
  /// The number of ranks that hold one replica.
  int64_t ranks_of_a_replica() const { return int64_t{pipeline} * tensor; }
};

/// The options that make a layout, by their names on the command line, with their defaults.
struct LayoutOptions {
  std::string strategy = "auto";               ///< a name of strategy_names(), or "auto"
  std::optional<int64_t> devices{};            ///< Layout::devices
  std::optional<int64_t> pipeline_parallel{};  ///< Layout::pipeline
  std::optional<int64_t> tensor_parallel{};    ///< Layout::tensor
  bool sequence_parallel = false;              ///< Layout::sequence
  std::optional<int64_t> data_parallel{};      ///< Layout::data
  std::optional<int64_t> zero{};               ///< Layout::zero
  std::string schedule = "1f1b";               ///< Layout::schedule
  std::optional<int64_t> stages_per_rank{};    ///< Layout::stages_per_rank
  StageList stages{};                          ///< Layout::stages

  /// Sets an option by its name without "--"; sequence-parallel takes no text. Returns false for an unknown name.
  /// Throws InputError for text that cannot be read.
  bool set(const std::string& option, const std::string& text);
  /// Throws InputError for an unknown strategy and for options that contradict it.
  Layout layout() const;
};

/// Returns the strategy of `layout` over these ranks. Throws InputError as Layout::on does, and for options that the
/// strategy does not have.
std::unique_ptr<Strategy> make_strategy(const Layout& layout, comm::Group group,
                                        const StrategyOptions& options = {});

}  // namespace funicular::parallel
