#include "funicular/nn/row_subset.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/searchsorted.h>

#include "funicular/base/error.h"
#include "funicular/core/device_copy.h"
#include "funicular/runtime/device_kernels.h"

namespace funicular::nn {

RowSubset select_rows(const Packing& packing, const at::Tensor& rows, const at::Tensor& sent) {
  if (rows.scalar_type() != at::kLong || rows.dim() != 1)
    throw InputError("rows", "expected row numbers [R] of int64, found {} dimensions of {}", rows.dim(),
                     c10::toString(rows.scalar_type()));
  if (!rows.is_cpu())
    throw InputError("rows", "expected row numbers on the CPU, where they are checked, found them on {}",
                     rows.device().str());
  RowSubset subset;
  const at::Tensor listed = subset.host_rows = rows.contiguous();
  const int64_t* const numbers = listed.const_data_ptr<int64_t>();
  const int64_t count = listed.size(0), tokens = packing.tokens();
  int64_t next = 0, least = 0;  // of the rows still to come
  subset.offsets.assign(1, 0);
  for (int64_t s = 0; s < packing.sequences(); ++s) {
    for (; next < count && numbers[next] < packing.host_offsets[static_cast<size_t>(s) + 1]; ++next) {
      if (numbers[next] < least)
        throw InputError("rows", "expected ascending rows of the batch, found {} where {} is the least",
                         numbers[next], least);
      least = numbers[next] + 1;
    }
    subset.offsets.push_back(next);
  }
  if (next < count)
    throw InputError("rows", "expected rows of a batch of {} tokens, found {}", tokens, numbers[next]);
  subset.rows = sent.defined() ? sent : to_device(listed, packing.positions.device());
  if (funicular::device::takes(
          packing.offsets))  // found where the rows lie: a copy of `offsets` would be one more
    subset.begins = at::searchsorted(subset.rows, packing.offsets.to(at::kLong), /*out_int32=*/true);
  subset.keys.positions = packing.positions.index_select(0, subset.rows);
  subset.keys.draws = packing.token_draws.index_select(0, subset.rows);
  subset.keys.random = packing.random;
  return subset;
}

}  // namespace funicular::nn
