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
    balanced,    ///< samples are distributed so that all parts have about as many tokens
    contiguous,  ///< the micro-batches that one rank alone would have, in runs of 2^k neighbours
    interleaved  ///< the same micro-batches, one for each part in turn
  };
  int64_t index = 0, count = 1;
  Cut cut = Cut::balanced;
  /// Whether this rank counts the tokens of its part, if several ranks read the same part.
  bool counted = true;
  /// Whether samples are distributed over the micro-batches so that all have about as many tokens, instead of in order.
  /// Pipelines need it because stages wait for the longest micro-batch. Has no effect if a limit of tokens cuts the
  /// part.
  bool even_pieces = false;
};

struct StepSettings {
  double learning_rate = 0;
  double max_gradient_norm = 0;  ///< 0: no clipping
  int64_t update = 1;            ///< 1-based count of updates; steps without one do not count
  /// The factor of the loss before the backward pass, by which gradients are divided after it (fp16).
  double loss_scale = 1;
  Recompute recompute = Recompute::none;  ///< activations to compute again in the backward pass
  /// Sees activations of this rank's micro-batches. With several devices in one process, each calls it from its own
  /// thread. Set it on all ranks of a tensor group or on none, because slices are put together for it.
  Taps taps{};
  /// Only for Asynchronous strategies: the update after which all ranks meet. If it is smaller than `update`, they meet
  /// after this update.
  int64_t meeting = 0;
  /// Called before the update, when visit_gradients shows the gradients of the global batch; may be empty. With stages
  /// on devices, it runs in the first device's thread. There it may call only visit_state and visit_gradients of this
  /// strategy.
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

/// Sums and counts of the loss terms over evaluated micro-batches, and the outputs that the metrics need.
struct EvalResult {
  std::map<std::string, double> sums;
  std::map<std::string, double> weights;  ///< of each term in the total; two for one name are an InputError
  Counts counts;
  std::vector<TensorMap> outputs;  ///< one per micro-batch, in order
};

/// Adds the result of one stage to the whole. Ranks with stages of one model share their data, but each has only the
/// loss terms and outputs that arise in its stages. All have the counts of the shared data.
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

/// The prefix of optimiser states that belong to one rank. If a checkpoint has such states of ranks that do not exist,
/// they are left out.
inline constexpr const char* kRanksOwn = "residual-";

/// Sees the state of one rank. Every rank shows every logical tensor, in the same order, if need be as an empty slice.
/// Together the ranks own each element once.
class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  virtual void visit(const StateSlice& slice) = 0;
};

/// The number formats of training besides the masters' type.
struct Numerics {
  std::optional<at::ScalarType> compute{};  ///< kBFloat16 or kHalf: mixed precision; none: the masters' type
  bool accumulates =
      true;  ///< a step may have several micro-batches, whose gradients are added in the masters' type
};

/// The costs of a strategy on this rank, besides the weights, gradients and states that it shows.
struct StrategyCosts {
  /// Bytes of weights in the compute type, besides Parameter::compute.
  int64_t shadow_bytes = 0;
  /// The most bytes held at once of other ranks' weights and of gradients before their reduction.
  int64_t most_gathered_bytes = 0;
  /// Time in which this rank's device waited for exchanges of weights or gradients, since attach. A GPU counts waits that
  /// it has reached.
  double exchange_wait_seconds = 0;
};

/// The use of one of several devices in this process.
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
  /// Chooses the statistics of BatchNorm in users' modules; the default is `pass`. Called before attach, and not
  /// collective. Throws InputError for anything but `pass`, unless the strategy is single, ddp or zero1 to zero3. Then
  /// attach throws InputError for a model that is not on the CPU, and for `ranks` with StrategyOptions::deterministic.
  virtual void use_batch_statistics(BatchStatistics over);
  /// Replicates, shards or cuts the model; called once. The model must outlive the strategy. Collective, like all
  /// functions below that do not say otherwise.
  virtual void attach(Model& model, std::unique_ptr<optim::Optimizer> optimizer,
                      const Numerics& numerics = {}) = 0;
  /// Ends the strategy: the model is whole on every rank again, and its segments are restored.
  virtual void detach() {}
  /// Ends the strategy, but may leave each rank with only its part of the model, which cannot be used then.
  virtual void leave() { detach(); }
  /// The name as make_strategy takes it; not collective.
  virtual std::string name() const = 0;
  /// All ranks that train together; not collective.
  virtual const comm::Group& group() const;
  /// Not collective.
  virtual DataShare data_share() const = 0;
  /// The least number of parts into which a batch must be cut so that all ranks and devices have work. Not collective.
  virtual int64_t parts() const { return data_share().count; }
  /// The default number of micro-batches per part. Not collective.
  virtual int64_t pieces() const { return 1; }
  /// Returns the counts of the global batch, from the counts of this rank's part.
  virtual Counts global_counts(const Counts& own) const { return own; }
  /// `micro_batches`: this rank's, possibly none. `global`: the counts of the global batch.
  virtual StepResult step(std::span<const MicroBatch> micro_batches, const Counts& global,
                          const StepSettings& settings) = 0;
  /// Evaluates this rank's micro-batches only. Every rank must call it equally often, if need be with none.
  virtual EvalResult evaluate(std::span<const MicroBatch> micro_batches) = 0;
  /// Gives buffers (BatchNorm's running statistics), which each rank's own data have changed, equal values on all
  /// ranks. These are the values of rank 0, or of the first rank with their stage. Called before an evaluation, so that
  /// all ranks evaluate the model that is saved.
  virtual void share_buffers() {}
  /// Not collective.
  virtual void visit_state(StateVisitor& visitor) = 0;
  /// Not collective; only within StepSettings::inspect. The gradients are multiplied by the loss scale.
  virtual void visit_gradients(StateVisitor& visitor) = 0;
  /// Call it after writing to tensors that visit_state gave: copies of them are updated.
  virtual void state_changed() = 0;
  /// Not collective.
  virtual StrategyCosts costs() const { return {}; }
  /// The number of devices in this process that compute at the same time: replicas (dp), or stages. Not collective.
  virtual int64_t device_count() const { return 1; }
  /// The use of each device of dp, the first device first; empty for other strategies. Not collective.
  virtual std::vector<DeviceUse> device_uses() const { return {}; }
  /// This strategy, if its ranks are steps apart; else null. Not collective.
  virtual Asynchronous* asynchronous() { return nullptr; }
  /// This strategy, if its steps overlap; else null. Not collective.
  virtual Overlapping* overlapping() { return nullptr; }
  /// The models on devices with stages, besides the one that attach was given. Their weights are part of the state that
  /// visit_state shows. Not collective.
  virtual std::vector<const Model*> copies() const { return {}; }
  /// Calls `use` on rank 0, while Parameter::master of exported weights and the buffers hold the whole model there.
  /// With stages on devices, it runs in the first device's thread, and must not call this strategy.
  virtual void with_whole_model(const std::function<void()>& use);
};

/// Options of ddp.
struct ReductionOptions {
  /// Gradients of neighbouring segments are reduced together until they have this many bytes. Smaller messages cost
  /// more time per byte. 0: 4 MiB, on GPUs 25 MiB.
  int64_t bucket_bytes = 0;
  /// kBFloat16 or kHalf: the type to which matrices' gradients are rounded for the reduction, with error feedback
  /// (comm/error_feedback.h). None: their own type.
  std::optional<at::ScalarType> type{};
  bool operator==(const ReductionOptions&) const = default;
};

/// Options of ps-sync and ps-async.
struct ServerOptions {
  int count = 1;  ///< the number of servers, which are the last ranks
  /// ps-async: the number of steps that a worker may be ahead of the slowest one.
  int64_t staleness = 3;
  /// ps-async: the folders in which Interleaving records and from which it replays (server-0.txt, …); empty: no such.
  std::filesystem::path record{}, replay{};
  bool operator==(const ServerOptions&) const = default;
};

/// Options of all strategies; each strategy reads its own part.
struct StrategyOptions {
  /// Sums over micro-batches are made in the order of a tree over the global batch's micro-batches. Then any number of
  /// replicas (zero2, zero3: 1, 2, 4, …) gives the same bits, if micro-batches, threads and number of slices are the
  /// same. Pipelines and BatchStatistics::ranks refuse it. Takes a gradient buffer for each level of the tree.
  bool deterministic = false;
  /// The number of updates from one comparison of the replicas to the next; 0: no comparisons.
  int64_t compare_every = 100;
  /// A folder on a disk of this host for mapped files with the optimiser state. The system writes their pages out and
  /// reads them back as memory becomes scarce. Empty: the state is in memory.
  std::filesystem::path offload{};
  /// One process with a GPU: passes are repeated from recordings (parallel/graphed_passes.h).
  bool cuda_graphs = false;
  /// The model's device, for stages on devices of this process. On GPUs, each stage's copy lies on a card of its own.
  at::Device device = at::kCPU;
  ReductionOptions reduction{};
  ServerOptions servers{};
  /// Pipelines: the file that records when each pass of the last step ran (pipeline/recording.h). Rank 0 writes it at
  /// the end. Empty: none.
  std::filesystem::path record_passes{};
};

/// A strategy for one process with one device.
std::unique_ptr<Strategy> make_single();

/// The strategy of this name over these ranks: "single", "dp", "ddp", "zero1", "zero2", "zero3", "ps-sync",
/// "ps-async", "pipeline", "pipeline-zero1" to "pipeline-zero3", "tensor"; "auto": single on one rank, ddp on
/// several. These are short forms of parallel/layout.h, which says more. Throws InputError that lists the names, and
/// for single and dp on several ranks.
std::unique_ptr<Strategy> make_strategy(const std::string& name, comm::Group group,
                                        const StrategyOptions& options = {});
/// The names that make_strategy takes, "auto" first.
const std::vector<std::string>& strategy_names();

/// Calls the pass that it is given, with whatever belongs before and after it.
using AroundPass = std::function<void(const std::function<void()>& pass)>;

/// Runs a forward pass without gradients and without the modules' training mode. Gives its loss terms and outputs.
LossSink forward_pass(const Model& model, const MicroBatch& batch);

/// Calls `forward` for each micro-batch, and adds up its losses, counts and outputs.
EvalResult evaluate_micro_batches(std::span<const MicroBatch> micro_batches,
                                  const std::function<LossSink(const MicroBatch&)>& forward);
/// Runs forward_pass() of the micro-batches.
EvalResult evaluate_micro_batches(
    const Model& model, std::span<const MicroBatch> micro_batches,
    const AroundPass& around = [](const auto& pass) { pass(); });

}  // namespace funicular::parallel
