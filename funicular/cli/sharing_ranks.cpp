#include "funicular/cli/sharing_ranks.h"

#include <chrono>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/cli/rank_options.h"
#include "funicular/comm/together.h"
#include "funicular/launch/environment.h"

namespace funicular::cli {

comm::Group join_sharing_ranks(const DeviceOptions& device) {
  const launch::Environment place = launch::read_environment();
  if (device.threads == 0) share_threads(place);
  if (place.size > 1 && device.device != "cpu")
    throw InputError("device", "--device {} is for one process; expected --device cpu, or one rank",
                     device.device);
  const comm::Group group = comm::Group::from_environment(
      {.timeout = std::chrono::hours(4)});  // the others wait while a host's first rank tokenises
  // What all ranks would say is said once.
  if (group.rank() > 0 && !log::enabled(log::Level::debug)) log::set_level(log::Level::error);
  return group;
}

void require_same_work(const comm::Group& group, const std::string& command,
                       const std::function<std::string()>& describe) {
  if (group.size() == 1) return;
  std::string mine;
  comm::together(group, [&] { mine = describe(); });
  const std::vector<std::string> all = group.gather_texts(mine);
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw InputError(
          command,
          "rank {} was given other data, another model or other options than rank 0; expected the "
          "same command on all ranks, which share its rows",
          rank);
}

}  // namespace funicular::cli
