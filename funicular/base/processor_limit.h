#pragma once
// How many processors a container lets this process use at a time.

#include <filesystem>
#include <optional>

namespace funicular {

/// The least quota of the control groups that this process is in (cgroup v2: cpu.max; v1: cpu.cfs_quota_us over
/// cpu.cfs_period_us), in processors, such as 1.5; nothing where there is none. `groups` is where the system shows
/// control groups, `own` the file that names this process's.
std::optional<double> processor_quota(const std::filesystem::path& groups = "/sys/fs/cgroup",
                                      const std::filesystem::path& own = "/proc/self/cgroup");

/// Of `processors` that a process may run on, how many threads have one at a time: a quota of 1.5 is two, of 0.2 one. `sharing`:
/// how many processes share the quota.
int threads_within_quota(int processors, std::optional<double> quota, int sharing = 1);

}  // namespace funicular
