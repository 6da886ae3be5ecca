#include "funicular/augment/word_choice.h"

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "funicular/augment/text_words.h"
#include "funicular/base/error.h"
#include "funicular/nn/functional.h"
#include "funicular/nn/precision_choice.h"
#include "funicular/runtime/parallel_loop.h"

namespace funicular::augment {

namespace {

/// A GPU sends this many logits per word, besides two per candidate. Words with nearly the logit of the last candidate
/// are rarely more.
constexpr int64_t kSpareLogits = 64;
/// The GPU's decoder has a multiple of this number of rows. Otherwise products in 16 bits take several times as long.
constexpr int64_t kAlignedRows = 64;
constexpr float kNever = -std::numeric_limits<float>::infinity();

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

WordChoice::WordChoice(const text::Tokenizer& tokenizer, const at::Tensor& decoder, const at::Tensor& bias,
                       int64_t count, bool published)
    : count_(count),
      published_(published),
      decoder_(decoder),
      words_(decoder.to(at::kFloat).to(at::kCPU).contiguous()),
      candidates_(candidates_of(tokenizer, bias.to(at::kFloat).to(at::kCPU).contiguous(), published)) {
  const at::NoGradGuard no_gradient;
  const at::Device device = decoder.device();
  // If 16-bit products are not faster on this device, use float32, which rounds less.
  if (nn::choose_precision(device).name == "fp32") decoder_ = words_.to(device);
  if (!device.is_cuda()) return;
  const int64_t more = (kAlignedRows - decoder_.size(0) % kAlignedRows) % kAlignedRows;
  decoder_ = at::constant_pad_nd(decoder_, {0, 0, 0, more});
  offsets_ = to_device(at::constant_pad_nd(at::tensor(candidates_.offsets), {0, more}, kNever), device);
}

float WordChoice::rounding(float first, float last) const {
  const float most = std::max(std::abs(first), std::abs(last)) + candidates_.largest_offset;
  return (1 + most) * (decoder_.scalar_type() == at::kFloat ? 0x1p-12F : 0x1p-7F);
}

std::vector<int32_t> WordChoice::exact_best(std::span<const int32_t> ids, const float* hidden,
                                            size_t count) const {
  const int64_t width = words_.size(1);
  const float* const words = words_.const_data_ptr<float>();
  std::vector<std::pair<double, int32_t>> exact;
  for (const int32_t id : ids) {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += double{hidden[i]} * words[id * width + i];
    exact.emplace_back(-(sum + double{candidates_.offsets[static_cast<size_t>(id)]}), id);
  }
  std::sort(exact.begin(), exact.end());
  exact.resize(std::min(exact.size(), count));
  std::vector<int32_t> best;
  for (const auto& [less, id] : exact) best.push_back(id);
  return best;
}

/// Throws RunError if the logits are not finite.
std::vector<int32_t> WordChoice::best_of(const float* logits, const float* hidden, int32_t own) const {
  if (!std::isfinite(*logits))
    throw RunError("augment", "the model answers {}; its weights are damaged, or became so in training",
                   *logits);
  const int64_t size = words_.size(0);
  const auto value = [&](int32_t id) { return logits[id] + candidates_.offsets[static_cast<size_t>(id)]; };
  const std::vector<int32_t> first = largest(logits, candidates_.offsets.data(), size, count_, own);
  if (first.empty()) return first;
  // As the logits are rounded, compute exact values for all words that may be among the first.
  const float margin = rounding(value(first.front()), value(first.back()));
  const float least = value(first.back()) - margin;
  std::vector<int32_t> near;
  for (int32_t id = 0; id < size; ++id)
    if (value(id) >= least && id != own) near.push_back(id);
  return exact_best(near, hidden, first.size());
}

std::vector<std::vector<int32_t>> WordChoice::choose(const at::Tensor& hidden,
                                                     std::span<const int32_t> own) const {
  const at::NoGradGuard no_gradient;
  const auto plain = [](const at::Tensor& x) { return x.to(at::kFloat).contiguous(); };
  const at::Tensor logits = plain(nn::linear(hidden.to(decoder_.scalar_type()), decoder_)),
                   read = plain(hidden);
  std::vector<std::vector<int32_t>> best;
  for (int64_t row = 0; row < hidden.size(0); ++row)
    best.push_back(best_of(logits.const_data_ptr<float>() + row * logits.size(1),
                           read.const_data_ptr<float>() + row * read.size(1), own[static_cast<size_t>(row)]));
  return best;
}

// ---- on a GPU

WordChoice::Largest WordChoice::send_largest(const at::Tensor& hidden, const at::Tensor& own) const {
  const at::NoGradGuard no_gradient;
  const int64_t sent = std::min(2 * count_ + kSpareLogits, decoder_.size(0));
  std::vector<at::Tensor> values, ids;
  for (int64_t begin = 0; begin < hidden.size(0); begin += nn::kLogitRowsOnGpu) {
    const int64_t rows = std::min(nn::kLogitRowsOnGpu, hidden.size(0) - begin);
    const at::Tensor part = hidden.narrow(0, begin, rows).to(decoder_.scalar_type());
    at::Tensor ranked = nn::linear(part, decoder_) + offsets_;
    if (!published_) ranked.scatter_(1, own.narrow(0, begin, rows).unsqueeze(1), kNever);
    const auto [largest_values, their_ids] = at::topk(ranked, sent, 1);
    values.push_back(largest_values);
    ids.push_back(their_ids);
  }
  return {Arriving(at::cat(values)), Arriving(at::cat(ids)), Arriving(hidden.to(at::kFloat).contiguous())};
}

std::vector<int32_t> WordChoice::best_of_largest(std::span<const float> values, const int64_t* ids,
                                                 const at::Tensor& hidden, int32_t own) const {
  const auto ranks = std::count_if(values.begin(), values.end(), [](float value) { return value > kNever; });
  if (const auto count = static_cast<size_t>(std::min(ranks, count_)); count > 0) {
    const float least = values[count - 1] - rounding(values.front(), values[count - 1]);
    // All are near if the best one is NaN or infinite.
    const auto far = std::find_if(values.begin(), values.end(), [&](float value) { return value < least; });
    if (far != values.end())
      return exact_best(std::vector<int32_t>(ids, ids + (far - values.begin())),
                        hidden.const_data_ptr<float>(), count);
  }
  const at::Tensor logits = nn::linear(hidden, words_);
  return best_of(logits.const_data_ptr<float>(), hidden.const_data_ptr<float>(), own);
}

std::vector<std::vector<int32_t>> WordChoice::choose(const Largest& sent,
                                                     std::span<const int32_t> own) const {
  const at::Tensor &values = sent.values.wait(), &ids = sent.ids.wait(), &hidden = sent.hidden.wait();
  const int64_t width = values.size(1);
  std::vector<std::vector<int32_t>> best(own.size());
  parallel_loop(0, values.size(0), 1, [&](int64_t from, int64_t to) {
    const at::NoGradGuard no_gradient;
    for (int64_t row = from; row < to; ++row) {
      const auto at = static_cast<size_t>(row);
      const std::span<const float> largest(values.const_data_ptr<float>() + row * width,
                                           static_cast<size_t>(width));
      best[at] = best_of_largest(largest, ids.const_data_ptr<int64_t>() + row * width,
                                 hidden.narrow(0, row, 1), own[at]);
    }
  });
  return best;
}

}  // namespace funicular::augment
