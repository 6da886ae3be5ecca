#pragma once
// Some rows of a packed batch: those that a head reads, and so all that its last layer has to compute.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "funicular/core/batch.h"

namespace funicular::nn {

/// What every random choice of some rows is keyed by.
struct RowKeys {
  at::Tensor positions, draws;  ///< [R] int32, int64: place in the sequence; its draw. Undefined: no dropout
  RandomState random;

  RowKeys() = default;
  RowKeys(const Packing& packing)  // NOLINT: all rows of a batch are rows
      : positions(packing.positions), draws(packing.token_draws), random(packing.random) {}
};

struct RowSubset {
  at::Tensor rows;               ///< [R] int64: rows of the packed batch, ascending, none twice
  std::vector<int64_t> offsets;  ///< [S+1]: those of sequence s are rows[offsets[s]] … rows[offsets[s+1]-1]
  RowKeys keys;

  int64_t size() const { return rows.size(0); }
};

/// Throws InputError unless `rows` [R] int64, on the CPU, ascend within the batch. The subset's tensors lie
/// where the batch does.
RowSubset select_rows(const Packing& packing, const at::Tensor& rows);

}  // namespace funicular::nn
