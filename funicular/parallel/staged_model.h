#pragma once
// What the strategies have in common in which a model is cut into stages that lie on different ranks.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "funicular/parallel/replicated.h"
#include "funicular/parallel/stage_passes.h"
#include "funicular/parallel/stages.h"

namespace funicular::parallel {

/// Of D · P ranks, rank d · P + r is rank r of the pipeline of replica d. It holds weights, gradients and optimiser state
/// of its own stages alone; frozen weights are everywhere. All ranks of a replica read the same rows.
///
/// With ZeRO's stage 1 (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020,
/// section 5.1) the replicas of a stage divide its optimiser state among them, and the masters where they are not what is
/// computed with: each updates its pieces, and gets the others' weights.
///
/// A weight that several stages use (tied word embeddings) belongs to the first of them. The others hold a copy that is
/// computed with.
class StagedModel : public Replicated {
 public:
  std::string name() const override { return zero_ > 0 ? "pipeline-zero1" : "pipeline"; }
  DataShare data_share() const override;
  EvalResult evaluate(std::span<const MicroBatch> micro_batches) override;
  void state_changed() override;
  void detach() override;
  void with_whole_model(const std::function<void()>& use) override;

 protected:
  /// After attach: of the whole model, in order.
  const std::vector<Stage>& stages() const { return stages_; }

  /// `rank_of_stage`: in a pipeline. Throws InputError for what pipelines cannot do: --deterministic,
  /// --reduce-precision, faults; where options name another number of stages; and for a stage of ZeRO above 1.
  StagedModel(comm::Group world, const StrategyOptions& options, std::vector<int> rank_of_stage, int zero);

  /// Of one pipeline. Throws InputError where the ranks are no multiple.
  static int ranks_of(const comm::Group& world, const PipelineOptions& options);
  int ranks() const { return ranks_; }
  int replica() const { return group().rank() / ranks_; }
  int replicas() const { return group().size() / ranks_; }
  int rank() const { return group().rank() % ranks_; }  ///< in the pipeline

  /// A weight that is first used by a stage of another rank than a later one.
  struct Shared {
    Parameter* parameter = nullptr;
    int owner = 0;             ///< in the pipeline, as `users`
    std::vector<int> users{};  ///< besides the owner, ascending
    bool used_by(int rank) const;
  };
  const std::vector<Shared>& shared() const { return shared_; }
  /// Where a weight of this rank's lies.
  struct Place {
    bool matrix = false;
    int64_t begin = 0;  ///< in matrices() or vectors()
  };
  const std::map<const Parameter*, Place>& places() const { return places_; }
  /// Flat, what this rank computes with of its own weights.
  const at::Tensor& matrices() const { return matrices_; }
  const at::Tensor& vectors() const { return vectors_; }

  void allocate(Model& model, const MatrixTypes& types, UpdateTarget& target) override;
  bool owns(const UpdateTarget::Block&) const override;
  bool needs_events() const override { return false; }
  const comm::Group& replicas_of_weights() const override { return same_stage_; }
  const comm::Group& messages() const { return messages_; }
  const comm::Group& pipeline() const { return pipeline_; }
  const comm::Group& same_stage() const { return same_stage_; }

  /// All gradients of this rank become zero, those of copies too, and are what backward passes add to.
  void zero_gradients();
  /// Of weights that several stages use: the owner adds the users' gradients to its own, in the order of the ranks.
  void add_shared_gradients();
  /// The users get what is computed with from the owner.
  void spread_shared();
  /// Over the replicas: afterwards they are the whole batch's, with ZeRO those of the pieces that this rank updates.
  void reduce_gradients();
  /// After an update: with ZeRO the other replicas' pieces, and all gradients zero.
  void gather_update();
  /// Whether the replicas of a stage divide its state.
  bool divides() const { return zero_ > 0 && replicas() > 1; }
  StageContext context() const;

 private:
  void join_groups();
  void tell(const Model& model) const;
  void find_holders(const Model& model);
  void take_own(const MatrixTypes& types);
  void take_shared_and_release();
  void add_blocks();
  void divide();
  void gather_weights();
  /// Whether masters of matrices are there in pieces; then Parameter::master is undefined.
  bool masters_are_divided() const { return divides() && compute_.has_value(); }
  void gather_masters();
  void forget_masters();
  std::vector<comm::Shard> pieces_of(bool matrices, int64_t size) const;
  const std::vector<int64_t>& shape_of(const FlatLayout::Entry& entry) const {
    return shapes_.at(entry.parameter);
  }

  const int ranks_, zero_;
  const std::vector<int> rank_of_stage_;
  comm::Group messages_;    ///< of this pipeline, for messages alone
  comm::Group pipeline_;    ///< the same ranks, for collectives
  comm::Group same_stage_;  ///< this rank of all pipelines
  std::vector<Stage> stages_;
  std::map<const Parameter*, int> owner_of_;  ///< of those that train; rank in the pipeline
  std::vector<Shared> shared_;                ///< in the layout's order
  at::Tensor matrices_, vectors_;             ///< own ones that are computed with
  std::map<const Parameter*, std::vector<int64_t>> shapes_;
  std::map<const Parameter*, Place> places_;                ///< of own ones
  std::vector<comm::Shard> matrix_pieces_, vector_pieces_;  ///< of each replica, in matrices_ and vectors_
  comm::Shard own_matrices_, own_vectors_;                  ///< what this rank updates
  std::vector<at::Tensor> copied_gradients_;                ///< of weights that other ranks own
  std::optional<at::ScalarType> compute_;
  at::ScalarType type_ = at::kFloat;
};

}  // namespace funicular::parallel
