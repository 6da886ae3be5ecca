#include "funicular/augment/masked_words.h"

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/model/builder.h"
#include "funicular/nn/functional.h"
#include "funicular/runtime/work_items.h"

namespace funicular::augment {

namespace {

constexpr const char* kMaskedHidden = "masked_hidden";
constexpr const char* kDecoder = "masked_decoder";
constexpr const char* kBias = "masked_bias";
constexpr const char* kOwnWords = "own_words";
/// Rows of logits in memory at a time, per thread.
constexpr int64_t kRows = 128;
/// Batches in memory at a time. The limit matters as a long text has thousands of words, each with its own sequence.
constexpr size_t kBatches = 64;

void add_head(model::Builder& builder) {
  const model::MaskedLmWeights weights = model::add_masked_lm_weights(builder);
  builder.add_segment(
      "masked_lm", {model::hidden_of_head(builder.options())}, {},
      [weights](Activations in, const Pass& pass) {
        const at::Tensor transformed =
            model::apply_linear(in.at(model::kHidden), weights.transform, weights.activation);
        pass.loss.output(kMaskedHidden,
                         nn::residual_norm(transformed, {}, {}, weights.norm.weights(), nn::RowKeys(), {}));
        pass.loss.output(kDecoder, weights.decoder->compute);
        pass.loss.output(kBias, weights.bias->compute);
        return Activations{};
      },
      {weights.decoder});
}

const at::Tensor& output_of(const LossSink& sink, const char* name) {
  const auto found = sink.outputs().find(name);
  if (found == sink.outputs().end())
    throw InputError("augment", "the model has no head that guesses words; expected MaskedWords::head()");
  return found->second;
}

/// Runs body(0) to body(count - 1), each in one thread, as LibTorch splits products differently for each number of
/// threads.
template <class Body>
void for_each_share(int64_t count, const Body& body) {
  // A single share would run outside of a parallel region, and its products would use all threads.
  for_each_item(std::max<int64_t>(count, 2), [&](int64_t i) {
    if (i < count) body(i);
  });
}

}  // namespace

/// Concatenated sequences.
struct MaskedWords::Batch {
  std::vector<int64_t> ids, types, rows;
  std::vector<int32_t> lengths, own;  ///< own: the masked word's id
  std::vector<size_t> words;          ///< indices in the list of requested words
  bool empty() const { return lengths.empty(); }
};

model::Head MaskedWords::head() {
  model::Head head = model::Head::masked_lm;
  head.add = add_head;
  return head;
}

MaskedWords::~MaskedWords() = default;

MaskedWords::MaskedWords(const Model& model, const text::Tokenizer& tokenizer,
                         const MaskedWordsOptions& options)
    : model_(model), tokenizer_(tokenizer), options_(options) {
  if (options.count < 1 || options.batch_tokens < 1)
    throw InputError("augment", "expected at least 1 candidate and 1 token a batch, found {} and {}",
                     options.count, options.batch_tokens);
  const auto& missing = tokenizer.sequence().missing();
  if (!missing.empty())
    throw InputError("augment", "the vocabulary has no {}; expected a model's own tokeniser",
                     missing.front());
  room_ = options.max_length - tokenizer.sequence().special_count(2);
  if (room_ < 2)
    throw InputError("augment",
                     "--max-length {} leaves no room for a word and its text; expected at least {}",
                     options.max_length, tokenizer.sequence().special_count(2) + 2);
  const at::NoGradGuard no_gradient;
  Batch none;
  none.ids = {tokenizer.special().mask};  // a pass with one token returns the decoder
  none.types = none.rows = {0};
  none.lengths = {1};
  const LossSink sink = run(micro_batch(none));
  choice_ = std::make_unique<WordChoice>(tokenizer, output_of(sink, kDecoder).detach(),
                                         output_of(sink, kBias).detach(), options.count, options.published);
}

int64_t MaskedWords::length(const HiddenWord& word) const {
  const auto pieces = static_cast<int64_t>(word.pieces.size());
  return std::min(2 * pieces, room_) + tokenizer_.sequence().special_count(2);
}

void MaskedWords::append(Batch& batch, std::span<const int32_t> hidden, int32_t place,
                         std::span<const int32_t> shown) const {
  const size_t begin = batch.ids.size();
  for (const auto& step : tokenizer_.sequence().steps(2)) {
    if (step.column < 0) {
      batch.ids.push_back(step.token);
    } else {
      const std::span<const int32_t> text = step.column == 0 ? hidden : shown;
      const size_t first = batch.ids.size();
      batch.ids.insert(batch.ids.end(), text.begin(), text.end());
      if (step.column == 0) {
        const size_t row = first + static_cast<size_t>(place);
        batch.rows.push_back(static_cast<int64_t>(row));
        batch.ids[row] = tokenizer_.special().mask;
      }
    }
    batch.types.resize(batch.ids.size(), step.type);
  }
  const size_t longest = begin + static_cast<size_t>(options_.max_length);
  if (batch.ids.size() > longest) {
    batch.ids.resize(longest);
    batch.types.resize(longest);
  }
  batch.lengths.push_back(static_cast<int32_t>(batch.ids.size() - begin));
  batch.own.push_back(options_.published ? -1 : hidden[static_cast<size_t>(place)]);
}

/// Returns false if the word lies behind the cut.
bool MaskedWords::add(Batch& batch, const HiddenWord& word) const {
  const auto pieces = static_cast<int64_t>(word.pieces.size());
  if (options_.published) {
    // One special token precedes the text.
    if (word.place + 1 >= options_.max_length) return false;
    append(batch, word.pieces, word.place, word.pieces);
    return true;
  }
  const int64_t kept = std::min(pieces, room_ / 2);
  const int64_t begin = std::clamp<int64_t>(word.place - kept / 2, 0, pieces - kept);
  const auto window = word.pieces.subspan(static_cast<size_t>(begin), static_cast<size_t>(kept));
  append(batch, window, word.place - static_cast<int32_t>(begin), window);
  return true;
}

MicroBatch MaskedWords::micro_batch(const Batch& batch) const {
  const auto whole = at::TensorOptions().dtype(at::kLong);
  std::vector<int64_t> draws(batch.lengths.size());
  for (size_t i = 0; i < draws.size(); ++i) draws[i] = static_cast<int64_t>(i);
  MicroBatch micro;
  micro.packing = Packing::from_lengths(batch.lengths, draws, draws, {});
  micro.tensors = {{"token_ids", at::tensor(batch.ids, whole)},
                   {"token_type_ids", at::tensor(batch.types, whole)},
                   {"mlm_rows", at::tensor(batch.rows, whole)},
                   {kOwnWords, at::tensor(batch.own, whole)}};
  return micro;
}

LossSink MaskedWords::run(const MicroBatch& batch) const {
  const at::NoGradGuard no_gradient;
  LossSink sink;
  sink.keep_outputs = true;
  model_.forward({}, batch, Taps{}, sink);
  return sink;
}

MaskedWords::Batch MaskedWords::next_batch(std::span<const HiddenWord> words, size_t& next) const {
  Batch batch;
  for (; next < words.size(); ++next) {
    const auto tokens = static_cast<int64_t>(batch.ids.size());
    if (tokens > 0 && tokens + length(words[next]) > options_.batch_tokens) break;
    if (add(batch, words[next])) batch.words.push_back(next);
  }
  return batch;
}

void MaskedWords::guess(const std::vector<Batch>& batches, std::span<std::vector<int32_t>> results) const {
  std::vector<at::Tensor> of_batches(batches.size());
  for_each_share(static_cast<int64_t>(batches.size()), [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    of_batches[at] = output_of(run(micro_batch(batches[at])), kMaskedHidden);
  });
  const at::Tensor hidden = at::cat(of_batches);
  of_batches.clear();
  std::vector<int32_t> own;
  std::vector<size_t> asked;
  for (const Batch& batch : batches) {
    own.insert(own.end(), batch.own.begin(), batch.own.end());
    asked.insert(asked.end(), batch.words.begin(), batch.words.end());
  }
  std::vector<std::vector<int32_t>> found(own.size());
  for_each_share((hidden.size(0) + kRows - 1) / kRows, [&](int64_t share) {
    const int64_t begin = share * kRows, rows = std::min(kRows, hidden.size(0) - begin);
    const auto first = static_cast<size_t>(begin), count = static_cast<size_t>(rows);
    auto chosen = choice_->choose(hidden.narrow(0, begin, rows), std::span(own).subspan(first, count));
    std::move(chosen.begin(), chosen.end(), found.begin() + begin);
  });
  for (size_t i = 0; i < asked.size(); ++i) results[asked[i]] = std::move(found[i]);
}

/// A pass on a GPU whose results may still be on their way to the host.
struct MaskedWords::Pass {
  Batch batch;
  WordChoice::Largest largest;
};

std::shared_ptr<const MaskedWords::Pass> MaskedWords::queue(Batch batch) const {
  const MicroBatch there = micro_batch(batch).to(device());
  const at::Tensor hidden = output_of(run(there), kMaskedHidden);
  WordChoice::Largest largest = choice_->send_largest(hidden, there[kOwnWords]);
  return std::shared_ptr<const Pass>(new Pass{std::move(batch), std::move(largest)});
}

void MaskedWords::read(const Pass& pass, std::span<std::vector<int32_t>> results) const {
  std::vector<std::vector<int32_t>> chosen = choice_->choose(pass.largest, pass.batch.own);
  for (size_t i = 0; i < chosen.size(); ++i) results[pass.batch.words[i]] = std::move(chosen[i]);
}

MaskedWords::Guesses MaskedWords::start(std::span<const HiddenWord> words) const {
  Guesses guesses{std::vector<std::vector<int32_t>>(words.size())};
  const bool on_gpu = device().is_cuda();
  for (size_t next = 0; next < words.size();) {
    std::vector<Batch> batches;
    while (batches.size() < (on_gpu ? 1 : kBatches) && next < words.size())
      if (Batch batch = next_batch(words, next); !batch.empty()) batches.push_back(std::move(batch));
    if (batches.empty()) break;
    if (!on_gpu) {
      guess(batches, guesses.candidates);
      continue;
    }
    std::shared_ptr<const Pass> pass = queue(std::move(batches.front()));
    if (guesses.under_way) read(*guesses.under_way, guesses.candidates);
    guesses.under_way = std::move(pass);
  }
  return guesses;
}

std::vector<std::vector<int32_t>> MaskedWords::finish(Guesses guesses) const {
  if (guesses.under_way) read(*guesses.under_way, guesses.candidates);
  for (auto& candidates : guesses.candidates)
    std::erase_if(candidates, [&](int32_t id) { return !choice_->gives(id); });
  return std::move(guesses.candidates);
}

std::vector<std::vector<int32_t>> MaskedWords::guess(std::span<const HiddenWord> words) const {
  return finish(start(words));
}

}  // namespace funicular::augment
