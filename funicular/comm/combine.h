#pragma once
// Element-wise sums, minima, maxima and products of several buffers.

#include <cstdint>

namespace funicular::comm {

/// What becomes of the ranks' values. An average is the sum divided by the number of ranks; there is none of
/// integers. A NaN among the values is the result of every one of them.
enum class Reduction { sum, average, minimum, maximum, product };

enum class Element { float32, float64, bfloat16, float16, int64 };

/// out[i] = the reduction of inputs[0][i], inputs[1][i], … as a tree: ((0, 1), (2, 3)), … with what is left
/// over last, so that sums of equally many neighbours can be made elsewhere. Each with the element's own
/// precision, 16-bit ones in float and rounded once. `out` may be one of the inputs. `divisor` divides the
/// result (floating point only; 1: not).
void combine(Element element, Reduction reduction, void* out, const void* const* inputs, int count,
             int64_t size, double divisor = 1);

}  // namespace funicular::comm
