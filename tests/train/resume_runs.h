#pragma once
// A small training that is stopped and started again, and the comparison of what two of its runs leave.

#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>

#include "funicular/base/interrupt.h"
#include "funicular/parallel/strategy.h"
#include "helpers.h"

namespace funicular::train::resume_tests {

using namespace funicular::test;

inline constexpr int64_t kRows = 22, kBatch = 6;  // batches of 6, 6, 6, 4 in an epoch
inline constexpr int64_t kSteps = 12;             // three epochs

inline TrainerOptions options_for(const fs::path& output) {
  TrainerOptions options;
  options.output = output;
  options.max_steps = kSteps;
  options.batch_size = kBatch;
  options.micro_batch_size = 2;
  options.schedule.warmup_steps = 3;
  options.logging_steps = 2;
  options.save_steps = 5;
  options.eval_steps = 3;
  options.num_workers = 2;
  options.progress = false;
  return options;
}

/// Raises `signal` after update `at` (0: never).
inline FitResult run(const TrainerOptions& options, int64_t at = 0, int signal = SIGTERM,
                     const TensorDataset& data = make_data(kRows),
                     const StrategyFactory& strategy = parallel::make_single) {
  const TensorDataset unseen = make_data(5, /*seed=*/4);
  Trainer trainer(options, strategy, optim::AdamW{.learning_rate = 0.01, .weight_decay = 0.1});
  trainer.callbacks.on_step = [&](int64_t step, const parallel::StepResult&) {
    if (step == at) std::raise(signal);
  };
  const FitResult result = trainer.fit(make_net(), data, squared_error, {.data = &unseen});
  clear_interrupt();
  return result;
}

/// metrics.jsonl without what depends on the clock.
inline std::string records(const fs::path& output) {
  std::string text;
  for (Json line : read_lines(output / "metrics.jsonl")) {
    for (const char* key : {"tokens_per_second", "step_seconds", "wait_share", "memory_bytes"})
      line.erase(key);
    text += line.dump() + "\n";
  }
  return text;
}

inline std::string file(const fs::path& path) {
  return read_file(path);
}

/// Everything that a run leaves, as bytes.
inline void expect_equal_runs(const fs::path& a, const fs::path& b) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"})
    EXPECT_EQ(file(a / "checkpoints/step-000012" / name), file(b / "checkpoints/step-000012" / name)) << name;
  EXPECT_EQ(file(a / "model/model.safetensors"), file(b / "model/model.safetensors"));
  EXPECT_EQ(records(a), records(b));
}

/// One process, which calls something before it shows its state: at the beginning of a save, among others.
class CallsBeforeItsState final : public parallel::Strategy {
 public:
  explicit CallsBeforeItsState(std::function<void()> action)
      : inner_(parallel::make_single()), action_(std::move(action)) {}
  void attach(Model& model, std::unique_ptr<optim::Optimizer> optimizer,
              const parallel::Numerics& numerics) override {
    inner_->attach(model, std::move(optimizer), numerics);
  }
  std::string name() const override { return inner_->name(); }
  parallel::DataShare data_share() const override { return inner_->data_share(); }
  parallel::StepResult step(std::span<const MicroBatch> batches, const Counts& counts,
                            const parallel::StepSettings& settings) override {
    return inner_->step(batches, counts, settings);
  }
  parallel::EvalResult evaluate(std::span<const MicroBatch> batches) override {
    return inner_->evaluate(batches);
  }
  void visit_state(parallel::StateVisitor& visitor) override {
    action_();
    inner_->visit_state(visitor);
  }
  void visit_gradients(parallel::StateVisitor& visitor) override { inner_->visit_gradients(visitor); }
  void state_changed() override { inner_->state_changed(); }

 private:
  std::unique_ptr<parallel::Strategy> inner_;
  std::function<void()> action_;
};

}  // namespace funicular::train::resume_tests
