#include "funicular/prove/faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "funicular/base/error.h"

namespace funicular::prove {

namespace {

/// Masks the sequences of all ranks and steps alike.
class RepeatedMask final : public objective::Objective {
 public:
  explicit RepeatedMask(std::unique_ptr<objective::Objective> right) : right_(std::move(right)) {}
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override {
    std::vector<data::Sample> own(samples.begin(), samples.end());
    for (size_t i = 0; i < own.size(); ++i) own[i].draw_id = static_cast<int64_t>(i);
    return right_->collate(own, random);
  }
  std::optional<uint64_t> other_document_key(const data::Sample& sample) const override {
    return right_->other_document_key(sample);
  }
  int64_t length(const data::Sample& sample) const override { return right_->length(sample); }
  std::shared_ptr<const data::Dataset> samples(std::shared_ptr<const data::TokenStore> store) const override {
    return right_->samples(std::move(store));
  }
  model::Head head() const override { return right_->head(); }
  /// Claims that the loss is still correct, as only the comparison should find the fault.
  LossOver loss_over() const override { return LossOver::rows; }
  std::map<std::string, std::string> identity() const override { return right_->identity(); }

 private:
  const std::unique_ptr<objective::Objective> right_;
};

/// Calls `use` for each gradient that a strategy exposes.
class Gradients final : public parallel::StateVisitor {
 public:
  explicit Gradients(std::function<void(const parallel::StateSlice&)> use) : use_(std::move(use)) {}
  void visit(const parallel::StateSlice& slice) override { use_(slice); }

 private:
  const std::function<void(const parallel::StateSlice&)> use_;
};

/// Halves the gradient of the last weight, which is a vector. For a matrix it might change only a copy, as strategies
/// expose a copy of sparse gradients.
void halve_gradient(parallel::Strategy& strategy) {
  std::string last;
  Gradients find([&](const parallel::StateSlice& slice) { last = slice.name; });
  strategy.visit_gradients(find);
  Gradients halve([&](const parallel::StateSlice& slice) {
    if (slice.name == last) slice.local.mul_(0.5);
  });
  strategy.visit_gradients(halve);
}

class WrongStrategy final : public parallel::Strategy {
 public:
  WrongStrategy(std::unique_ptr<parallel::Strategy> right, Fault fault)
      : right_(std::move(right)), fault_(fault) {}

  parallel::StepResult step(std::span<const MicroBatch> micro_batches, const Counts& global,
                            const parallel::StepSettings& settings) override {
    if (fault_ == Fault::dropped_micro_batch && !micro_batches.empty())
      micro_batches = micro_batches.first(micro_batches.size() - 1);
    parallel::StepSettings own = settings;
    if (fault_ == Fault::halved_gradient)
      own.inspect = [&] {
        halve_gradient(*right_);
        if (settings.inspect) settings.inspect();
      };
    return right_->step(micro_batches, global, own);
  }
  Counts global_counts(const Counts& own) const override {
    return fault_ == Fault::wrong_count ? own : right_->global_counts(own);
  }

  void use_batch_statistics(BatchStatistics over) override { right_->use_batch_statistics(over); }
  void attach(Model& model, std::unique_ptr<optim::Optimizer> optimizer,
              const parallel::Numerics& numerics) override {
    right_->attach(model, std::move(optimizer), numerics);
  }
  void detach() override { right_->detach(); }
  void leave() override { right_->leave(); }
  std::string name() const override { return right_->name(); }
  const comm::Group& group() const override { return right_->group(); }
  parallel::DataShare data_share() const override { return right_->data_share(); }
  int64_t parts() const override { return right_->parts(); }
  int64_t pieces() const override { return right_->pieces(); }
  parallel::EvalResult evaluate(std::span<const MicroBatch> micro_batches) override {
    return right_->evaluate(micro_batches);
  }
  void share_buffers() override { right_->share_buffers(); }
  void visit_state(parallel::StateVisitor& visitor) override { right_->visit_state(visitor); }
  void visit_gradients(parallel::StateVisitor& visitor) override { right_->visit_gradients(visitor); }
  void state_changed() override { right_->state_changed(); }
  parallel::StrategyCosts costs() const override { return right_->costs(); }
  int64_t device_count() const override { return right_->device_count(); }
  std::vector<parallel::DeviceUse> device_uses() const override { return right_->device_uses(); }
  parallel::Asynchronous* asynchronous() override { return right_->asynchronous(); }
  parallel::Overlapping* overlapping() override { return right_->overlapping(); }
  std::vector<const Model*> copies() const override { return right_->copies(); }
  void with_whole_model(const std::function<void()>& use) override { right_->with_whole_model(use); }

 private:
  const std::unique_ptr<parallel::Strategy> right_;
  const Fault fault_;
};

}  // namespace

const std::vector<std::string>& fault_names() {
  static const std::vector<std::string> names = {"none", "wrong-count", "repeated-mask",
                                                 "dropped-micro-batch", "halved-gradient"};
  return names;
}

Fault parse_fault(const std::string& name) {
  const auto& names = fault_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw InputError("layout", "unknown fault \"{}\"; expected one of: {}", name, fmt::join(names, ", "));
  return static_cast<Fault>(found - names.begin());
}

std::unique_ptr<objective::Objective> with_fault(std::unique_ptr<objective::Objective> objective,
                                                 Fault fault) {
  if (fault != Fault::repeated_mask) return objective;
  return std::make_unique<RepeatedMask>(std::move(objective));
}

std::unique_ptr<parallel::Strategy> with_fault(std::unique_ptr<parallel::Strategy> strategy, Fault fault) {
  if (fault == Fault::none) return strategy;
  return std::make_unique<WrongStrategy>(std::move(strategy), fault);
}

}  // namespace funicular::prove
