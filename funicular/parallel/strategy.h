#pragma once
// How a global batch becomes one optimiser step on this rank.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/core/batch_norm.h"
#include "funicular/core/model.h"
#include "funicular/core/recompute.h"
#include "funicular/core/region.h"
#include "funicular/optim/optimizer.h"

namespace funicular::parallel {

/// Which part of every global batch this rank reads: part `index` of `count`.
struct DataShare {
  enum class Cut {
    balanced,    ///< samples are dealt so that all parts have about as many tokens
    contiguous,  ///< the micro-batches that one rank alone would have, in runs of 2^k neighbours
    interleaved  ///< the same micro-batches, dealt in turn
  };
  int64_t index = 0, count = 1;
  Cut cut = Cut::balanced;
  /// Whether this rank is the one that counts its tokens, where several read the same part.
  bool counted = true;
  /// Whether the part is dealt to its micro-batches so that all have about as many tokens, in place of their order:
  /// stages of a pipeline wait for the longest. Not where a limit of tokens cuts.
  bool even_pieces = false;
};

struct StepSettings {
  double learning_rate = 0;
  double max_gradient_norm = 0;  ///< 0: no clipping
  int64_t update = 1;            ///< 1-based count of updates; steps without one do not count
  /// What the loss is multiplied by before the backward pass, and gradients are divided by after it (fp16).
  double loss_scale = 1;
  Recompute recompute = Recompute::none;  ///< activations to compute again in the backward pass
  /// Sees activations of this rank's micro-batches; with several devices in one process from each one's thread. On
  /// all ranks of a tensor group or on none: slices are put together for it.
  Taps taps{};
  /// Of Asynchronous strategies alone: the update after which all ranks meet. If it is smaller than
  /// `update`, they meet after this update.
  int64_t meeting = 0;
  /// Called before the update, when visit_gradients gives those of the global batch; may be empty. On devices with
  /// stages in the first one's thread, which may call visit_state and visit_gradients of this strategy alone.
  std::function<void()> inspect{};
};

struct StepResult {
  std::map<std::string, double> losses;  ///< mean of each loss term over the global batch
  double loss = 0;                       ///< weighted total
  double gradient_norm = 0;              ///< global L2 norm before clipping, without the loss scale
  bool finite = true;                    ///< false: loss or norm is NaN or infinite, and nothing was updated
  std::string non_finite_loss;           ///< the first loss term that is not finite, if any
  std::string non_finite_gradient;       ///< the first parameter whose gradient is not finite, if any
};

/// Evaluated micro-batches: sums and counts of the loss terms, and the outputs the metrics need.
struct EvalResult {
  std::map<std::string, double> sums;
  std::map<std::string, double> weights;  ///< of each term in the total; two for one name are an InputError
  Counts counts;
  std::vector<TensorMap> outputs;  ///< one a micro-batch, in order
};

/// Of several ranks on one share of the data (stages of a model) each has what arises there: loss terms and outputs.
/// All have the counts of the share's data.
void add_stage(EvalResult& result, EvalResult&& stage);

/// A part of a logical tensor: elements [begin, begin + local.numel()) of its `region`, row by row.
struct StateSlice {
  enum class Kind { model, buffer, gradient, optimizer };
  Kind kind = Kind::model;
  std::string name;
  std::vector<int64_t> shape;  ///< of the logical tensor
  int64_t begin = 0;
  at::Tensor local;       ///< to be read or written in place; may have no elements
  bool owned = true;      ///< false: another rank holds the same elements and writes them to checkpoints
  bool optional = false;  ///< a rank's own (kRanksOwn): zero where a checkpoint has no such tensor
  Region region{};        ///< none: the whole tensor
  std::string state{};    ///< of the optimiser: which of its states, such as "exp_avg"

  /// "model", "buffer", "gradient" or "optimizer.exp_avg".
  std::string label() const {
    static constexpr const char* kKinds[] = {"model", "buffer", "gradient", "optimizer."};
    return kKinds[static_cast<size_t>(kind)] + state;
  }
};

/// Begins the names of optimiser states that are one rank's own; what a checkpoint holds of ranks that are
/// not there is left out.
inline constexpr const char* kRanksOwn = "residual-";

/// Sees the state of one rank. Every rank gives every logical tensor, in the same order, if only as an empty
/// slice; together the ranks own each element once.
class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  virtual void visit(const StateSlice& slice) = 0;
};

/// The number formats of training beside the master weights' own.
struct Numerics {
  std::optional<at::ScalarType> compute{};  ///< kBFloat16 or kHalf: mixed precision; none: the masters' type
  bool accumulates =
      true;  ///< a step may have several micro-batches, whose gradients are added in the masters' type
};

/// What a strategy has cost this rank, besides the weights, gradients and states that it shows.
struct StrategyCosts {
  /// Copies of the weights in the type that is computed with, besides Parameter::compute.
  int64_t shadow_bytes = 0;
  /// The most held at a time of other ranks' weights and of gradients before they are reduced.
  int64_t most_gathered_bytes = 0;
  /// In which this rank stood still for an exchange of weights or gradients, since attach.
  double exchange_wait_seconds = 0;
};

/// What one of several devices in this process holds and does.
struct DeviceUse {
  int64_t weights = 0, gradients = 0, state = 0;  ///< bytes
  double busy_seconds = 0;                        ///< since attach
};

class Asynchronous;  // parallel/asynchronous.h
class Overlapping;   // parallel/overlapping.h

/// The ranks take every step together, unless asynchronous() says otherwise.
class Strategy {
 public:
  virtual ~Strategy() = default;
  /// Chooses the statistics of BatchNorm in modules of users; without a call `pass`. Called before attach, and not
  /// collective. Throws InputError for anything but `pass`, unless the strategy is single, ddp or zero1 to zero3. Then
  /// attach throws InputError for a model that is not on the CPU, and for `ranks` with StrategyOptions::deterministic.
  virtual void use_batch_statistics(BatchStatistics over);
  /// Replicates, shards or cuts the model; called once. The model must outlive the strategy. Collective, as
  /// all that follows unless it says otherwise.
  virtual void attach(Model& model, std::unique_ptr<optim::Optimizer> optimizer,
                      const Numerics& numerics = {}) = 0;
  /// Ends it: the model is whole on every rank again, and its segments are what they were.
  virtual void detach() {}
  /// Ends it, and may leave each rank with its part of the model, which is of no use then.
  virtual void leave() { detach(); }
  /// As make_strategy takes it; not collective.
  virtual std::string name() const = 0;
  /// All ranks that train together; not collective.
  virtual const comm::Group& group() const;
  /// Not collective.
  virtual DataShare data_share() const = 0;
  /// Into how many parts a batch is cut at least, so that all ranks and devices have something to do. Not
  /// collective.
  virtual int64_t parts() const { return data_share().count; }
  /// Into how many micro-batches a part is cut unless the caller says it. Not collective.
  virtual int64_t pieces() const { return 1; }
  /// The counts of the global batch from those of this rank's part.
  virtual Counts global_counts(const Counts& own) const { return own; }
  /// `micro_batches` are this rank's, there may be none; `global` are the counts of the global batch.
  virtual StepResult step(std::span<const MicroBatch> micro_batches, const Counts& global,
                          const StepSettings& settings) = 0;
  /// Of this rank's micro-batches alone. Every rank must call it equally often, if need be with none.
  virtual EvalResult evaluate(std::span<const MicroBatch> micro_batches) = 0;
  /// Buffers (BatchNorm's running statistics), which each rank's own data have changed, become rank 0's, or those of
  /// the first rank with their stage: before an evaluation, so that all ranks evaluate the model that is saved.
  virtual void share_buffers() {}
  /// Not collective.
  virtual void visit_state(StateVisitor& visitor) = 0;
  /// Not collective; within StepSettings::inspect. Multiplied by the loss scale.
  virtual void visit_gradients(StateVisitor& visitor) = 0;
  /// To be called when tensors that visit_state gave have been written to: copies of them follow.
  virtual void state_changed() = 0;
  /// Not collective.
  virtual StrategyCosts costs() const { return {}; }
  /// Of this process, that compute at a time: of replicas (dp), or of stages. Not collective.
  virtual int64_t device_count() const { return 1; }
  /// What each replica of dp holds and does, the first device first; empty for other strategies. Not collective.
  virtual std::vector<DeviceUse> device_uses() const { return {}; }
  /// This strategy, if its ranks are steps apart; else null. Not collective.
  virtual Asynchronous* asynchronous() { return nullptr; }
  /// This strategy, if its steps overlap; else null. Not collective.
  virtual Overlapping* overlapping() { return nullptr; }
  /// Models besides the one that attach was given, whose weights are part of the state that visit_state shows: those
  /// of devices with stages. Not collective.
  virtual std::vector<const Model*> copies() const { return {}; }
  /// Calls `use` on rank 0, while Parameter::master of what is exported and the buffers hold the whole model there.
  /// On devices with stages in the first one's thread, which must not call this strategy.
  virtual void with_whole_model(const std::function<void()>& use);
};

/// Of ddp.
struct ReductionOptions {
  /// Gradients of neighbouring segments are reduced together until they are so many; smaller messages cost more
  /// time a byte.
  int64_t bucket_bytes = 4 << 20;
  /// kBFloat16 or kHalf, to which matrices' gradients are rounded for the reduction, with error feedback
  /// (comm/error_feedback.h); none: they travel in their own type.
  std::optional<at::ScalarType> type{};
  bool operator==(const ReductionOptions&) const = default;
};

/// Of ps-sync and ps-async.
struct ServerOptions {
  int count = 1;  ///< how many of the ranks, the last ones, are servers
  /// ps-async: how many steps a worker may be ahead of the slowest.
  int64_t staleness = 3;
  /// ps-async: folders for what Interleaving records and replays, server-0.txt, …; empty: not.
  std::filesystem::path record{}, replay{};
  bool operator==(const ServerOptions&) const = default;
};

/// What strategies have in common, and what some have alone: each reads its own part.
struct StrategyOptions {
  /// The order of every sum over micro-batches is that of a tree over the global batch's micro-batches: any
  /// number of replicas (zero2, zero3: 1, 2, 4, …) with the same micro-batches, threads and number of slices then
  /// gives the same bits. Pipelines and BatchStatistics::ranks refuse it. Takes a gradient buffer for each level of
  /// the tree.
  bool deterministic = false;
  /// Replicas are compared every so many steps; 0: never.
  int64_t compare_every = 100;
  /// A folder on a disk of this host: optimiser state lies in mapped files there, whose pages the system
  /// writes out and reads back as memory becomes scarce. Empty: in memory.
  std::filesystem::path offload{};
  ReductionOptions reduction{};
  ServerOptions servers{};
  /// Pipelines: a file for when each pass of the last step ran (pipeline/recording.h), which rank 0 writes at the
  /// end; empty: none.
  std::filesystem::path record_passes{};
};

/// One process, one device.
std::unique_ptr<Strategy> make_single();

/// The strategy of this name over these ranks: "single", "dp", "ddp", "zero1", "zero2", "zero3", "ps-sync",
/// "ps-async", "pipeline", "pipeline-zero1" to "pipeline-zero3", "tensor"; "auto": single on one rank, ddp on
/// several. These are short forms of parallel/layout.h, which says more. Throws InputError that lists the names, and
/// for single and dp on several ranks.
std::unique_ptr<Strategy> make_strategy(const std::string& name, comm::Group group,
                                        const StrategyOptions& options = {});
/// As make_strategy takes them, "auto" first.
const std::vector<std::string>& strategy_names();

/// Calls the pass that it is given, and does what belongs before and behind it.
using AroundPass = std::function<void(const std::function<void()>& pass)>;

/// Forward passes without gradients and without the modules' training mode; what evaluation is made of
/// everywhere.
EvalResult evaluate_micro_batches(
    const Model& model, std::span<const MicroBatch> micro_batches,
    const AroundPass& around = [](const auto& pass) { pass(); });

}  // namespace funicular::parallel
