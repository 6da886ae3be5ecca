#pragma once
// The floor of a training step: the time of its matrix products alone.

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

namespace funicular::bench {

/// Products of one shape: C[m, n] = A[m, k] * B[k, n], `count` times per step.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0, count = 0;
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
           static_cast<double>(count);
  }
};

/// Sizes of an encoder with its masked-language-model head.
struct BertShape {
  int64_t layers = 0, hidden = 0, inner = 0, vocabulary = 0;
  int64_t embedding = 0;  ///< width of the embeddings; 0: hidden
  bool gated = false;  ///< the feed-forward part has two layers from `hidden` to `inner`, as a ModernBERT's
};

/// The products with weights in one step, forward and backward, for `tokens` real tokens. After the attention of
/// the last layer, only the `masked` predicted tokens are computed. Products of attention between tokens are left
/// out: they depend on the rows' lengths and are a few percent.
std::vector<ProductShape> step_products(const BertShape& shape, int64_t tokens, int64_t masked);

struct Floor {
  double seconds = 0;  ///< of all products, each in its best layout: the best of several, on a GPU their mean
  double flops = 0;
  double square_flops_per_second = 0;  ///< of one large square product, beside it
};

/// Times the products through LibTorch on `device`, on the CPU with the threads that it uses now. If products of
/// float32 are faster than LibTorch's of a 16-bit type, as with AVX2, it times products of float32.
Floor measure_floor(const std::vector<ProductShape>& products, at::ScalarType type, int repetitions = 5,
                    const at::Device& device = at::kCPU);

}  // namespace funicular::bench
