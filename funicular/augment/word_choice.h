#pragma once
// Chooses the words with the largest logits for a masked word.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "funicular/core/device_copy.h"
#include "funicular/text/tokenizer.h"

namespace funicular::augment {

/// The tokens of the vocabulary that can rank among the best, and the ones among them that can be candidates.
struct CandidateTokens {
  std::vector<float> offsets{};  ///< [V]: the decoder's bias, or -infinity for a token that never ranks
  std::vector<uint8_t> given{};  ///< [V]: whether a token that ranks can be a candidate
  float largest_offset = 0;      ///< largest absolute offset of a token that can rank
};

/// Computes the best logits again in float64, so that rounding does not make nearly equal words equal. Thread-safe.
class WordChoice {
 public:
  /// `decoder` [V, W] and `bias` [V]: a masked language model's, on its device. `published`: see MaskedWordsOptions.
  WordChoice(const text::Tokenizer& tokenizer, const at::Tensor& decoder, const at::Tensor& bias,
             int64_t count, bool published);

  /// Returns the `count` best words of each row of hidden states [rows, W] on the CPU, the most probable first. Ties go
  /// to the smaller id. own: the masked words, which are left out (-1: none). Throws RunError if the logits are not
  /// finite.
  std::vector<std::vector<int32_t>> choose(const at::Tensor& hidden, std::span<const int32_t> own) const;

  /// The largest logits of each masked word, on their way from a GPU to the host.
  struct Largest {
    Arriving values, ids;  ///< [rows, K]: logits plus offsets, the largest first, and the words' ids
    Arriving hidden;       ///< [rows, W] float32
  };
  /// Finds the largest logits of hidden states on a GPU. Waits for nothing. own: [rows] there.
  Largest send_largest(const at::Tensor& hidden, const at::Tensor& own) const;
  /// Waits for `sent`, and chooses as above.
  std::vector<std::vector<int32_t>> choose(const Largest& sent, std::span<const int32_t> own) const;

  /// Whether a word among the best can be a candidate.
  bool gives(int32_t id) const { return candidates_.given[static_cast<size_t>(id)] != 0; }

 private:
  std::vector<int32_t> best_of(const float* logits, const float* hidden, int32_t own) const;
  /// Chooses from the largest logits of a row, or from all of them if words may be missing among the largest.
  std::vector<int32_t> best_of_largest(std::span<const float> values, const int64_t* ids,
                                       const at::Tensor& hidden, int32_t own) const;
  /// The `count` words of `ids` with the largest exact logits.
  std::vector<int32_t> exact_best(std::span<const int32_t> ids, const float* hidden, size_t count) const;
  /// How far a rounded logit may be from the exact one, if the best rounded ones are from `first` to `last`.
  float rounding(float first, float last) const;

  int64_t count_;
  bool published_;
  /// [V, W] in the type of the logits: the model's, or float32 if that is as fast. On a GPU, rows of zeros follow.
  at::Tensor decoder_;
  at::Tensor words_;  ///< [V, W] float32 on the CPU
  CandidateTokens candidates_;
  at::Tensor offsets_;  ///< on a GPU: CandidateTokens::offsets, and -infinity for the rows of zeros
};

/// Returns the indices of the `count` largest logits[i] + offsets[i], i < size, without `own` (-1: none). Ties go to
/// the smaller i. Fewer, if fewer values are above -infinity.
std::vector<int32_t> largest(const float* logits, const float* offsets, int64_t size, int64_t count,
                             int32_t own);

}  // namespace funicular::augment
