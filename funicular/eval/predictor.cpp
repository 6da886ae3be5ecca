#include "funicular/eval/predictor.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/json_text.h"
#include "funicular/eval/length_batches.h"
#include "funicular/train/prefetch.h"

namespace funicular::eval {

namespace {

objective::ClassificationOptions unlabelled(const PredictorOptions& options, size_t labels) {
  return {.sequence = options.sequence, .num_labels = static_cast<int32_t>(labels), .labelled = false};
}

/// Of regression the numbers themselves.
at::Tensor probabilities_of(const at::Tensor& logits, const PredictorOptions& options) {
  if (options.regression) return logits;
  return options.multi_label ? logits.sigmoid() : at::softmax(logits, -1);
}

/// An object, or an array of objects or strings, if one can tell by its ends.
bool is_json_like(std::string_view line) {
  while (!line.empty() && line.back() == ' ') line.remove_suffix(1);
  while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  return (line.starts_with('{') && line.ends_with('}')) ||
         (line.starts_with("[\"") && line.ends_with("\"]")) ||
         (line.starts_with("[{") && line.ends_with("}]"));
}

}  // namespace

/// Rows of a window: tokens, and the samples that refer to them.
class Predictor::TokenisedRows {
 public:
  template <class Texts>  // of std::string or std::string_view
  void add(const text::Tokenizer& tokenizer, const Texts& texts, int columns, uint64_t line = 0) {
    pass_over();
    problems_.emplace_back();
    data::Sample& sample = samples_.emplace_back();
    sample.sample_id = static_cast<int64_t>(samples_.size()) - 1;
    if (const std::string_view first = texts[0]; columns == 1) {
      tabs_ += first.find('\t') != std::string_view::npos;
      objects_ += is_json_like(first);
    }
    bool has_text = false;
    for (size_t column = 0; column < static_cast<size_t>(columns); ++column) {
      text_.ids.clear();
      text_.word_starts.clear();
      tokenizer.tokenize(texts[column], text_);
      // Each in a vector of its own: its elements stay where they are when the others grow.
      const auto& kept = tokens_.emplace_back(text_.ids.begin(), text_.ids.end());
      sample.columns.push_back({data::TokenSpan(kept.data(), kept.size()), {}});
      has_text |= !kept.empty();
    }
    if (!has_text && textless_++ == 0) first_textless_ = static_cast<int64_t>(line);
  }
  void add_problem(std::string problem) {
    pass_over();
    problems_.push_back(std::move(problem));
  }
  /// Of a row that another process answers.
  void pass_over() { ++read_; }

  /// Of the rows that can be answered.
  const std::vector<data::Sample>& samples() const { return samples_; }
  /// For each row that was added, what is wrong with it, or "".
  const std::vector<std::string>& problems() const { return problems_; }
  /// All rows that were read.
  int64_t read() const { return read_; }
  /// Rows of one text that holds a tab.
  int64_t tabs() const { return tabs_; }
  /// Rows of one text that begin and end as JSON does.
  int64_t objects() const { return objects_; }
  /// Rows without a token.
  int64_t textless() const { return textless_; }
  /// The line of the first of them, or -1.
  int64_t first_textless() const { return first_textless_; }

 private:
  text::TokenizedText text_;
  std::vector<std::vector<uint32_t>> tokens_;
  std::vector<data::Sample> samples_;
  std::vector<std::string> problems_;
  int64_t tabs_ = 0, objects_ = 0, textless_ = 0, first_textless_ = -1, read_ = 0;
};

Predictor::Predictor(const Model& model, const text::Tokenizer& tokenizer, std::vector<std::string> labels,
                     PredictorOptions options)
    : model_(model),
      tokenizer_(tokenizer),
      options_(options),
      objective_(tokenizer, unlabelled(options, labels.size())) {
  for (const std::string& label : labels) label_keys_.push_back(json_text(Json(label)));
  if (!options_.thresholds.empty() && options_.thresholds.size() != labels.size())
    throw InputError("predict", "there are {} thresholds, but {} labels", options_.thresholds.size(),
                     labels.size());
  if (options.window < 1 || options.batch_tokens < 1)
    throw InputError("predict", "expected a window and a batch of at least 1, found {} rows and {} tokens",
                     options.window, options.batch_tokens);
}

Prediction Predictor::to_prediction(const float* probabilities, int64_t classes) const {
  Prediction result;
  result.probabilities.assign(probabilities, probabilities + classes);
  for (const float probability : result.probabilities)
    if (!std::isfinite(probability))
      throw RunError("predict", "the model answers {}; its weights are damaged, or became so in training",
                     probability);
  const auto best = std::max_element(result.probabilities.begin(), result.probabilities.end());
  result.label = best - result.probabilities.begin();
  result.score = *best;
  for (int64_t label = 0; options_.multi_label && label < classes; ++label) {
    const auto at = static_cast<size_t>(label);
    if (result.probabilities[at] >= (options_.thresholds.empty() ? 0.5 : options_.thresholds[at]))
      result.labels.push_back(label);
  }
  return result;
}

std::vector<Prediction> Predictor::forward(std::span<const data::Sample> samples) const {
  const at::NoGradGuard no_gradient;
  const MicroBatch batch = objective_.collate(samples, RandomState{});
  LossSink sink;
  sink.keep_outputs = true;
  model_.forward({}, batch, Taps{}, sink);
  const auto logits = sink.outputs().find("logits");
  if (logits == sink.outputs().end())
    throw InputError("predict", "the model gives no logits; expected one with a classification head");
  const at::Tensor probabilities =
      probabilities_of(logits->second.to(at::kFloat), options_).to(at::kCPU).contiguous();
  const int64_t classes = probabilities.size(1);
  if (classes != static_cast<int64_t>(label_keys_.size()))
    throw InputError("predict", "the model has {} classes, but there are {} labels", classes,
                     label_keys_.size());
  std::vector<Prediction> result;
  for (int64_t row = 0; row < probabilities.size(0); ++row)
    result.push_back(to_prediction(probabilities.const_data_ptr<float>() + row * classes, classes));
  return result;
}

std::vector<Prediction> Predictor::predict(std::span<const TextRow> rows, int columns) const {
  TokenisedRows tokenised;
  for (const TextRow& row : rows) tokenised.add(tokenizer_, row, columns);
  return predict(tokenised);
}

std::vector<Prediction> Predictor::predict(const TokenisedRows& rows) const {
  const auto& samples = rows.samples();
  std::vector<int64_t> lengths(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) lengths[i] = objective_.length(samples[i]);
  std::vector<Prediction> result(samples.size());
  for_length_batches(lengths, options_.batch_tokens, [&](std::span<const size_t> rows_of_batch) {
    stop_if_interrupted();
    std::vector<data::Sample> batch;
    for (const size_t row : rows_of_batch) batch.push_back(samples[row]);
    std::vector<Prediction> predictions = forward(batch);
    for (size_t i = 0; i < predictions.size(); ++i) result[rows_of_batch[i]] = std::move(predictions[i]);
  });
  return result;
}

std::string Predictor::to_json(const Prediction& prediction) const {
  std::string text;
  if (options_.regression) return fmt::format("{{\"value\": {:.6g}}}", prediction.score);
  if (options_.multi_label) {
    for (const int64_t label : prediction.labels)
      text += (text.empty() ? "" : ", ") + label_keys_[static_cast<size_t>(label)];
    text = fmt::format("{{\"labels\": [{}], \"probabilities\": {{", text);
  } else {
    text = fmt::format("{{\"label\": {}, \"score\": {:.6g}, \"probabilities\": {{",
                       label_keys_[static_cast<size_t>(prediction.label)], prediction.score);
  }
  for (size_t i = 0; i < label_keys_.size(); ++i)
    text += fmt::format("{}{}: {:.6g}", i == 0 ? "" : ", ", label_keys_[i], prediction.probabilities[i]);
  return text + "}}";
}

/// A shorter window than the options', times the processes, is the last one.
Predictor::TokenisedRows Predictor::read_window(format::StreamRowReader& rows, int columns,
                                                std::string_view origin, const RowShare& share) const {
  TokenisedRows window;
  while (window.read() < options_.window * share.ranks) {
    const format::Row* const row = rows.next();
    if (!row) break;
    if (rows.problem().empty() && row->columns.size() != static_cast<size_t>(columns))
      rows.refuse(fmt::format("expected {}, found {}",
                              columns == 1   ? "one text"
                              : columns == 2 ? "two texts separated by a tab"
                                             : fmt::format("{} texts", columns),
                              row->columns.size()));
    if (!share.has(window.read())) {
      window.pass_over();
    } else if (!rows.problem().empty()) {
      window.add_problem(fmt::format("{}:{}: {}", origin, rows.line(), rows.problem()));
    } else if (columns > 2) {
      const std::string joined = format::join_columns(row->columns);
      const std::string_view whole[] = {joined};
      window.add(tokenizer_, std::span(whole), 1, rows.line());
    } else {
      window.add(tokenizer_, row->columns, columns, rows.line());
    }
  }
  return window;
}

std::string Predictor::answer(const TokenisedRows& window) const {
  const std::vector<Prediction> predictions = predict(window);
  std::string lines;
  size_t next = 0;
  for (const std::string& problem : window.problems()) {
    lines += problem.empty() ? to_json(predictions.at(next++)) : error_json(problem);
    lines += '\n';
  }
  return lines;
}

void Predictor::count_cut(const TokenisedRows& rows, data::CutRows& cut) const {
  for (const data::Sample& row : rows.samples()) {
    int64_t tokens = tokenizer_.sequence().special_count(static_cast<int>(row.columns.size()));
    const int64_t special = tokens;
    for (const data::Sample::Column& column : row.columns)
      tokens += static_cast<int64_t>(column.tokens.size());
    cut.tokens += tokens - special;
    if (!objective::is_truncated(row, tokenizer_.sequence(), options_.sequence)) continue;
    ++cut.cut;
    cut.tokens_left_out += tokens - options_.sequence.max_length;
  }
}

Predictor::Streamed Predictor::stream(format::StreamRowReader& rows, int columns, std::string_view origin,
                                      const std::function<void(std::string_view)>& write,
                                      const RowShare& share) const {
  train::Prefetcher<TokenisedRows> windows(
      0, std::numeric_limits<int64_t>::max(), /*threads=*/1, /*ahead=*/1,
      [&](int64_t) { return read_window(rows, columns, origin, share); });
  struct StopReading {  // before the prefetcher waits for its thread, which may wait for bytes
    format::StreamRowReader& rows;
    ~StopReading() { rows.stop(); }
  } const stop_reading{rows};
  Streamed done;
  for (bool last = false; !last;) {
    const std::string lines = share.in_turn([&] {
      const TokenisedRows window = windows.next();
      stop_if_interrupted();  // the reader ends at an interrupt, too
      last = window.read() < options_.window * share.ranks;
      done.rows += window.read();
      done.tabs += window.tabs();
      done.objects += window.objects();
      count_cut(window, done.cut);
      done.textless += window.textless();
      if (done.first_textless < 0) done.first_textless = window.first_textless();
      return answer(window);
    });
    if (!lines.empty()) write(lines);
  }
  done.tabs = share.sum(done.tabs);
  done.objects = share.sum(done.objects);
  done.cut.rows = done.rows;
  for (int64_t* count : {&done.cut.cut, &done.cut.tokens, &done.cut.tokens_left_out})
    *count = share.sum(*count);
  done.textless = share.sum(done.textless);
  done.first_textless = share.least(done.first_textless);
  return done;
}

}  // namespace funicular::eval
