#pragma once
// How a word becomes pieces of a vocabulary of characters: what Unigram and BPE with byte fallback offer.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace funicular::text {

/// A token and the bytes of the word that it stands for; several byte tokens may stand for the same bytes.
struct WordPart {
  int32_t id = -1;
  uint32_t begin = 0, end = 0;
};

/// Immutable and safe to share between threads.
class PieceModel {
 public:
  virtual ~PieceModel() = default;

  /// "Unigram" or "BPE", as in tokenizer.json.
  virtual std::string_view type() const = 0;
  /// The tokens by id; a text may stand there more than once.
  virtual const std::vector<std::string>& vocabulary() const = 0;
  /// -1 if there is no such token; of several the last.
  virtual int32_t id_of(std::string_view token) const = 0;
  /// The token that stands for characters that the vocabulary lacks; -1: there is none.
  virtual int32_t unknown() const = 0;
  virtual bool byte_fallback() const = 0;
  /// Appends the tokens of a word, which is valid UTF-8 and not empty.
  virtual void encode(std::string_view word, std::vector<WordPart>& out) const = 0;
  /// Appends the tokens without their places.
  virtual void encode_ids(std::string_view word, std::vector<int32_t>& ids) const = 0;
  /// Whether a word can be cut behind the character `before` and in front of the text `behind`, so that both parts
  /// keep their tokens. May be false although it is so.
  virtual bool splits_between(uint32_t before, std::string_view behind) const = 0;
  /// Hash of all that decides about tokens.
  virtual uint64_t fingerprint() const = 0;

 protected:
  PieceModel() = default;
  PieceModel(const PieceModel&) = default;
  PieceModel& operator=(const PieceModel&) = default;
};

/// The token of a byte where a model falls back to bytes, e.g. "<0x0A>".
std::string byte_token(uint8_t byte);

}  // namespace funicular::text
