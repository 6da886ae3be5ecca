#pragma once
// Some rows of a packed batch, the only ones that a head reads. The last layer has to compute no others.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "funicular/core/batch.h"

namespace funicular::nn {

/// The keys of all random choices for some rows.
struct RowKeys {
  at::Tensor positions, draws;  ///< [R] int32, int64: place in the sequence; its draw. Undefined: no dropout
  RandomState random;

  RowKeys() = default;
  RowKeys(const Packing& packing)  // NOLINT: all rows of a batch are rows
      : positions(packing.positions), draws(packing.token_draws), random(packing.random) {}
};

struct RowSubset {
  at::Tensor rows;               ///< [R] int64: rows of the packed batch, ascending, none twice
  at::Tensor host_rows;          ///< the same on the CPU
  std::vector<int64_t> offsets;  ///< [S+1]: sequence s has rows[offsets[s]] … rows[offsets[s+1]-1]
  at::Tensor begins;  ///< `offsets` as int32 where the batch lies, for kernels of GPUs; else undefined
  RowKeys keys;

  int64_t size() const { return rows.size(0); }
};

/// Throws InputError unless `rows` [R] int64, on the CPU, ascend within the batch. The subset's tensors lie
/// where the batch does. `sent`: the same rows where the batch lies; undefined: they are sent there.
RowSubset select_rows(const Packing& packing, const at::Tensor& rows, const at::Tensor& sent = {});

}  // namespace funicular::nn
