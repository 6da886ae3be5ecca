#include "funicular/parallel/served_model.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "funicular/base/error.h"

namespace funicular::parallel {

ServedModel::ServedModel(comm::Group group, const StrategyOptions& options, const char* name)
    : Replicated(std::move(group), options), workers_(this->group().size() - options.servers.count) {
  if (options.servers.count < 1 || workers_ < 1)
    throw InputError("strategy",
                     "{} on {} ranks with {} servers leaves {} workers; expected at least one of each (start "
                     "more ranks, funicular launch -n 3 -- …, or give fewer --servers)",
                     name, this->group().size(), options.servers.count, std::max(0, workers_));
}

DataShare ServedModel::data_share() const {
  DataShare share = Replicated::data_share();
  share.count = workers_;  // a server's index is beyond: it has no share
  return share;
}

void ServedModel::allocate(Model& model, const MatrixTypes& types) {
  auto layout = std::make_shared<const FlatLayout>(model);
  const Divided divided = serves() ? Divided::weights : Divided::states;
  hold({.layout = layout,
        .units = units_by_kind(*layout),
        .types = types,
        .matrices = divided,
        .vectors = divided,
        .ranks = group().size(),
        .rank = group().rank(),
        .first_owner = workers_});
  target().add_over_ranks = [group = group()](const at::Tensor& sums) { group.all_reduce(sums); };
}

void ServedModel::spread_weights() {
  for (const ParameterKind kind : {ParameterKind::matrix, ParameterKind::vector}) {
    if (serves()) {
      for (int worker = 0; worker < workers_; ++worker) group().send(weights(kind), worker);
      continue;
    }
    for (int server = workers_; server < group().size(); ++server) {
      const comm::Shard served = slice(kind, server);
      group().receive(weights(kind).narrow(0, served.begin, served.size), server);
    }
  }
}

void ServedModel::state_changed() {
  const at::NoGradGuard no_gradient;
  refresh_weights();
  spread_weights();
}

void ServedModel::detach() {
  Replicated::detach();
  holding().make_whole(group());
}

}  // namespace funicular::parallel
