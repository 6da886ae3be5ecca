#pragma once
// Training on several corpora in fixed proportions.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/hash.h"
#include "funicular/base/json.h"
#include "funicular/data/distinct_sampler.h"
#include "funicular/data/joined_dataset.h"
#include "funicular/data/mixture.h"
#include "funicular/data/stream_sampler.h"
#include "funicular/train/batching.h"
#include "funicular/train/source.h"
#include "funicular/train/trainer_options.h"

namespace funicular::train {

/// A source of several corpora: the trainer draws its samples by the mixture, not corpus by corpus.
class MixedSource : public Source {
 public:
  /// The mixture has one part per corpus of the source, in the same order.
  virtual const data::Mixture& mixture() const = 0;
};

/// An objective over several data sets. Objective as in DatasetSource; it must outlive the source.
template <class Objective>
class MixedDatasetSource final : public MixedSource {
 public:
  /// `data` and `mixture` must have the same parts in the same order.
  MixedDatasetSource(const Objective& objective, data::JoinedDataset data, data::Mixture mixture)
      : objective_(objective), data_(std::move(data)), mixture_(std::move(mixture)) {}
  const data::Mixture& mixture() const override { return mixture_; }
  int64_t size() const override { return data_.size(); }
  /// The weights are not in it: they are told apart by their own.
  uint64_t fingerprint() const override { return data_.fingerprint(); }
  bool found_damaged() const override { return data_.found_damaged(); }
  void require_sound() const override { data_.require_sound(); }
  int64_t length(int64_t sample_id) const override { return objective_.length(data_.get(sample_id)); }
  LossOver loss_over() const override { return loss_over_of(objective_); }
  MicroBatch collate(std::span<const data::Draw> draws, const RandomState& random) const override {
    std::vector<data::Sample> samples;
    samples.reserve(draws.size());
    for (const data::Draw& draw : draws) {
      data::Sample& sample = samples.emplace_back(data_.get(draw.sample_id));
      sample.sample_id = draw.sample_id;
      sample.draw_id = draw.draw_id;
      const auto [part, ordinal] = mixture_.place(draw.draw_id);
      sample.epoch = ordinal / mixture_.parts()[static_cast<size_t>(part)].samples;  // of its corpus
      if constexpr (requires { objective_.other_document_key(sample); })
        if (const auto key = objective_.other_document_key(sample))
          sample.other = data::draw_other_document(data_, draw.sample_id, *key, random.seed);
    }
    return objective_.collate(samples, random);
  }

 private:
  const Objective& objective_;
  data::JoinedDataset data_;
  data::Mixture mixture_;
};

/// Draws the samples of each global batch from a Sampler, a MixedSampler (for a MixedSource) or a DistinctSampler.
/// If batches grow or count tokens, a StreamSampler cuts the same draws into batches. The source must outlive this
/// object.
class Draws {
 public:
  /// Throws InputError for distinct batches of a MixedSource, and for distinct batches that grow or count tokens.
  Draws(const Source& source, const TrainerOptions& options, const BatchPlan& plan);
  /// Returns the batches of the first epoch. Batches that grow or count tokens are fewer or more in later epochs.
  int64_t batches_per_epoch() const;
  /// Returns the batches of so many epochs, at least 1.
  int64_t batches_of(double epochs) const;
  /// Returns how many epochs the first `batches` batches are.
  double epochs_of(int64_t batches) const;
  std::vector<data::Draw> batch(int64_t batch) const;
  /// Returns the number of the first batch that has the full size: the steps of the batch warm-up.
  int64_t first_full() const { return first_full_; }
  /// Returns how many rows the first epoch leaves out, because every batch with room already had one of their
  /// texts.
  int64_t left_out() const { return distinct_ ? distinct_->left_out(0) : 0; }
  /// Returns how many samples of each corpus the first `batches` batches have; empty if there is one corpus. If batches
  /// count tokens, the call reads the lengths of all rows before.
  std::vector<int64_t> drawn(int64_t batches) const;
  /// Returns the name, samples and weight of each corpus, and the draws and epochs of a run of so many batches. Null if
  /// there is one corpus. Estimated draws have "draws_estimated": true.
  OrderedJson corpora(int64_t batches) const;
  /// Describes the corpora for people, one line per corpus. Estimated draws are called "about".
  std::vector<std::string> describe_corpora(int64_t batches) const;

 private:
  /// The samples of each corpus that a run will draw.
  struct Planned {
    std::vector<int64_t> counts;
    bool estimated = false;
  };

  /// Returns what drawn() does, without reading more lengths than an estimate needs.
  Planned planned(int64_t batches) const;
  std::unique_ptr<const data::StreamSampler> stream_of(const Source& source, const TrainerOptions& options,
                                                       const BatchPlan& plan) const;

  data::Sampler::Options options_;
  int64_t samples_ = 0;  ///< draws of an epoch
  int64_t first_full_ = 0;
  /// Shared with the functions that `stream_` calls.
  std::shared_ptr<const data::Sampler> sampler_;
  std::shared_ptr<const data::MixedSampler> mixed_;
  std::unique_ptr<const data::DistinctSampler> distinct_;
  std::unique_ptr<const data::StreamSampler> stream_;
};

}  // namespace funicular::train
