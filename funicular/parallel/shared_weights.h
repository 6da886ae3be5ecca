#pragma once
// Weights that several stages of a pipeline use (tied word embeddings), and their exchange between ranks.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "funicular/parallel/holding/holding.h"
#include "funicular/parallel/pipeline_ranks.h"
#include "funicular/parallel/weight_owners.h"

namespace funicular::parallel {

/// A shared weight belongs to the first stage that uses it. Later stages hold a copy to compute with. If replicas
/// divide the owner's weight (ZeRO's stage 3), they divide the copy alike.
class SharedWeights {
 public:
  using Wait = std::function<void(const comm::Work&)>;
  /// `own`: weights of this rank. `copies`: copies of weights that other ranks own; null: none. `wait` waits for a Work
  /// and counts the time.
  SharedWeights(std::vector<SharedWeight> weights, const Holding& own, std::unique_ptr<Holding> copies,
                const PipelineRanks& ranks, Wait wait);

  /// In the layout's order.
  const std::vector<SharedWeight>& all() const { return weights_; }
  Holding* copies() const { return copies_.get(); }
  /// The piece that this rank keeps, or the whole weight. Undefined on ranks that do not use it.
  at::Tensor value_of(const SharedWeight& shared) const;
  /// The gradient of the whole weight, or of this rank's piece with ZeRO's stages 2 and 3. Undefined on ranks that do
  /// not use it.
  at::Tensor gradient_of(const SharedWeight& shared) const;
  /// Whether this rank keeps only its piece of the weight (ZeRO's stage 3).
  bool is_in_pieces(const SharedWeight& shared) const {
    return own_.divided(shared.parameter->kind) == Divided::weights;
  }
  /// Calls `use` for each pair of ranks that exchange the weight and to which this rank belongs. Each rank of a using
  /// stage is in one pair, with a rank of the owner's stage.
  void exchange(const SharedWeight& shared, const std::function<void(int user, int owner)>& use) const;
  /// The owner adds the users' gradients to its own, in the order of the ranks. If a stage has several ranks, each
  /// user's gradient goes to one of the owner's ranks; the reduction over the stage adds these up. `send` sends in the
  /// group `messages`.
  void add_gradients(const comm::Group& messages,
                     const std::function<void(const at::Tensor& gradient, int to)>& send) const;
  /// Sends the weights to compute with from their owners to their users.
  void spread() const;

 private:
  /// The holding that has the weight: own weights or copies. Null: this rank does not use it.
  const Holding* holding_with(const SharedWeight& shared) const;

  std::vector<SharedWeight> weights_;
  const Holding& own_;
  std::unique_ptr<Holding> copies_;
  const PipelineRanks& ranks_;
  Wait wait_;
};

}  // namespace funicular::parallel
