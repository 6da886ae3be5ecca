#include "funicular/data/store_shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "funicular/data/store_files.h"

namespace funicular::data {

std::optional<StoreDamage> read_shares(const StoreMeta& meta, const MappedFile& labels,
                                       const MappedFile& weights, uint64_t row, Sample& sample) {
  if (has_shares(meta.labels)) {
    const size_t count = meta.label_names.size();
    sample.shares = labels.as<double>().subspan(row * count, count);
    const bool may_miss = meta.labels == LabelKind::set_shares, any = meta.labels == LabelKind::numbers;
    for (const double share : sample.shares)
      if (!(any ? std::isfinite(share) : share >= 0 && share <= 1) && !(may_miss && std::isnan(share)))
        return StoreDamage{kLabelsFile,
                           fmt::format("row {} has the {} {}; expected {}", row, any ? "number" : "share",
                                       share, any ? "a finite number" : "0 to 1")};
    if (meta.labels == LabelKind::shares)
      sample.label = static_cast<double>(std::max_element(sample.shares.begin(), sample.shares.end()) -
                                         sample.shares.begin());
  }
  if (!meta.weights) return {};
  sample.weight = weights.as<double>()[row];
  if (sample.weight > 0 && std::isfinite(sample.weight)) return {};
  return StoreDamage{kWeightsFile,
                     fmt::format("row {} has the weight {}; expected a number above 0", row, sample.weight)};
}

}  // namespace funicular::data
