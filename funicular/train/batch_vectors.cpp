#include "funicular/train/batch_vectors.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/core/device_copy.h"
#include "funicular/train/eval_codec.h"

namespace funicular::train {

namespace {

/// The position of each draw in the global batch.
class Places {
 public:
  explicit Places(const std::vector<int64_t>& draws) {
    for (const int64_t draw : draws) places_.emplace(draw, std::ssize(places_));
  }
  int64_t size() const { return std::ssize(places_); }
  at::Tensor of(const at::Tensor& draws) const {
    const at::Tensor host = draws.cpu().contiguous();
    std::vector<int64_t> found;
    for (int64_t i = 0; i < host.numel(); ++i) found.push_back(places_.at(host.const_data_ptr<int64_t>()[i]));
    return at::tensor(found, at::kLong);
  }

 private:
  std::map<int64_t, int64_t> places_;
};

/// Collects the outputs of all rows in the order of the global batch.
class Table {
 public:
  explicit Table(const Places& places) : places_(places) {}

  void add(const TensorMap& outputs) {
    const auto draws = outputs.find(kRowDraws);
    if (draws == outputs.end()) return;
    const at::Tensor at = places_.of(draws->second);
    for (const auto& [name, value] : outputs) {
      at::Tensor& whole = rows_[name];
      std::vector<int64_t> shape = value.sizes().vec();
      shape.at(0) = places_.size();
      if (!whole.defined()) whole = at::empty(shape, value.options());
      whole.index_copy_(0, to_device(at, value.device()), value);
    }
    filled_ += at.numel();
  }

  /// Throws RunError unless every row has come once.
  const TensorMap& rows() const {
    if (filled_ != places_.size())
      throw RunError("loss",
                     "the forward passes of all ranks gave vectors of {} rows; the batch has {} rows. All "
                     "ranks must run the same program",
                     filled_, places_.size());
    return rows_;
  }

 private:
  const Places& places_;
  TensorMap rows_;
  int64_t filled_ = 0;
};

/// Drops the outputs that the loss does not read.
void keep_read(parallel::EvalResult& result, const BatchLoss& loss) {
  std::vector<std::string> read = loss.reads();
  read.insert(read.end(), {kRowVectors, kRowDraws});
  for (TensorMap& outputs : result.outputs)
    std::erase_if(outputs, [&](const auto& output) {
      return std::find(read.begin(), read.end(), output.first) == read.end();
    });
}

/// The outputs of the global batch, on every rank.
TensorMap rows_of_batch(parallel::EvalResult own, const Places& places, const comm::Group& group) {
  Table table(places);
  if (group.size() == 1) {
    for (TensorMap& outputs : own.outputs) {
      table.add(outputs);
      outputs.clear();
    }
    return table.rows();
  }
  for (const std::string& text : group.gather_texts(encode(own)))
    for (const TensorMap& outputs : decode(text).outputs) table.add(outputs);
  return table.rows();
}

/// Joins both parts of a result in one tensor, so that a single sum over the ranks is enough.
void add_over_ranks(BatchLoss::Result& result, const comm::Group& group) {
  const int64_t rows = result.values.numel();
  const at::Tensor both = at::cat({result.values, result.gradients.flatten()});
  group.all_reduce(both);
  result.values = both.narrow(0, 0, rows);
  result.gradients = both.narrow(0, rows, both.numel() - rows).view(result.gradients.sizes());
}

}  // namespace

void check_batch_loss(const Source& source, parallel::Strategy& strategy) {
  if (!source.batch_loss() || (!strategy.asynchronous() && !strategy.overlapping())) return;
  throw InputError(
      "loss",
      "{} overlaps steps, and the loss compares all rows of a batch; choose ddp, zero1, zero2, zero3, "
      "tensor slices, or --schedule 1f1b",
      strategy.name());
}

void add_vector_gradients(const BatchLoss& loss, GlobalBatch& batch, parallel::Strategy& strategy) {
  const comm::Group& group = strategy.group();
  if (group.size() == 1 && batch.micro_batches.size() == 1 && strategy.parts() == 1) return;
  RECORD_FUNCTION("funicular::batch_vectors", c10::ArrayRef<const c10::IValue>{});
  const at::NoGradGuard no_gradient;
  const Places places(batch.draw_ids);
  parallel::EvalResult own = strategy.evaluate(batch.micro_batches);
  keep_read(own, loss);
  const TensorMap rows = rows_of_batch(std::move(own), places, group);
  // Sums over ranks have another order than the sum of one rank. A deterministic run has one rank's bits: each rank
  // computes all rows.
  const bool divided = group.size() > 1 && strategy.data_share().cut == parallel::DataShare::Cut::balanced;
  const int64_t ranks = divided ? group.size() : 1, rank = divided ? group.rank() : 0;
  BatchLoss::Result result =
      loss.compute(rows, places.size() * rank / ranks, places.size() * (rank + 1) / ranks, true);
  if (divided) add_over_ranks(result, group);
  for (MicroBatch& micro_batch : batch.micro_batches) {
    const at::Tensor at = to_device(places.of(micro_batch.on_host(kRowDraws)), result.values.device());
    micro_batch.tensors[kVectorGradients] = result.gradients.index_select(0, at);
    micro_batch.tensors[kRowLosses] = result.values.index_select(0, at);
  }
}

}  // namespace funicular::train
