#pragma once
// Mixes several corpora in fixed proportions: decides which sample of which corpus each draw of a run takes. The
// result depends only on the number of the draw. Thus a resumed run needs only its step, and ranks and threads have
// no effect.

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

/// Distributes draws over the parts. For every n, the last part has round(n * weight) of the first n draws. The parts
/// before it divide the remaining draws in the same way. Thus no part is ever more than (parts - 1) / 2 draws from
/// its share.
class Mixture {
 public:
  /// Throws InputError if there is no part, a part has no sample, or a weight is not above 0. Also throws it if the
  /// weights do not sum to 1 within 1e-6, and then suggests scaled weights. Weights are rounded to billionths.
  explicit Mixture(std::vector<MixturePart> parts);

  const std::vector<MixturePart>& parts() const { return parts_; }
  /// The number of samples of all parts together, which is the number of draws in an epoch of the mixture.
  int64_t samples() const { return samples_; }

  struct Place {
    int64_t part = 0;
    int64_t ordinal = 0;  ///< the number of earlier draws of this part
  };
  /// The part and the ordinal of draw `draw` >= 0 of a run.
  Place place(int64_t draw) const;
  /// The number of each part's draws among the first `draws` draws.
  std::vector<int64_t> drawn(int64_t draws) const;

 private:
  int64_t before(size_t part, int64_t draws) const;
  std::vector<MixturePart> parts_;
  std::vector<int64_t> shares_;  ///< cumulative weights up to each part, in billionths
  int64_t samples_ = 0;
};

/// The draws of each global batch of a mixture. Once all samples of a part have been drawn, the part is shuffled
/// again, as in Sampler. A mixture of one part gives Sampler's draws if Sampler's epochs are whole batches. Sample
/// ids are consecutive over the parts in their order. All batches are full.
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
  std::vector<int64_t> first_samples_;  ///< sample id of each part's first sample
};

}  // namespace funicular::data
