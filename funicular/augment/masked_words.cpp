#include "funicular/augment/masked_words.h"

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "funicular/augment/text_words.h"
#include "funicular/base/error.h"
#include "funicular/model/builder.h"
#include "funicular/nn/functional.h"
#include "funicular/nn/precision_choice.h"
#include "funicular/runtime/parallel_loop.h"
#include "funicular/runtime/work_items.h"

namespace funicular::augment {

namespace {

constexpr const char* kMaskedHidden = "masked_hidden";
constexpr const char* kDecoder = "masked_decoder";
constexpr const char* kBias = "masked_bias";
/// Rows of logits in memory at a time, per thread.
constexpr int64_t kRows = 128;
/// Batches in memory at a time. The limit matters as a long text has thousands of words, each with its own sequence.
constexpr size_t kBatches = 64;
constexpr float kNever = -std::numeric_limits<float>::infinity();

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

/// `bias`: the decoder's, [V], on the CPU.
CandidateTokens candidates_of(const text::Tokenizer& tokenizer, const at::Tensor& bias, bool published) {
  const auto size = static_cast<size_t>(bias.size(0));
  CandidateTokens candidates{std::vector<float>(size, kNever), std::vector<uint8_t>(size, 0)};
  std::vector<uint8_t> special(size, 0);
  for (const text::AddedToken& token : tokenizer.added_tokens())
    if (token.id >= 0 && static_cast<size_t>(token.id) < size) special[static_cast<size_t>(token.id)] = 1;
  for (size_t id = 0; id < std::min(size, tokenizer.vocabulary().size()); ++id) {
    const std::string& token = tokenizer.vocabulary()[id];
    const bool word = !special[id] && is_of_letters(token);
    if (!published && !word) continue;
    const float offset = candidates.offsets[id] = bias.const_data_ptr<float>()[id];
    candidates.largest_offset = std::max(candidates.largest_offset, std::abs(offset));
    candidates.given[id] = published ? !token.starts_with("##") : 1;
  }
  return candidates;
}

}  // namespace

std::vector<int32_t> largest(const float* logits, const float* offsets, int64_t size, int64_t count,
                             int32_t own) {
  struct Found {
    float value;
    int32_t id;
    bool operator<(const Found& other) const {
      return value != other.value ? value > other.value : id < other.id;
    }
  };
  std::vector<Found> heap;  // the last in order is on top
  float least = kNever;
  const auto offer = [&](int64_t i) {
    const float value = logits[i] + offsets[i];
    if (!(value > least) || i == own) return;
    if (static_cast<int64_t>(heap.size()) == count) {
      std::pop_heap(heap.begin(), heap.end());
      heap.pop_back();
    }
    heap.push_back({value, static_cast<int32_t>(i)});
    std::push_heap(heap.begin(), heap.end());
    if (static_cast<int64_t>(heap.size()) == count) least = heap.front().value;
  };
  constexpr int64_t kBlock = 64;
  int64_t i = 0;
  for (; i + kBlock <= size && count > 0; i += kBlock) {
    int any = 0;  // few blocks have one of the largest
    for (int64_t j = i; j < i + kBlock; ++j) any |= logits[j] + offsets[j] > least ? 1 : 0;
    if (any)
      for (int64_t j = i; j < i + kBlock; ++j) offer(j);
  }
  for (; i < size && count > 0; ++i) offer(i);
  std::sort_heap(heap.begin(), heap.end());
  std::vector<int32_t> ids;
  for (const Found& found : heap) ids.push_back(found.id);
  return ids;
}

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
  const LossSink sink = run(none);
  decoder_ = output_of(sink, kDecoder).detach();
  words_ = decoder_.to(at::kFloat).to(at::kCPU).contiguous();
  // If 16-bit products are not faster on this device, use float32, which rounds less.
  if (nn::choose_precision(decoder_.device()).name == "fp32") decoder_ = words_.to(decoder_.device());
  candidates_ = candidates_of(tokenizer, output_of(sink, kBias).to(at::kFloat).to(at::kCPU).contiguous(),
                              options.published);
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

std::vector<int32_t> MaskedWords::best_of(const float* logits, const float* hidden, int32_t own) const {
  const int64_t size = words_.size(0), width = words_.size(1);
  const float* const words = words_.const_data_ptr<float>();
  const auto value = [&](int32_t id) { return logits[id] + candidates_.offsets[static_cast<size_t>(id)]; };
  const std::vector<int32_t> first = largest(logits, candidates_.offsets.data(), size, options_.count, own);
  if (first.empty()) return first;
  // As the logits are rounded, compute exact values for all words that may be among the first.
  const float most =
      std::max(std::abs(value(first.front())), std::abs(value(first.back()))) + candidates_.largest_offset;
  const float margin = (1 + most) * (decoder_.scalar_type() == at::kFloat ? 0x1p-12F : 0x1p-7F);
  const float least = value(first.back()) - margin;
  std::vector<std::pair<double, int32_t>> exact;
  for (int32_t id = 0; id < size; ++id) {
    if (!(value(id) >= least) || id == own) continue;
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += double{hidden[i]} * words[id * width + i];
    exact.emplace_back(-(sum + double{candidates_.offsets[static_cast<size_t>(id)]}), id);
  }
  std::sort(exact.begin(), exact.end());
  exact.resize(std::min(exact.size(), first.size()));
  std::vector<int32_t> best;
  for (const auto& [less, id] : exact) best.push_back(id);
  return best;
}

LossSink MaskedWords::run(const Batch& batch) const {
  const at::NoGradGuard no_gradient;
  const auto whole = at::TensorOptions().dtype(at::kLong);
  std::vector<int64_t> draws(batch.lengths.size());
  for (size_t i = 0; i < draws.size(); ++i) draws[i] = static_cast<int64_t>(i);
  MicroBatch micro;
  micro.packing = Packing::from_lengths(batch.lengths, draws, draws, {});
  micro.tensors = {{"token_ids", at::tensor(batch.ids, whole)},
                   {"token_type_ids", at::tensor(batch.types, whole)},
                   {"mlm_rows", at::tensor(batch.rows, whole)}};
  LossSink sink;
  sink.keep_outputs = true;
  model_.forward({}, micro, Taps{}, sink);
  return sink;
}

void MaskedWords::choose(const at::Tensor& hidden, std::span<const int32_t> own,
                         std::span<std::vector<int32_t>> results) const {
  const at::NoGradGuard no_gradient;
  const auto plain = [](const at::Tensor& x) { return x.to(at::kFloat).to(at::kCPU).contiguous(); };
  const at::Tensor logits = plain(nn::linear(hidden.to(decoder_.scalar_type()), decoder_)),
                   read = plain(hidden);
  const int64_t size = decoder_.size(0), width = decoder_.size(1);
  const float* const values = logits.const_data_ptr<float>();
  // Parallel only with a GPU; on the CPU this code already runs in one of many threads.
  parallel_loop(0, hidden.size(0), 1, [&](int64_t from, int64_t to) {
    for (int64_t row = from; row < to; ++row) {
      // best_of() needs finite numbers.
      if (!std::isfinite(values[row * size]))
        throw RunError("augment", "the model answers {}; its weights are damaged, or became so in training",
                       values[row * size]);
      const auto at = static_cast<size_t>(row);
      results[at] = best_of(values + row * size, read.const_data_ptr<float>() + row * width, own[at]);
    }
  });
}

std::vector<MaskedWords::Batch> MaskedWords::next_batches(std::span<const HiddenWord> words,
                                                          size_t& next) const {
  std::vector<Batch> batches(1);
  for (; next < words.size(); ++next) {
    const auto tokens = static_cast<int64_t>(batches.back().ids.size());
    if (tokens > 0 && tokens + length(words[next]) > options_.batch_tokens) {
      if (batches.size() == kBatches) break;
      batches.emplace_back();
    }
    if (add(batches.back(), words[next])) batches.back().words.push_back(next);
  }
  if (batches.back().empty()) batches.pop_back();
  return batches;
}

void MaskedWords::for_each_share(int64_t count, const std::function<void(int64_t)>& body) const {
  if (!decoder_.is_cpu()) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  // A single share would run outside of a parallel region, and its products would use all threads.
  for_each_item(std::max<int64_t>(count, 2), [&](int64_t i) {
    if (i < count) body(i);
  });
}

void MaskedWords::guess(const std::vector<Batch>& batches, std::span<std::vector<int32_t>> results) const {
  std::vector<at::Tensor> of_batches(batches.size());
  for_each_share(static_cast<int64_t>(batches.size()), [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    of_batches[at] = output_of(run(batches[at]), kMaskedHidden);
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
    choose(hidden.narrow(0, begin, rows), std::span(own).subspan(first, count),
           std::span(found).subspan(first, count));
  });
  for (size_t i = 0; i < asked.size(); ++i) results[asked[i]] = std::move(found[i]);
}

std::vector<std::vector<int32_t>> MaskedWords::guess(std::span<const HiddenWord> words) const {
  std::vector<std::vector<int32_t>> results(words.size());
  for (size_t next = 0; next < words.size();)
    if (const std::vector<Batch> batches = next_batches(words, next); !batches.empty())
      guess(batches, results);
  for (auto& result : results)
    std::erase_if(result, [&](int32_t id) { return !candidates_.given[static_cast<size_t>(id)]; });
  return results;
}

}  // namespace funicular::augment
