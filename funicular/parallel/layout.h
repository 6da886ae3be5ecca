#pragma once
// How the ranks of a world share one model, as a value: the one place that reads it from names and options, writes it down,
// and says what does not fit.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "funicular/comm/mesh.h"
#include "funicular/parallel/pipeline_parallel.h"
#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

/// Replicas of a model along one axis, its stages along the second, slices of its weights along the third (comm/mesh.h),
/// and what replicas divide among them. Or one of the ways of sharing that have no axes.
struct Layout {
  enum class Kind {
    ranks,                ///< replicas, stages and slices
    single,               ///< one rank
    devices,              ///< replicas in one process (dp)
    servers,              ///< ps-sync
    asynchronous_servers  ///< ps-async
  };
  Kind kind = Kind::ranks;
  int data = 0;           ///< replicas; 0: as many as the ranks make
  bool staged = false;    ///< cut into stages, if only into one
  int pipeline = 1;       ///< ranks of a pipeline; 0: all that replicas and slices leave
  bool sliced = false;    ///< weights are cut, if only into one slice
  int tensor = 1;         ///< ranks of a tensor group; 0: all that replicas and stages leave
  int zero = 0;           ///< ZeRO's stage among replicas, 0 to 3
  bool sequence = false;  ///< TensorOptions::sequence
  /// Of pipelines: 0, or on how many devices of one process the stages lie, which are its ranks (parallel/device_stages.h). Of dp: how
  /// many replicas there are; 0: as many as StrategyOptions::devices says.
  int devices = 0;
  std::string schedule = "1f1b";  ///< as PipelineOptions has it, as the following
  int stages_per_rank = 0;
  std::vector<int64_t> begins{};
  std::vector<int> replicas{};

  bool operator==(const Layout&) const = default;

  /// The short form of a name of strategy_names(). Throws InputError that lists the names.
  static Layout of_strategy(const std::string& name);
  /// The same with the stages and slices of `options`.
  static Layout of_strategy(const std::string& name, const StrategyOptions& options);
  /// A name with options behind it: "pipeline --schedule gpipe --stages 0,7", "tensor --sequence-parallel". Throws InputError.
  static Layout parse(const std::string& text);
  /// An option by its name, without "--": pipeline-parallel, tensor-parallel, data-parallel, zero, schedule,
  /// stages-per-rank, stages, devices. False for any other. `name` is the strategy that the user gave and the layout was made of; auto
  /// where none was given. Throws InputError for a value that cannot be read, and for one that contradicts the name.
  bool set(const std::string& option, const std::string& value, const std::string& name = "auto");

  /// The name of strategy_names() that is the nearest.
  std::string strategy() const;
  /// Whether the schedule updates weights while the pipeline is full.
  bool asynchronous() const { return staged && updates_while_full(schedule); }

  /// With so many ranks: what is 0 is filled in. Throws InputError, which names the options and what would fit, for a
  /// number of ranks that the axes do not make, and for what cannot be combined.
  Layout on(int ranks) const;
  /// Of a layout that on() gave.
  comm::MeshShape mesh() const { return {data, pipeline, tensor}; }
  int64_t ranks_of_a_replica() const { return int64_t{pipeline} * tensor; }

  /// What the options of strategies say of it.
  PipelineOptions pipeline_options() const;
  TensorOptions tensor_options() const;
};

/// Stages by the segments that they begin with.
struct StageList {
  std::vector<int64_t> begins{};
  std::vector<int> replicas{};  ///< on how many ranks each lies; empty: one each
};
/// "0,4,8"; "0x2,4" has the first stage on two ranks. Throws InputError.
StageList parse_stages(const std::string& text);
/// What parse_stages reads.
std::string to_text(const StageList& stages);

/// As make_strategy(name, …); the layout takes the place of StrategyOptions::tensor, and of ::pipeline but for `record`. With `fault` of pipelines
/// only.
std::unique_ptr<Strategy> make_strategy(const Layout& layout, comm::Group group, StrategyOptions options = {},
                                        PipelineFault fault = PipelineFault::none);

}  // namespace funicular::parallel
