#include "funicular/train/source.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"

namespace funicular::train {

TensorDataset::TensorDataset(TensorMap tensors) : tensors_(std::move(tensors)) {
  StreamHash hash;
  bool first = true;
  for (auto& [name, tensor] : tensors_) {
    if (!tensor.defined() || tensor.dim() == 0)
      throw InputError("data", "the tensor {} has no first dimension; expected one sample a row", name);
    if (first) size_ = tensor.size(0);
    first = false;
    if (tensor.size(0) != size_)
      throw InputError("data", "the tensor {} has {} rows; expected {} as the tensors before it", name,
                       tensor.size(0), size_);
    tensor = tensor.detach().cpu().contiguous();
    hash.update(name.data(), name.size());
    hash.update(tensor.sizes().data(), tensor.sizes().size() * sizeof(int64_t));
    hash.update(tensor.const_data_ptr(), tensor.nbytes());
  }
  if (first) throw InputError("data", "expected at least one tensor, found none");
  fingerprint_ = hash.digest();
}

MicroBatch TensorDataset::collate(std::span<const data::Draw> draws, const RandomState& random) const {
  std::vector<int64_t> samples, ids;
  for (const data::Draw& draw : draws) {
    samples.push_back(draw.sample_id);
    ids.push_back(draw.draw_id);
  }
  MicroBatch batch;
  const at::Tensor rows = at::tensor(samples, at::kLong);
  for (const auto& [name, tensor] : tensors_) batch.tensors[name] = tensor.index_select(0, rows);
  batch.packing = Packing::from_lengths(std::vector<int32_t>(draws.size(), 1), samples, ids, random);
  batch.counts["samples"] = static_cast<double>(draws.size());
  return batch;
}

}  // namespace funicular::train
