#pragma once
// Several datasets concatenated to one.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "funicular/data/sample.h"

namespace funicular::data {

/// The samples of the first part, then the samples of the second, and so on. Documents of different parts are
/// different, and draw_other_document stays within a sample's own part.
class JoinedDataset : public Dataset {
 public:
  /// At least one part.
  explicit JoinedDataset(std::vector<std::shared_ptr<const Dataset>> parts);
  int64_t size() const override { return first_samples_.back(); }
  Sample get(int64_t index) const override;
  int64_t document_of(int64_t index) const override;
  uint64_t fingerprint() const override;
  bool found_damaged() const override;
  void require_sound() const override;

  const std::vector<std::shared_ptr<const Dataset>>& parts() const { return parts_; }
  /// The part of a sample, and its index there. Throws InputError for an index out of range.
  std::pair<size_t, int64_t> locate(int64_t index) const;

 private:
  std::vector<std::shared_ptr<const Dataset>> parts_;
  std::vector<int64_t> first_samples_;  ///< of each part, and the end of the last
};

}  // namespace funicular::data
