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

/// What all passes of a step have in common. Refers to what its owner holds.
struct StageContext {
  const Model& model;
  const std::vector<Stage>& stages;
  const pipeline::Placement& placement;  ///< of ranks in `messages`
  const comm::Group& messages;           ///< of the ranks of one pipeline, for nothing but these messages
  at::ScalarType type = at::kFloat;      ///< of activations whose port says none
  std::function<void(const comm::Work&)> wait;
  /// Around each pass of a stage, F, B, I or W; may be empty.
  std::function<void(const pipeline::Action& pass)> begin_pass{};
  std::function<void()> end_pass{};
  /// Makes the products of a W, within such a pass; empty: one after the other.
  std::function<void(std::vector<DeferredGradients::Product>& products)> make_products{};
};

/// A micro-batch of a step. Refers to what its owner holds until its backward pass is over.
struct StageInput {
  const MicroBatch& batch;
  const Counts& counts;  ///< of the global batch
  double loss_scale;
  TermSums& sums;              ///< to which the loss terms that arise here are added
  const Taps* taps = nullptr;  ///< null: nobody watches
};

/// The passes of this rank: of a step, of an evaluation, or of several steps that overlap. Every rank of the pipeline has
/// the same micro-batches, so that shapes follow from these and nothing is asked. Of recomputed stages only what comes in
/// is kept.
class StagePasses {
 public:
  /// `input` gives the micro-batch of a number; what the context refers to must outlive this.
  StagePasses(const StageContext& context, std::function<StageInput(int)> input, Recompute recompute)
      : context_(context), input_(std::move(input)), recompute_(recompute) {}

  /// F, B, I, W, or a message; gradients are added to Parameter::gradient. I leaves to W what can be made later
  /// (core/deferred_gradients.h).
  void run(const pipeline::Action& action);
  /// The same without gradients, of all stages of this rank and those of the micro-batches [0, count) that it runs of them;
  /// what the last stage's forward pass leaves for the metrics, one a micro-batch, nothing of those that it does not run.
  std::vector<TensorMap> run_forward_only(int count);
  /// Returns when all messages that this rank has sent are received.
  void finish();

 private:
  using Key = std::pair<int, int>;  ///< stage, micro-batch
  /// Tensors by name that arrive, or are there.
  struct Arriving {
    TensorMap tensors;
    std::vector<comm::Work> works;
  };
  /// Between the forward and the backward pass of a stage.
  struct Flight {
    TensorMap inputs, outputs;
    at::Tensor total;  ///< of the loss terms that arose here; may be undefined
  };

  const MicroBatch& batch(int number) const { return input_(number).batch; }
  const Stage& stage(int number) const { return context_.stages[static_cast<size_t>(number)]; }
  int rank_of(int stage, int number) const { return context_.placement.rank_of(stage, number); }
  bool last(int stage) const { return static_cast<size_t>(stage) + 1 == context_.stages.size(); }
  TensorMap arrived(std::map<Key, Arriving>& arriving, Key key);
  /// The tensors of these crossings: of the right shape and type, or an InputError.
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
