#include "funicular/train/mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "funicular/base/error.h"

namespace funicular::train {

namespace {

double epochs_of_part(int64_t drawn, const data::MixturePart& part) {
  return static_cast<double>(drawn) / static_cast<double>(part.samples);
}

}  // namespace

Draws::Draws(const Source& source, const TrainerOptions& options, const BatchPlan& plan)
    : options_{.seed = options.seed,
               .shuffle = options.shuffle,
               .batch_size = plan.batch,
               .drop_last = options.drop_last},
      first_full_(options.batch_warmup_steps) {
  const auto* const mixed = dynamic_cast<const MixedSource*>(&source);
  if (mixed && options.distinct_batches)
    throw InputError("trainer",
                     "batches of distinct texts are not made of several corpora; join them into one");
  const bool streams = continues_epochs(options);
  if (streams && options.distinct_batches)
    throw InputError("trainer",
                     "batches of distinct texts have one number of rows; leave out the batch warm-up and the "
                     "batch in tokens, or allow repeated texts (--no-distinct-batches)");
  if (streams) options_.drop_last = false;
  samples_ = mixed ? mixed->mixture().samples() : source.size();
  if (mixed)
    mixed_ = std::make_shared<data::MixedSampler>(mixed->mixture(), options_);
  else
    sampler_ = std::make_shared<data::Sampler>(source.size(), options_);
  if (streams) stream_ = stream_of(source, options, plan);
  if (options.distinct_batches)
    distinct_ = std::make_unique<data::DistinctSampler>(
        source.size(), options_, [&source](int64_t sample) { return source.texts_of(sample); });
}

std::unique_ptr<const data::StreamSampler> Draws::stream_of(const Source& source,
                                                            const TrainerOptions& options,
                                                            const BatchPlan& plan) const {
  data::StreamSampler::Draws draws;
  if (mixed_)
    draws = [mixed = mixed_](int64_t begin, int64_t end) { return mixed->draws(begin, end); };
  else
    draws = [sampler = sampler_](int64_t begin, int64_t end) { return sampler->draws(begin, end); };
  data::StreamSampler::Length length;
  if (plan.batch_tokens > 0) length = [&source](int64_t sample) { return source.length(sample); };
  return std::make_unique<data::StreamSampler>(sizes_of(options, plan), std::move(draws), std::move(length));
}

int64_t Draws::batches_per_epoch() const {
  if (stream_) return stream_->batches_of(samples_);
  return mixed_ ? mixed_->batches_per_epoch() : sampler_->batches_per_epoch();
}

int64_t Draws::batches_of(double epochs) const {
  const double all = epochs * static_cast<double>(stream_ ? samples_ : batches_per_epoch());
  const auto count = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(all)));
  return stream_ ? stream_->batches_of(count) : count;
}

double Draws::epochs_of(int64_t batches) const {
  if (stream_) return static_cast<double>(stream_->before(batches)) / static_cast<double>(samples_);
  return static_cast<double>(batches) / static_cast<double>(batches_per_epoch());
}

std::vector<data::Draw> Draws::batch(int64_t batch) const {
  if (stream_) return stream_->batch(batch);
  if (distinct_) return distinct_->batch(batch);
  return mixed_ ? mixed_->batch(batch) : sampler_->batch(batch);
}

std::vector<int64_t> Draws::drawn(int64_t batches) const {
  if (!mixed_) return {};
  return mixed_->mixture().drawn(stream_ ? stream_->before(batches) : batches * options_.batch_size);
}

Draws::Planned Draws::planned(int64_t batches) const {
  if (!mixed_) return {};
  if (!stream_) return {drawn(batches), /*estimated=*/false};
  const bool estimated = stream_->estimates(batches);
  return {mixed_->mixture().drawn(stream_->about_before(batches)), estimated};
}

OrderedJson Draws::corpora(int64_t batches) const {
  if (!mixed_) return {};
  const auto [counts, estimated] = planned(batches);
  OrderedJson all = OrderedJson::array();
  for (size_t i = 0; i < counts.size(); ++i) {
    const data::MixturePart& part = mixed_->mixture().parts()[i];
    all.push_back({{"name", part.name},
                   {"samples", part.samples},
                   {"weight", part.weight},
                   {"draws", counts[i]},
                   {"epochs", epochs_of_part(counts[i], part)}});
    if (estimated) all.back()["draws_estimated"] = true;
  }
  return all;
}

std::vector<std::string> Draws::describe_corpora(int64_t batches) const {
  std::vector<std::string> lines;
  const auto [counts, estimated] = planned(batches);
  for (size_t i = 0; i < counts.size(); ++i) {
    const data::MixturePart& part = mixed_->mixture().parts()[i];
    lines.push_back(fmt::format("{}: {} sequences, weight {:.6g}: {}{} draws, {:.2f} epochs", part.name,
                                part.samples, part.weight, estimated ? "about " : "", counts[i],
                                epochs_of_part(counts[i], part)));
  }
  return lines;
}

}  // namespace funicular::train
