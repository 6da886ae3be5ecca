#include "funicular/nn/attention_pattern.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "funicular/nn/function_support.h"
#include "funicular/runtime/work_items.h"

namespace funicular::nn {

at::Tensor rotations(int64_t positions, int64_t head_size, double base, const at::TensorOptions& options) {
  const at::Tensor table = at::empty({positions, head_size}, at::kDouble);
  const int64_t half = head_size / 2;
  auto* const out = table.mutable_data_ptr<double>();
  std::vector<float> frequencies;
  for (int64_t i = 0; i < half; ++i) {
    const auto exponent = static_cast<float>(2 * i) / static_cast<float>(head_size);
    frequencies.push_back(1.0F / static_cast<float>(std::pow(base, static_cast<double>(exponent))));
  }
  for_each_range(0, positions, 64, [&](int64_t begin, int64_t end) {
    for (int64_t position = begin; position < end; ++position)
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<float>(position) * frequencies[static_cast<size_t>(i)];
        out[position * head_size + i] = std::cos(angle);
        out[position * head_size + half + i] = std::sin(angle);
      }
  });
  return table.to(options);
}

at::Tensor bucket_rows(int64_t positions, int64_t buckets, int64_t farthest) {
  const int64_t side = buckets / 2, single = side / 2;
  const at::Tensor ahead = at::arange(1 - positions, positions, at::kLong);  // key - query
  const at::Tensor distance = ahead.abs();
  // The order of operations decides how distances at the bounds are rounded.
  const double widest = std::log(static_cast<double>(farthest) / static_cast<double>(single));
  const at::Tensor beyond =
      (at::log(distance.to(at::kFloat) / single) / widest * (side - single)).to(at::kLong) + single;
  const at::Tensor bucket = at::where(distance.lt(single), distance, beyond.clamp(0, side - 1));
  return bucket + ahead.gt(0).to(at::kLong) * side;
}

namespace {

/// The part of distance_rows for sequences of at most `longest` tokens. An empty batch gets the distance 0.
at::Tensor rows_within(const AttentionPattern& pattern, int64_t longest) {
  longest = std::max<int64_t>(longest, 1);
  const int64_t positions = (pattern.distance_rows.size(0) + 1) / 2;
  return pattern.distance_rows.narrow(0, positions - longest, 2 * longest - 1);
}

}  // namespace

at::Tensor distance_scores(const AttentionPattern& pattern, int64_t longest, double scale,
                           at::ScalarType type) {
  const at::Tensor values = pattern.distance_table.detach().to(type).div(scale);
  return values.index_select(0, rows_within(pattern, longest)).t().contiguous();
}

void learn_distances(const AttentionPattern& pattern, const at::Tensor& gradients, double scale) {
  const at::Tensor target = gradient_of(pattern.distance_table);
  if (!target.defined()) return;
  const at::Tensor by_distance = gradients.sum(0).t().div(scale);
  const at::Tensor sums = at::zeros({target.size(0), by_distance.size(1)}, by_distance.options());
  const at::Tensor rows = rows_within(pattern, (by_distance.size(0) + 1) / 2);
  if (sums.is_cuda())
    sums.index_put_({rows}, by_distance,
                    /*accumulate=*/true);  // in a fixed order, unlike index_add_ on a GPU
  else
    sums.index_add_(0, rows, by_distance);
  target.add_(sums.to(target.scalar_type()));
}

at::Tensor turned(const at::Tensor& x, const at::Tensor& rotations, bool back) {
  const at::Tensor wide = x.to(rotations.scalar_type());
  const int64_t half = rotations.size(1) / 2;
  const at::Tensor cosines = rotations.narrow(1, 0, half).unsqueeze(1),
                   sines = rotations.narrow(1, half, half).unsqueeze(1);
  const at::Tensor first = wide.narrow(2, 0, half), second = wide.narrow(2, half, half);
  if (back)
    return at::cat({first * cosines + second * sines, second * cosines - first * sines}, 2)
        .to(x.scalar_type());
  return at::cat({first * cosines - second * sines, second * cosines + first * sines}, 2).to(x.scalar_type());
}

}  // namespace funicular::nn
