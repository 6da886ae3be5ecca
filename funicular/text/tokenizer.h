#pragma once
// From text to token ids: what every kind of tokenizer offers.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/text/sequence_template.h"

namespace funicular::text {

/// Prefix of errors of tokenizers and of their files.
inline constexpr std::string_view kTokenizerComponent = "tokenizer";

/// A token that is matched in the raw text before anything else, e.g. "[MASK]".
struct AddedToken {
  int32_t id = -1;           ///< its place in the vocabulary
  std::string content;       ///< the text that is matched
  bool special = true;       ///< whether decoding leaves it out
  bool normalized = false;   ///< whether it is matched in the normalised text
  bool lstrip = false;       ///< whether it takes the blanks before it
  bool rstrip = false;       ///< whether it takes the blanks behind it
  bool single_word = false;  ///< whether it is matched as a whole word only
};

/// Ids of the tokens that the objectives need; -1 where the vocabulary has none.
struct SpecialTokens {
  int32_t pad = -1;      ///< "[PAD]", or what the family calls it
  int32_t unknown = -1;  ///< "[UNK]"
  int32_t cls = -1;      ///< "[CLS]"
  int32_t sep = -1;      ///< "[SEP]"
  int32_t mask = -1;     ///< "[MASK]"
};

/// One tokenised text, without special tokens around it.
struct TokenizedText {
  std::vector<int32_t> ids;          ///< token ids
  std::vector<uint8_t> word_starts;  ///< 1 where a token begins a word, for whole-word masking
};

/// A half-open range of the characters (code points) of a text.
struct CharacterRange {
  int32_t begin = 0;  ///< the first character, from 0
  int32_t end = 0;    ///< behind the last one
  /// Equal if both ends are.
  bool operator==(const CharacterRange&) const = default;
};

/// Immutable and safe to share between threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// As the model of a tokenizer.json is called: "WordPiece", "BPE".
  virtual std::string_view type() const = 0;
  /// For people, e.g. "WordPiece, 30522 tokens, lower-cased".
  virtual std::string description() const = 0;

  /// Appends the tokens of `utf8`, without special tokens around them. Invalid UTF-8 is read as U+FFFD.
  virtual void tokenize(std::string_view utf8, TokenizedText& out) const = 0;
  /// The tokens of `utf8`, without special tokens around them.
  TokenizedText tokenize(std::string_view utf8) const;
  /// Also appends the characters of the text that each token comes from, as `tokenizers` counts them. Slower: for
  /// texts whose places matter.
  virtual void tokenize(std::string_view utf8, TokenizedText& out,
                        std::vector<CharacterRange>& offsets) const = 0;

  /// How texts and special tokens are put together.
  virtual const SequenceTemplate& sequence() const = 0;
  /// The ids that objectives need.
  virtual const SpecialTokens& special() const = 0;

  /// All tokens as the files spell them: the model's tokens, then the added ones that it lacks.
  virtual const std::vector<std::string>& vocabulary() const = 0;
  /// How many of them the model has, that is, may be pieces of words.
  virtual int32_t model_size() const = 0;
  /// Tokens that are matched before the model reads the text.
  virtual const std::vector<AddedToken>& added_tokens() const = 0;
  /// The number of tokens of vocabulary().
  int32_t size() const { return static_cast<int32_t>(vocabulary().size()); }
  /// Greater than every id, added tokens included.
  int64_t id_limit() const;
  /// -1 if there is no such token.
  virtual int32_t id_of(std::string_view token) const = 0;
  /// The text that a token stands for, e.g. "ed" of "##ed" or " the" of "Ġthe". A byte-level token gives
  /// bytes that need not be whole characters. 0 <= id < size().
  virtual std::string token_text(int32_t id) const = 0;

  /// Hash of everything that decides ids: two tokenizers with equal fingerprints give equal ids for every
  /// text.
  virtual uint64_t fingerprint() const = 0;

 protected:
  Tokenizer() = default;
  /// @cond
  Tokenizer(const Tokenizer&) = default;
  Tokenizer& operator=(const Tokenizer&) = default;
  Tokenizer(Tokenizer&&) noexcept = default;
  Tokenizer& operator=(Tokenizer&&) noexcept = default;
  /// @endcond
};

}  // namespace funicular::text
