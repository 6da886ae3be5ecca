#pragma once
// Tokenisers of characters as SentencePiece trains them: Unigram (XLM-R, CamemBERT, ALBERT, DeBERTa-v3, T5) and
// BPE with byte fallback (Gemma, mmBERT, Llama 2). The sweep
// tests/golden/piece_sweep.py compares ids, words and offsets with Hugging Face `tokenizers`.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/text/normalizer_steps.h"
#include "funicular/text/piece_model.h"
#include "funicular/text/tokenizer.h"
#include "funicular/text/word_splitter.h"

namespace funicular::text {

/// Steps before and after the model: the fields of a `tokenizer.json`.
struct PieceRules {
  std::vector<NormalizerStep> normalizer;
  std::vector<SplitterStep> splitter;
  bool trim_offsets = false;      ///< offsets without the white space around a token
  bool trim_keeps_prefix = true;  ///< but a blank before the first token stays in it
  /// Names of the tokens in SpecialTokens; a name that the vocabulary lacks gives the id -1.
  std::string pad_token = "<pad>", unknown_token = "<unk>", cls_token = "<s>", sep_token = "</s>",
              mask_token = "<mask>";
  bool reads_types = false;  ///< whether models of this tokenizer read token types
};

/// Immutable and safe to share between threads. The splitter makes the words of `word_starts`. If it splits
/// nowhere, a token that begins with U+2581 begins a word.
class PieceTokenizer final : public Tokenizer {
 public:
  /// Added tokens are matched in the text. Their ids name the same token in the vocabulary of the model, or
  /// follow it without a gap. Throws InputError.
  PieceTokenizer(std::unique_ptr<const PieceModel> model, PieceRules rules, std::vector<AddedToken> added,
                 SequenceTemplate sequence);
  ~PieceTokenizer() override;
  PieceTokenizer(PieceTokenizer&&) noexcept;
  PieceTokenizer& operator=(PieceTokenizer&&) noexcept;

  using Tokenizer::tokenize;
  void tokenize(std::string_view utf8, TokenizedText& out) const override;
  void tokenize(std::string_view utf8, TokenizedText& out,
                std::vector<CharacterRange>& offsets) const override;

  std::string_view type() const override;
  std::string description() const override;
  const SequenceTemplate& sequence() const override;
  const SpecialTokens& special() const override;
  const std::vector<std::string>& vocabulary() const override;
  int32_t model_size() const override;
  const std::vector<AddedToken>& added_tokens() const override;
  int32_t id_of(std::string_view token) const override;
  std::string token_text(int32_t id) const override;
  uint64_t fingerprint() const override;
  const PieceRules& rules() const;
  const PieceModel& model() const;

 private:
  struct Tables;
  std::unique_ptr<const Tables> tables_;
};

}  // namespace funicular::text
