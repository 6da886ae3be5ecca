#pragma once
// GPT-2's view of text (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section
// 2.2): an alphabet with a printable character for each byte, and the pattern that cuts text into pieces
// before merges. Equal to the ByteLevel pre-tokenizer of Hugging Face `tokenizers`.

#include <cstdint>
#include <string>
#include <string_view>

#include "funicular/text/unicode_tables.h"

namespace funicular::text {

/// The character that stands for a byte: itself for printable ones, else one from U+0100 on ("Ġ" for a
/// blank).
uint32_t byte_character(uint8_t byte);
/// How many bytes UTF-8 takes for that character.
constexpr int32_t byte_character_size(uint8_t byte) {
  return byte >= '!' && byte <= '~' ? 1 : 2;
}
/// Spells bytes in these characters.
std::string to_byte_characters(std::string_view bytes);
/// Appends the bytes that a token spells; false, and nothing appended, if any of its characters stands for
/// none.
bool append_token_bytes(std::string_view token, std::string& bytes);

/// Category of a code point in the pattern.
unicode::Category category_of(uint32_t code);

/// The end of the piece that begins at `at` (< end) by the pattern
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// The text is valid UTF-8 up to `end`, where it ends for the pattern, too; 32 more bytes must be readable.
const char* end_of_piece(const char* at, const char* end);
constexpr int readable_behind = 32;

/// Beginnings of pieces in the first bytes of a text.
struct PieceStarts {
  uint64_t starts = 0;    ///< a bit for each place behind the first byte where a piece is known to begin
  bool in_doubt = false;  ///< whether a character that is not ASCII ends what is known
};
/// Where pieces begin in the first 64 of the `left` (1 or more) bytes at `at`, where one begins. The end of the text
/// counts as a beginning. The text is valid UTF-8; `block_readable_behind` more bytes must be readable, zeros.
PieceStarts starts_of_pieces(const char* at, size_t left);
constexpr int block_readable_behind = 80;

}  // namespace funicular::text
