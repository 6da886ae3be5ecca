#include "funicular/parallel/graphed_passes.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/core/error_text.h"
#include "funicular/core/padded_batch.h"

namespace funicular::parallel {

namespace {

/// The batch's tensor of the factors of the loss terms: one per entry of the counts, in their order, [n] float64.
constexpr const char* kFactors = "loss_factors";

/// Micro-batches of a size before one repeats a recording.
constexpr int64_t kBefore = 2;

/// The largest relative difference of gradients and losses that passes and their recording may have.
constexpr double kBound = 1e-4, kNarrowBound = 1e-2;

/// The least norm that a difference is compared with, as a share of the norm of all gradients. A gradient that is zero by
/// mathematics, such as that of the keys' bias, holds rounding alone.
constexpr double kLeastShare = 1e-2;

at::Tensor factors_of(const Counts& counts, double loss_scale) {
  std::vector<double> factors;
  for (const auto& [name, count] : counts) factors.push_back(count == 0 ? 0 : loss_scale / count);
  return at::tensor(factors, at::kDouble);
}

/// LossSink::total() with the factors on the device, where each start of a recording reads them.
at::Tensor total_of(const LossSink& sink, const Counts& counts, const at::Tensor& factors) {
  at::Tensor total;
  for (const LossSink::Term& term : sink.terms()) {
    count_of(counts, term.name);  // throws if there is none
    const auto own = counts.contains(term.name) ? counts.find(term.name) : counts.find("samples");
    const at::Tensor factor = factors.select(0, std::distance(counts.begin(), own)) * term.weight;
    const at::Tensor part = term.sum * factor.to(term.sum.scalar_type());
    total = total.defined() ? total + part : part;
  }
  return total;
}

std::vector<at::Tensor*> tensors_of(MicroBatch& batch) {
  Packing& packing = batch.packing;
  std::vector<at::Tensor*> all{&packing.offsets, &packing.sample_ids, &packing.draw_ids, &packing.positions,
                               &packing.token_draws};
  for (auto& [name, tensor] : batch.tensors) all.push_back(&tensor);
  return all;
}

/// Names the sizes of a batch and all that kernels get from the host.
std::string size_of(const MicroBatch& batch, const Counts& counts) {
  std::string size = fmt::format("{} {} {} {}", batch.packing.sequences(), batch.packing.longest(),
                                 batch.packing.random.seed, batch.packing.random.training);
  for (const auto& [name, tensor] : batch.tensors)
    size += fmt::format(" {} {}", name, fmt::join(tensor.sizes(), "x"));
  for (const auto& [name, count] : counts) size += " " + name;
  return size;
}

/// The terms without their graphs.
LossSink values_of(const LossSink& terms, bool copy) {
  LossSink values;
  for (const LossSink::Term& term : terms.terms())
    values.add(term.name, copy ? term.sum.detach().clone() : term.sum.detach(), term.weight);
  return values;
}

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

at::Tensor norm_of(const at::Tensor& tensor) {
  return at::linalg_vector_norm(tensor, 2, std::nullopt, false, at::kDouble);
}

/// The norms on the host, which waits once for all.
std::vector<double> numbers_of(const std::vector<at::Tensor>& norms) {
  const at::Tensor all = at::stack(norms).cpu();
  return {all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel()};
}

/// `least`: the least value that the difference is compared with.
void require_close(const std::string& what, double difference, double expected, double found, double least,
                   double bound) {
  if (difference <= bound * std::max({expected, found, least})) return;
  throw RunError(
      "cuda graphs",
      "a repeated pass gives other {} than the pass itself: expected {}, found {}, and the difference "
      "is {}; leave out --cuda-graphs, and report this",
      what, expected, found, difference);
}

}  // namespace

GraphedPasses::GraphedPasses(const Model& model, std::vector<at::Tensor> gradients)
    : model_(model), gradients_(std::move(gradients)) {
  if (!model.low_precision || !model.buffers.empty())
    throw InputError("cuda graphs",
                     "this model has segments that are not this library's own; leave out --cuda-graphs");
  recorder_ = device::make_graph_recorder(model.parameters.front()->compute);
}

LossSink GraphedPasses::pass(const MicroBatch& batch, const Counts& counts) const {
  LossSink sink;
  model_.forward({}, batch, {}, sink, {.training = true});
  const at::Tensor total = total_of(sink, counts, batch[kFactors]);
  if (total.defined()) total.backward();
  return values_of(sink, /*copy=*/false);
}

bool GraphedPasses::run(const MicroBatch& given, const Counts& counts, double loss_scale, TermSums& sums) {
  longest_ = std::max(longest_, given.packing.longest());
  std::optional<MicroBatch> batch = pad_batch(given, longest_);
  if (!batch) return false;
  batch->tensors[kFactors] = factors_of(counts, loss_scale);
  batch = batch->to(model_.device());
  Size& size = sizes_[size_of(*batch, counts)];
  if (!size.graph) {
    sums.add(pass(*batch, counts));
    if (++size.seen >= kBefore && recorded_ < kMostGraphs) record(size, *batch, counts);
    return true;
  }
  const at::NoGradGuard no_gradient;
  const std::vector<at::Tensor*> read = tensors_of(size.batch), here = tensors_of(*batch);
  for (size_t i = 0; i < read.size(); ++i) read[i]->copy_(*here[i]);
  if (!size.checked)
    check(size, *batch, counts);
  else
    start(size);
  sums.add(values_of(size.terms, /*copy=*/true));
  return true;
}

void GraphedPasses::start(Size& size) {
  size.graph->start();
  ++starts_;
}

void GraphedPasses::record(Size& size, const MicroBatch& batch, const Counts& counts) {
  size.batch = batch;
  for (at::Tensor* const tensor : tensors_of(size.batch)) *tensor = tensor->clone();
  try {
    size.graph = recorder_->record([this, &size, counts] {
      const at::AutoGradMode records(true);
      size.terms = pass(size.batch, counts);
    });
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    throw RunError("cuda graphs", "a pass cannot be recorded: {}; leave out --cuda-graphs",
                   error_text(error));
  }
  ++recorded_;
}

/// Leaves the gradients and terms of the recording. A loss that is not finite, as in steps that fp16 leaves out, tells
/// nothing: the next micro-batch is compared instead.
void GraphedPasses::check(Size& size, const MicroBatch& batch, const Counts& counts) {
  const std::vector<at::Tensor> before = copies_of(gradients_);
  const LossSink expected = [&] {
    const at::AutoGradMode records(true);
    return pass(batch, counts);
  }();
  std::vector<const Parameter*> trained;
  for (const auto& parameter : model_.parameters)
    if (parameter->compute.grad().defined()) trained.push_back(parameter.get());
  std::vector<at::Tensor> right, right_norms, norms, differences;
  for (const Parameter* const one : trained) right.push_back(one->compute.grad().clone());
  for (size_t i = 0; i < before.size(); ++i) gradients_[i].copy_(before[i]);
  start(size);
  for (size_t i = 0; i < right.size(); ++i) {
    const at::Tensor found = trained[i]->compute.grad();
    right_norms.push_back(norm_of(right[i]));
    norms.push_back(norm_of(found));
    differences.push_back(norm_of(found - right[i]));
  }
  const std::vector<double> expected_norms = numbers_of(right_norms), found_norms = numbers_of(norms),
                            by = numbers_of(differences);
  double all = 0;
  for (const double norm : expected_norms) all = std::hypot(all, norm);
  if (!std::isfinite(all)) return;
  const auto narrow = [](const auto& parameter) { return parameter->compute.element_size() < 4; };
  const bool rounds = std::any_of(model_.parameters.begin(), model_.parameters.end(), narrow);
  const double bound = rounds ? kNarrowBound : kBound;
  for (size_t i = 0; i < by.size(); ++i)
    require_close("gradients of " + trained[i]->name, by[i], expected_norms[i], found_norms[i],
                  kLeastShare * all, bound);
  for (size_t i = 0; i < expected.terms().size(); ++i) {
    const double right_sum = expected.terms()[i].sum.item<double>(),
                 sum = size.terms.terms().at(i).sum.item<double>();
    require_close("losses", std::abs(sum - right_sum), std::abs(right_sum), std::abs(sum), 0, bound);
  }
  size.checked = true;
}

}  // namespace funicular::parallel
