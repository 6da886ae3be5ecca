#include "funicular/parallel/parameter_server.h"

#include <ATen/ops/empty_like.h>

#include <utility>

#include "funicular/parallel/served_model.h"
#include "funicular/parallel/tree_sum.h"

namespace funicular::parallel {

namespace {

class ParameterServer final : public ServedModel, private StepParts {
 public:
  ParameterServer(comm::Group group, const StrategyOptions& options)
      : ServedModel(std::move(group), options, "ps-sync") {}
  std::string name() const override { return "ps-sync"; }
  StepResult step(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings) override {
    return take_step(*this, micro_batches, global, settings);
  }

 private:
  void start_step(const StepSettings&) override {
    if (!serves()) holding().gradients().start();
  }
  void run_passes(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings, TermSums& sums) override;
  void finish_gradients() override;
  void finish_update() override { spread_weights(); }
  void push(ParameterKind kind) const;

  TreeSum tree_;
};

void ParameterServer::run_passes(std::span<const MicroBatch> micro_batches, const Counts& global,
                                 const StepSettings& settings, TermSums& sums) {
  for (const MicroBatch& batch : micro_batches) {
    run(model(), batch, global, settings, sums);
    if (!options().deterministic) continue;
    tree_.add(gradients());
    holding().gradients().zero();
  }
}

void ParameterServer::finish_gradients() {
  if (!serves()) {
    if (options().deterministic) tree_.finish(gradients());
    push(ParameterKind::matrix);
    push(ParameterKind::vector);
    return;
  }
  TreeSum sum;
  for (int worker = 0; worker < workers(); ++worker) {
    const at::Tensor matrices = at::empty_like(target().matrix_gradient);
    const at::Tensor vectors = at::empty_like(target().vector_gradient);
    group().receive(matrices, worker);
    group().receive(vectors, worker);
    sum.add({matrices, vectors});
  }
  sum.finish({target().matrix_gradient, target().vector_gradient});
}

void ParameterServer::push(ParameterKind kind) const {
  for (int server = workers(); server < group().size(); ++server) {
    const comm::Shard served = slice(kind, server);
    group().send(holding().gradients(kind).narrow(0, served.begin, served.size), server);
  }
}

}  // namespace

std::unique_ptr<Strategy> make_parameter_server(comm::Group group, const StrategyOptions& options) {
  return std::make_unique<ParameterServer>(std::move(group), options);
}

}  // namespace funicular::parallel
