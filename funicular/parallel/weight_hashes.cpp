#include "funicular/parallel/weight_hashes.h"

#include <fmt/format.h>

#include <algorithm>

#include "funicular/base/hash.h"

namespace funicular::parallel {

std::string hashes_of_weights(const Model& model, const std::function<bool(const Parameter&)>& compared) {
  std::string hashes;
  for (const auto& parameter : model.parameters) {
    const at::Tensor value = parameter->compute.detach();
    if (value.numel() == 0 || value.storage().nbytes() == 0 || (compared && !compared(*parameter))) continue;
    hashes +=
        fmt::format("{:016x} {}\n", hash_bytes(value.cpu().contiguous().const_data_ptr(), value.nbytes()),
                    parameter->name);
  }
  return hashes;
}

std::optional<DifferingWeight> find_differing_weight(const std::vector<std::string>& hashes_by_rank) {
  const std::string& first = hashes_by_rank.front();
  for (size_t rank = 1; rank < hashes_by_rank.size(); ++rank) {
    const std::string& other = hashes_by_rank[rank];
    if (first == other) continue;
    const auto differing = std::mismatch(first.begin(), first.end(), other.begin(), other.end()).first;
    const size_t line = first.rfind('\n', static_cast<size_t>(differing - first.begin()));
    const size_t begin = line == std::string::npos ? 0 : line + 1;
    const std::string name = first.substr(begin, first.find('\n', begin) - begin);
    return DifferingWeight{static_cast<int>(rank), name.size() > 17 ? name.substr(17) : name};
  }
  return std::nullopt;
}

}  // namespace funicular::parallel
