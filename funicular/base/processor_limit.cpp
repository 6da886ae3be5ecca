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

/// The paths of this process's groups: "0::/a/b" is a/b of the second version, "4:cpu,cpuacct:/a" is a of the first one's
/// processors. In a container it is the root, or is not shown there.
struct OwnGroups {
  fs::path unified, processors;
};
OwnGroups own_groups(const fs::path& own) {
  OwnGroups found;
  std::ifstream file(own);
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(":/", first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,") found.unified = line.substr(second + 2);
    if (controllers.find(",cpu,") != std::string::npos) found.processors = line.substr(second + 2);
  }
  return found;
}

}  // namespace

std::optional<double> processor_quota(const fs::path& groups, const fs::path& own) {
  std::optional<double> least;
  const auto take = [&](std::optional<double> quota) {
    if (quota && (!least || *quota < *least)) least = quota;
  };
  const OwnGroups paths = own_groups(own);
  fs::path folder = groups;
  take(quota_in(folder));
  for (const fs::path& part : paths.unified) take(quota_in(folder /= part));
  folder = groups / "cpu";
  take(old_quota_in(folder));
  for (const fs::path& part : paths.processors) take(old_quota_in(folder /= part));
  return least;
}

int threads_within_quota(int processors, std::optional<double> quota, int sharing) {
  if (!quota) return processors;
  return std::clamp(static_cast<int>(std::ceil(*quota / sharing - 1e-6)), 1, std::max(1, processors));
}

}  // namespace funicular
