#pragma once
// How many processors a container lets this process use at a time.

#include <filesystem>
#include <optional>

namespace funicular {

/// Returns the least quota of this process's control groups, in processors, such as 1.5; none if there is no quota.
/// The quota is cpu.max in cgroup v2, and cpu.cfs_quota_us over cpu.cfs_period_us in v1. `groups`: where the system
/// shows control groups. `own`: the file that names the groups of this process.
std::optional<double> processor_quota(const std::filesystem::path& groups = "/sys/fs/cgroup",
                                      const std::filesystem::path& own = "/proc/self/cgroup");

/// Returns how many threads a process may use on `processors` within the quota: a quota of 1.5 gives two, of 0.2
/// one. `sharing`: how many processes share the quota.
int threads_within_quota(int processors, std::optional<double> quota, int sharing = 1);

}  // namespace funicular
