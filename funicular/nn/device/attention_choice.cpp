#include "funicular/nn/device/attention_choice.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "funicular/base/error.h"
#include "funicular/nn/device/attention.h"
#include "funicular/runtime/device_kernels.h"
#include "funicular/runtime/gpu_cards.h"

namespace funicular::nn::device {

namespace {

constexpr int64_t kWidestFlashHead = 256;
constexpr std::array<std::string_view, 3> kNames{"tensor_cores", "flash",
                                                 "tiles"};  // in the order of the enum
constexpr int kNone = -1;

int read_preference() {
  const char* const text = std::getenv("FUNICULAR_ATTENTION");
  if (!text) return kNone;
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == text) return static_cast<int>(i);
  throw InputError("attention", "FUNICULAR_ATTENTION is \"{}\"; expected tensor_cores, flash or tiles", text);
}

std::atomic<int>& preference() {
  static std::atomic<int> kernels{read_preference()};
  return kernels;
}

bool serves(AttentionKernels kernels, const AttentionNeeds& n) {
  const bool narrow = n.type == at::kBFloat16 || n.type == at::kHalf;
  switch (kernels) {
    case AttentionKernels::tensor_cores:
      return narrow && n.capability >= (n.type == at::kHalf ? 75 : 80) && n.head_size <= kWidestHead &&
             !n.score_terms && (!n.turned || n.head_size % 32 == 0);
    case AttentionKernels::flash:
      // LibTorch counts a window in rows of the packed queries. If only some queries are asked for, their row numbers
      // differ from their positions, and a window would hold wrong keys.
      return narrow && n.capability >= 80 && n.head_size % (n.turned ? 16 : 8) == 0 &&
             n.head_size <= kWidestFlashHead && !n.score_terms && !n.repeatable &&
             !(n.some_queries && n.window);
    case AttentionKernels::tiles:
      return true;
  }
  return false;
}

}  // namespace

AttentionKernels choose_attention(const AttentionNeeds& needs) {
  const int preferred = preference().load(std::memory_order_relaxed);
  if (preferred != kNone && serves(static_cast<AttentionKernels>(preferred), needs))
    return static_cast<AttentionKernels>(preferred);
  for (const AttentionKernels kernels : {AttentionKernels::flash, AttentionKernels::tensor_cores})
    if (serves(kernels, needs)) return kernels;
  return AttentionKernels::tiles;
}

AttentionKernels choose_attention(const at::Tensor& like, int64_t width_of_qkv, const AttentionCall& call) {
  AttentionNeeds needs;
  needs.capability = funicular::device::capability(like.device());
  needs.type = like.scalar_type();
  needs.head_size = width_of_qkv / 3 / call.heads;
  needs.some_queries = call.queries.has_value();
  needs.window = call.pattern.window >= 0;
  needs.turned = call.pattern.rotations.defined();
  needs.score_terms = call.pattern.distance_table.defined() || call.score_terms.defined();
  // Only a card has FlashAttention, and LibTorch refuses a batch without rows. A stand-in of a card has a formula for
  // tests that ask for it.
  const bool stand_in = like.is_cuda() && preference() == static_cast<int>(AttentionKernels::flash);
  needs.repeatable =
      call.repeatable || (funicular::device::runs_on_host(like) && !stand_in) || call.rows() == 0;
  return choose_attention(needs);
}

std::string describe_attention(int capability) {
  if (capability >= 80)
    return "attention of 16 bits by FlashAttention, with --deterministic by our kernels on tensor cores";
  if (capability >= 75) return "attention of fp16 on tensor cores, of bf16 without them";
  return "attention without tensor cores";
}

PreferAttention::PreferAttention(AttentionKernels kernels) {
  const int before = preference().exchange(static_cast<int>(kernels));
  if (before != kNone) before_ = static_cast<AttentionKernels>(before);
}

PreferAttention::~PreferAttention() {
  preference() = before_ ? static_cast<int>(*before_) : kNone;
}

}  // namespace funicular::nn::device
