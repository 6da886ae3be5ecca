#include "funicular/task/window_scores.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/objective/metrics.h"

namespace funicular::task {

const std::vector<std::string>& combination_names() {
  static const std::vector<std::string> names{"mean-probabilities", "mean-logits", "maximum"};
  return names;
}

const std::vector<Combination>& combinations_of(ScoreKind kind) {
  using enum Combination;
  static const std::vector<Combination> classes{mean_probabilities, mean_logits, maximum},
      labels{maximum, mean_probabilities, mean_logits}, numbers{mean_logits, maximum};
  return kind == ScoreKind::softmax ? classes : kind == ScoreKind::sigmoid ? labels : numbers;
}

std::optional<Combination> combination_in(const Json& note) {
  if (!note.is_object() || !note.contains(kWindowsNote)) return {};
  constexpr const char* kOrigin = "config.json (key \"funicular\")";
  const auto name = json_get<std::string>(note, kWindowsNote, kOrigin);
  const std::vector<std::string>& names = combination_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw InputError("config", "{}: \"{}\" expects one of {}, found \"{}\"", kOrigin, kWindowsNote,
                     fmt::join(names, ", "), name);
  return static_cast<Combination>(found - names.begin());
}

// ---- scores

namespace {

at::Tensor probabilities_of(const at::Tensor& logits, ScoreKind kind) {
  if (kind == ScoreKind::softmax) return at::softmax(logits, -1);
  return kind == ScoreKind::sigmoid ? logits.sigmoid() : logits;
}

/// Inverts probabilities_of, up to a constant per row for a softmax.
at::Tensor logits_of(const at::Tensor& probabilities, ScoreKind kind) {
  if (kind == ScoreKind::softmax) return probabilities.clamp_min(std::numeric_limits<double>::min()).log();
  return kind == ScoreKind::sigmoid ? probabilities.logit(/*eps=*/1e-15) : probabilities;
}

at::Tensor longs(std::span<const int64_t> values) {
  return at::tensor(at::ArrayRef<int64_t>(values.data(), values.size()), at::kLong);
}

}  // namespace

at::Tensor combine_windows(const at::Tensor& logits, std::span<const int64_t> text_of,
                           std::span<const int64_t> new_tokens, int64_t texts, Combination how,
                           ScoreKind kind) {
  const at::Tensor own = logits.to(at::kDouble), rows = longs(text_of);
  at::Tensor found;
  if (how == Combination::maximum) {
    // A sigmoid keeps the order of logits.
    const at::Tensor values = kind == ScoreKind::softmax ? probabilities_of(own, kind) : own;
    found = at::full({texts, own.size(1)}, -std::numeric_limits<double>::infinity(), own.options())
                .scatter_reduce(0, rows.unsqueeze(1).expand_as(own), values, "amax");
    if (kind == ScoreKind::softmax) found = logits_of(found, kind);
  } else {
    const bool mean_logits = how == Combination::mean_logits;
    const at::Tensor values = mean_logits ? own : probabilities_of(own, kind);
    // A text without tokens has one window, which counts.
    const at::Tensor weights = longs(new_tokens).clamp_min(1).to(at::kDouble).unsqueeze(1);
    const at::Tensor sums =
        at::zeros({texts, own.size(1)}, own.options()).index_add(0, rows, values * weights);
    const at::Tensor means = sums / at::zeros({texts, 1}, own.options()).index_add(0, rows, weights);
    found = mean_logits ? means : logits_of(means, kind);
  }
  const at::Tensor alone = (at::bincount(rows, {}, texts).index_select(0, rows) == 1).nonzero().squeeze(1);
  return found.index_copy(0, rows.index_select(0, alone), own.index_select(0, alone));
}

// ---- evaluations

namespace {

const at::Tensor& output_of(const TensorMap& outputs, const char* name) {
  const auto found = outputs.find(name);
  if (found == outputs.end())
    throw RunError("metrics", "expected the output {} of each micro-batch of windows, found {} outputs", name,
                   outputs.size());
  return found->second;
}

}  // namespace

WindowMetrics::WindowMetrics(const objective::TextWindows& windows, Metrics& of_texts, ScoreKind kind,
                             std::optional<Combination> how, std::string metric)
    : windows_(windows), of_texts_(of_texts), kind_(kind), how_(how), metric_(std::move(metric)) {}

void WindowMetrics::start() {
  logits_.clear();
  labels_.clear();
  samples_.clear();
  of_texts_.start();
}

void WindowMetrics::add(const TensorMap& outputs) {
  logits_.push_back(output_of(outputs, "logits").to(at::kCPU));
  labels_.push_back(output_of(outputs, "labels").to(at::kCPU));
  const at::Tensor samples = output_of(outputs, "samples").to(at::kCPU).contiguous();
  samples_.insert(samples_.end(), samples.const_data_ptr<int64_t>(),
                  samples.const_data_ptr<int64_t>() + samples.numel());
}

std::map<std::string, double> WindowMetrics::measure(Combination how, double loss) {
  std::vector<int64_t> texts, new_tokens, first_windows;
  int64_t last = -1;
  for (size_t i = 0; i < samples_.size(); ++i) {
    const objective::TextWindows::Window window = windows_.window(samples_[i]);
    if (window.text != last) first_windows.push_back(static_cast<int64_t>(i));
    last = window.text;
    texts.push_back(std::ssize(first_windows) - 1);
    new_tokens.push_back(window.new_tokens);
  }
  of_texts_.start();
  of_texts_.add({{"logits", combine_windows(at::cat(logits_), texts, new_tokens, std::ssize(first_windows),
                                            how, kind_)},
                 {"labels", at::cat(labels_).index_select(0, longs(first_windows))}});
  return of_texts_.finish(loss);
}

std::map<std::string, double> WindowMetrics::finish(double loss) {
  if (samples_.empty()) return of_texts_.finish(loss);
  if (how_) return measure(*how_, loss);
  std::map<std::string, double> best;
  Combination last{};
  for (const Combination how : combinations_of(kind_)) {
    std::map<std::string, double> found = measure(last = how, loss);
    const double sign = objective::greater_is_better(metric_) ? 1 : -1;
    const bool is_better = best.empty() || sign * found[metric_] > sign * best[metric_] ||
                           (std::isnan(best[metric_]) && !std::isnan(found[metric_]));
    if (!is_better) continue;
    best = std::move(found);
    chosen_ = how;
  }
  if (chosen_ != last) measure(*chosen_, loss);  // of_texts_ keeps its last measurement
  return best;
}

Json WindowMetrics::kept() const {
  Json kept = of_texts_.kept();
  if (chosen_) kept[kWindowsNote] = combination_names().at(static_cast<size_t>(*chosen_));
  return kept;
}

void WindowWordMetrics::start() {
  rest_.clear();
  of_texts_.start();
}

void WindowWordMetrics::add(const TensorMap& outputs) {
  const at::Tensor windows = output_of(outputs, "samples").to(at::kCPU).contiguous();
  at::Tensor texts = at::empty_like(windows);
  for (int64_t i = 0; i < windows.numel(); ++i)
    texts.data_ptr<int64_t>()[i] = windows_.window(windows.const_data_ptr<int64_t>()[i]).text;
  TensorMap all{{"logits", output_of(outputs, "logits").to(at::kCPU)},
                {"labels", output_of(outputs, "labels").to(at::kCPU)},
                {"samples", texts}};
  if (!rest_.empty())
    for (auto& [name, value] : all) value = at::cat({rest_.at(name), value});
  const at::Tensor& samples = all.at("samples");
  const int64_t words = samples.numel();
  if (words == 0) return;
  const auto* first = samples.const_data_ptr<int64_t>();
  const int64_t done = std::lower_bound(first, first + words, first[words - 1]) - first;
  TensorMap whole;
  for (auto& [name, value] : all) {
    whole[name] = value.narrow(0, 0, done);
    rest_[name] = value.narrow(0, done, words - done).clone();
  }
  if (done > 0) of_texts_.add(whole);
}

std::map<std::string, double> WindowWordMetrics::finish(double loss) {
  if (!rest_.empty()) of_texts_.add(rest_);
  rest_.clear();
  return of_texts_.finish(loss);
}

// ---- answers

namespace {

objective::WindowCut cut_of_row(const text::Tokenizer& tokenizer, const TokenisedRow& row, int64_t stride) {
  return objective::window_cut(tokenizer.sequence(),
                               {.max_length = static_cast<int32_t>(row.max_length), .stride = stride});
}

/// Special tokens before a single text.
int64_t tokens_before(const text::SequenceTemplate& form) {
  int64_t before = 0;
  for (const text::SequenceTemplate::Step& step : form.steps(1)) {
    if (step.column >= 0) break;
    ++before;
  }
  return before;
}

}  // namespace

void add_windows(const text::Tokenizer& tokenizer, TokenisedRow& row, std::optional<int64_t> stride,
                 const std::function<bool(size_t token)>& is_read) {
  const std::vector<uint32_t>& ids = row.tokens.at(0);
  const auto tokens = std::ssize(ids);
  const auto cut = stride ? std::optional(cut_of_row(tokenizer, row, *stride)) : std::nullopt;
  for (int64_t index = 0; index < (cut ? cut->count(tokens) : 1); ++index) {
    const objective::TokenRange window = cut ? cut->window(tokens, index) : objective::TokenRange{0, tokens};
    const objective::TokenRange own = cut ? cut->own_part(tokens, index) : window;
    auto& bits = row.word_bits.emplace_back(static_cast<size_t>(window.size()) / 8 + 1, uint8_t{0});
    for (int64_t token = own.begin; token < own.end; ++token) {
      const auto bit = static_cast<size_t>(token - window.begin);
      const bool marked = is_read(static_cast<size_t>(token));
      bits[bit / 8] = static_cast<uint8_t>(bits[bit / 8] | (marked << (bit % 8)));
    }
    row.windows.push_back({window.begin, window.end, tokens_before(tokenizer.sequence()), own.end});
    row.samples.emplace_back().columns = {
        {data::TokenSpan(ids.data() + window.begin, static_cast<size_t>(window.size())),
         data::WordStarts{bits.data(), 0}}};
  }
}

WindowAnswers::WindowAnswers(std::unique_ptr<const Answers> texts, int64_t stride, ScoreKind kind,
                             std::optional<Combination> how)
    : Answers(texts->labels()),
      texts_(std::move(texts)),
      stride_(stride),
      kind_(kind),
      how_(how.value_or(combinations_of(kind).front())) {}

void WindowAnswers::tokenise(const text::Tokenizer& tokenizer, TokenisedRow& row) const {
  texts_->tokenise(tokenizer, row);
  const data::TokenSpan tokens = row.samples.at(0).columns.at(0).tokens;
  const auto count = static_cast<int64_t>(tokens.size());
  const objective::WindowCut cut = cut_of_row(tokenizer, row, stride_);
  row.samples.assign(static_cast<size_t>(cut.count(count)), row.samples[0]);
  for (int64_t index = 0; index < cut.count(count); ++index) {
    const objective::TokenRange window = cut.window(count, index);
    row.samples[static_cast<size_t>(index)].columns[0].tokens =
        tokens.subspan(static_cast<size_t>(window.begin), static_cast<size_t>(window.size()));
    row.windows.push_back({window.begin, window.end, 0});
  }
}

Answer WindowAnswers::answer(const TokenisedRow& row, std::span<const SampleScores> scores) const {
  std::vector<float> values;
  std::vector<int64_t> new_tokens;
  int64_t known = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    values.insert(values.end(), scores[i].values.begin(), scores[i].values.end());
    new_tokens.push_back(row.windows.at(i).end - known);
    known = row.windows[i].end;
  }
  const at::Tensor logits = at::tensor(values, at::kFloat).view({std::ssize(scores), width()});
  const at::Tensor whole =
      texts_
          ->scores(combine_windows(logits, std::vector<int64_t>(scores.size(), 0), new_tokens, 1, how_, kind_)
                       .to(at::kFloat))
          .contiguous();
  const SampleScores text{width(),
                          {whole.const_data_ptr<float>(), whole.const_data_ptr<float>() + whole.numel()}};
  return texts_->answer(row, {&text, 1});
}

void report_windows(const data::Dataset& samples, const fs::path& file) {
  const auto* const windows = dynamic_cast<const objective::TextWindows*>(&samples);
  if (!windows || windows->long_texts() == 0) return;
  const int64_t texts = windows->texts(), several = windows->long_texts();
  log::info("{}: {} of {} texts are longer than a sequence and are read in {} windows", file.string(),
            several, texts, windows->size() - texts + several);
}

}  // namespace funicular::task
