#include "funicular/launch/processors.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <tuple>

#include "funicular/base/processor_limit.h"

namespace funicular::launch {

namespace {

int topology(int processor, const char* file, int fallback) {
  std::ifstream in(fmt::format("/sys/devices/system/cpu/cpu{}/topology/{}", processor, file));
  int value = 0;
  return in >> value ? value : fallback;
}

}  // namespace

std::vector<Processor> available_processors() {
  std::vector<Processor> result;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) {  // more processors than the set holds
    const long online = std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
    for (int id = 0; id < std::min<long>(online, CPU_SETSIZE); ++id) CPU_SET(id, &set);
  }
  for (int id = 0; id < CPU_SETSIZE; ++id)
    if (CPU_ISSET(id, &set))
      result.push_back({id, topology(id, "physical_package_id", 0), topology(id, "core_id", id)});
  std::sort(result.begin(), result.end(), [](const Processor& a, const Processor& b) {
    return std::tie(a.package, a.core, a.id) < std::tie(b.package, b.core, b.id);
  });
  return result;
}

std::vector<ProcessorShare> divide_processors(std::span<const Processor> processors, int ranks,
                                              std::optional<double> quota) {
  std::vector<std::vector<int>> cores;
  for (size_t i = 0; i < processors.size(); ++i) {
    const bool same = i > 0 && processors[i].package == processors[i - 1].package &&
                      processors[i].core == processors[i - 1].core;
    if (!same) cores.emplace_back();
    cores.back().push_back(processors[i].id);
  }
  const size_t each = cores.size() / static_cast<size_t>(ranks);
  std::vector<ProcessorShare> shares(static_cast<size_t>(ranks));
  for (size_t rank = 0; rank < shares.size() && each > 0; ++rank) {
    shares[rank].threads = threads_within_quota(static_cast<int>(each), quota, ranks);
    for (size_t core = rank * each; core < (rank + 1) * each; ++core)
      shares[rank].ids.insert(shares[rank].ids.end(), cores[core].begin(), cores[core].end());
  }
  return shares;
}

}  // namespace funicular::launch
