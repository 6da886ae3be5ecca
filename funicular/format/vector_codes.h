#pragma once
// Vectors in fewer bits: bytes between the smallest and the largest number of each dimension, or one bit per
// number. The values equal the results of quantize_embeddings in sentence-transformers.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace funicular::format {

enum class VectorCode { float32, int8, uint8, binary, ubinary };
/// The names of VectorCode, in its order.
const std::vector<std::string>& vector_code_names();
/// Bytes of a vector of so many numbers.
size_t code_bytes(VectorCode code, int64_t width);

/// The smallest and the largest number of each dimension.
struct VectorRanges {
  std::vector<float> least, most;

  bool empty() const { return least.empty(); }
  /// Widens the ranges to hold this vector too.
  void add(std::span<const float> vector);
};

/// Appends the code of a vector to `out`. int8 and uint8 need `ranges` of the same width. uint8 is floor((x − least)
/// / ((most − least) / 255)), between 0 and 255. int8 is uint8 − 128. ubinary holds the bits x > 0, the first in the
/// highest bit of a byte. binary is ubinary − 128.
void append_code(VectorCode code, std::span<const float> vector, const VectorRanges& ranges,
                 std::string& out);

}  // namespace funicular::format
