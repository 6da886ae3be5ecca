#include "funicular/bench/techniques.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "funicular/base/clock.h"
#include "funicular/base/error.h"
#include "funicular/bench/generated_text.h"
#include "funicular/bench/measured_memory.h"
#include "funicular/bench/ordinary_step.h"
#include "funicular/bench/training_step.h"
#include "funicular/data/sampler.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/runtime/streams.h"
#include "funicular/train/prefetch.h"
#include "funicular/train/trainer.h"

namespace funicular::bench {

namespace {

using Clock = std::chrono::steady_clock;

/// How a step is made.
struct Recipe {
  int workers = 0;
  bool packed = false, masked_head = false, fused_optimizer = false;
  Precision precision = Precision::fp32;
  int64_t times_larger = 1, accumulation = 1;
  Recompute recompute = Recompute::none;
};

struct Technique {
  std::string name;
  std::function<void(Recipe&)> use;
};

std::vector<Technique> techniques_of(const TechniquesOptions& options) {
  return {{"loader worker", [](Recipe& r) { r.workers = 1; }},
          {"packing", [](Recipe& r) { r.packed = true; }},
          {"masked-only head", [](Recipe& r) { r.masked_head = true; }},
          {kBf16, [](Recipe& r) { r.precision = Precision::bf16; }},
          {"fused optimiser", [](Recipe& r) { r.fused_optimizer = true; }},
          {"larger batch", [&](Recipe& r) { r.times_larger = options.larger; }},
          {"accumulation", [&](Recipe& r) { r.accumulation = options.accumulation; }},
          {"recomputation", [&](Recipe& r) { r.recompute = options.recompute; }}};
}

/// Rows of a source as the ordinary layout has them.
class PaddedSource final : public train::Source {
 public:
  PaddedSource(const train::Source& base, int64_t padding) : base_(base), padding_(padding) {}
  int64_t size() const override { return base_.size(); }
  uint64_t fingerprint() const override { return base_.fingerprint(); }
  int64_t length(int64_t sample_id) const override { return base_.length(sample_id); }
  MicroBatch collate(std::span<const data::Draw> draws, const RandomState& random) const override {
    return pad_rows(base_.collate(draws, random), padding_);
  }

 private:
  const train::Source& base_;
  int64_t padding_;
};

/// A stretch of work: how fast, and with how much memory at most.
struct Stretch {
  double tokens_per_second = 0;
  int64_t memory = 0;
};

/// A model in training by one recipe.
class Trial {
 public:
  Trial(const TechniquesSubject& subject, const TechniquesOptions& options, const train::Source& source,
        const Recipe& recipe);

  /// The timed steps of repetition `number`.
  Stretch train(int64_t number);
  /// Forward passes over the same samples, as a step would have them or without gradients.
  Stretch evaluate(int64_t number, bool gradients);

 private:
  train::GlobalBatch collate(int64_t batch, bool training) const {
    return train::collate(sampler_.batch(batch), source_, plan_, {options_.seed, training}, at::kFloat);
  }
  int64_t real_tokens(int64_t first, int64_t count) const;
  /// Runs work(batch) for the repetition's batches.
  template <class Work>
  Stretch measure(int64_t number, bool training, Work work);

  const TechniquesOptions& options_;
  Recipe recipe_;
  PaddedSource padded_;
  const train::Source &real_, &source_;
  train::BatchPlan plan_;
  data::Sampler sampler_;
  int64_t steps_;
  const MemoryGauge gauge_;
  std::unique_ptr<TrainingStep> step_;
  int64_t at_rest_ = 0;  ///< bytes between steps
};

train::BatchPlan plan_of(const TechniquesOptions& options, const Recipe& recipe) {
  const int64_t batch = options.batch_size * recipe.times_larger;
  return {batch, (batch + recipe.accumulation - 1) / recipe.accumulation, recipe.accumulation, 0};
}

Trial::Trial(const TechniquesSubject& subject, const TechniquesOptions& options, const train::Source& source,
             const Recipe& recipe)
    : options_(options),
      recipe_(recipe),
      padded_(source, std::max<int64_t>(0, subject.config.encoder.padding_id)),
      real_(source),
      source_(recipe.packed ? source : static_cast<const train::Source&>(padded_)),
      plan_(plan_of(options, recipe)),
      sampler_(source.size(), {.seed = options.seed, .batch_size = plan_.batch}),
      steps_(std::max<int64_t>(1, options.steps / recipe.times_larger)),
      gauge_(options.device) {
  const int64_t before = gauge_.used();
  Model model = subject.build(recipe.masked_head ? model::Head::masked_lm : ordinary_masked_lm());
  const optim::AdamW adamw{.learning_rate = 1e-4, .weight_decay = 0.01};
  step_ = std::make_unique<TrainingStep>(
      std::move(model), StepOptions{recipe.precision, recipe.recompute, recipe.accumulation > 1},
      recipe.fused_optimizer ? nullptr : make_ordinary_adamw(adamw));
  step_->run(collate(0, /*training=*/true));
  at_rest_ = gauge_.used() - before;
}

int64_t Trial::real_tokens(int64_t first, int64_t count) const {
  int64_t tokens = 0;
  for (int64_t b = first; b < first + count; ++b)
    for (const data::Draw& draw : sampler_.batch(b)) tokens += real_.length(draw.sample_id);
  return tokens;
}

template <class Work>
Stretch Trial::measure(int64_t number, bool training, Work work) {
  const int64_t first = number * steps_, tokens = real_tokens(first, steps_);
  gauge_.reset_peak();
  const int64_t used = gauge_.used();
  const auto start = Clock::now();
  {
    train::Prefetcher<train::GlobalBatch> loader(first, first + steps_, recipe_.workers, recipe_.workers + 1,
                                                 [&](int64_t b) { return collate(b, training); });
    for (int64_t i = 0; i < steps_; ++i) work(loader.next());
  }
  device::current_stream(options_.device)->record()->wait();
  const double seconds = seconds_since(start);
  return {static_cast<double>(tokens) / seconds, gauge_.peak() - used + at_rest_};
}

Stretch Trial::train(int64_t number) {
  return measure(number, /*training=*/true, [&](const train::GlobalBatch& batch) { step_->run(batch); });
}

Stretch Trial::evaluate(int64_t number, bool gradients) {
  return measure(number, /*training=*/false, [&](const train::GlobalBatch& batch) {
    if (!gradients) {
      for (const MicroBatch& micro_batch : batch.micro_batches) step_->strategy().evaluate({&micro_batch, 1});
      return;
    }
    for (const MicroBatch& micro_batch : batch.micro_batches) {
      LossSink loss;
      step_->model().forward({}, micro_batch, {}, loss);
    }
  });
}

/// Collects timed stretches of one recipe, each with a stretch of the ordinary recipe on the same samples.
class PairedTimes {
 public:
  void add(const Stretch& ordinary, const Stretch& other) {
    speeds_.push_back(other.tokens_per_second);
    speed_ratios_.push_back(other.tokens_per_second / ordinary.tokens_per_second);
    memory_ = std::max(memory_, other.memory);
    ordinary_memory_ = std::max(ordinary_memory_, ordinary.memory);
  }
  Gain gain() const {
    return {median(speeds_), median(speed_ratios_), memory_,
            static_cast<double>(memory_) / static_cast<double>(ordinary_memory_), std::ssize(speeds_)};
  }

 private:
  std::vector<double> speeds_, speed_ratios_;
  int64_t memory_ = 0, ordinary_memory_ = 0;
};

/// All measurements in their order.
class Measurement {
 public:
  Measurement(const TechniquesSubject& subject, const TechniquesOptions& options,
              const TechniquesProgress& progress)
      : subject_(subject),
        options_(options),
        progress_(progress),
        objective_(subject.tokenizer, {.sequence = {.max_length = static_cast<int32_t>(options.max_length)}}),
        source_(objective_, subject.train),
        techniques_(techniques_of(options)) {}

  TechniquesResult run();

 private:
  void show(const std::string& name) {
    if (progress_) progress_(done_++, static_cast<int64_t>(techniques_.size()) + 2, name);
  }
  Trial trial(const Recipe& recipe) const { return {subject_, options_, source_, recipe}; }
  TechniqueRow compare_training(Trial& ordinary, const Technique& technique, const Recipe& all);
  TechniqueRow compare_evaluation(Trial& ordinary, const Recipe& all);
  EarlyStopping::Run short_run(int64_t patience) const;

  const TechniquesSubject& subject_;
  const TechniquesOptions& options_;
  const TechniquesProgress& progress_;
  objective::MaskedLm objective_;
  train::DatasetSource<objective::MaskedLm> source_;
  std::vector<Technique> techniques_;
  int64_t done_ = 0;
  PairedTimes ordinary_, ordinary_evaluation_;
};

TechniqueRow Measurement::compare_training(Trial& ordinary, const Technique& technique, const Recipe& all) {
  Recipe one;
  technique.use(one);
  Trial alone = trial(one), together = trial(all);
  PairedTimes alone_gain, together_gain;
  for (int64_t number = 0; number < options_.repetitions; ++number) {
    const Stretch base = ordinary.train(number);
    ordinary_.add(base, base);
    alone_gain.add(base, alone.train(number));
    together_gain.add(base, together.train(number));
  }
  return {technique.name, alone_gain.gain(), together_gain.gain()};
}

TechniqueRow Measurement::compare_evaluation(Trial& ordinary, const Recipe& all) {
  Trial together = trial(all);
  PairedTimes alone_gain, together_gain;
  for (int64_t number = 0; number < options_.repetitions; ++number) {
    const Stretch base = ordinary.evaluate(number, /*gradients=*/true);
    ordinary_evaluation_.add(base, base);
    alone_gain.add(base, ordinary.evaluate(number, /*gradients=*/false));
    together_gain.add(base, together.evaluate(number, /*gradients=*/false));
  }
  return {"no-grad evaluation", alone_gain.gain(), together_gain.gain()};
}

EarlyStopping::Run Measurement::short_run(int64_t patience) const {
  train::TrainerOptions options;
  options.max_steps = options_.run_steps;
  options.batch_size = options_.batch_size;
  options.schedule.kind = optim::ScheduleKind::constant;
  options.seed = options_.seed;
  options.precision = Precision::bf16;
  options.eval_steps = options_.eval_steps;
  options.patience = patience;
  options.resume = "never";
  options.progress = false;
  constexpr int64_t kBatches = 8;  // few samples: a short run learns them by heart, and gets worse on others
  const FirstSamples train_part(subject_.train,
                                std::min(subject_.train.size(), kBatches * options_.batch_size));
  const FirstSamples held_out_part(subject_.held_out,
                                   std::min(subject_.held_out.size(), kBatches / 2 * options_.batch_size));
  const train::DatasetSource held_out(objective_, held_out_part);
  Model model = subject_.build(model::Head::masked_lm);
  model.declare_loss(objective_.loss_over());
  train::Trainer trainer(options, parallel::make_single,
                         optim::AdamW{.learning_rate = options_.learning_rate, .weight_decay = 0.01});
  const train::FitResult result =
      trainer.fit(model, train::DatasetSource(objective_, train_part), {&held_out, nullptr});
  return {result.step, result.seconds, result.evaluation.at("loss"), result.best_evaluation.at("loss"),
          result.best_step};
}

TechniquesResult Measurement::run() {
  TechniquesResult result;
  Recipe all;
  {
    Trial ordinary = trial({});
    for (const Technique& technique : techniques_) {
      show(technique.name);
      technique.use(all);
      result.rows.push_back(compare_training(ordinary, technique, all));
    }
    show("evaluation");
    result.rows.push_back(compare_evaluation(ordinary, all));
  }
  show("early stopping");
  EarlyStopping& early = result.early_stopping;
  early.without = short_run(0);
  early.with = short_run(options_.patience);
  result.ordinary = ordinary_.gain();
  result.ordinary_evaluation = ordinary_evaluation_.gain();
  return result;
}

}  // namespace

TechniquesResult measure_techniques(const TechniquesSubject& subject, const TechniquesOptions& options,
                                    const TechniquesProgress& progress) {
  if (options.device.is_cpu()) require_counted_tensors();
  const int64_t needed = options.batch_size * options.larger;
  if (subject.train.size() < needed || subject.held_out.size() < 1)
    throw InputError("bench",
                     "expected at least {} samples to train on and one to evaluate on, found {} and {}; give "
                     "more text, or a smaller --batch-size",
                     needed, subject.train.size(), subject.held_out.size());
  TechniquesResult result = Measurement(subject, options, progress).run();
  subject.train.require_sound();
  subject.held_out.require_sound();
  return result;
}

}  // namespace funicular::bench
