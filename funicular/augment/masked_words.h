#pragma once
// Finds the words that a masked language model predicts for a masked word.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "funicular/core/model.h"
#include "funicular/model/heads.h"
#include "funicular/text/tokenizer.h"

namespace funicular::augment {

/// A word of one piece to mask.
struct HiddenWord {
  std::span<const int32_t> pieces;  ///< the pieces of its text, without special tokens
  int32_t place = 0;                ///< the word's index in `pieces`
};

struct MaskedWordsOptions {
  int64_t count = 15;           ///< candidates per word
  int64_t max_length = 512;     ///< longest sequence, special tokens included
  int64_t batch_tokens = 2048;  ///< the most tokens per forward pass; a longer sequence has its own pass
  /// Works like TinyBERT's program. It takes the `count` best tokens of the whole vocabulary, including the word
  /// itself and special tokens, and then drops word continuations. Thus there may be fewer than `count`. A sequence
  /// that is too long is cut at its end, and words behind the cut have no candidates.
  ///
  /// Otherwise there are `count` candidates of letters only, without the word itself. A sequence that is too long is
  /// replaced by a window around the word.
  bool published = false;
};

/// The tokens of the vocabulary that can rank among the best, and the ones among them that can be candidates.
struct CandidateTokens {
  std::vector<float> offsets{};  ///< [V]: the decoder's bias, or -infinity for a token that never ranks
  std::vector<uint8_t> given{};  ///< [V]: whether a token that ranks can be a candidate
  float largest_offset = 0;      ///< largest absolute offset of a token that can rank
};

/// The model reads each text twice, as a pair: the text with the word masked, and the original text. Source: Jiao et
/// al., "TinyBERT: Distilling BERT for Natural Language Understanding", 2020, appendix A. Keeps references to the
/// model and the tokenizer, which must outlive it. Thread-safe.
class MaskedWords {
 public:
  /// The head that the model must be built with: transformers' BertForMaskedLM, without a loss.
  static model::Head head();

  /// `model`: made with head(), with all its weights, ready for inference (model::prepare_inference). The best logits
  /// are computed again in float64, so that rounding does not make nearly equal words equal. Throws InputError for
  /// options out of range, and if a pair has no room in a sequence.
  MaskedWords(const Model& model, const text::Tokenizer& tokenizer, const MaskedWordsOptions& options);
  ~MaskedWords();

  /// Returns the ids of each word's candidates, the most probable first; ties go to the smaller id. The result does
  /// not depend on the number of threads: batches follow the order of the words, and one thread runs each batch. On
  /// processors with AVX-512, a word's result does not depend on the rest of `words` either
  /// (docs/explanation/numerics.md). Throws RunError if the model's output is not finite.
  std::vector<std::vector<int32_t>> guess(std::span<const HiddenWord> words) const;

 private:
  struct Batch;
  /// Makes batches of the words from `next` on, and advances `next`.
  std::vector<Batch> next_batches(std::span<const HiddenWord> words, size_t& next) const;
  void guess(const std::vector<Batch>& batches, std::span<std::vector<int32_t>> results) const;
  bool add(Batch& batch, const HiddenWord& word) const;
  void append(Batch& batch, std::span<const int32_t> hidden, int32_t place,
              std::span<const int32_t> shown) const;
  std::vector<int32_t> best_of(const float* logits, const float* hidden, int32_t own) const;
  /// Runs the model on the batch. Outputs: the hidden states of the masked words [words, W], and the decoder.
  LossSink run(const Batch& batch) const;
  /// Chooses the candidates from the hidden states `hidden` [rows, W], row by row. own: the masked words' ids.
  void choose(const at::Tensor& hidden, std::span<const int32_t> own,
              std::span<std::vector<int32_t>> results) const;
  /// Runs body(0) to body(count - 1), each in one thread, as LibTorch splits products differently for each number of
  /// threads. On a GPU the calls are sequential.
  void for_each_share(int64_t count, const std::function<void(int64_t)>& body) const;
  int64_t length(const HiddenWord& word) const;

  const Model& model_;
  const text::Tokenizer& tokenizer_;
  MaskedWordsOptions options_;
  int64_t room_ = 0;    ///< tokens for both texts of a pair
  at::Tensor decoder_;  ///< [V, W] in the type of the logits: the model's, or float32 if that is as fast
  at::Tensor words_;    ///< decoder_ in float32, on the CPU
  CandidateTokens candidates_;
};

/// Returns the indices of the `count` largest logits[i] + offsets[i], i < size, without `own` (-1: none). Ties go to
/// the smaller i. Fewer, if fewer values are above -infinity.
std::vector<int32_t> largest(const float* logits, const float* offsets, int64_t size, int64_t count,
                             int32_t own);

}  // namespace funicular::augment
