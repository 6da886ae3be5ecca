#include "funicular/comm/device_transports.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "funicular/base/error.h"
#include "funicular/comm/collective_sequence.h"
#include "funicular/comm/nccl_ranks.h"
#include "funicular/comm/staged_ranks.h"
#include "funicular/launch/environment.h"
#include "funicular/runtime/streams.h"

namespace funicular::comm {

namespace {

struct Row {
  const char* name;
  std::shared_ptr<Transport> (*build)(std::shared_ptr<Transport> host, const GroupOptions& options);
};

std::shared_ptr<Transport> leave_as_it_is(std::shared_ptr<Transport> host, const GroupOptions&) {
  return host;
}

constexpr Row kRows[] = {{"host", leave_as_it_is}, {"staged", make_staged_ranks}, {"nccl", make_nccl_ranks}};

std::string name_for(const GroupOptions& options) {
  if (!options.transport.empty()) return options.transport;
  if (options.device.is_cpu()) return "host";
  return options.fixed_order ? "staged" : "nccl";
}

/// Throws RunError unless all ranks have chosen this transport. Otherwise the ranks would wait for each other in
/// vain.
void compare_names(Transport& host, const std::string& name, const GroupOptions& options) {
  if (!host.meeting()) return;
  CollectiveSequence sequence(host.meeting()->within("transport"), host.watch(), host.rank(), host.size(),
                              {options.timeout, false});
  sequence.run(fmt::format("the transport {} (FUNICULAR_TRANSPORT must be equal on all ranks)", name), [] {});
}

}  // namespace

const std::vector<std::string>& transport_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Row& row : kRows) all.emplace_back(row.name);
    return all;
  }();
  return names;
}

std::shared_ptr<Transport> build_for_device(std::shared_ptr<Transport> host, const GroupOptions& options) {
  const std::string name = name_for(options);
  if (!options.transport.empty() || !options.device.is_cpu()) compare_names(*host, name, options);
  for (const Row& row : kRows) {
    if (name != row.name) continue;
    GroupOptions numbered = options;  // the transport's threads must mean the same card
    numbered.device = device::with_number(options.device);
    return row.build(std::move(host), numbered);
  }
  throw InputError(launch::kRanks, "unknown transport \"{}\" (FUNICULAR_TRANSPORT); expected {}", name,
                   fmt::join(transport_names(), ", "));
}

}  // namespace funicular::comm
