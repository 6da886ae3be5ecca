#include "funicular/objective/spans.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/data/datasets.h"
#include "funicular/model/builder.h"
#include "funicular/model/classifier.h"
#include "funicular/nn/functional.h"
#include "funicular/objective/next_sentence.h"

namespace funicular::objective {

namespace {

constexpr int32_t kElsewhere = -1, kNotKnown = -2;
constexpr int64_t kIgnored = -100;  // at::cross_entropy_loss ignores it

}  // namespace

// ---- windows

SpanForm::SpanForm(const text::SequenceTemplate& form, int64_t max_length, std::optional<int64_t> stride)
    : room_(max_length - form.special_count(2)),
      most_question_(std::min(kMostQuestionTokens, room_ / 2)),
      stride_(stride.value_or(0)) {
  for (const text::SequenceTemplate::Step& step : form.steps(2)) {
    if (step.column == 1) break;
    before_ += step.column < 0;
  }
  const int64_t window = room_ - most_question_;  // the shortest one
  if (most_question_ < 1)
    throw InputError("spans",
                     "sequences of {} tokens have no room for a question and a context; raise --max-length",
                     max_length);
  if (!stride) stride_ = std::min(kDefaultStride, window / 2);
  if (stride_ < 0 || stride_ >= window)
    throw InputError(
        "usage",
        "--stride {}: windows of a context have {} tokens with --max-length {}; expected a stride from 0 "
        "to {}",
        stride_, window, max_length, window - 1);
}

std::vector<TokenRange> SpanForm::windows(int64_t question_tokens, int64_t context_tokens) const {
  const WindowCut cut(room_ - question(question_tokens), stride_);
  std::vector<TokenRange> all;
  for (int64_t index = 0; index < cut.count(context_tokens); ++index)
    all.push_back(cut.window(context_tokens, index));
  return all;
}

data::Sample SpanForm::sample(const data::Sample& row, TokenRange window) const {
  data::Sample sample = row;
  const auto words = static_cast<int64_t>(row.columns.at(0).tokens.size());
  sample.columns = {
      part_of(row.columns[0], 0, static_cast<size_t>(question(words))),
      part_of(row.columns.at(1), static_cast<size_t>(window.begin), static_cast<size_t>(window.end))};
  return sample;
}

SpanWindows::SpanWindows(std::shared_ptr<const data::TokenStore> store, const SpanForm& form,
                         std::span<const AnswerTokens> answers)
    : store_(std::move(store)), form_(form) {
  if (!answers.empty() && std::ssize(answers) != store_->rows())
    throw InputError("spans", "{}: the store has {} rows, and the file {} questions; make the store again",
                     store_->folder().string(), store_->rows(), answers.size());
  for (int64_t row = 0; row < store_->rows(); ++row) {
    const data::Sample texts = store_->row(row);
    const AnswerTokens answer = answers.empty() ? AnswerTokens{} : answers[static_cast<size_t>(row)];
    for (const TokenRange window : form_.windows(static_cast<int64_t>(texts.columns.at(0).tokens.size()),
                                                 static_cast<int64_t>(texts.columns.at(1).tokens.size()))) {
      windows_.push_back({row, window});
      const bool whole =
          answer.kind == AnswerTokens::there && answer.first >= window.begin && answer.last < window.end;
      const int32_t otherwise = answer.kind == AnswerTokens::unknown ? kNotKnown : kElsewhere;
      labels_.push_back(whole ? static_cast<int32_t>(answer.first - window.begin) : otherwise);
      labels_.push_back(whole ? static_cast<int32_t>(answer.last - window.begin) : otherwise);
    }
  }
}

data::Sample SpanWindows::get(int64_t index) const {
  const Window& own = window(index);
  data::Sample sample = form_.sample(store_->row(own.row), own.tokens);
  sample.sample_id = index;
  sample.label_set = std::span(labels_).subspan(static_cast<size_t>(2 * index), 2);
  return sample;
}

int64_t SpanWindows::place(int64_t index) const {
  return form_.place(static_cast<int64_t>(store_->row(window(index).row).columns[0].tokens.size()));
}

uint64_t SpanWindows::fingerprint() const {
  uint64_t cuts = 0;
  for (const Window& window : windows_)
    cuts = hash_bytes(fmt::format("{} {} {} {}", cuts, window.row, window.tokens.begin, window.tokens.end));
  return hash_bytes(fmt::format("{} windows {} {}", store_->fingerprint(), cuts,
                                hash_bytes(labels_.data(), labels_.size() * sizeof(int32_t))));
}

// ---- answers

namespace {

/// The places of the `kBest` largest of the numbers column, column + 2, column + 4, …
std::vector<int64_t> best_places(std::span<const float> logits, size_t column) {
  std::vector<int64_t> places(logits.size() / 2);
  std::iota(places.begin(), places.end(), int64_t{0});
  const auto end = places.begin() + std::min<ptrdiff_t>(BestSpan::kBest, std::ssize(places));
  std::partial_sort(places.begin(), end, places.end(), [&](int64_t a, int64_t b) {
    const float x = logits[static_cast<size_t>(2 * a) + column],
                y = logits[static_cast<size_t>(2 * b) + column];
    return x != y ? x > y : a < b;
  });
  places.erase(end, places.end());
  return places;
}

/// Candidates of one window, the best starts first.
template <class Use>
void for_each_candidate(std::span<const float> logits, int64_t place, TokenRange window, Use use) {
  const std::vector<int64_t> ends = best_places(logits, 1);
  for (const int64_t start : best_places(logits, 0))
    for (const int64_t end : ends) {
      if (start < place || end >= place + window.size() || end < start ||
          end - start + 1 > BestSpan::kMostTokens)
        continue;
      const double sum =
          double{logits[static_cast<size_t>(2 * start)]} + double{logits[static_cast<size_t>(2 * end + 1)]};
      use(ScoredSpan{sum, window.begin + start - place, window.begin + end - place});
    }
}

}  // namespace

void BestSpan::read(std::span<const float> logits, int64_t place, TokenRange window) {
  null_score = std::min(null_score, double{logits[0]} + double{logits[1]});
  for_each_candidate(logits, place, window, [this](const ScoredSpan& span) {
    if (span.score <= score) return;
    score = span.score;
    first = span.first;
    last = span.last;
  });
}

void BestSpans::read(std::span<const float> logits, int64_t place, TokenRange window) {
  for_each_candidate(logits, place, window, [this](const ScoredSpan& span) { spans_.push_back(span); });
  // Among equal scores the first one stays in front, so that the first span is BestSpan's.
  std::stable_sort(spans_.begin(), spans_.end(),
                   [](const ScoredSpan& a, const ScoredSpan& b) { return a.score > b.score; });
  std::set<std::pair<int64_t, int64_t>> seen;
  std::erase_if(spans_, [&](const ScoredSpan& span) {
    return seen.size() == count_ || !seen.insert({span.first, span.last}).second;
  });
}

// ---- the head

namespace {

constexpr const char* kSpanArchitecture = "BertForQuestionAnswering";

/// The sum over the sequences of the cross-entropy of one column of the logits, over each sequence's own tokens.
at::Tensor place_loss(const at::Tensor& column, const at::Tensor& labels, const MicroBatch& batch) {
  const int64_t sequences = batch.packing.sequences(), longest = batch.packing.longest();
  const at::Tensor table =
      at::full({sequences * longest}, -std::numeric_limits<double>::infinity(), column.options())
          .index_copy(0, batch["span_places"], column)
          .view({sequences, longest});
  return at::cross_entropy_loss(table, labels, {}, at::Reduction::Sum, kIgnored);
}

void add_span_reader(model::Builder& builder) {
  const model::Classifier before = model::add_token_layer(builder);
  const model::LinearWeights outputs =
      builder.add_linear(builder.family().spans, 2, builder.config().encoder.width, /*bias=*/true,
                         builder.classifier_deviation());
  // Families without a layer before the linear layer have no dropout here.
  const nn::DropoutSite site{before.dense.weight ? builder.config().classifier_dropout_probability() : 0,
                             Purpose::dropout_classifier, 0};
  builder.add_segment(
      "span_reading", {model::hidden_of_head(builder.options())}, {}, [=](Activations in, const Pass& pass) {
        // In the vectors' type, as a loss in 16 bits is too coarse.
        const Packing& packing = pass.batch.packing;
        const at::Tensor hidden = nn::dropout(before.transformed(in.at(model::kHidden)), packing.positions,
                                              packing.token_draws, packing.random, site);
        const at::Tensor logits =
            nn::linear(hidden, outputs.weight->compute).to(outputs.bias->compute.scalar_type()) +
            outputs.bias->compute;
        pass.taps("logits", logits);
        pass.loss.output("logits", logits);
        pass.loss.output("samples", pass.batch.packing.sample_ids);
        pass.loss.output("lengths", pass.batch["lengths"]);
        const auto starts = pass.batch.tensors.find("starts");
        if (starts == pass.batch.tensors.end()) return Activations{};
        pass.loss.add("spans", (place_loss(logits.select(1, 0), starts->second, pass.batch) +
                                place_loss(logits.select(1, 1), pass.batch["ends"], pass.batch)) /
                                   2);
        return Activations{};
      });
}

void require_span_class(const format::ModelConfig& config) {
  const format::Family& family = format::family_of(config);
  if (family.spans.empty())
    throw InputError("spans",
                     "transformers has no class that reads answers with a {} (\"model_type\" {}), so nothing "
                     "could load the model; expected a model of another family, such as BERT",
                     family.title, family.model_type);
}

}  // namespace

model::Head span_reader() {
  return {"span_reading",
          kSpanArchitecture,
          "fine-tuned for it (funicular finetune --task spans)",
          {},
          add_span_reader,
          [](const format::ModelConfig& config) {
            return (config.encoder.width + 1) * 2 + model::count_token_layer_parameters(config);
          },
          require_span_class};
}

bool is_span_reader(const format::ModelConfig& config) {
  return std::any_of(config.architectures.begin(), config.architectures.end(),
                     [](const std::string& name) { return name.ends_with("ForQuestionAnswering"); });
}

// ---- the objective

Spans::Spans(const text::Tokenizer& tokenizer, const SpanOptions& options)
    : RowObjective(tokenizer, {.max_length = static_cast<int32_t>(options.max_length)}, {}),
      options_(options),
      span_form_(tokenizer.sequence(), options.max_length, options.stride) {}

std::shared_ptr<const data::Dataset> Spans::samples(std::shared_ptr<const data::TokenStore> store) const {
  RowObjective::samples(store);  // requires the tokeniser
  return std::make_shared<SpanWindows>(std::move(store), span_form_, std::span<const AnswerTokens>());
}

model::Head Spans::head() const {
  return span_reader();
}

std::map<std::string, std::string> Spans::identity() const {
  std::map<std::string, std::string> all = RowObjective::identity();
  all["objective"] = "spans";
  return all;
}

MicroBatch Spans::collate(std::span<const data::Sample> samples, const RandomState& random) const {
  const PackedSequences packed = pack(samples);
  const int64_t longest =
      packed.lengths.empty() ? 0 : *std::max_element(packed.lengths.begin(), packed.lengths.end());
  std::vector<int64_t> places, starts, ends;
  double known = 0;
  for (size_t s = 0; s < samples.size(); ++s) {
    for (int64_t token = 0; token < packed.lengths[s]; ++token)
      places.push_back(static_cast<int64_t>(s) * longest + token);
    if (!options_.labelled) continue;
    const auto label = samples[s].label_set;
    if (label.size() != 2)
      throw InputError("spans",
                       "sample {} has {} labels; expected the first and the last token of its answer",
                       samples[s].sample_id, label.size());
    const int64_t context = span_form_.place(static_cast<int64_t>(samples[s].columns[0].tokens.size()));
    const auto target = [&](int32_t token) {
      return token == kNotKnown ? kIgnored : token == kElsewhere ? 0 : context + token;
    };
    starts.push_back(target(label[0]));
    ends.push_back(target(label[1]));
    known += label[0] != kNotKnown;
  }
  MicroBatch batch = packed.to_batch(random);
  batch.tensors["span_places"] = at::tensor(places, at::kLong);
  batch.tensors["lengths"] =
      at::tensor(std::vector<int64_t>(packed.lengths.begin(), packed.lengths.end()), at::kLong);
  if (options_.labelled) {
    batch.tensors["starts"] = at::tensor(starts, at::kLong);
    batch.tensors["ends"] = at::tensor(ends, at::kLong);
    batch.counts["spans"] = known;
  }
  return batch;
}

}  // namespace funicular::objective
