#include "funicular/parallel/zero.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/core/autocast.h"
#include "funicular/parallel/holding/unit_exchange.h"
#include "funicular/parallel/replicated.h"
#include "funicular/parallel/tree_sum.h"

namespace funicular::parallel {
namespace {

class Zero final : public Replicated, private StepParts {
 public:
  Zero(int stage, comm::Group group, const StrategyOptions& options)
      : Replicated(std::move(group), options), stage_(stage) {}

  std::string name() const override { return "zero" + std::to_string(stage_); }
  void use_batch_statistics(BatchStatistics over) override { norms_.use(over); }
  DataShare data_share() const override {
    DataShare share = Replicated::data_share();
    // Sums over ranks come first here, and sums over micro-batches second.
    if (options().deterministic && stage_ >= 2) share.cut = DataShare::Cut::interleaved;
    return share;
  }
  StepResult step(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings) override {
    return take_step(*this, micro_batches, global, settings);
  }
  EvalResult evaluate(std::span<const MicroBatch> micro_batches) override;
  void state_changed() override;
  void detach() override {
    leave();
    holding().make_whole(group());
  }
  void leave() override { Replicated::detach(), settle(); }
  StrategyCosts costs() const override;

 private:
  void allocate(Model& model, const MatrixTypes& types) override;
  bool owns(const UpdateTarget::Block&) const override { return true; }
  bool needs_events() const override { return stage_ > 1 || group().size() > 1; }
  void settle() override;

  void start_step(const StepSettings&) override { holding().gradients().start(); }
  void run_passes(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings, TermSums& sums) override;
  void finish_gradients() override;
  void finish_update() override;

  ExchangedPass pass_of(ExchangedPass::Kind kind, Recompute recompute = Recompute::none) const;
  int64_t most_passes(int64_t own) const;
  void add_to_tree();
  std::vector<at::Tensor> gradients() const {
    return {holding().gradients(ParameterKind::matrix), holding().gradients(ParameterKind::vector)};
  }

  void before_forward(size_t segment) override { exchange_->before_forward(segment); }
  void after_forward(size_t segment) override { exchange_->after_forward(segment); }
  void before_backward(size_t segment) override { exchange_->before_backward(segment); }
  void after_backward(size_t segment) override { exchange_->after_backward(segment); }

  const int stage_;
  std::unique_ptr<UnitExchange> exchange_;
  TreeSum tree_;
  bool reduced_ = false;  ///< whether this step's last pass has reduced the gradients
};

void Zero::allocate(Model& model, const MatrixTypes& types) {
  auto layout = std::make_shared<const FlatLayout>(model);
  hold({.layout = layout,
        .units = units_by_segment(*layout, model),
        .types = types,
        .matrices = static_cast<Divided>(stage_),
        .vectors = Divided::states,
        .ranks = group().size(),
        .rank = group().rank()});
  target().add_over_ranks = [group = group()](const at::Tensor& sums) { group.all_reduce(sums); };
  exchange_ = std::make_unique<UnitExchange>(group(), std::vector<Holding*>{&holding()},
                                             [this](const comm::Work& work) { wait(work); });
}

void Zero::state_changed() {
  const at::NoGradGuard no_gradient;
  refresh_weights();
  holding().start_gather(group());
  settle();
}

StrategyCosts Zero::costs() const {
  StrategyCosts costs = Replicated::costs();
  if (stage_ == 3 && target().shadow.defined())
    costs.shadow_bytes = static_cast<int64_t>(target().shadow.nbytes());
  costs.most_gathered_bytes = exchange_->most_held();
  return costs;
}

void Zero::settle() {
  for (const WeightUnit& unit : holding().units()) wait(unit.gathering);
}

// ---- a step

ExchangedPass Zero::pass_of(ExchangedPass::Kind kind, Recompute recompute) const {
  const bool groups = recompute == Recompute::full || recompute == Recompute::sqrt;
  return {.kind = kind,
          .end = model().segments.size(),
          .groups = groups ? recompute_groups(model(), recompute) : std::vector<size_t>(),
          .last_group_is_recorded = true};
}

/// How many passes this rank takes part in, `own` of them with data.
int64_t Zero::most_passes(int64_t own) const {
  if (stage_ == 1) return own;
  const at::Tensor most = at::tensor({own}, at::kLong);
  group().all_reduce(most, comm::Reduction::maximum);
  return most.item<int64_t>();
}

/// Stage 1 reduces gradients only in the backward pass of the last micro-batch or, with a tree of sums, after the tree
/// is complete.
void Zero::run_passes(std::span<const MicroBatch> micro_batches, const Counts& global,
                      const StepSettings& settings, TermSums& sums) {
  const auto own = static_cast<int64_t>(micro_batches.size());
  const int64_t count = most_passes(own);
  const ExchangedPass pass = pass_of(ExchangedPass::forward_backward, settings.recompute);
  reduced_ = false;
  for (int64_t number = 0; number < count; ++number) {
    const bool exchanges = stage_ > 1 || (number + 1 == count && !options().deterministic);
    if (exchanges) exchange_->begin_pass(pass);
    if (number < own)
      run(model(), micro_batches[static_cast<size_t>(number)], global, settings, sums);
    else
      exchange_->run_without_data();
    if (exchanges) exchange_->end_pass();
    reduced_ = exchanges;
    if (options().deterministic) add_to_tree();
  }
}

void Zero::add_to_tree() {
  if (stage_ > 1) group().all_reduce(holding().gradients(ParameterKind::vector));
  tree_.add(gradients());
  for (const at::Tensor& gradient : gradients()) gradient.zero_();
}

void Zero::finish_gradients() {
  const bool ordered = options().deterministic;
  if (ordered) tree_.finish(gradients());
  if (stage_ == 1 && !reduced_) {
    exchange_->begin_pass(pass_of(ExchangedPass::backward));
    exchange_->run_without_data();
    exchange_->end_pass();
  }
  comm::Work vectors;
  if (!ordered || stage_ == 1)
    vectors = group().start_reduce_scatter(holding().gradients(ParameterKind::vector),
                                           holding().unit(ParameterKind::vector).pieces);
  exchange_->wait_for_reductions();
  wait(vectors);
}

void Zero::finish_update() {
  holding().gradients().note_update();
  holding().start_gather(group());
}

EvalResult Zero::evaluate(std::span<const MicroBatch> micro_batches) {
  settle();
  if (stage_ < 3) return Replicated::evaluate(micro_batches);
  const auto own = static_cast<int64_t>(micro_batches.size());
  const int64_t count = most_passes(own);
  const auto exchanged = [&](const std::function<void()>& pass) {
    exchange_->begin_pass(pass_of(ExchangedPass::forward));
    pass();
    exchange_->end_pass();
  };
  EvalResult result = evaluate_passes(micro_batches, exchanged);
  for (int64_t number = own; number < count; ++number) exchanged([&] { exchange_->run_without_data(); });
  return result;
}

}  // namespace

std::unique_ptr<Replicated> make_zero(int stage, comm::Group group, const StrategyOptions& options) {
  if (stage < 1 || stage > 3) throw InputError("strategy", "ZeRO has the stages 1, 2 and 3, found {}", stage);
  return std::make_unique<Zero>(stage, std::move(group), options);
}

}  // namespace funicular::parallel
