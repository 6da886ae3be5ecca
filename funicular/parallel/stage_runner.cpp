#include "funicular/parallel/stage_runner.h"

namespace funicular::parallel {

namespace {

ExchangedPass::Kind exchanged_kind(pipeline::Kind kind) {
  switch (kind) {
    case pipeline::Kind::forward:
      return ExchangedPass::forward;
    case pipeline::Kind::input_gradient:
      return ExchangedPass::input_gradient;
    case pipeline::Kind::weight_gradient:
      return ExchangedPass::weight_gradient;
    default:
      return ExchangedPass::backward;
  }
}

}  // namespace

StageContext StageRunner::context(Recompute recompute) const {
  StageContext context = context_;
  if (exchange_ || recorder_) {
    context.begin_pass = [this, recompute](const pipeline::Action& pass) {
      if (exchange_) begin_pass(pass.stage, pass.kind, recompute);
      if (recorder_) recorder_->begin(pass);
    };
    context.end_pass = [this] {
      if (recorder_) recorder_->end();
      if (exchange_) exchange_->end_pass();
    };
  }
  if (!exchange_) return context;
  context.make_products = [this](std::vector<DeferredGradients::Product>& products) {
    exchange_->make_products(products);
  };
  return context;
}

void StageRunner::begin_pass(int number, pipeline::Kind kind, Recompute recompute) const {
  const Stage& stage = context_.stages[static_cast<size_t>(number)];
  ExchangedPass pass{.kind = exchanged_kind(kind), .begin = stage.begin, .end = stage.end};
  if (recompute == Recompute::full || recompute == Recompute::sqrt)
    pass.groups = recompute_groups(stage.end - stage.begin, recompute);
  for (size_t& begin : pass.groups) begin += stage.begin;
  pass.last_group_is_recorded = stage.end == context_.model.segments.size();
  exchange_->begin_pass(pass);
}

void StageRunner::run_without_data(int stage, pipeline::Kind kind, Recompute recompute) const {
  begin_pass(stage, kind, recompute);
  exchange_->run_without_data();
  exchange_->end_pass();
}

EvalResult StageRunner::evaluate(std::span<const MicroBatch> micro_batches) const {
  EvalResult result;
  TermSums sums;
  StagePasses passes(
      context(Recompute::none),
      [&](int number) {
        return StageInput{micro_batches[static_cast<size_t>(number)], result.counts, 1, sums};
      },
      Recompute::none);
  const auto own = static_cast<int64_t>(micro_batches.size());
  const int64_t count = passes_of(own);
  result.outputs = passes.run_forward_only(static_cast<int>(own));
  for (int64_t number = own; number < count; ++number)
    for (int stage = 0; stage < static_cast<int>(context_.stages.size()); ++stage)
      if (ranks_.placement().has(ranks_.rank(), stage))
        run_without_data(stage, pipeline::Kind::forward, Recompute::none);
  for (const MicroBatch& batch : micro_batches) add_counts(result.counts, batch.counts);
  for (const auto& [name, total] : sums.totals()) {
    result.sums[name] = total.sum;
    result.weights[name] = total.weight;
  }
  return result;
}

}  // namespace funicular::parallel
