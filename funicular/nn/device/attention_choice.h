#pragma once
// Which kernels compute attention on a GPU. The choice is made here alone.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "funicular/nn/packed_attention.h"

namespace funicular::nn::device {

enum class AttentionKernels {
  tensor_cores,  ///< short_attention.h: 16 bits, sums in float32, the processor's dropout mask
  flash,         ///< LibTorch's FlashAttention-2, whose mask depends on how a batch is cut
  tiles          ///< attention.h: every type, head and pattern, without tensor cores
};

/// Everything that the choice depends on.
struct AttentionNeeds {
  int capability = 0;  ///< of the card: 80 for 8.0
  at::ScalarType type = at::kFloat;
  int64_t head_size = 64;
  bool some_queries = false, window = false, turned = false;
  bool score_terms = false;  ///< something is added to scores
  bool repeatable = false;
};

/// FlashAttention goes first. On an H200 a step took 0.84 of the time of the first version of our kernels for tensor
/// cores, and with 512 tokens 0.57. FlashAttention serves 16 bits from capability 8.0 on, heads of 8, 16, … 256
/// channels, and turned heads of 16, 32, … 256. It serves neither score terms, windows of some queries nor
/// `repeatable`. Tensor cores serve bfloat16 from capability 8.0 on and float16 from 7.5 on. Heads have at most 128
/// channels, and nothing is added to scores. Turned heads must fill 32, 64, 96 or 128 channels. Tiles serve the rest.
AttentionKernels choose_attention(const AttentionNeeds& needs);
/// `like`: qkv, or a tensor of its type and device.
AttentionKernels choose_attention(const at::Tensor& like, int64_t width_of_qkv, const AttentionCall& call);

/// "attention of 16 bits …" for a card of this capability.
std::string describe_attention(int capability);

/// As long as it lives, calls that these kernels can serve get them; for tests. FUNICULAR_ATTENTION=tensor_cores, flash
/// or tiles does the same for a process, for benchmarks.
class PreferAttention {
 public:
  explicit PreferAttention(AttentionKernels kernels);
  ~PreferAttention();
  PreferAttention(const PreferAttention&) = delete;
  PreferAttention& operator=(const PreferAttention&) = delete;

 private:
  std::optional<AttentionKernels> before_;
};

}  // namespace funicular::nn::device
