#include "funicular/data/joined_dataset.h"

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"

namespace funicular::data {

namespace {

constexpr int kDocumentBits = 44;  // documents of one part

}  // namespace

JoinedDataset::JoinedDataset(std::vector<std::shared_ptr<const Dataset>> parts) : parts_(std::move(parts)) {
  if (parts_.empty()) throw InputError("data set", "expected at least one part, found none");
  first_samples_.push_back(0);
  for (const auto& part : parts_) first_samples_.push_back(first_samples_.back() + part->size());
}

std::pair<size_t, int64_t> JoinedDataset::locate(int64_t index) const {
  if (index < 0 || index >= size())
    throw InputError("data set", "expected a sample from 0 to {}, found {}", size() - 1, index);
  // Empty parts begin at the same index as the next part; the last of these parts has the sample.
  const auto part = std::upper_bound(first_samples_.begin(), first_samples_.end(), index) - 1;
  return {static_cast<size_t>(part - first_samples_.begin()), index - *part};
}

Sample JoinedDataset::get(int64_t index) const {
  const auto [part, own] = locate(index);
  Sample sample = parts_[part]->get(own);
  sample.sample_id = index;
  return sample;
}

int64_t JoinedDataset::document_of(int64_t index) const {
  const auto [part, own] = locate(index);
  return (static_cast<int64_t>(part) << kDocumentBits) + parts_[part]->document_of(own);
}

uint64_t JoinedDataset::fingerprint() const {
  std::vector<uint64_t> all{4};
  for (const auto& part : parts_) all.push_back(part->fingerprint());
  return hash_bytes(all.data(), all.size() * sizeof(uint64_t));
}

bool JoinedDataset::found_damaged() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->found_damaged(); });
}

void JoinedDataset::require_sound() const {
  for (const auto& part : parts_) part->require_sound();
}

}  // namespace funicular::data
