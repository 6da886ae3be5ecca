// One process, or replicas that reduce their gradients: S. Li et al., "PyTorch Distributed: Experiences on
// Accelerating Data Parallel Training", VLDB 2020 (buckets in the order of the backward pass, section 3.2).

#include "funicular/parallel/data_parallel.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/comm/error_feedback.h"
#include "funicular/core/recompute.h"
#include "funicular/parallel/gradient_hooks.h"
#include "funicular/parallel/graphed_passes.h"
#include "funicular/parallel/replicated.h"
#include "funicular/parallel/tree_sum.h"
#include "funicular/runtime/device_kernels.h"

namespace funicular::parallel {

namespace {

void require_recordable(const Model& model, bool on_device, bool deterministic) {
  if (on_device && !deterministic) return;
  throw InputError(
      "strategy",
      "--cuda-graphs needs a GPU and goes without --deterministic, found a model on {}; leave it out",
      model.device().str());
}

class DataParallel final : public Replicated, private StepParts {
 public:
  DataParallel(comm::Group group, const StrategyOptions& options) : Replicated(std::move(group), options) {
    if (options.reduction.type && options.deterministic)
      throw InputError(
          "strategy",
          "--deterministic and --reduce-precision contradict each other: rounded sums depend on the ranks");
  }
  std::string name() const override { return group().size() == 1 ? "single" : "ddp"; }
  void use_batch_statistics(BatchStatistics over) override { norms_.use(over); }

  StepResult step(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings) override {
    return take_step(*this, micro_batches, global, settings);
  }
  EvalResult evaluate(std::span<const MicroBatch> micro_batches) override {
    if (!graphed_) return Replicated::evaluate(micro_batches);
    return evaluate_micro_batches(micro_batches,
                                  [this](const MicroBatch& batch) { return graphed_->forward(batch); });
  }
  void state_changed() override { refresh_weights(); }

  void detach() override {
    gradient_hooks_.reset();  // from now on the module belongs to another strategy or to its user
    Replicated::detach();
  }

 private:
  /// A range of the matrices' gradients that one all-reduce takes.
  struct Bucket {
    FlatRange elements;
    size_t segment = 0;  ///< the bucket is complete after this segment's backward pass
    size_t weights = 0;  ///< for a module with one segment: complete when this many weights have gradients
    size_t missing = 0;  ///< weights without a gradient so far in this step
  };

  struct Reducing {
    comm::Work work;
    at::Tensor gradient, compressed;  ///< only with rounding: the gradient [n], and its rounded copy
  };

  void allocate(Model& model, const MatrixTypes& types) override {
    if (options().reduction.type && (types.compute == at::kHalf || autocast() == at::kHalf))
      throw InputError(
          "strategy",
          "--reduce-precision does not go with fp16, whose skipped steps would lose what was carried "
          "over; expected --precision bf16 or fp32");
    // Gradients are freed after the update if nothing else needs their buffer. Other ranks, a tree of sums, and sums
    // over micro-batches in a wider type than autograd's need it. A GPU's optimiser takes flat gradients.
    const bool on_device = std::any_of(model.parameters.begin(), model.parameters.end(), [](const auto& one) {
      return funicular::device::takes(one->compute);
    });
    const bool free_gradients =
        group().size() == 1 && !options().deterministic && types.compute == types.gradient && !on_device;
    if (options().reduction.type && on_device)
      throw InputError(
          "strategy",
          "--reduce-precision rounds sums by kernels for the CPU, found a model on {}; leave it out",
          model.device().str());
    hold(std::make_unique<Holding>(model, types, free_gradients, optimizer().takes_row_gradients()));
    if (options().cuda_graphs) {
      require_recordable(model, on_device, options().deterministic);
      graphed_ = std::make_unique<GraphedPasses>(model, gradients());
    }
    if (group().size() == 1) return;
    make_buckets();
    const at::Tensor& gradient = holding().gradients(ParameterKind::matrix);
    if (options().reduction.type && at::elementSize(gradient.scalar_type()) > 2)
      feedback_.emplace(gradient.numel(), gradient.options(), *options().reduction.type, group().size());
  }

  void start_step(const StepSettings&) override {
    holding().gradients().start();
    started_ = 0;
    reducing_ = passing_ = false;
    for (Bucket& bucket : buckets_) bucket.missing = bucket.weights;
  }

  void run_passes(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings, TermSums& sums) override {
    for (const MicroBatch& batch : micro_batches) {
      reducing_ = &batch == &micro_batches.back() && !options().deterministic;
      passing_ = false;
      recomputed_ = recomputed_runs();
      const bool graphed = graphed_ && settings.recompute == Recompute::none && !settings.taps.observe &&
                           graphed_->run(batch, global, settings.loss_scale, sums);
      if (!graphed) run(model(), batch, global, settings, sums);
      if (!options().deterministic) continue;
      tree_.add(gradients());
      holding().gradients().zero();
    }
  }

  /// Marks the start of the backward pass: hooks that fire within the forward pass must not count.
  void before_backward(size_t) override { passing_ = reducing_; }

  void after_backward(size_t segment) override {
    if (!reducing_) return;
    reduce_until(segment);  // a tied weight is in the bucket of the first segment that uses it
  }

  void finish_gradients() override {
    if (options().deterministic) tree_.finish(gradients());
    if (group().size() == 1) return holding().gradients().collect();
    reduce_until(0);
    learn_order();
    reducing_ = passing_ = false;
    works_.push_back({group().start_all_reduce(holding().gradients(ParameterKind::vector)), {}, {}});
    for (const Reducing& one : works_) {
      wait(one.work);
      if (one.compressed.defined()) one.gradient.copy_(one.compressed);
    }
    works_.clear();
  }

  void finish_update() override { holding().gradients().note_update(); }

  at::Tensor gradient_of(const Bucket& bucket) const {
    return holding()
        .gradients(ParameterKind::matrix)
        .narrow(0, bucket.elements.begin, bucket.elements.size());
  }

  std::vector<at::Tensor> gradients() const {
    return {holding().gradients(ParameterKind::matrix), holding().gradients(ParameterKind::vector)};
  }

  /// A collective of GPUs costs more to start, and less per byte, than one in shared memory.
  int64_t bucket_bytes() const {
    if (options().reduction.bucket_bytes > 0) return options().reduction.bucket_bytes;
    return model().device().is_cpu() ? 4 << 20 : 25 << 20;
  }

  /// Adds `elements`, which lie directly before the last bucket, to that bucket, or begins a new one.
  void add_to_buckets(const FlatRange& elements, size_t segment) {
    const int64_t width = static_cast<int64_t>(holding().gradients(ParameterKind::matrix).element_size());
    if (buckets_.empty() || buckets_.back().elements.size() * width >= bucket_bytes())
      buckets_.push_back({{0, elements.end}});
    buckets_.back().elements.begin = elements.begin;
    buckets_.back().segment = segment;
  }

  /// Makes buckets of units, from the last to the first. A module with one unit gets buckets of weights, in the reverse
  /// of the order in which it names them.
  void make_buckets() {
    const auto& units = layout().units();
    if (units.size() == 1) return make_buckets_of_weights();
    for (size_t u = units.size(); u-- > 0;) add_to_buckets(units[u].matrices, units[u].segment);
    forget_order();
  }

  void make_buckets_of_weights() {
    std::vector<FlatLayout::Entry> matrices;
    for (const FlatLayout::Entry& entry : layout().entries())
      if (entry.parameter->kind == ParameterKind::matrix) matrices.push_back(entry);
    std::vector<size_t> bucket_of(matrices.size());
    // Padding after a weight belongs to the weight before it.
    int64_t end = layout().matrices_end();
    for (size_t m = matrices.size(); m-- > 0;) {
      add_to_buckets({matrices[m].offset, end}, layout().units().front().segment);
      end = matrices[m].offset;
      ++buckets_.back().weights;
      bucket_of[m] = buckets_.size() - 1;
    }
    forget_order();
    of_weights_ = true;
    gradient_hooks_ = std::make_unique<GradientHooks>(
        matrices, [this, bucket_of](size_t matrix) { weight_ready(bucket_of[matrix]); });
  }

  void weight_ready(size_t number) {
    if (!passing_ || recomputed_runs() != recomputed_) return;
    Bucket& bucket = buckets_[number];
    if (bucket.missing == 0 || --bucket.missing > 0) return;
    if (!order_known_) completed_.push_back(static_cast<int64_t>(number));
    while (started_ < order_.size() && bucket_at(started_).missing == 0) start_next();
  }

  void forget_order() {
    order_.resize(buckets_.size());
    std::iota(order_.begin(), order_.end(), int64_t{0});
  }

  /// Takes the order in which buckets became complete on rank 0 in the first step for all later steps. So a weight that
  /// the module names late but uses early, or never uses, delays no other bucket. Collective.
  void learn_order() {
    if (!of_weights_ || order_known_) return;
    for (const int64_t number : order_)
      if (buckets_[static_cast<size_t>(number)].missing > 0) completed_.push_back(number);
    const at::Tensor order = at::tensor(completed_, at::kLong);
    group().broadcast(order, 0);
    std::copy_n(order.const_data_ptr<int64_t>(), order_.size(), order_.begin());
    order_known_ = true;
  }

  /// Starts the reductions of all buckets down to `segment`, in the order that all ranks share.
  void reduce_until(size_t segment) {
    while (started_ < order_.size() && bucket_at(started_).segment >= segment) start_next();
  }

  const Bucket& bucket_at(size_t place) const { return buckets_[static_cast<size_t>(order_[place])]; }

  void start_next() {
    reduce(bucket_at(started_));
    ++started_;
  }

  void reduce(const Bucket& bucket) {
    const at::Tensor gradient = gradient_of(bucket);
    if (!feedback_) return works_.push_back({group().start_all_reduce(gradient), {}, {}});
    const at::Tensor compressed = feedback_->compress(gradient, bucket.elements.begin);
    works_.push_back({group().start_all_reduce(compressed), gradient, compressed});
  }

  /// Shows each rank's residuals of the error feedback.
  void visit_own_state(StateVisitor& visitor) const override {
    if (!feedback_) return;
    for (int rank = 0; rank < group().size(); ++rank)
      for (const FlatLayout::Layer& layer : layout().layers()) {
        if (!layer.matrix) continue;
        StateSlice slice{.kind = StateSlice::Kind::optimizer,
                         .name = layer.name,
                         .shape = layer.shape,
                         .local = {},
                         .optional = true,
                         .state = fmt::format("{}{}", kRanksOwn, rank)};
        const at::Tensor& residual = feedback_->residual();
        slice.local = rank == group().rank()
                          ? residual.narrow(0, layer.elements.begin, layer.elements.size()).view(layer.shape)
                          : at::empty({0}, residual.options());
        visitor.visit(slice);
      }
  }

  std::vector<Bucket> buckets_;     ///< from the last weights to the first
  std::vector<int64_t> order_;      ///< the order in which reductions start, equal on all ranks
  std::vector<int64_t> completed_;  ///< in the order in which they became complete in the first step
  bool of_weights_ = false;         ///< a bucket is complete when its weights are, not when its segment is
  bool order_known_ = false;
  int64_t recomputed_ = 0;                         ///< recomputed_runs() when this pass began
  std::unique_ptr<GraphedPasses> graphed_;         ///< null without StrategyOptions::cuda_graphs
  std::unique_ptr<GradientHooks> gradient_hooks_;  ///< only for a module with one unit
  std::vector<Reducing> works_;
  std::optional<comm::ErrorFeedback> feedback_;
  TreeSum tree_;
  size_t started_ = 0;
  bool reducing_ = false;  ///< within the last micro-batch
  bool passing_ = false;   ///< within its backward pass
};

}  // namespace

std::unique_ptr<Replicated> make_data_parallel(comm::Group group, const StrategyOptions& options) {
  return std::make_unique<DataParallel>(std::move(group), options);
}

}  // namespace funicular::parallel
