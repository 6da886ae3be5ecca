#pragma once
// The base of the parameter-server strategies (ps-sync, ps-async): some ranks, the servers, hold the optimiser; the
// others, the workers, compute. M. Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI
// 2014, sections 3.1 and 3.4.

#include <vector>

#include "funicular/parallel/releasable.h"
#include "funicular/parallel/replicated.h"

namespace funicular::parallel {

/// The last ServerOptions::count ranks are servers. Each holds a slice of the matrices and one of the
/// vectors: their masters, sums of gradients, and optimiser state. Workers hold weights and gradients, no
/// masters and no state.
class ServedModel : public Replicated {
 public:
  DataShare data_share() const override;
  void state_changed() override;
  void detach() override;

 protected:
  /// A flat tensor of all matrices or all vectors, and who serves which part of it.
  struct Part {
    FlatRange elements;               ///< of the layout
    std::vector<comm::Shard> slices;  ///< of each rank, from elements.begin; none of workers
    Releasable weights;               ///< [elements], what workers compute with; released on servers
    at::Tensor gradient;              ///< workers: [elements]
  };

  /// `name` is the strategy's. Throws InputError unless there are at least one server and one worker.
  ServedModel(comm::Group group, const StrategyOptions& options, const char* name);

  int workers() const { return workers_; }
  bool serves() const { return group().rank() >= workers_; }
  static comm::Shard slice(const Part& part, int server) { return part.slices[static_cast<size_t>(server)]; }
  comm::Shard own(const Part& part) const { return slice(part, group().rank()); }
  const Part& matrices() const { return matrices_; }
  const Part& vectors() const { return vectors_; }
  /// On a server: its slices of what workers compute with.
  const at::Tensor& served_matrices() const { return mixed_ ? target().shadow : target().matrix_master; }
  const at::Tensor& served_vectors() const { return target().vector_master; }

  /// On a worker, before its first forward pass of a step.
  void zero_gradients();
  /// Workers get the weights that the servers hold. Collective.
  void spread_weights();

  void allocate(Model& model, const MatrixTypes& types, UpdateTarget& target) override;
  bool owns(const UpdateTarget::Block&) const final { return true; }
  bool computes() const final { return !serves(); }
  bool masters_are_whole() const final { return !mixed_; }
  void make_masters_whole(bool keeps) final;

 private:
  Part make_part(const FlatRange& elements, const at::TensorOptions& weights,
                 const at::TensorOptions& gradient) const;
  void point(const FlatLayout::Entry& entry, const Part& part);
  void take_slice(const Part& part, const at::Tensor& masters) const;
  void add_blocks();
  void pull(const Part& part, const at::Tensor& served) const;
  const Part& part_of(const FlatLayout::Entry& entry) const {
    return entry.parameter->kind == ParameterKind::matrix ? matrices_ : vectors_;
  }

  const int workers_;
  bool mixed_ = false;
  Part matrices_, vectors_;
};

}  // namespace funicular::parallel
