#pragma once
// Words that a masked language model would put in the place of a hidden one.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "funicular/core/model.h"
#include "funicular/model/heads.h"
#include "funicular/text/tokenizer.h"

namespace funicular::augment {

/// A word of one piece that is to be hidden.
struct HiddenWord {
  std::span<const int32_t> pieces;  ///< of its text, without special tokens
  int32_t place = 0;                ///< its own among them
};

struct MaskedWordsOptions {
  int64_t count = 15;           ///< how many words
  int64_t max_length = 512;     ///< longest sequence, special tokens included
  int64_t batch_tokens = 2048;  ///< tokens a forward pass at most; a longer sequence stands alone
  /// As TinyBERT's program does it: the count is taken from the whole vocabulary, the word itself and special tokens
  /// included, and pieces that continue a word are left out afterwards, so that there are fewer. A sequence that is
  /// too long is cut at its end, and words behind the cut have no candidates. Otherwise there are as many words of
  /// letters as asked for, without the word itself, and a sequence that is too long is a window around the word.
  bool published = false;
};

/// Which tokens of the vocabulary may be among the first, and which of these are given.
struct CandidateTokens {
  std::vector<float>
      offsets{};  ///< [V]: the decoder's bias, or -infinity where a token takes no place among the first
  std::vector<uint8_t> given{};  ///< [V]: whether a token that takes a place is given
  float largest_offset = 0;      ///< of those that take a place
};

/// The model reads each text twice, as a pair of the text with the word hidden and of the text as it is (Jiao et al.,
/// "TinyBERT: Distilling BERT for Natural Language Understanding", 2020, appendix A). Refers to the model and the
/// tokenizer, which must outlive it. Threads may share it.
class MaskedWords {
 public:
  /// What the model must have been built with: transformers' BertForMaskedLM, without a loss.
  static model::Head head();

  /// `model`: made with head(), with all its weights, ready for inference (model::prepare_inference). The
  /// first of the model's own logits are computed again in float64, so that words of nearly equal probability do not
  /// become equal.
  /// Throws InputError for options that make no sense, and for a template without room for a pair.
  MaskedWords(const Model& model, const text::Tokenizer& tokenizer, const MaskedWordsOptions& options);
  ~MaskedWords();

  /// The ids of the candidates of each word, the most probable first, of equal ones the smaller id. Batches are made
  /// of the words in their order, and each is one thread's, so that the number of threads changes nothing; on
  /// processors with AVX-512 neither does what else is asked for (docs/explanation/numerics.md). Throws RunError
  /// where the model gives no finite numbers.
  std::vector<std::vector<int32_t>> guess(std::span<const HiddenWord> words) const;

 private:
  struct Batch;
  /// Of the words from `next` on, which moves behind them.
  std::vector<Batch> next_batches(std::span<const HiddenWord> words, size_t& next) const;
  void guess(const std::vector<Batch>& batches, std::span<std::vector<int32_t>> results) const;
  bool add(Batch& batch, const HiddenWord& word) const;
  void append(Batch& batch, std::span<const int32_t> hidden, int32_t place,
              std::span<const int32_t> shown) const;
  std::vector<int32_t> best_of(const float* logits, const float* hidden, int32_t own) const;
  /// Output of the model for the batch: the hidden states of its hidden words [words, W], and the decoder.
  LossSink run(const Batch& batch) const;
  /// What these [rows, W] say, by row. own: the hidden words' ids.
  void choose(const at::Tensor& hidden, std::span<const int32_t> own,
              std::span<std::vector<int32_t>> results) const;
  /// body(0) to body(count - 1), each in one thread: LibTorch would cut its products differently for each number of
  /// threads. On a GPU one after the other.
  void for_each_share(int64_t count, const std::function<void(int64_t)>& body) const;
  int64_t length(const HiddenWord& word) const;

  const Model& model_;
  const text::Tokenizer& tokenizer_;
  MaskedWordsOptions options_;
  int64_t room_ = 0;    ///< for the texts of a pair
  at::Tensor decoder_;  ///< [V, W] in the type of the logits: the model's, or float32 where that is as fast
  at::Tensor words_;    ///< the same in float32, on the processor
  CandidateTokens candidates_;
};

/// The `count` largest of logits[i] + offsets[i], i < size, `own` excepted (-1: none); of equal ones the smaller i.
/// Fewer where fewer are above -infinity.
std::vector<int32_t> largest(const float* logits, const float* offsets, int64_t size, int64_t count,
                             int32_t own);

}  // namespace funicular::augment
