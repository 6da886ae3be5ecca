#pragma once
// BERT's tokeniser: normalise, split, WordPiece. Equal to Hugging Face `tokenizers` in every id.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/text/truncation.h"

namespace funicular::text {

/// What a WordPiece tokeniser does to text; the fields of BertNormalizer and WordPiece in a `tokenizer.json`.
struct WordPieceOptions {
  bool lowercase = true;
  bool clean_text = true;            ///< drop control characters, make every white space a blank
  bool handle_chinese_chars = true;  ///< blanks around CJK ideographs
  /// Strip accents; `automatic` follows `lowercase`, as in Hugging Face.
  enum class StripAccents { automatic, yes, no } strip_accents = StripAccents::automatic;
  std::string unknown_token = "[UNK]";
  std::string continuing_prefix = "##";
  int max_characters_per_word = 100;  ///< longer words become the unknown token
  /// Names of the tokens in SpecialTokens; a name that the vocabulary lacks gives the id -1.
  std::string pad_token = "[PAD]", cls_token = "[CLS]", sep_token = "[SEP]", mask_token = "[MASK]";
};

/// A token that is matched in the raw text before anything else, e.g. "[MASK]".
struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool special = true;
  bool normalized = false, lstrip = false, rstrip = false, single_word = false;
};

/// Ids of the tokens that the objectives need; -1 where the vocabulary has none.
struct SpecialTokens {
  int32_t pad = -1, unknown = -1, cls = -1, sep = -1, mask = -1;
};

/// One tokenised text, without [CLS] and [SEP].
struct TokenizedText {
  std::vector<int32_t> ids;
  std::vector<uint8_t>
      word_starts;  ///< 1 where a token begins a word (no "##" piece), for whole-word masking
};

/// Immutable and safe to share between threads.
class WordPiece {
 public:
  /// `vocabulary[i]` is token i. Added tokens are matched in the text; their ids either name the same token
  /// in the vocabulary or follow it without a gap. Throws InputError (duplicate tokens, no unknown token, …).
  WordPiece(std::vector<std::string> vocabulary, WordPieceOptions options, std::vector<AddedToken> added);
  ~WordPiece();
  WordPiece(WordPiece&&) noexcept;
  WordPiece& operator=(WordPiece&&) noexcept;

  /// Appends the tokens of `utf8`, without special tokens. Invalid UTF-8 is read as U+FFFD.
  void tokenize(std::string_view utf8, TokenizedText& out) const;
  TokenizedText tokenize(std::string_view utf8) const;

  /// All tokens: those of the model, then the added ones that it lacks.
  const std::vector<std::string>& vocabulary() const;
  /// How many of them the model has, that is, may be pieces of words.
  int32_t model_size() const;
  const WordPieceOptions& options() const;
  const std::vector<AddedToken>& added_tokens() const;
  const SpecialTokens& special() const;
  int32_t size() const { return static_cast<int32_t>(vocabulary().size()); }
  /// More than every id, those of added tokens included.
  int64_t id_limit() const;
  /// -1 if there is no such token.
  int32_t id_of(std::string_view token) const;

  /// Hash of everything that decides ids: two tokenisers with equal fingerprints give equal ids for every
  /// text.
  uint64_t fingerprint() const;

 private:
  struct Tables;
  std::unique_ptr<const Tables> tables_;
};

}  // namespace funicular::text
