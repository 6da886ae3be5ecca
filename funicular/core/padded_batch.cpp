#include "funicular/core/padded_batch.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <vector>

namespace funicular {

namespace {

constexpr int64_t kTokens = 256, kMasked = 128;  // sizes are multiples of them

int64_t divide_up(int64_t n, int64_t step) {
  return (n + step - 1) / step;
}

int64_t round_up(int64_t n, int64_t step) {
  return divide_up(n, step) * step;
}

/// Returns the lengths of the added sequences: the longest, and others that hold the rest. They have a row for each
/// masked row that may be added.
std::vector<int32_t> added_lengths(int64_t tokens, int64_t longest) {
  const int64_t others = divide_up(kTokens + kMasked, longest - 1);
  const int64_t least = std::max(longest + others, kMasked);
  const int64_t rest = round_up(tokens + least, kTokens) - tokens - longest;
  std::vector<int32_t> lengths{static_cast<int32_t>(longest)};
  for (int64_t i = 0; i < others; ++i)
    lengths.push_back(static_cast<int32_t>(rest / others + (i < rest % others ? 1 : 0)));
  return lengths;
}

bool can_be_padded(const MicroBatch& batch, int64_t longest) {
  const Packing& packing = batch.packing;
  if (longest < std::max<int64_t>(2, packing.longest()) || packing.sequences() == 0 ||
      !packing.offsets.is_cpu())
    return false;
  // Other terms of a loss would count the added rows.
  const auto leaves_out = [](const auto& count) {
    return count.first == "mlm" || count.first == "classification" || count.first == "samples";
  };
  if (!std::all_of(batch.counts.begin(), batch.counts.end(), leaves_out)) return false;
  return std::all_of(batch.tensors.begin(), batch.tensors.end(), [&](const auto& one) {
    const auto& [name, tensor] = one;
    if (name == "labels")
      return tensor.dim() == 1 && tensor.scalar_type() == at::kLong && tensor.size(0) == packing.sequences();
    return name == "token_ids" || name == "token_type_ids" || name == "mlm_rows" || name == "mlm_labels";
  });
}

template <class T>
std::vector<T> numbers_of(const at::Tensor& tensor) {
  const at::Tensor all = tensor.contiguous();
  return {all.const_data_ptr<T>(), all.const_data_ptr<T>() + all.numel()};
}

Packing pad_packing(const Packing& packing, const std::vector<int32_t>& added) {
  std::vector<int32_t> lengths;
  for (size_t s = 1; s < packing.host_offsets.size(); ++s)
    lengths.push_back(packing.host_offsets[s] - packing.host_offsets[s - 1]);
  std::vector<int64_t> samples = numbers_of<int64_t>(packing.sample_ids), draws = packing.host_draw_ids;
  lengths.insert(lengths.end(), added.begin(), added.end());
  samples.resize(lengths.size());
  draws.resize(lengths.size());
  return Packing::from_lengths(lengths, samples, draws, packing.random);
}

}  // namespace

std::optional<MicroBatch> pad_batch(const MicroBatch& batch, int64_t longest) {
  if (!can_be_padded(batch, longest)) return std::nullopt;
  const int64_t tokens = batch.packing.tokens();
  const std::vector<int32_t> added = added_lengths(tokens, longest);
  MicroBatch padded;
  padded.counts = batch.counts;
  padded.packing = pad_packing(batch.packing, added);
  const auto append = [&](const char* name, int64_t count, int64_t value) {
    if (const auto found = batch.tensors.find(name); found != batch.tensors.end())
      padded.tensors[name] = at::cat({found->second, at::full({count}, value, found->second.options())});
  };
  const int64_t more = padded.packing.tokens() - tokens;
  append("token_ids", more, 0);
  append("token_type_ids", more, 0);
  append("labels", static_cast<int64_t>(added.size()), kNoLabel);
  if (const auto rows = batch.tensors.find("mlm_rows"); rows != batch.tensors.end()) {
    const int64_t masked = rows->second.size(0),
                  more_masked = std::max(kMasked, round_up(masked, kMasked)) - masked;
    padded.tensors["mlm_rows"] = at::cat({rows->second, at::arange(tokens, tokens + more_masked, at::kLong)});
    append("mlm_labels", more_masked, kNoLabel);
  }
  if (batch.tensors.contains("labels")) {
    const std::vector<int32_t>& offsets = padded.packing.host_offsets;
    padded.tensors[kFirstTokens] =
        at::tensor(std::vector<int64_t>(offsets.begin(), offsets.end() - 1), at::kLong);
  }
  return padded;
}

}  // namespace funicular
