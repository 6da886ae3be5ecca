#pragma once
// Input of the trainer: numbered samples, and how draws of them become micro-batches.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "funicular/core/batch.h"
#include "funicular/core/batch_loss.h"
#include "funicular/data/other_document.h"
#include "funicular/data/sample.h"
#include "funicular/data/sampler.h"

namespace funicular::train {

/// The declaration of an objective; an objective without loss_over() declares nothing.
template <class Objective>
LossOver loss_over_of(const Objective& objective) {
  if constexpr (requires { objective.loss_over(); }) return objective.loss_over();
  return LossOver::undeclared;
}

/// Rows that a trainer draws batches from.
class Source {
 public:
  virtual ~Source() = default;
  /// The number of samples.
  virtual int64_t size() const = 0;
  /// Hash of the contents; a checkpoint is resumed only with the same.
  virtual uint64_t fingerprint() const = 0;
  /// Whether the contents were found to differ from the written ones. Never waits.
  virtual bool found_damaged() const { return false; }
  /// Returns once all contents are known to equal the written ones. Throws InputError if they differ. The
  /// trainer calls it before it keeps anything that came of them.
  virtual void require_sound() const {}
  /// Tokens that this sample adds to a micro-batch: what --micro-batch-tokens counts.
  virtual int64_t length(int64_t sample_id) const = 0;
  /// Says what the loss of its samples is a sum over, if the source knows it (objective::Objective::loss_over).
  virtual LossOver loss_over() const { return LossOver::undeclared; }
  /// A loss of the vectors of a whole batch, which the trainer computes before each step; null: there is none.
  virtual const BatchLoss* batch_loss() const { return nullptr; }
  /// Hashes of a sample's texts, see TrainerOptions::distinct_batches. Thread-safe.
  virtual std::vector<uint64_t> texts_of(int64_t /*sample_id*/) const { return {}; }
  /// Thread-safe and pure: loader threads call it.
  virtual MicroBatch collate(std::span<const data::Draw> draws, const RandomState& random) const = 0;
};

/// An objective over a data set. Objective is duck-typed (objective::Objective has what is needed), because
/// the trainer knows none. Both must outlive the source.
template <class Objective>
class DatasetSource final : public Source {
 public:
  /// Refers to both.
  DatasetSource(const Objective& objective, const data::Dataset& dataset)
      : objective_(objective), dataset_(dataset) {}
  /// The number of samples.
  int64_t size() const override { return dataset_.size(); }
  uint64_t fingerprint() const override { return dataset_.fingerprint(); }
  bool found_damaged() const override { return dataset_.found_damaged(); }
  void require_sound() const override { dataset_.require_sound(); }
  int64_t length(int64_t sample_id) const override { return objective_.length(dataset_.get(sample_id)); }
  LossOver loss_over() const override { return loss_over_of(objective_); }
  const BatchLoss* batch_loss() const override {
    if constexpr (requires { objective_.batch_loss(); }) return objective_.batch_loss();
    return nullptr;
  }
  std::vector<uint64_t> texts_of(int64_t sample_id) const override {
    if constexpr (requires { objective_.texts_of(dataset_.get(sample_id)); })
      return objective_.texts_of(dataset_.get(sample_id));
    return {};
  }
  MicroBatch collate(std::span<const data::Draw> draws, const RandomState& random) const override {
    std::vector<data::Sample> samples;
    samples.reserve(draws.size());
    for (const data::Draw& draw : draws) {
      samples.push_back(dataset_.get(draw.sample_id));
      samples.back().sample_id = draw.sample_id;
      samples.back().draw_id = draw.draw_id;
      samples.back().epoch = draw.draw_id / dataset_.size();
      if constexpr (requires { objective_.other_document_key(samples.back()); })
        if (const auto key = objective_.other_document_key(samples.back()))
          samples.back().other = data::draw_other_document(dataset_, draw.sample_id, *key, random.seed);
    }
    return objective_.collate(samples, random);
  }

 private:
  const Objective& objective_;
  const data::Dataset& dataset_;
};

/// Tensors by name whose first dimension is the sample: images [N, 3, H, W], labels [N]. A sample counts as
/// one token; every loss term is divided by the number of samples.
class TensorDataset final : public Source {
 public:
  /// Throws InputError unless there is at least one tensor and all have the same first dimension.
  explicit TensorDataset(TensorMap tensors);
  /// The number of samples.
  int64_t size() const override { return size_; }
  uint64_t fingerprint() const override { return fingerprint_; }
  int64_t length(int64_t) const override { return 1; }
  /// As far as the data go: a lambda that computes the loss declares its own (Trainer::fit).
  LossOver loss_over() const override { return LossOver::rows; }
  MicroBatch collate(std::span<const data::Draw> draws, const RandomState& random) const override;
  /// The tensors by name.
  const TensorMap& tensors() const { return tensors_; }

 private:
  TensorMap tensors_;
  int64_t size_ = 0;
  uint64_t fingerprint_ = 0;
};

}  // namespace funicular::train

namespace funicular {
using train::TensorDataset;
}
