#pragma once
// Byte-level byte-pair encoding, as GPT-2, RoBERTa and ModernBERT have it. Equal to Hugging Face `tokenizers`
// in every id and offset.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/text/bpe_merges.h"
#include "funicular/text/tokenizer.h"

namespace funicular::text {

/// The fields of BPE, ByteLevel and of the post-processors in a `tokenizer.json`.
struct ByteBpeOptions {
  bool compose = false;  ///< NFC first
  bool add_prefix_space =
      false;                   ///< a blank before each text between added tokens that does not begin with one
  bool use_regex = true;       ///< cut into words by GPT-2's pattern; false: merge across words
  bool ignore_merges = false;  ///< a word that is a token is that token, whatever its merges give
  /// Token for a byte that the vocabulary lacks; empty: such bytes are left out.
  std::string unknown_byte_token = "";
  bool fuse_unknown = false;      ///< one for all unknown bytes in a row
  bool trim_offsets = false;      ///< offsets without the white space around a token
  bool trim_keeps_prefix = true;  ///< but a blank before the first token stays in it (add_prefix_space there)
  /// Names of the tokens in SpecialTokens; a name that the vocabulary lacks gives the id -1.
  std::string pad_token = "<pad>", unknown_token = "<unk>", cls_token = "<s>", sep_token = "</s>",
              mask_token = "<mask>";
  bool reads_types = true;  ///< whether models of this tokenizer read token types
};

/// Immutable and safe to share between threads. In `word_starts`, a word is a piece by GPT-2's pattern, such
/// as " word", "'s" or " ...".
class ByteBpe final : public Tokenizer {
 public:
  /// `vocabulary[i]` is token i, spelled in GPT-2's characters for bytes (text/byte_level.h). Merges in the
  /// order of their ranks. Added tokens are matched in the text; their ids either name the same token in the
  /// vocabulary or follow it without a gap. Throws InputError (duplicate tokens, merges of tokens that do not
  /// exist, …).
  ByteBpe(std::vector<std::string> vocabulary, std::vector<Merge> merges, ByteBpeOptions options,
          std::vector<AddedToken> added, SequenceTemplate sequence);
  ~ByteBpe() override;
  ByteBpe(ByteBpe&&) noexcept;
  ByteBpe& operator=(ByteBpe&&) noexcept;

  using Tokenizer::tokenize;
  void tokenize(std::string_view utf8, TokenizedText& out) const override;
  void tokenize(std::string_view utf8, TokenizedText& out,
                std::vector<CharacterRange>& offsets) const override;

  std::string_view type() const override { return "BPE"; }
  std::string description() const override;
  const SequenceTemplate& sequence() const override;
  const SpecialTokens& special() const override;
  const std::vector<std::string>& vocabulary() const override;
  int32_t model_size() const override;
  const std::vector<AddedToken>& added_tokens() const override;
  int32_t id_of(std::string_view token) const override;
  std::string token_text(int32_t id) const override;
  uint64_t fingerprint() const override;
  const ByteBpeOptions& options() const;
  /// In the order of their ranks, a pair once.
  const std::vector<Merge>& merges() const;

 private:
  struct Tables;
  std::unique_ptr<const Tables> tables_;
};

}  // namespace funicular::text
