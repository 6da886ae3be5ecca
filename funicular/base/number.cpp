#include "funicular/base/number.h"

#include <locale.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace funicular {

namespace {

/// For numbers that from_chars calls out of range: strtod tells too large from too small. Uses the C locale, whatever the program has set.
double nearest_double(std::string_view text) {
  static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
  return ::strtod_l(std::string(text).c_str(), nullptr, plain);
}

}  // namespace

std::optional<double> read_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) value = nearest_double(text);
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<float> read_float(std::string_view text) {
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) value = static_cast<float>(nearest_double(text));
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<double> read_number_with_comma(std::string_view text) {
  if (std::count(text.begin(), text.end(), ',') != 1 || text.find('.') != text.npos) return read_number(text);
  std::string with_point(text);
  with_point[text.find(',')] = '.';
  return read_number(with_point);
}

}  // namespace funicular
