#include "funicular/augment/near_words.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "funicular/augment/text_words.h"
#include "funicular/augment/word_choice.h"
#include "funicular/base/error.h"
#include "funicular/runtime/parallel_loop.h"

namespace funicular::augment {

namespace {
/// Words whose cosines are in memory at a time: 25 MB for a file of 100,000 words.
constexpr int64_t kWords = 64;
/// Larger than the float32 error of a product of vectors of length 1.
constexpr float kMargin = 1e-4f;
}  // namespace

NearWords::NearWords(std::shared_ptr<const format::WordVectors> vectors, int64_t count, bool any)
    : vectors_(std::move(vectors)), count_(count) {
  if (count < 1) throw InputError("augment", "expected at least 1 candidate, found {}", count);
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const int64_t size = vectors_->size();
  for (int64_t i = 0; i < vectors_->words(); ++i) {
    const float* const vector = vectors_->vectors() + i * size;
    const bool zero = std::all_of(vector, vector + size, [](float value) { return value == 0; });
    // The published program leaves out the vector of unknown words.
    const bool given = any ? vectors_->word(i) != "<unk>" : is_of_letters(vectors_->word(i));
    offsets_.push_back(given && !zero ? 0 : kNever);
  }
}

double NearWords::cosine(int64_t a, int64_t b) const {
  const int64_t size = vectors_->size();
  const float *const x = vectors_->vectors() + a * size, *const y = vectors_->vectors() + b * size;
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += double{x[i]} * y[i];
  return sum;
}

std::vector<int64_t> NearWords::best_of(int64_t word, const float* cosines) const {
  const int64_t words = vectors_->words();
  const std::vector<int32_t> first =
      largest(cosines, offsets_.data(), words, count_, static_cast<int32_t>(word));
  if (first.empty()) return {};
  // As the products are rounded, compute exact cosines for all words that may be among the first.
  const float least = cosines[first.back()] - kMargin;
  std::vector<std::pair<double, int64_t>> exact;
  for (int64_t i = 0; i < words; ++i)
    if (cosines[i] + offsets_[static_cast<size_t>(i)] >= least && i != word)
      exact.emplace_back(-cosine(word, i), i);
  std::sort(exact.begin(), exact.end());
  std::vector<int64_t> best;
  for (size_t i = 0; i < std::min(exact.size(), static_cast<size_t>(count_)); ++i)
    best.push_back(exact[i].second);
  return best;
}

std::vector<std::vector<int64_t>> NearWords::nearest(std::span<const int64_t> words) const {
  const at::NoGradGuard no_gradient;
  const int64_t size = vectors_->size();
  // from_blob takes no pointer to const; nothing writes through it.
  const at::Tensor all =
      at::from_blob(const_cast<float*>(vectors_->vectors()), {vectors_->words(), size}, at::kFloat);
  std::vector<std::vector<int64_t>> results(words.size());
  for (size_t begin = 0; begin < words.size(); begin += kWords) {
    const auto rows = std::min(static_cast<int64_t>(words.size() - begin), kWords);
    const at::Tensor asked = at::empty({rows, size}, at::kFloat);
    for (int64_t row = 0; row < rows; ++row)
      std::memcpy(asked.data_ptr<float>() + row * size,
                  vectors_->vectors() + words[begin + static_cast<size_t>(row)] * size,
                  static_cast<size_t>(size) * sizeof(float));
    const at::Tensor cosines = at::mm(asked, all.t());
    parallel_loop(0, rows, 1, [&](int64_t from, int64_t to) {
      for (int64_t row = from; row < to; ++row) {
        const size_t at = begin + static_cast<size_t>(row);
        results[at] = best_of(words[at], cosines.const_data_ptr<float>() + row * vectors_->words());
      }
    });
  }
  return results;
}

}  // namespace funicular::augment
