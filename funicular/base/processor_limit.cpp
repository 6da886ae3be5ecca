#include "funicular/base/processor_limit.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

namespace funicular {

namespace {

namespace fs = std::filesystem;

/// "150000 100000", or "max 100000".
std::optional<double> quota_in(const fs::path& folder) {
  std::ifstream file(folder / "cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || !(period > 0)) return std::nullopt;
  const double value = std::strtod(quota.c_str(), nullptr);
  return value > 0 ? std::optional(value / period) : std::nullopt;
}

std::optional<double> old_quota_in(const fs::path& folder) {
  double quota = 0, period = 0;
  if (!(std::ifstream(folder / "cpu.cfs_quota_us") >> quota) ||
      !(std::ifstream(folder / "cpu.cfs_period_us") >> period) || !(quota > 0) || !(period > 0))
    return std::nullopt;
  return quota / period;
}

/// The path of this process's group: "0::/a/b" is /a/b. In a container it is the root, or is not shown there.
fs::path own_group(const fs::path& own) {
  std::ifstream file(own);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::/")) return line.substr(4);
  return {};
}

}  // namespace

std::optional<double> processor_quota(const fs::path& groups, const fs::path& own) {
  std::optional<double> least;
  const auto take = [&](std::optional<double> quota) {
    if (quota && (!least || *quota < *least)) least = quota;
  };
  take(quota_in(groups));
  fs::path folder = groups;
  for (const fs::path& part : own_group(own)) take(quota_in(folder /= part));
  take(old_quota_in(groups / "cpu"));
  return least;
}

int threads_within_quota(int processors, std::optional<double> quota) {
  if (!quota) return processors;
  return std::clamp(static_cast<int>(std::ceil(*quota - 1e-6)), 1, std::max(1, processors));
}

}  // namespace funicular
