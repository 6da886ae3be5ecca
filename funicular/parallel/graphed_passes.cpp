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
#include "funicular/base/log.h"
#include "funicular/core/error_text.h"
#include "funicular/core/padded_batch.h"
#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

namespace {

/// The batch's tensor of the factors of the loss terms: one per entry of the counts, in their order, [n] float64.
constexpr const char* kFactors = "loss_factors";

/// Micro-batches of a size before one repeats a recording.
constexpr int64_t kBefore = 2;

/// The largest relative difference of gradients and losses that passes and their recording may have.
constexpr double kBound = 1e-4, kNarrowBound = 1e-2;

/// The least norm that a difference is compared with, as a share of the norm of all gradients or outputs. A gradient that
/// is zero by mathematics, such as that of the keys' bias, holds rounding alone.
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

/// Whether a pass with this batch has a backward pass.
bool learns_from(const MicroBatch& batch) {
  return batch.tensors.contains(kFactors);
}

/// The terms and outputs without their graphs.
LossSink values_of(const LossSink& found, bool copy) {
  LossSink values;
  values.keep_outputs = found.keep_outputs;
  const auto value_of = [&](const at::Tensor& one) { return copy ? one.detach().clone() : one.detach(); };
  for (const LossSink::Term& term : found.terms()) values.add(term.name, value_of(term.sum), term.weight);
  for (const auto& [name, output] : found.outputs()) values.output(name, value_of(output));
  return values;
}

/// Writes what a pass gives into the memory of the earlier results, if there are any. A recording of a GPU does the same.
void put(const LossSink& found, LossSink& results) {
  if (results.terms().empty() && results.outputs().empty()) {
    results = found;
    return;
  }
  for (size_t i = 0; i < found.terms().size(); ++i)
    results.terms().at(i).sum.copy_(found.terms()[i].sum.detach());
  for (const auto& [name, output] : found.outputs()) results.outputs().at(name).copy_(output);
}

/// The outputs without the rows that pad_batch() has added.
LossSink own_rows(const LossSink& found, const Packing& own, const Packing& padded) {
  LossSink values;
  values.keep_outputs = true;
  for (const LossSink::Term& term : found.terms()) values.add(term.name, term.sum, term.weight);
  for (const auto& [name, output] : found.outputs()) {
    const int64_t rows = output.dim() == 0 ? 0 : output.size(0);
    if (rows != padded.sequences() && rows != padded.tokens())
      throw RunError("cuda graphs",
                     "the output {} has {} rows; expected {}, one for each sequence, or {}, one for each "
                     "token; leave out --cuda-graphs",
                     name, rows, padded.sequences(), padded.tokens());
    values.output(name, output.narrow(0, 0, rows == padded.tokens() ? own.tokens() : own.sequences()));
  }
  return values;
}

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

at::Tensor norm_of(const at::Tensor& tensor) {
  return at::linalg_vector_norm(tensor.is_floating_point() ? tensor : tensor.to(at::kDouble), 2, std::nullopt,
                                false, at::kDouble);
}

/// The norms on the host, which waits once for all.
std::vector<double> numbers_of(const std::vector<at::Tensor>& norms) {
  if (norms.empty()) return {};
  const at::Tensor all = at::stack(norms).cpu();
  return {all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel()};
}

/// The sums of the terms, on the host.
std::vector<double> sums_of(const LossSink& terms) {
  std::vector<double> sums;
  for (const LossSink::Term& term : terms.terms()) sums.push_back(term.sum.item<double>());
  return sums;
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

GraphedPasses::~GraphedPasses() {
  if (passes_ > 0)
    log::info("cuda graphs: {} of {} passes were repeated from {} recordings", starts_, passes_, recorded_);
}

LossSink GraphedPasses::pass(const MicroBatch& batch, const Counts& counts) const {
  const bool learns = learns_from(batch);
  const at::AutoGradMode records(learns);
  LossSink sink;
  sink.keep_outputs = !learns;
  model_.forward({}, batch, {}, sink, {.training = learns});
  if (!learns) return sink;
  const at::Tensor total = total_of(sink, counts, batch[kFactors]);
  if (total.defined()) total.backward();
  return values_of(sink, /*copy=*/false);
}

bool GraphedPasses::run(const MicroBatch& given, const Counts& counts, double loss_scale, TermSums& sums) {
  std::optional<MicroBatch> batch = padded(given, /*learns=*/true);
  if (!batch) return false;
  batch->tensors[kFactors] = factors_of(counts, loss_scale);
  sums.add(recorded_pass(batch->to(model_.device()), counts));
  return true;
}

LossSink GraphedPasses::forward(const MicroBatch& given) {
  const std::optional<MicroBatch> batch = padded(given, /*learns=*/false);
  if (!batch) return forward_pass(model_, given);
  return own_rows(recorded_pass(batch->to(model_.device()), {}), given.packing, batch->packing);
}

std::optional<MicroBatch> GraphedPasses::padded(const MicroBatch& batch, bool learns) {
  ++passes_;
  int64_t& longest = longest_[learns ? 1 : 0];
  longest = std::max(longest, batch.packing.longest());
  return pad_batch(batch, longest);
}

LossSink GraphedPasses::recorded_pass(MicroBatch batch, const Counts& counts) {
  Size& size = sizes_[size_of(batch, counts)];
  if (!size.graph) {
    const LossSink found = pass(batch, counts);
    if (++size.seen >= kBefore && recorded_ < kMostGraphs) record(size, batch, counts);
    return found;
  }
  const at::NoGradGuard no_gradient;
  const std::vector<at::Tensor*> read = tensors_of(size.batch), here = tensors_of(batch);
  for (size_t i = 0; i < read.size(); ++i) read[i]->copy_(*here[i]);
  if (!size.checked)
    check(size, batch, counts);
  else
    start(size);
  return values_of(size.results, /*copy=*/true);
}

void GraphedPasses::start(Size& size) {
  size.graph->start();
  ++starts_;
}

void GraphedPasses::record(Size& size, const MicroBatch& batch, const Counts& counts) {
  size.batch = batch;
  for (at::Tensor* const tensor : tensors_of(size.batch)) *tensor = tensor->clone();
  try {
    size.graph = recorder_->record([this, &size, counts] { put(pass(size.batch, counts), size.results); });
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    throw RunError("cuda graphs", "a pass cannot be recorded: {}; leave out --cuda-graphs",
                   error_text(error));
  }
  ++recorded_;
}

/// Leaves the gradients and results of the recording. A loss that is not finite, as in steps that fp16 leaves out, tells
/// nothing: the next micro-batch is compared instead.
void GraphedPasses::check(Size& size, const MicroBatch& batch, const Counts& counts) {
  struct Compared {
    std::string name;
    at::Tensor right, found;
  };
  std::vector<Compared> compared;
  const bool learns = learns_from(batch);
  const std::vector<at::Tensor> before = learns ? copies_of(gradients_) : std::vector<at::Tensor>();
  const LossSink expected = pass(batch, counts);
  for (const auto& parameter : model_.parameters)
    if (const at::Tensor gradient = parameter->compute.grad(); learns && gradient.defined())
      compared.push_back({"gradients of " + parameter->name, gradient.clone(), gradient});
  for (size_t i = 0; i < before.size(); ++i) gradients_[i].copy_(before[i]);
  start(size);
  for (const auto& [name, output] : expected.outputs())
    compared.push_back({"outputs " + name, output, size.results.outputs().at(name)});
  std::vector<at::Tensor> right_norms, norms, differences;
  for (const Compared& one : compared) {
    right_norms.push_back(norm_of(one.right));
    norms.push_back(norm_of(one.found));
    differences.push_back(norm_of(one.found - one.right));
  }
  const std::vector<double> expected_norms = numbers_of(right_norms), found_norms = numbers_of(norms),
                            by = numbers_of(differences);
  const std::vector<double> expected_sums = sums_of(expected), found_sums = sums_of(size.results);
  double all = 0;
  for (size_t i = 0; i < compared.size(); ++i)
    if (compared[i].right.is_floating_point()) all = std::hypot(all, expected_norms[i]);
  const auto finite = [](double value) { return std::isfinite(value); };
  if (!std::isfinite(all) || !std::all_of(expected_sums.begin(), expected_sums.end(), finite)) return;
  const auto narrow = [](const auto& parameter) { return parameter->compute.element_size() < 4; };
  const bool rounds = std::any_of(model_.parameters.begin(), model_.parameters.end(), narrow);
  const double bound = rounds ? kNarrowBound : kBound;
  for (size_t i = 0; i < by.size(); ++i) {
    const bool rounded = compared[i].right.is_floating_point();
    require_close(compared[i].name, by[i], expected_norms[i], found_norms[i], rounded ? kLeastShare * all : 0,
                  rounded ? bound : 0);
  }
  for (size_t i = 0; i < expected_sums.size(); ++i)
    require_close("losses", std::abs(found_sums[i] - expected_sums[i]), std::abs(expected_sums[i]),
                  std::abs(found_sums[i]), 0, bound);
  size.checked = true;
}

}  // namespace funicular::parallel
