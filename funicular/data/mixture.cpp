#include "funicular/data/mixture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"

namespace funicular::data {

namespace {

constexpr int64_t kWhole = 1'000'000'000;  // of the shares

/// The weights scaled to the sum 1, for the message.
std::string normalized_weights(const std::vector<MixturePart>& parts, double sum) {
  std::vector<std::string> texts;
  for (const MixturePart& part : parts) texts.push_back(fmt::format("{:.9g}", part.weight / sum));
  return fmt::format("{}", fmt::join(texts, " "));
}

double checked_sum(const std::vector<MixturePart>& parts) {
  if (parts.empty()) throw InputError("mixture", "expected at least one corpus, found none");
  double sum = 0;
  for (const MixturePart& part : parts) {
    if (part.samples < 1) throw InputError("mixture", "{}: the corpus is empty; leave it out", part.name);
    if (!(part.weight > 0 && std::isfinite(part.weight)))
      throw InputError("mixture",
                       "{}: expected a weight above 0, found {}; leave out a corpus that is not to be used",
                       part.name, part.weight);
    sum += part.weight;
  }
  if (std::abs(sum - 1) > 1e-6)
    throw InputError("mixture",
                     "the weights of the corpora sum to {:.9g}, not to 1; in these proportions they are {}",
                     sum, normalized_weights(parts, sum));
  return sum;
}

/// The seed of a part's order; the first part has the run's own seed.
uint64_t seed_of_part(uint64_t seed, int64_t part) {
  if (part == 0) return seed;
  const std::array<uint64_t, 2> numbers{seed, static_cast<uint64_t>(part)};
  return hash_bytes(numbers.data(), sizeof(numbers));
}

}  // namespace

Mixture::Mixture(std::vector<MixturePart> parts) : parts_(std::move(parts)) {
  const double sum = checked_sum(parts_);
  double weight = 0;
  for (const MixturePart& part : parts_) {
    weight += part.weight;
    samples_ += part.samples;
    shares_.push_back(std::llround(weight / sum * static_cast<double>(kWhole)));
    const int64_t before = shares_.size() > 1 ? shares_[shares_.size() - 2] : 0;
    if (shares_.back() == before)
      throw InputError("mixture", "{}: a weight of {} is too small; expected at least 1e-9", part.name,
                       part.weight);
  }
}

/// Counts the draws from parts before `part` among the first `draws` draws from parts 0 to `part`.
int64_t Mixture::before(size_t part, int64_t draws) const {
  const auto all = static_cast<unsigned __int128>(shares_[part]);
  const auto those = static_cast<unsigned __int128>(shares_[part - 1]);
  return static_cast<int64_t>((2 * static_cast<unsigned __int128>(draws) * those + all) / (2 * all));
}

Mixture::Place Mixture::place(int64_t draw) const {
  size_t part = parts_.size() - 1;
  for (; part > 0; --part) {
    const int64_t earlier = before(part, draw);
    if (before(part, draw + 1) == earlier) return {static_cast<int64_t>(part), draw - earlier};
    draw = earlier;
  }
  return {0, draw};
}

std::vector<int64_t> Mixture::drawn(int64_t draws) const {
  std::vector<int64_t> counts(parts_.size());
  for (size_t part = parts_.size() - 1; part > 0; --part) {
    const int64_t earlier = before(part, draws);
    counts[part] = draws - earlier;
    draws = earlier;
  }
  counts[0] = draws;
  return counts;
}

MixedSampler::MixedSampler(Mixture mixture, Sampler::Options options)
    : mixture_(std::move(mixture)), options_(options) {
  if (options.batch_size < 1)
    throw InputError("mixture", "expected a batch size of at least 1, found {}", options.batch_size);
  int64_t first = 0;
  for (const MixturePart& part : mixture_.parts()) {
    first_samples_.push_back(first);
    first += part.samples;
  }
}

int64_t MixedSampler::batches_per_epoch() const {
  const int64_t full = mixture_.samples() / options_.batch_size;
  return full + (!options_.drop_last && mixture_.samples() % options_.batch_size != 0);
}

std::vector<Draw> MixedSampler::draws(int64_t begin, int64_t end) const {
  std::map<std::pair<int64_t, int64_t>, Permutation> orders;  // by part and epoch
  std::vector<Draw> draws;
  draws.reserve(static_cast<size_t>(end - begin));
  for (int64_t draw = begin; draw < end; ++draw) {
    const auto [part, ordinal] = mixture_.place(draw);
    const int64_t samples = mixture_.parts()[static_cast<size_t>(part)].samples;
    const int64_t epoch = ordinal / samples;
    int64_t sample = ordinal % samples;
    if (options_.shuffle) {
      const RandomKey key =
          make_key(seed_of_part(options_.seed, part), Purpose::shuffle, static_cast<uint32_t>(epoch));
      const auto order = orders.try_emplace({part, epoch}, static_cast<uint64_t>(samples), key).first;
      sample = static_cast<int64_t>(order->second(static_cast<uint64_t>(sample)));
    }
    draws.push_back({first_samples_[static_cast<size_t>(part)] + sample, draw});
  }
  return draws;
}

}  // namespace funicular::data
