#include "funicular/train/cut_check.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/comm/together.h"
#include "funicular/train/batching.h"
#include "funicular/train/training.h"

namespace funicular::train {

namespace {

constexpr int64_t kMostRows = 64, kMostTokens = 4096;
constexpr uint64_t kSeed = 1;  // of LibTorch's generator

// ---- where a run cuts

struct Cut {
  std::string what, remedy;
};

std::string remedy_of_micro_batches(const BatchPlan& plan) {
  return plan.batch_tokens > 0
             ? fmt::format("set micro_batch_size to {}", plan.batch_tokens)
             : fmt::format("set micro_batch_size to {} and gradient_accumulation to 1", plan.batch);
}

/// A limit that is not the option's comes from a pipeline, which cuts a batch in tokens unless micro_batch_size is set.
Cut limit_of_tokens(const char* whose, const BatchPlan& plan, const TrainerOptions& options,
                    int64_t longest) {
  const bool by_pipeline = plan.batch_tokens > 0 && plan.tokens != options.micro_batch_tokens;
  return {fmt::format("{} of at most {} tokens, where a batch may have {}", whose, plan.tokens, longest),
          by_pipeline ? remedy_of_micro_batches(plan)
                      : fmt::format("set micro_batch_tokens to 0, or to at least {}", longest)};
}

/// Adds the cuts of the batches of an evaluation during the training.
void add_cuts_of_evaluation(const Training& training, std::vector<Cut>& cuts) {
  if (!training.evaluation.data) return;
  const BatchPlan& plan = training.plan;
  const int64_t rows = training.options.eval_batch_size;
  if (plan.batch_tokens == 0 && rows > 0 && rows != plan.batch) {
    cuts.push_back({fmt::format("an evaluation in batches of {} rows", rows),
                    fmt::format("set eval_batch_size to {}", plan.batch)});
    return;
  }
  // If batches count tokens, only eval_batch_size gives an evaluation a number of rows to keep together.
  const int64_t kept_rows = plan.batch_tokens > 0 ? rows : plan.batch;
  if (plan.tokens == 0 || kept_rows == 0) return;
  if (const int64_t longest = longest_sample(*training.evaluation.data) * kept_rows; longest > plan.tokens)
    cuts.push_back(limit_of_tokens("an evaluation in batches", plan, training.options, longest));
}

std::vector<Cut> cuts_of(const Training& training) {
  const BatchPlan& plan = training.plan;
  const TrainerOptions& options = training.options;
  const int64_t parts = training.strategy->parts();
  std::vector<Cut> cuts;
  if (parts > 1)
    cuts.push_back(
        {fmt::format("{} ranks or devices that share each batch ({})", parts, training.strategy->name()),
         "train on one rank and one device"});
  if (plan.micro_batch * parts < plan.batch)
    cuts.push_back(
        {fmt::format("micro-batches of {} row{}", plan.micro_batch, plan.micro_batch == 1 ? "" : "s"),
         remedy_of_micro_batches(plan)});
  if (plan.tokens > 0) {
    const int64_t longest = plan.batch_tokens > 0 ? plan.batch_tokens : most_tokens(plan, training.data);
    if (longest > plan.tokens) cuts.push_back(limit_of_tokens("micro-batches", plan, options, longest));
  }
  add_cuts_of_evaluation(training, cuts);
  return cuts;
}

std::string joined(const std::vector<Cut>& cuts, std::string Cut::*part) {
  std::vector<std::string> texts;
  for (const Cut& cut : cuts)
    if (std::find(texts.begin(), texts.end(), cut.*part) == texts.end()) texts.push_back(cut.*part);
  return fmt::format("{}", fmt::join(texts, "; "));
}

// ---- two cuts of some rows

/// The sums that one forward pass, or several, add to the loss.
struct Sums {
  std::map<std::string, double> terms;
  Counts counts;
};

/// LibTorch's generator of a device: seeded, and put back as it was.
class SeededGenerator {
 public:
  explicit SeededGenerator(const at::Device& device)
      : generator_(at::globalContext().defaultGenerator(device)), before_(generator_.get_state()) {
    generator_.set_current_seed(kSeed);
  }
  ~SeededGenerator() { generator_.set_state(before_); }
  SeededGenerator(const SeededGenerator&) = delete;
  SeededGenerator& operator=(const SeededGenerator&) = delete;

  /// Whether anything was drawn since it was seeded, here or by the model.
  bool drew() const {
    at::Generator fresh = generator_.clone();
    fresh.set_current_seed(generator_.current_seed());
    return !at::equal(fresh.get_state(), generator_.get_state());
  }

 private:
  at::Generator generator_;
  at::Tensor before_;
};

/// Returns an even number of rows of the first batch of full size that has two rows at least. Returns none if the first
/// 16 batches of full size have one row each.
std::vector<data::Draw> some_rows(const Training& training) {
  std::vector<data::Draw> rows;
  for (int64_t i = 0; i < 16 && rows.size() < 2; ++i)
    rows = training.draws.batch(training.draws.first_full() + i);
  size_t count = 0;
  int64_t tokens = 0;
  for (; count < rows.size() && count < static_cast<size_t>(kMostRows); ++count) {
    tokens += training.data.length(rows[count].sample_id);
    if (count >= 2 && tokens > kMostTokens) break;
  }
  rows.resize(count - count % 2);
  return rows;
}

class Comparison {
 public:
  Comparison(const Training& training, std::vector<data::Draw> rows)
      : training_(training), rows_(std::move(rows)) {}

  /// Whether all passes could be computed; if not, the reason is in `obstacle`.
  bool compute() {
    const std::span<const data::Draw> all(rows_);
    const size_t half = rows_.size() / 2;
    const std::vector<MicroBatch> batches{collated(all), collated(all.first(half)),
                                          collated(all.subspan(half))};
    try {
      add(whole_, batches[0]);
      add(halves_, batches[1]);
      add(halves_, batches[2]);
    } catch (const std::exception& error) {
      obstacle = std::string(error.what()).substr(0, std::string_view(error.what()).find('\n'));
      return false;
    }
    return true;
  }

  /// Why the two halves do not add up to the whole; "" if they do.
  std::string difference() const {
    for (const auto& [name, count] : with_names(whole_.counts, halves_.counts))
      if (!is_near(count.first, count.second))
        return fmt::format(
            "the count {} is not a sum over rows: {:.6g} for {} rows together, {:.6g} for their two halves",
            name, count.first, rows_.size(), count.second);
    for (const auto& [name, sum] : with_names(whole_.terms, halves_.terms)) {
      if (is_near(sum.first, sum.second)) continue;
      const std::string text = fmt::format("{:.6g} for {} rows together, {:.6g} for their two halves",
                                           sum.first, rows_.size(), sum.second);
      if (is_near(2 * sum.first, sum.second))
        return fmt::format(
            "the loss term {} is a mean over the rows and not their sum: {}. Add the sum "
            "(at::Reduction::Sum), which the trainer divides by the rows of the whole batch",
            name, text);
      return fmt::format("the loss term {} depends on which rows are computed together: {}", name, text);
    }
    return "";
  }

  bool drew = false;
  std::string obstacle;

 private:
  using Pairs = std::map<std::string, std::pair<double, double>>;

  static Pairs with_names(const std::map<std::string, double>& a, const std::map<std::string, double>& b) {
    Pairs pairs;
    for (const auto& [name, value] : a) pairs[name].first = value;
    for (const auto& [name, value] : b) pairs[name].second = value;
    return pairs;
  }

  /// Up to rounding. Two numbers that are not finite say nothing; training reports them.
  bool is_near(double a, double b) const {
    if (!std::isfinite(a) && !std::isfinite(b)) return true;
    const bool wide = training_.floating == at::kDouble;
    const double relative = wide ? 1e-9 : 1e-3, absolute = wide ? 1e-12 : 1e-6;
    return std::abs(a - b) <=
           relative * (std::abs(a) + std::abs(b)) + absolute * static_cast<double>(rows_.size());
  }

  MicroBatch collated(std::span<const data::Draw> rows) const {
    const auto count = static_cast<int64_t>(rows.size());
    const RandomState random{training_.options.seed, /*training=*/true};
    return std::move(collate(rows, training_.data, {count, count, 1, 0}, random, training_.floating)
                         .micro_batches.front());
  }

  void add(Sums& sums, const MicroBatch& batch) {
    const at::NoGradGuard no_gradient;
    const SeededGenerator generator(training_.model.device());
    LossSink sink;
    training_.model.forward({}, batch, Taps{}, sink);
    for (const LossSink::Term& term : sink.terms())
      sums.terms[term.name] += term.weight * term.sum.item<double>();
    add_counts(sums.counts, batch.counts);
    drew = drew || generator.drew();
  }

  const Training& training_;
  std::vector<data::Draw> rows_;
  Sums whole_, halves_;
};

const char* unit_of(const BatchPlan& plan) {
  return plan.batch_tokens > 0 ? "tokens" : "rows";
}

constexpr const char* kDeclare =
    "LossOver::batch if it compares rows, LossOver::rows if each row stands alone";

void compare_cuts(const Training& training, const std::vector<Cut>& cuts) {
  std::vector<data::Draw> rows = some_rows(training);
  if (rows.empty()) return;
  Comparison comparison(training, std::move(rows));
  if (!comparison.compute()) {
    log::warning(
        "[loss] the trainer could not test whether cutting a batch changes the loss, since the loss cannot "
        "be "
        "computed without gradients ({}); declare {}",
        comparison.obstacle, kDeclare);
    return;
  }
  const std::string difference = comparison.difference();
  if (difference.empty()) return;
  if (comparison.drew) {
    log::warning(
        "[loss] the trainer could not test whether cutting a batch changes the loss, since the model draws "
        "random numbers from LibTorch's generator; declare {}",
        kDeclare);
    return;
  }
  throw InputError("loss",
                   "{}. This run cuts its batches of {} {}, which would give another loss: {}. If the loss "
                   "compares rows of a batch, declare LossOver::batch, and {}. If a cut is harmless, declare "
                   "LossOver::rows",
                   difference, training.plan.batch, unit_of(training.plan), joined(cuts, &Cut::what),
                   joined(cuts, &Cut::remedy));
}

}  // namespace

LossOver loss_over(const Model& model, const Source& source) {
  std::set<LossOver> found{source.loss_over()};
  for (const Segment& segment : model.segments) found.insert(segment.loss);
  if (found.contains(LossOver::batch)) return LossOver::batch;
  return found.contains(LossOver::undeclared) ? LossOver::undeclared : LossOver::rows;
}

void check_cuts(const Training& training) {
  const LossOver over = loss_over(training.model, training.data);
  if (over == LossOver::rows) return;
  const std::vector<Cut> cuts = cuts_of(training);
  if (cuts.empty()) return;
  if (over == LossOver::batch)
    throw InputError(
        "loss",
        "the loss is over a whole batch (LossOver::batch), and this run would cut its batches of "
        "{} {}, which gives another loss: {}. To train, {}",
        training.plan.batch, unit_of(training.plan), joined(cuts, &Cut::what), joined(cuts, &Cut::remedy));
  together(training.group, [&] {
    if (training.first()) compare_cuts(training, cuts);
  });
}

void check_evaluation_cuts(const Model& model, const Source& data, int64_t batch_size, int64_t batch_tokens) {
  if (batch_tokens == 0 || loss_over(model, data) != LossOver::batch) return;
  if (const int64_t longest = longest_sample(data) * batch_size; longest > batch_tokens)
    throw InputError(
        "loss",
        "the loss is over a whole batch (LossOver::batch), and batches of at most {} tokens would "
        "cut batches of {} rows, which may have {}. Set the limit to 0, or to at least {}",
        batch_tokens, batch_size, longest, longest);
}

}  // namespace funicular::train
