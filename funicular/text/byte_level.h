#pragma once
// The alphabet and the pattern of GPT-2, equal to the ByteLevel pre-tokenizer of Hugging Face `tokenizers`.
// The alphabet has a printable character for each byte. The pattern cuts text into pieces before merges.
// Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2.

#include <cstdint>
#include <string>
#include <string_view>

#include "funicular/text/unicode_tables.h"

namespace funicular::text {

/// Returns the character that stands for a byte: itself if printable, else one from U+0100 on ("Ġ" for a
/// blank).
uint32_t byte_character(uint8_t byte);
/// Returns how many bytes this character has in UTF-8.
constexpr int32_t byte_character_size(uint8_t byte) {
  return byte >= '!' && byte <= '~' ? 1 : 2;
}
/// Spells bytes in these characters.
std::string to_byte_characters(std::string_view bytes);
/// Appends the bytes that a token spells. Returns false, and appends nothing, if a character stands for no
/// byte.
bool append_token_bytes(std::string_view token, std::string& bytes);

/// Category of a code point in the pattern.
unicode::Category category_of(uint32_t code);

/// Returns the end of the piece that begins at `at` (< end). The pattern is
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// The pattern sees the text end at `end`. The text must be valid UTF-8, and 32 more bytes must be readable.
const char* end_of_piece(const char* at, const char* end);
constexpr int readable_behind = 32;

/// Beginnings of pieces in the first bytes of a text.
struct PieceStarts {
  uint64_t starts = 0;    ///< a bit for each place behind the first byte where a piece is known to begin
  bool in_doubt = false;  ///< whether `starts` is cut short by a character that is not ASCII
};
/// Finds where pieces begin in the first 64 of the `left` (1 or more) bytes at `at`. A piece must begin at
/// `at`. The end of the text counts as a beginning. The text must be valid UTF-8, and `block_readable_behind`
/// zeros must follow it.
PieceStarts starts_of_pieces(const char* at, size_t left);
constexpr int block_readable_behind = 80;

}  // namespace funicular::text
