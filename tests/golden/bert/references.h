#pragma once
// What the golden tests of models share: references read, and how far two tensors are apart.

#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "funicular/core/batch.h"
#include "funicular/format/safetensors.h"

namespace funicular::model {

inline at::Tensor to_tensor(const format::TensorEntry& entry) {
  const auto type = entry.dtype == format::DType::F32   ? at::kFloat
                    : entry.dtype == format::DType::F64 ? at::kDouble
                                                        : at::kLong;
  at::Tensor value = at::empty(entry.shape, type);
  std::memcpy(value.data_ptr(), entry.data.data(), entry.data.size());
  return value;
}

inline MicroBatch read_batch(const fs::path& path) {
  const format::SafetensorsFile file(path);
  MicroBatch batch;
  for (const auto& entry : file.entries()) batch.tensors[entry.name] = to_tensor(entry);
  std::vector<int32_t> lengths;
  std::vector<int64_t> ids;
  const at::Tensor& stored = batch["lengths"];
  for (int64_t s = 0; s < stored.numel(); ++s) {
    lengths.push_back(static_cast<int32_t>(stored[s].item<int64_t>()));
    ids.push_back(s);
  }
  batch.packing = Packing::from_lengths(lengths, ids, ids, {});
  const bool draws = batch.tensors.contains("sampling_bits");
  const char* const targets = batch.tensors.contains("mlm_labels") ? "mlm_labels"
                              : batch.tensors.contains("replaced") ? "replaced"
                              : batch.tensors.contains("starts")   ? "starts"
                                                                   : "labels";
  const double count = static_cast<double>(batch[targets].numel());
  for (const char* name : {"mlm", "classification", "regression", "multi_label", "replaced", "tags", "spans"})
    batch.counts[name] = count;
  if (draws) batch.counts["replaced"] = static_cast<double>(batch.packing.tokens());
  batch.counts["next_sentence"] = static_cast<double>(batch.packing.sequences());
  return batch;
}

/// ‖a − b‖ / max(‖b‖, 1e-6 · ‖b_all‖): relative to the tensor, unless its gradient is mathematically zero.
inline double relative_difference(const at::Tensor& a, const at::Tensor& b, double all) {
  const double norm = b.to(at::kDouble).norm().item<double>();
  return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>() / std::max(norm, 1e-6 * all);
}

}  // namespace funicular::model
