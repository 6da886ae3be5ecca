#pragma once
// Several corpora in fixed proportions: which of them, and which of its samples, comes at each place of a
// run. A pure function of the place, so that a run resumes from its step alone, and no layout of ranks or
// threads changes it.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/data/sampler.h"

namespace funicular::data {

/// One of the corpora.
struct MixturePart {
  std::string name;  ///< for people
  int64_t samples = 0;
  double weight = 0;  ///< its share of the sequences that a run draws
};

/// Shares of a sequence of draws. Of the first n draws, for every n, the last part has n * weight rounded, and of what
/// is left each part before it likewise: no part is ever more than (parts - 1) / 2 draws from its share.
class Mixture {
 public:
  /// Throws InputError where there is no part, a part has no sample, or a weight is not above 0; and, with the numbers
  /// that would do, where the weights do not sum to 1 within 1e-6. Weights count in billionths.
  explicit Mixture(std::vector<MixturePart> parts);

  const std::vector<MixturePart>& parts() const { return parts_; }
  /// Samples of all parts together: so many draws are called an epoch of the mixture.
  int64_t samples() const { return samples_; }

  struct Place {
    int64_t part = 0;
    int64_t ordinal = 0;  ///< how many draws of the part come before
  };
  /// Place of the draw `draw` >= 0 of a run.
  Place place(int64_t draw) const;
  /// How many of the first `draws` draws each part has: where a run stands in each.
  std::vector<int64_t> drawn(int64_t draws) const;

 private:
  int64_t before(size_t part, int64_t draws) const;
  std::vector<MixturePart> parts_;
  std::vector<int64_t> shares_;  ///< of each part and those before it, in billionths
  int64_t samples_ = 0;
};

/// The draws of each global batch of a mixture. A part is shuffled anew, as Sampler does it, each time that it has been
/// used up; a mixture of one part is what Sampler gives where its epochs are whole batches. Sample ids count
/// through the parts in their order. All batches are full.
class MixedSampler {
 public:
  MixedSampler(Mixture mixture, Sampler::Options options);
  int64_t batches_per_epoch() const;
  /// The draws [begin, end) of the run.
  std::vector<Draw> draws(int64_t begin, int64_t end) const;
  std::vector<Draw> batch(int64_t batch) const {
    return draws(batch * options_.batch_size, (batch + 1) * options_.batch_size);
  }
  const Mixture& mixture() const { return mixture_; }

 private:
  Mixture mixture_;
  Sampler::Options options_;
  std::vector<int64_t> first_samples_;  ///< of each part
};

}  // namespace funicular::data
