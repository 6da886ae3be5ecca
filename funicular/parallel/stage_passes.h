#pragma once
// Forward and backward passes of the stages that lie on one rank, and the messages between them and their neighbours.

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/core/recompute.h"
#include "funicular/parallel/stages.h"
#include "funicular/parallel/term_sums.h"
#include "funicular/pipeline/schedule.h"

namespace funicular::parallel {

/// What all passes of a step have in common. Refers to what its owner holds.
struct StageContext {
  const Model& model;
  const std::vector<Stage>& stages;
  const std::vector<int>& rank_of_stage;  ///< in `messages`
  const comm::Group& messages;            ///< of the ranks of one pipeline, for nothing but these messages
  at::ScalarType type = at::kFloat;       ///< of activations whose port says none
  std::function<void(const comm::Work&)> wait;
};

/// One step, or one evaluation, of this rank. Every rank of the pipeline has the same micro-batches, so that shapes follow
/// from these and nothing is asked. Of recomputed stages only what comes in is kept.
class StagePasses {
 public:
  /// `counts` are those of the global batch. All must outlive this.
  StagePasses(const StageContext& context, std::span<const MicroBatch> batches, const Counts& counts,
              double loss_scale, Recompute recompute, TermSums& sums)
      : context_(context),
        batches_(batches),
        counts_(counts),
        loss_scale_(loss_scale),
        recompute_(recompute),
        sums_(sums) {}

  /// F, B, I, W, or a message; gradients are added to Parameter::gradient. I leaves to W what can be made later
  /// (core/deferred_gradients.h).
  void run(const pipeline::Action& action);
  /// The same without gradients, of all stages of this rank and all micro-batches; what the last stage's forward pass
  /// leaves for the metrics, one a micro-batch.
  std::vector<TensorMap> run_forward_only();
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

  const MicroBatch& batch(int number) const { return batches_[static_cast<size_t>(number)]; }
  const Stage& stage(int number) const { return context_.stages[static_cast<size_t>(number)]; }
  int rank_of(int stage) const { return context_.rank_of_stage[static_cast<size_t>(stage)]; }
  bool last(int stage) const { return static_cast<size_t>(stage) + 1 == context_.stages.size(); }
  TensorMap arrived(std::map<Key, Arriving>& arriving, Key key);
  /// The tensors of these crossings: of the right shape and type, or an InputError.
  TensorMap outgoing(int stage, int number, const TensorMap& values);
  at::ScalarType type_of(const Crossing& crossing) const {
    return crossing.port->type.value_or(context_.type);
  }

  TensorMap forward(int stage, int number, LossSink& sink, TensorMap inputs, bool training);
  void forward(int stage, int number);
  void backward(int stage, int number);
  void make_weight_gradients(int stage, int number);
  void send(const TensorMap& tensors, int to);
  void receive(Arriving& into, const std::vector<Crossing>& crossings, int number, int from, bool gradients);

  const StageContext& context_;
  const std::span<const MicroBatch> batches_;
  const Counts& counts_;
  const double loss_scale_;
  const Recompute recompute_;
  TermSums& sums_;
  std::map<Key, Arriving> inputs_, gradients_;  ///< gradients of a stage's outputs
  std::map<Key, Flight> flights_;
  std::map<Key, TensorMap> input_gradients_;
  std::map<Key, std::vector<std::function<void()>>> deferred_;  ///< between I and W
  std::vector<comm::Work> sent_;
};

}  // namespace funicular::parallel
