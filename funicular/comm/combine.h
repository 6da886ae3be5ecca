#pragma once
// Element-wise sums, minima, maxima and products of several buffers.

#include <cstdint>

namespace funicular::comm {

/// How the ranks' values are combined. An average is the sum divided by the number of ranks; integers have none. If
/// one of the values is NaN, every reduction gives NaN.
enum class Reduction { sum, average, minimum, maximum, product };

enum class Element { float32, float64, bfloat16, float16, int64 };

/// out[i] = the reduction of inputs[0][i], inputs[1][i], … as a tree: ((0, 1), (2, 3)), …, with inputs left over
/// last. So sums of equally many neighbours can be computed elsewhere. Reductions have the element's own precision;
/// 16-bit elements are combined in float and rounded once. `out` may be one of the inputs. `divisor` divides the
/// result (floating point only; 1: not).
void combine(Element element, Reduction reduction, void* out, const void* const* inputs, int count,
             int64_t size, double divisor = 1);

}  // namespace funicular::comm
