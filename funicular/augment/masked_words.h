#pragma once
// Finds the words that a masked language model predicts for a masked word.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "funicular/augment/word_choice.h"
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

/// The model reads each text twice, as a pair: the text with the word masked, and the original text. Source: Jiao et
/// al., "TinyBERT: Distilling BERT for Natural Language Understanding", 2020, appendix A. Keeps references to the
/// model and the tokenizer, which must outlive it. Thread-safe.
class MaskedWords {
 public:
  /// The head that the model must be built with: transformers' BertForMaskedLM, without a loss.
  static model::Head head();

  /// `model`: made with head(), with all its weights, ready for inference (model::prepare_inference). Throws InputError
  /// for options out of range, and if a pair has no room in a sequence.
  MaskedWords(const Model& model, const text::Tokenizer& tokenizer, const MaskedWordsOptions& options);
  ~MaskedWords();

  /// Returns the ids of each word's candidates, the most probable first; ties go to the smaller id. The result does
  /// not depend on the number of threads: batches follow the order of the words, and one thread runs each batch. On
  /// processors with AVX-512, a word's result does not depend on the rest of `words` either
  /// (docs/explanation/numerics.md). Throws RunError if the model's output is not finite.
  std::vector<std::vector<int32_t>> guess(std::span<const HiddenWord> words) const;

  struct Pass;
  /// The candidates of words, without the ones of a pass that may still run on the GPU.
  struct Guesses {
    std::vector<std::vector<int32_t>> candidates{};
    std::shared_ptr<const Pass> under_way{};
  };
  /// guess() is finish(start(words)). On a GPU, start() queues each pass before it reads the one before, and leaves
  /// the last one to finish(), which another thread may call.
  Guesses start(std::span<const HiddenWord> words) const;
  std::vector<std::vector<int32_t>> finish(Guesses guesses) const;

  at::Device device() const { return model_.device(); }

 private:
  struct Batch;
  /// Makes a batch of the words from `next` on, and advances `next`. The batch is empty if no word is left.
  Batch next_batch(std::span<const HiddenWord> words, size_t& next) const;
  void guess(const std::vector<Batch>& batches, std::span<std::vector<int32_t>> results) const;
  bool add(Batch& batch, const HiddenWord& word) const;
  void append(Batch& batch, std::span<const int32_t> hidden, int32_t place,
              std::span<const int32_t> shown) const;
  MicroBatch micro_batch(const Batch& batch) const;
  /// Runs the model on the batch. Outputs: the hidden states of the masked words [words, W], and the decoder.
  LossSink run(const MicroBatch& batch) const;
  /// Gives a batch to the GPU. Waits for nothing.
  std::shared_ptr<const Pass> queue(Batch batch) const;
  /// Waits for a pass, and chooses the candidates of its words.
  void read(const Pass& pass, std::span<std::vector<int32_t>> results) const;
  int64_t length(const HiddenWord& word) const;

  const Model& model_;
  const text::Tokenizer& tokenizer_;
  MaskedWordsOptions options_;
  int64_t room_ = 0;  ///< tokens for both texts of a pair
  std::unique_ptr<const WordChoice> choice_;
};

}  // namespace funicular::augment
