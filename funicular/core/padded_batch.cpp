#include "funicular/core/padded_batch.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <bit>
#include <set>
#include <string>
#include <vector>

namespace funicular {

namespace {

constexpr int64_t kTokens = 256, kMasked = 128, kSequences = 8;  // sizes are multiples of them

/// Names of loss terms that leave out kAddedTokens and kAddedSequences.
const std::set<std::string> kDistilled{"attention", "hidden",    "soft",   "hard",
                                       "patient",   "relations", "cosine", "logits"};
/// Names of loss terms that leave out kNoLabel.
const std::set<std::string> kLabelled{"mlm", "classification", "samples"};

int64_t divide_up(int64_t n, int64_t step) {
  return (n + step - 1) / step;
}

int64_t round_up(int64_t n, int64_t step) {
  return divide_up(n, step) * step;
}

bool is_distilled(const Counts& counts) {
  return std::any_of(counts.begin(), counts.end(),
                     [](const auto& count) { return kDistilled.contains(count.first); });
}

/// Whether the tensor is an output of a teacher with a row for each token or sequence.
bool is_of_teacher(const std::string& name, const at::Tensor& tensor, const Packing& packing) {
  if (!name.starts_with("teacher.") || tensor.dim() == 0) return false;
  return tensor.size(0) == packing.tokens() || tensor.size(0) == packing.sequences();
}

/// Returns the lengths of the added sequences: the longest, and others that hold the rest. They have a row for each
/// masked row that may be added.
std::vector<int32_t> added_lengths(int64_t sequences, int64_t tokens, int64_t longest) {
  const int64_t fewest = sequences + 1 + divide_up(kTokens + kMasked, longest - 1);
  const auto eighth = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(fewest)) / 8);
  const int64_t others = round_up(fewest, std::max(kSequences, eighth)) - sequences - 1;
  const int64_t least = std::max(longest + others, kMasked);
  const int64_t rest = round_up(tokens + least, kTokens) - tokens - longest;
  std::vector<int32_t> lengths{static_cast<int32_t>(longest)};
  for (int64_t i = 0; i < others; ++i)
    lengths.push_back(static_cast<int32_t>(rest / others + (i < rest % others ? 1 : 0)));
  return lengths;
}

bool can_be_padded(const MicroBatch& batch, int64_t longest) {
  const Packing& packing = batch.packing;
  // If each sequence is one token, the rows of a teacher could be of tokens or of sequences.
  if (longest < std::max<int64_t>(2, packing.longest()) || packing.sequences() == 0 ||
      packing.sequences() == packing.tokens() || !packing.offsets.is_cpu())
    return false;
  // Other terms of a loss would count the added rows.
  const auto leaves_out = [](const auto& count) {
    return kLabelled.contains(count.first) || kDistilled.contains(count.first);
  };
  if (!std::all_of(batch.counts.begin(), batch.counts.end(), leaves_out)) return false;
  return std::all_of(batch.tensors.begin(), batch.tensors.end(), [&](const auto& one) {
    const auto& [name, tensor] = one;
    if (name == "labels")
      return tensor.dim() == 1 && tensor.scalar_type() == at::kLong && tensor.size(0) == packing.sequences();
    return name == "token_ids" || name == "token_type_ids" || name == "mlm_rows" || name == "mlm_labels" ||
           is_of_teacher(name, tensor, packing);
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
  const int64_t tokens = batch.packing.tokens(), sequences = batch.packing.sequences();
  const std::vector<int32_t> added = added_lengths(sequences, tokens, longest);
  MicroBatch padded;
  padded.counts = batch.counts;
  padded.packing = pad_packing(batch.packing, added);
  const auto append = [&](const std::string& name, int64_t count, int64_t value) {
    const auto found = batch.tensors.find(name);
    if (found == batch.tensors.end()) return;
    std::vector<int64_t> sizes = found->second.sizes().vec();
    sizes[0] = count;
    padded.tensors[name] = at::cat({found->second, at::full(sizes, value, found->second.options())});
  };
  const int64_t more = padded.packing.tokens() - tokens, more_sequences = std::ssize(added);
  append("token_ids", more, 0);
  append("token_type_ids", more, 0);
  append("labels", more_sequences, kNoLabel);
  if (const auto rows = batch.tensors.find("mlm_rows"); rows != batch.tensors.end()) {
    const int64_t masked = rows->second.size(0),
                  more_masked = std::max(kMasked, round_up(masked, kMasked)) - masked;
    padded.tensors["mlm_rows"] = at::cat({rows->second, at::arange(tokens, tokens + more_masked, at::kLong)});
    append("mlm_labels", more_masked, kNoLabel);
  }
  const std::vector<int32_t>& offsets = padded.packing.host_offsets;
  padded.tensors[kFirstTokens] =
      at::tensor(std::vector<int64_t>(offsets.begin(), offsets.end() - 1), at::kLong);
  for (const auto& [name, tensor] : batch.tensors)
    if (is_of_teacher(name, tensor, batch.packing))
      append(name, tensor.size(0) == tokens ? more : more_sequences, 0);
  if (!is_distilled(batch.counts)) return padded;
  const auto added_from = [](int64_t own, int64_t all) { return at::arange(all).ge(own).unsqueeze(1); };
  padded.tensors[kAddedTokens] = added_from(tokens, tokens + more);
  padded.tensors[kAddedSequences] = added_from(sequences, sequences + more_sequences);
  return padded;
}

}  // namespace funicular
