#pragma once
// The base of the parameter-server strategies (ps-sync, ps-async). Some ranks, the servers, hold the optimiser; all
// other ranks, the workers, compute. M. Li et al., "Scaling Distributed Machine Learning with the Parameter Server",
// OSDI 2014, sections 3.1 and 3.4.

#include "funicular/parallel/replicated.h"

namespace funicular::parallel {

/// The last ServerOptions::count ranks are servers. Each holds one slice of the matrices and one of the vectors: their
/// masters, sums of gradients, and optimiser state. Workers hold weights and gradients, but no masters and no state.
class ServedModel : public Replicated {
 public:
  DataShare data_share() const override;
  void state_changed() override;
  void detach() override;

 protected:
  /// `name` is the strategy's. Throws InputError unless there are at least one server and one worker.
  ServedModel(comm::Group group, const StrategyOptions& options, const char* name);

  int workers() const { return workers_; }
  bool serves() const { return group().rank() >= workers_; }
  /// A server's slice of the flat tensor of all weights of a kind.
  comm::Shard slice(ParameterKind kind, int server) const {
    return holding().unit(kind).pieces[static_cast<size_t>(server)];
  }
  /// The flat weights of a kind: all of them on a worker, only its slice on a server.
  const at::Tensor& weights(ParameterKind kind) const { return holding().weights(kind); }
  std::vector<at::Tensor> gradients() const {
    return {holding().gradients(ParameterKind::matrix), holding().gradients(ParameterKind::vector)};
  }

  /// Sends the servers' weights to the workers. Collective.
  void spread_weights();

  void allocate(Model& model, const MatrixTypes& types) override;
  bool owns(const UpdateTarget::Block&) const final { return true; }
  bool computes() const final { return !serves(); }
  bool masters_are_divided() const final { return target().shadow.defined(); }

 private:
  const int workers_;
};

}  // namespace funicular::parallel
