#pragma once
// What the strategies have in common in which a model is cut into stages that lie on different ranks.

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "funicular/parallel/replicated.h"
#include "funicular/parallel/stage_passes.h"
#include "funicular/parallel/stages.h"

namespace funicular::parallel {

/// Of D · P ranks, rank d · P + r is rank r of the pipeline of replica d. It holds weights, gradients and optimiser state
/// of its own stages alone; frozen weights are everywhere. All ranks of a replica read the same rows.
///
/// A weight that several stages use (tied word embeddings) belongs to the first of them. The others hold a copy that is
/// computed with.
class StagedModel : public Replicated {
 public:
  DataShare data_share() const override;
  EvalResult evaluate(std::span<const MicroBatch> micro_batches) override;
  void state_changed() override;
  void detach() override;
  void with_whole_model(const std::function<void()>& use) override;

 protected:
  /// `rank_of_stage`: in a pipeline. Throws InputError for what pipelines cannot do: --deterministic,
  /// --reduce-precision, faults; and where options name another number of stages.
  StagedModel(comm::Group world, const StrategyOptions& options, std::vector<int> rank_of_stage);

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
  /// Over the replicas.
  void reduce_gradients();
  StageContext context() const;

 private:
  void join_groups();
  void tell(const Model& model) const;
  void find_holders(const Model& model);
  void take_own(const MatrixTypes& types);
  void take_shared_and_release();
  void add_blocks();
  const std::vector<int64_t>& shape_of(const FlatLayout::Entry& entry) const {
    return shapes_.at(entry.parameter);
  }

  const int ranks_;
  const std::vector<int> rank_of_stage_;
  comm::Group messages_;    ///< of this pipeline, for messages alone
  comm::Group pipeline_;    ///< the same ranks, for collectives
  comm::Group same_stage_;  ///< this rank of all pipelines
  std::vector<Stage> stages_;
  std::map<const Parameter*, int> owner_of_;  ///< of those that train; rank in the pipeline
  std::vector<Shared> shared_;                ///< in the layout's order
  at::Tensor matrices_, vectors_;             ///< own ones that are computed with
  std::map<const Parameter*, std::vector<int64_t>> shapes_;
  std::map<const Parameter*, Place> places_;  ///< of own ones
  std::vector<at::Tensor> copied_gradients_;  ///< of weights that other ranks own
  std::optional<at::ScalarType> compute_;
  at::ScalarType type_ = at::kFloat;
};

}  // namespace funicular::parallel
