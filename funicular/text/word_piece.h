#pragma once
// BERT's tokeniser: normalise, split, WordPiece. Equal to Hugging Face `tokenizers` in every id and
// offset.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/text/tokenizer.h"

namespace funicular::text {

/// Options of a WordPiece tokeniser: the fields of BertNormalizer and WordPiece in a `tokenizer.json`.
struct WordPieceOptions {
  bool lowercase = true;             ///< lower-case the text
  bool clean_text = true;            ///< drop control characters, make every white space a blank
  bool handle_chinese_chars = true;  ///< blanks around CJK ideographs
  /// Strip accents; `automatic` follows `lowercase`, as in Hugging Face.
  enum class StripAccents {
    automatic,  ///< as `lowercase`
    yes,        ///< always
    no          ///< never
  };
  StripAccents strip_accents = StripAccents::automatic;  ///< see StripAccents
  std::string unknown_token = "[UNK]";                   ///< stands for a word that no pieces make up
  std::string continuing_prefix = "##";                  ///< before a piece that does not begin its word
  int max_characters_per_word = 100;                     ///< longer words become the unknown token
  /// Texts stand as `<s> a </s>` and `<s> a </s></s> b </s>`, of token type 0. False: BERT's template.
  bool roberta_sequence = false;
  std::string pad_token = "[PAD]";  ///< SpecialTokens::pad; a name that the vocabulary lacks gives the id -1
  std::string cls_token = "[CLS]";  ///< SpecialTokens::cls, likewise
  std::string sep_token = "[SEP]";  ///< SpecialTokens::sep, likewise
  std::string mask_token = "[MASK]";  ///< SpecialTokens::mask, likewise
};

/// Cuts each word into the longest pieces that the vocabulary has, from its beginning. Source: Wu et al., "Google's Neural
/// Machine Translation System", 2016, section 4.1.
///
/// In `word_starts`, a word is what BertPreTokenizer splits; "##" pieces begin none.
class WordPiece final : public Tokenizer {
 public:
  /// `vocabulary[i]` is token i. Added tokens are matched in the text; their ids either name the same token
  /// in the vocabulary or follow it without a gap. Throws InputError (duplicate tokens, no unknown token, …).
  WordPiece(std::vector<std::string> vocabulary, WordPieceOptions options, std::vector<AddedToken> added);
  ~WordPiece() override;
  /// Moves the tables. A tokeniser that was moved from may only be destroyed.
  WordPiece(WordPiece&&) noexcept;
  /// As the constructor above.
  WordPiece& operator=(WordPiece&&) noexcept;

  using Tokenizer::tokenize;
  void tokenize(std::string_view utf8, TokenizedText& out) const override;
  void tokenize(std::string_view utf8, TokenizedText& out,
                std::vector<CharacterRange>& offsets) const override;

  std::string_view type() const override { return "WordPiece"; }
  std::string description() const override;
  const SequenceTemplate& sequence() const override;
  const SpecialTokens& special() const override;
  const std::vector<std::string>& vocabulary() const override;
  int32_t model_size() const override;
  const std::vector<AddedToken>& added_tokens() const override;
  int32_t id_of(std::string_view token) const override;
  std::string token_text(int32_t id) const override;
  uint64_t fingerprint() const override;
  /// The options that it was made with.
  const WordPieceOptions& options() const;

 private:
  struct Tables;
  std::unique_ptr<const Tables> tables_;
};

}  // namespace funicular::text
