// One process, or replicas that reduce their gradients: S. Li et al., "PyTorch Distributed: Experiences on
// Accelerating Data Parallel Training", VLDB 2020 (buckets in the order of the backward pass, section 3.2).

#include "funicular/parallel/data_parallel.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/comm/error_feedback.h"
#include "funicular/parallel/replicated.h"
#include "funicular/parallel/tree_sum.h"

namespace funicular::parallel {

namespace {

class DataParallel final : public Replicated {
 public:
  DataParallel(comm::Group group, const StrategyOptions& options) : Replicated(std::move(group), options) {
    if (options.reduce_in && options.deterministic)
      throw InputError(
          "strategy",
          "--deterministic and --reduce-precision contradict each other: rounded sums depend on the ranks");
  }
  std::string name() const override { return group().size() == 1 ? "single" : "ddp"; }

  void state_changed() override { refresh_all(); }

 private:
  /// A range of the matrices' gradients that is reduced at once.
  struct Bucket {
    FlatRange elements;
    size_t segment = 0;  ///< it is complete when the backward pass of this one is done
  };

  struct Reducing {
    comm::Work work;
    at::Tensor gradient, compressed;  ///< where it is rounded: [n], and what becomes of it
  };

  void allocate(Model& model, const MatrixTypes& types, UpdateTarget& target) override {
    if (options().reduce_in && (types.compute == at::kHalf || autocast() == at::kHalf))
      throw InputError(
          "strategy",
          "--reduce-precision does not go with fp16, whose skipped steps would lose what was carried "
          "over; expected --precision bf16 or fp32");
    flat_ = std::make_unique<FlatParameters>(model, types);
    target = *flat_->target();
    make_buckets();
    const at::Tensor& gradient = flat_->gradient(ParameterGroup::decay);
    if (options().reduce_in && group().size() > 1 && at::elementSize(gradient.scalar_type()) > 2)
      feedback_.emplace(gradient.numel(), gradient.options(), *options().reduce_in, group().size());
  }

  void start_step(const StepSettings&) override {
    gradients_are_zero_ ? flat_->point_gradients() : flat_->zero_gradient();
    gradients_are_zero_ = false;
    started_ = 0;
    reducing_ = false;
  }

  void start_round(bool last) override { reducing_ = last && !options().deterministic; }

  void finish_round(bool) override {
    if (!options().deterministic) return;
    tree_.add(gradients());
    flat_->zero_gradient();
  }

  void after_backward(size_t segment) override {
    if (!reducing_) return;
    // A tied weight belongs to the bucket of the first segment that uses it; the fault is to forget that.
    if (options().fault == Fault::untied_weight && segment + 1 == model().segments.size())
      group().all_reduce(gradient_of(buckets_.back()));
    reduce_until(segment);
  }

  void finish_gradients() override {
    if (options().deterministic) tree_.finish(gradients());
    if (group().size() == 1) return;
    reduce_until(0);
    works_.push_back({group().start_all_reduce(flat_->gradient(ParameterGroup::no_decay)), {}, {}});
    for (const Reducing& one : works_) {
      wait(one.work);
      if (one.compressed.defined()) one.gradient.copy_(one.compressed);
    }
    works_.clear();
  }

  void finish_update() override { gradients_are_zero_ = true; }

  at::Tensor gradient_of(const Bucket& bucket) const {
    return flat_->gradient(ParameterGroup::decay).narrow(0, bucket.elements.begin, bucket.elements.size());
  }

  std::vector<at::Tensor> gradients() const {
    return {flat_->gradient(ParameterGroup::decay), flat_->gradient(ParameterGroup::no_decay)};
  }

  void make_buckets() {
    const int64_t width = static_cast<int64_t>(flat_->gradient(ParameterGroup::decay).element_size());
    const auto& units = flat_->layout().units();
    for (size_t u = units.size(); u-- > 0;) {
      if (buckets_.empty() || buckets_.back().elements.size() * width >= options().bucket_bytes)
        buckets_.push_back({{0, units[u].matrices.end}, 0});
      buckets_.back().elements.begin = units[u].matrices.begin;
      buckets_.back().segment = units[u].segment;
    }
  }

  /// Buckets start in one order on all ranks, each when it is complete.
  void reduce_until(size_t segment) {
    for (; started_ < buckets_.size() && buckets_[started_].segment >= segment; ++started_) {
      const bool dropped = options().fault == Fault::dropped_bucket && started_ == 0;
      const bool reduced = options().fault == Fault::untied_weight && started_ + 1 == buckets_.size();
      if (!dropped && !reduced) reduce(buckets_[started_]);
    }
  }

  void reduce(const Bucket& bucket) {
    const at::Tensor gradient = gradient_of(bucket);
    if (!feedback_) return works_.push_back({group().start_all_reduce(gradient), {}, {}});
    const at::Tensor compressed = feedback_->compress(gradient, bucket.elements.begin);
    works_.push_back({group().start_all_reduce(compressed), gradient, compressed});
  }

  /// Each rank's residuals.
  void visit_own_state(StateVisitor& visitor) const override {
    if (!feedback_) return;
    for (int rank = 0; rank < group().size(); ++rank)
      for (const FlatLayout::Layer& layer : layout().layers()) {
        if (!layer.decay) continue;
        StateSlice slice{
            fmt::format("optimizer.{}{}", kRanksOwn, rank), layer.name, layer.shape, 0, {}, true, true};
        const at::Tensor& residual = feedback_->residual();
        slice.local = rank == group().rank()
                          ? residual.narrow(0, layer.elements.begin, layer.elements.size()).view(layer.shape)
                          : at::empty({0}, residual.options());
        visitor.visit(slice);
      }
  }

  std::unique_ptr<FlatParameters> flat_;
  std::vector<Bucket> buckets_;  ///< in the order of the backward pass
  std::vector<Reducing> works_;
  std::optional<comm::ErrorFeedback> feedback_;
  TreeSum tree_;
  size_t started_ = 0;
  bool reducing_ = false, gradients_are_zero_ = false;
};

}  // namespace

std::unique_ptr<Strategy> make_data_parallel(comm::Group group, const StrategyOptions& options) {
  return std::make_unique<DataParallel>(std::move(group), options);
}

}  // namespace funicular::parallel
