#include "funicular/model/pooling.h"

#include <ATen/OpMathType.h>
#include <torch/types.h>

#include "funicular/base/error.h"
#include "funicular/core/device_copy.h"
#include "funicular/model/heads.h"

namespace funicular::model {

namespace {

/// The number of first tokens to leave out per sequence, on the host. Empty: none.
std::vector<int64_t> left_out(const MicroBatch& batch) {
  if (!batch.tensors.contains(kPromptTokens)) return {};
  const at::Tensor counts = batch.on_host(kPromptTokens).contiguous();
  const auto* const first = counts.const_data_ptr<int64_t>();
  std::vector<int64_t> all(first, first + counts.numel());
  const auto& offsets = batch.packing.host_offsets;
  for (size_t s = 0; s < all.size(); ++s)
    if (all[s] < 0 || all[s] >= offsets[s + 1] - offsets[s])
      throw InputError("pooling",
                       "a prompt of {} tokens leaves nothing of a sequence of {}; expected more text", all[s],
                       offsets[s + 1] - offsets[s]);
  return all;
}

/// The tokens that a pooling reads, concatenated sequence by sequence.
struct ReadTokens {
  at::Tensor rows;       ///< [T'] int64, rows of the packed batch; undefined: all
  at::Tensor lengths;    ///< [S] int64
  at::Tensor positions;  ///< [T'] int32, place of each in its whole sequence
};

ReadTokens read_tokens(const MicroBatch& batch) {
  const Packing& packing = batch.packing;
  const std::vector<int64_t> skipped = left_out(batch);
  const at::Tensor offsets = packing.offsets.to(at::kLong);
  const int64_t sequences = packing.sequences();
  const at::Tensor lengths = offsets.narrow(0, 1, sequences) - offsets.narrow(0, 0, sequences);
  if (skipped.empty()) return {{}, lengths, packing.positions};
  std::vector<int64_t> rows;
  for (size_t s = 0; s < skipped.size(); ++s)
    for (int64_t row = packing.host_offsets[s] + skipped[s]; row < packing.host_offsets[s + 1]; ++row)
      rows.push_back(row);
  const at::Tensor read = to_device(at::tensor(rows, at::kLong), offsets.device());
  return {read, lengths - batch[kPromptTokens], packing.positions.index_select(0, read)};
}

/// `unsafe` leaves out LibTorch's check of the lengths, for which the host would wait for a GPU.
at::Tensor reduce(const at::Tensor& values, const char* how, const at::Tensor& lengths) {
  return at::segment_reduce(values, how, lengths, {}, {}, /*axis=*/0, /*unsafe=*/true);
}

/// Means of tokens: Σ w·h / Σ w, or Σ h / √n.
at::Tensor mean_of(const at::Tensor& wide, const ReadTokens& tokens, format::Pooling pooling) {
  if (pooling == format::Pooling::mean) return reduce(wide, "mean", tokens.lengths);
  if (pooling == format::Pooling::mean_sqrt_len)
    return reduce(wide, "sum", tokens.lengths) / tokens.lengths.to(wide.scalar_type()).sqrt().unsqueeze(1);
  const at::Tensor weights = (tokens.positions + 1).to(wide.scalar_type()).unsqueeze(1);
  return reduce(wide * weights, "sum", tokens.lengths) / reduce(weights, "sum", tokens.lengths);
}

bool reads_one_token(format::Pooling pooling) {
  return pooling == format::Pooling::cls || pooling == format::Pooling::last_token;
}

}  // namespace

at::Tensor pooled_rows(const MicroBatch& batch, format::Pooling pooling) {
  const auto& offsets = batch.packing.host_offsets;
  std::vector<int64_t> rows = left_out(batch);
  if (rows.empty() && pooling == format::Pooling::cls) return first_tokens(batch);
  rows.resize(static_cast<size_t>(batch.packing.sequences()));
  for (size_t s = 0; s < rows.size(); ++s)
    rows[s] = pooling == format::Pooling::cls ? offsets[s] + rows[s] : offsets[s + 1] - 1;
  return at::tensor(rows, at::kLong);
}

at::Tensor pool_tokens(const at::Tensor& hidden, const MicroBatch& batch, format::Pooling pooling) {
  // A sum over many tokens needs more precision than 16 bits.
  const auto type = at::toOpMathType(hidden.scalar_type());
  if (batch.packing.sequences() == 0) return hidden.narrow(0, 0, 0).to(type);
  if (reads_one_token(pooling))
    return hidden.index_select(0, rows_on_device(pooled_rows(batch, pooling), batch)).to(type);
  const ReadTokens tokens = read_tokens(batch);
  const at::Tensor wide = (tokens.rows.defined() ? hidden.index_select(0, tokens.rows) : hidden).to(type);
  if (pooling == format::Pooling::max) return reduce(wide, "max", tokens.lengths);
  return mean_of(wide, tokens, pooling);
}

}  // namespace funicular::model
