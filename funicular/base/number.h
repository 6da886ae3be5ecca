#pragma once
// Numbers that people write in data, read whole. Numbers of options, file names and formats of ours are read where they
// stand.

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <type_traits>

namespace funicular {

/// The number that all of `text` spells, with a point before the decimals. Returns nothing if `text` is no such number, or the number
/// is beyond the largest one (1e400). A number too small to be told from 0 (1e-400) is 0. "nan" and "inf" are none.
std::optional<double> read_number(std::string_view text);
/// Like read_number, in float32: 1e39 is none, 1e-50 is 0.
std::optional<float> read_float(std::string_view text);

/// The whole number that `text` is from its first byte to its last; none for anything else, and for one that T cannot hold.
template <std::integral T>
requires(!std::same_as<T, bool>) std::optional<T> read_whole_number(std::string_view text, int base = 10) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// As read_number, where a comma may stand in the point's place ("0,5").
std::optional<double> read_number_with_comma(std::string_view text);

}  // namespace funicular
