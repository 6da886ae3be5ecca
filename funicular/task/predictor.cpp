#include "funicular/task/predictor.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/core/device_copy.h"
#include "funicular/format/column_list.h"
#include "funicular/parallel/strategy.h"
#include "funicular/task/length_batches.h"
#include "funicular/train/prefetch.h"

namespace funicular::task {

static constexpr const char* kState = "the answers are not complete";

/// The rows of a window that this rank answers.
struct Predictor::Window {
  std::vector<TokenisedRow> rows;
  int64_t read = 0;  ///< rows of all ranks
};

struct Predictor::Scored {
  Window window;
  std::vector<SampleScores> scores;
};

Predictor::Predictor(const Model& model, const text::Tokenizer& tokenizer,
                     std::unique_ptr<const objective::Objective> objective,
                     std::unique_ptr<const Answers> answers, PredictorOptions options)
    : model_(model),
      tokenizer_(tokenizer),
      objective_(std::move(objective)),
      answers_(std::move(answers)),
      options_(options),
      missing_(tokenizer) {
  if (options.window < 1 || options.batch_tokens < 1)
    throw InputError("predict", "expected a window and a batch of at least 1, found {} rows and {} tokens",
                     options.window, options.batch_tokens);
  if (options.cuda_graphs) graphed_ = std::make_unique<parallel::GraphedPasses>(model);
}

TokenisedRow Predictor::tokenise(InputRow row) const {
  TokenisedRow tokenised{std::move(row)};
  tokenised.max_length = options_.sequence.max_length;
  if (tokenised.row.problem.empty()) answers_->tokenise(tokenizer_, tokenised);
  return tokenised;
}

std::vector<Answer> Predictor::answer(std::vector<InputRow> rows) const {
  std::vector<TokenisedRow> tokenised;
  for (InputRow& row : rows) tokenised.push_back(tokenise(std::move(row)));
  return answers_of(tokenised, score(tokenised));
}

/// The model's answers; for staged answers, each with the number of its layer or of the cascade's model.
at::Tensor Predictor::logits_of(const MicroBatch& batch) const {
  if (options_.exits && !options_.small) {
    const model::ExitedRows rows = model::run_with_exits(model_, batch, *options_.exits);
    return at::cat({rows.logits, at::tensor(rows.layers, at::kFloat).unsqueeze(1)}, 1);
  }
  const LossSink sink = graphed_ ? graphed_->forward(batch) : parallel::forward_pass(model_, batch);
  const auto found = sink.outputs().find(answers_->output());
  if (found == sink.outputs().end())
    throw InputError("predict", "the model gives no {}; expected one with a head for this task",
                     answers_->output());
  const at::Tensor logits = found->second.to(at::kFloat);
  if (!options_.small) return logits;
  return at::cat({logits, at::full({logits.size(0), 1}, 2, logits.options())}, 1);
}

/// A forward pass whose scores may still be on their way from the model's device.
struct Predictor::Pass {
  Arriving scores;
  std::vector<int64_t> rows;   ///< of the scores, for each sample
  std::vector<size_t> places;  ///< of the samples
};

Predictor::Pass Predictor::start(std::span<const data::Sample> samples, std::vector<size_t> places) const {
  const at::NoGradGuard no_gradient;
  const MicroBatch batch = objective_->collate(samples, RandomState{});
  return {Arriving(answers_->scores(logits_of(batch)).contiguous()), answers_->rows_of_samples(batch),
          std::move(places)};
}

/// Puts the scores of each sample into its place.
void Predictor::finish(const Pass& pass, std::vector<SampleScores>& scores) const {
  const at::Tensor& all = pass.scores.wait();
  const int64_t width = answers_->width();
  if (all.size(1) != width)
    throw InputError("predict", "the model has {} classes, but there are {} labels", all.size(1), width);
  const auto* from = all.const_data_ptr<float>();
  for (const auto* value = from; value < from + all.numel(); ++value)
    if (!std::isfinite(*value))
      throw RunError("predict", "the model answers {}; its weights are damaged, or became so in training",
                     *value);
  for (size_t i = 0; i < pass.places.size(); ++i) {
    scores[pass.places[i]] = {width, {from, from + pass.rows.at(i) * width}};
    from += pass.rows.at(i) * width;
  }
}

/// Takes the answers of which the small model is sure, and returns the places of the samples left for the large
/// model.
std::vector<size_t> Predictor::left_by_small(std::span<const data::Sample> samples,
                                             std::vector<SampleScores>& scores) const {
  std::vector<size_t> left;
  std::vector<SampleScores> theirs = options_.small->score(samples);
  for (size_t place = 0; place < samples.size(); ++place) {
    SampleScores& own = theirs[place];
    if (!options_.exits->leaves(options_.exits->score(own.values, 0))) {
      left.push_back(place);
      continue;
    }
    own.values.push_back(1);
    ++own.width;
    scores[place] = std::move(own);
  }
  return left;
}

std::vector<SampleScores> Predictor::score(std::span<const data::Sample> samples) const {
  std::vector<SampleScores> scores(samples.size());
  std::vector<size_t> asked(samples.size());
  std::iota(asked.begin(), asked.end(), size_t{0});
  if (options_.small) asked = left_by_small(samples, scores);
  std::vector<int64_t> lengths;
  for (const size_t place : asked) lengths.push_back(objective_->length(samples[place]));
  std::optional<Pass> under_way;  // its scores are read when the next pass has been given to the device
  for_length_batches(lengths, options_.batch_tokens, [&](std::span<const size_t> chosen) {
    stop_if_interrupted("predict", kState);
    std::vector<data::Sample> batch;
    std::vector<size_t> places;
    for (const size_t one : chosen) {
      places.push_back(asked[one]);
      batch.push_back(samples[places.back()]);
    }
    Pass next = start(batch, std::move(places));
    if (under_way) finish(*under_way, scores);
    under_way.emplace(std::move(next));
  });
  if (under_way) finish(*under_way, scores);
  return scores;
}

std::vector<SampleScores> Predictor::score(std::span<const TokenisedRow> rows) const {
  std::vector<data::Sample> samples;
  for (const TokenisedRow& row : rows)
    for (const data::Sample& sample : row.samples) {
      samples.push_back(sample);
      samples.back().sample_id = std::ssize(samples) - 1;
    }
  return score(samples);
}

std::vector<Answer> Predictor::answers_of(std::span<const TokenisedRow> rows,
                                          std::span<const SampleScores> scores) const {
  std::vector<Answer> answers;
  for (const TokenisedRow& row : rows) {
    const size_t own = row.samples.size();
    answers.push_back(row.row.problem.empty() ? answers_->answer(row, scores.first(own))
                                              : Answer{.json = error_json(row.row.problem)});
    scores = scores.subspan(own);
  }
  return answers;
}

// ---- streams

/// The last window is the one with fewer rows than the options allow on all ranks.
Predictor::Window Predictor::read_window(RowInput& input, const RowShare& share) const {
  Window window;
  while (window.read < options_.window * share.ranks) {
    std::optional<InputRow> row = input.next();
    if (!row) break;
    if (share.has(window.read++)) window.rows.push_back(tokenise(std::move(*row)));
  }
  return window;
}

std::string Predictor::lines(const Scored& scored) const {
  std::string lines;
  const Window& window = scored.window;
  const char* const end = answers_->record_bytes() > 0 ? "" : "\n";
  const std::vector<Answer> answers = answers_of(window.rows, scored.scores);
  for (size_t row = 0; row < answers.size(); ++row)
    lines += with_kept(window.rows[row].row.kept, answers[row].json) + end;
  return lines;
}

void Predictor::count(const Window& window, StreamCounts& done) const {
  done.rows += window.read;
  for (const TokenisedRow& row : window.rows) {
    if (!row.row.problem.empty()) continue;
    if (!row.has_tokens()) done.textless.add(row.row.line);
    const auto texts = static_cast<int>(std::max<size_t>(row.tokens.size(), 1));
    answers_->count_cut(row, options_.sequence.max_length - tokenizer_.sequence().special_count(texts),
                        done.cut);
    const bool words = !row.word_bits.empty();  // a text of one word may well be "None"
    if (!words && std::any_of(row.samples.begin(), row.samples.end(),
                              [&](const data::Sample& sample) { return missing_.in(sample); }))
      done.missing.add(row.row.line);
  }
}

namespace {

/// An answer of several lines has marks between its lines, so that the ranks' answers can be merged in order.
std::string with_line_ends(std::string lines) {
  std::replace(lines.begin(), lines.end(), format::kListMark, '\n');
  return lines;
}

}  // namespace

StreamCounts Predictor::stream(RowInput& input, const std::function<void(std::string_view)>& write,
                               const RowShare& share) const {
  train::Prefetcher<Window> windows(0, std::numeric_limits<int64_t>::max(), /*threads=*/1, /*ahead=*/1,
                                    [&](int64_t) { return read_window(input, share); });
  struct StopReading {  // before a prefetcher waits for its thread, which may wait for bytes
    RowInput& input;
    ~StopReading() { input.stop(); }
  } const stop_windows{input};
  // The processor computes in this thread, with the threads that it has here.
  train::Prefetcher<Scored> computed(
      0, std::numeric_limits<int64_t>::max(), model_.device().is_cuda() ? 1 : 0, /*ahead=*/1, [&](int64_t) {
        const c10::DeviceGuard card(model_.device());
        Scored next{windows.next(), {}};
        stop_if_interrupted("predict", kState);  // the input ends at an interrupt, too
        next.scores = score(next.window.rows);
        return next;
      });
  const StopReading stop_computing{input};
  StreamCounts done;
  for (bool last = false; !last;) {
    const std::string lines = share.in_turn(
        [&] {
          const Scored scored = computed.next();
          last = scored.window.read < options_.window * share.ranks;
          count(scored.window, done);
          return this->lines(scored);
        },
        answers_->record_bytes());
    if (!lines.empty()) write(answers_->record_bytes() > 0 ? lines : with_line_ends(lines));
  }
  done.cut = share.sum(done.cut);
  done.textless = share.sum(done.textless);
  done.missing = share.sum(done.missing);
  return done;
}

}  // namespace funicular::task
