#pragma once
// Forward and backward passes of the stages that lie on one rank, and the messages between them and their neighbours.

#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/core/deferred_gradients.h"
#include "funicular/core/recompute.h"
#include "funicular/parallel/stages.h"
#include "funicular/parallel/term_sums.h"
#include "funicular/pipeline/placement.h"
#include "funicular/pipeline/schedule.h"

namespace funicular::parallel {

/// The parts that all passes of a step share. Refers to objects of its owner.
struct StageContext {
  const Model& model;
  const std::vector<Stage>& stages;
  const pipeline::Placement& placement;  ///< of ranks in `messages`
  const comm::Group& messages;           ///< of the ranks of one pipeline, for nothing but these messages
  at::ScalarType type = at::kFloat;      ///< the type of activations whose port names none
  std::function<void(const comm::Work&)> wait;
  /// Called around each pass of a stage: F, B, I or W. May be empty.
  std::function<void(const pipeline::Action& pass)> begin_pass{};
  std::function<void()> end_pass{};
  /// Makes the products of a W pass, within that pass; empty: makes one after another.
  std::function<void(std::vector<DeferredGradients::Product>& products)> make_products{};
};

/// A micro-batch of a step. All that it refers to must live until its backward pass is over.
struct StageInput {
  const MicroBatch& batch;
  const Counts& counts;  ///< of the global batch
  double loss_scale;
  TermSums& sums;              ///< gets the loss terms that arise here
  const Taps* taps = nullptr;  ///< null: nobody watches
};

/// The passes of this rank in a step, in an evaluation, or in several overlapping steps. Every rank of the pipeline has
/// the same micro-batches, so shapes follow from them and are not sent. A recomputed stage keeps only its inputs.
class StagePasses {
 public:
  /// `input` gives the micro-batch of a number. All that the context refers to must outlive this object.
  StagePasses(const StageContext& context, std::function<StageInput(int)> input, Recompute recompute)
      : context_(context), input_(std::move(input)), recompute_(recompute) {}

  /// Runs F, B, I, W or a message, and adds gradients to Parameter::gradient. I leaves to W what can be made later
  /// (core/deferred_gradients.h).
  void run(const pipeline::Action& action);
  /// Runs the forward passes of this rank's stages without gradients, over the micro-batches [0, count). Returns what
  /// these passes leave for the metrics, one entry per micro-batch. An entry is empty if this rank does not run that
  /// micro-batch.
  std::vector<TensorMap> run_forward_only(int count);
  /// Waits until all messages that this rank has sent are received.
  void finish();

 private:
  using Key = std::pair<int, int>;  ///< stage, micro-batch
  /// Tensors by name that are arriving, or have arrived.
  struct Arriving {
    TensorMap tensors;
    std::vector<comm::Work> works;
  };
  /// The state of a stage between its forward and its backward pass.
  struct Flight {
    TensorMap inputs, outputs;
    at::Tensor total;  ///< of the loss terms that arose here; may be undefined
  };

  const MicroBatch& batch(int number) const { return input_(number).batch; }
  const Stage& stage(int number) const { return context_.stages[static_cast<size_t>(number)]; }
  int rank_of(int stage, int number) const { return context_.placement.rank_of(stage, number); }
  bool last(int stage) const { return static_cast<size_t>(stage) + 1 == context_.stages.size(); }
  TensorMap arrived(std::map<Key, Arriving>& arriving, Key key);
  /// The tensors that `stage` sends to the next one. Throws InputError unless their shapes and types are the declared
  /// ones.
  TensorMap outgoing(int stage, int number, const TensorMap& values);
  at::ScalarType type_of(const Crossing& crossing) const {
    return crossing.port->type.value_or(context_.type);
  }

  TensorMap forward(int stage, int number, LossSink& sink, TensorMap inputs, bool training);
  void forward(int stage, int number);
  void backward(int stage, int number, pipeline::Kind kind);
  void make_weight_gradients(int stage, int number);
  void send(const TensorMap& tensors, int to);
  void receive(Arriving& into, const std::vector<Crossing>& crossings, int number, int from, bool gradients);

  const StageContext context_;
  const std::function<StageInput(int)> input_;
  const Recompute recompute_;
  std::map<Key, Arriving> inputs_, gradients_;  ///< gradients of a stage's outputs
  std::map<Key, Flight> flights_;
  std::map<Key, TensorMap> input_gradients_;
  std::map<Key, std::vector<DeferredGradients::Product>> deferred_;  ///< between I and W
  std::deque<std::vector<comm::Work>> sent_;
};

}  // namespace funicular::parallel
