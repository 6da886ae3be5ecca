#include "funicular/format/vector_codes.h"

#include <algorithm>
#include <cmath>

#include "funicular/base/error.h"

namespace funicular::format {

namespace {

void append_bytes(std::span<const float> vector, const VectorRanges& ranges, int shift, std::string& out) {
  if (ranges.least.size() != vector.size())
    throw InputError("vectors", "the ranges have {} numbers, and the vectors have {}; expected as many",
                     ranges.least.size(), vector.size());
  for (size_t i = 0; i < vector.size(); ++i) {
    const float width = (ranges.most[i] - ranges.least[i]) / 255.0F;
    const float step = width == 0 ? 1 : width;
    const float place = std::floor((vector[i] - ranges.least[i]) / step);
    out += static_cast<char>(static_cast<int>(std::clamp(place, 0.0F, 255.0F)) - shift);
  }
}

void append_bits(std::span<const float> vector, int shift, std::string& out) {
  for (size_t begin = 0; begin < vector.size(); begin += 8) {
    int byte = 0;
    for (size_t bit = 0; bit < 8; ++bit)
      byte = 2 * byte + (begin + bit < vector.size() && vector[begin + bit] > 0 ? 1 : 0);
    out += static_cast<char>(byte - shift);
  }
}

}  // namespace

const std::vector<std::string>& vector_code_names() {
  static const std::vector<std::string> names{"float32", "int8", "uint8", "binary", "ubinary"};
  return names;
}

size_t code_bytes(VectorCode code, int64_t width) {
  const auto numbers = static_cast<size_t>(width);
  if (code == VectorCode::float32) return numbers * sizeof(float);
  return code == VectorCode::int8 || code == VectorCode::uint8 ? numbers : (numbers + 7) / 8;
}

void VectorRanges::add(std::span<const float> vector) {
  if (empty()) {
    least.assign(vector.begin(), vector.end());
    most = least;
  }
  for (size_t i = 0; i < vector.size(); ++i) {
    least[i] = std::min(least[i], vector[i]);
    most[i] = std::max(most[i], vector[i]);
  }
}

void append_code(VectorCode code, std::span<const float> vector, const VectorRanges& ranges,
                 std::string& out) {
  constexpr int kSigned = 128;
  switch (code) {
    case VectorCode::float32:
      out.append(reinterpret_cast<const char*>(vector.data()), vector.size_bytes());
      break;
    case VectorCode::int8:
    case VectorCode::uint8:
      append_bytes(vector, ranges, code == VectorCode::int8 ? kSigned : 0, out);
      break;
    default:
      append_bits(vector, code == VectorCode::binary ? kSigned : 0, out);
  }
}

}  // namespace funicular::format
