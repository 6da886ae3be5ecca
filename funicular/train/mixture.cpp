#include "funicular/train/mixture.h"

#include <fmt/format.h>

#include "funicular/base/error.h"

namespace funicular::train {

namespace {

double epochs_of(int64_t drawn, const data::MixturePart& part) {
  return static_cast<double>(drawn) / static_cast<double>(part.samples);
}

}  // namespace

Draws::Draws(const Source& source, const data::Sampler::Options& options, bool distinct) : options_(options) {
  const auto* const mixed = dynamic_cast<const MixedSource*>(&source);
  if (mixed && distinct)
    throw InputError("trainer",
                     "batches of distinct texts are not made of several corpora; join them into one");
  if (mixed) {
    mixed_.emplace(mixed->mixture(), options);
    return;
  }
  sampler_.emplace(source.size(), options);
  if (distinct)
    distinct_ = std::make_unique<data::DistinctSampler>(
        source.size(), options, [&source](int64_t sample) { return source.texts_of(sample); });
}

int64_t Draws::batches_per_epoch() const {
  return mixed_ ? mixed_->batches_per_epoch() : sampler_->batches_per_epoch();
}

std::vector<data::Draw> Draws::batch(int64_t batch) const {
  if (distinct_) return distinct_->batch(batch);
  return mixed_ ? mixed_->batch(batch) : sampler_->batch(batch);
}

std::vector<int64_t> Draws::drawn(int64_t batches) const {
  return mixed_ ? mixed_->mixture().drawn(batches * options_.batch_size) : std::vector<int64_t>();
}

OrderedJson Draws::corpora(int64_t batches) const {
  if (!mixed_) return {};
  const std::vector<int64_t> counts = drawn(batches);
  OrderedJson all = OrderedJson::array();
  for (size_t i = 0; i < counts.size(); ++i) {
    const data::MixturePart& part = mixed_->mixture().parts()[i];
    all.push_back({{"name", part.name},
                   {"samples", part.samples},
                   {"weight", part.weight},
                   {"draws", counts[i]},
                   {"epochs", epochs_of(counts[i], part)}});
  }
  return all;
}

std::vector<std::string> Draws::describe_corpora(int64_t batches) const {
  std::vector<std::string> lines;
  const std::vector<int64_t> counts = drawn(batches);
  for (size_t i = 0; i < counts.size(); ++i) {
    const data::MixturePart& part = mixed_->mixture().parts()[i];
    lines.push_back(fmt::format("{}: {} sequences, weight {:.6g}: {} draws, {:.2f} epochs", part.name,
                                part.samples, part.weight, counts[i], epochs_of(counts[i], part)));
  }
  return lines;
}

}  // namespace funicular::train
