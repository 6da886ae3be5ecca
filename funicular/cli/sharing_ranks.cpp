#include "funicular/cli/sharing_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>

#include "funicular/base/log.h"
#include "funicular/cli/rank_options.h"
#include "funicular/launch/environment.h"

namespace funicular::cli {

comm::Group join_sharing_ranks(const DeviceOptions& device) {
  const launch::Environment place = launch::read_environment();
  if (device.threads == 0) share_threads(place);
  device.stay_near_card(place.local_size);
  const comm::Group group = comm::Group::from_environment(
      // Other ranks wait while a host's first rank tokenises. Texts travel, and no tensors of a GPU.
      {.timeout = std::chrono::hours(4), .transport = "host"});
  // All ranks would log the same messages, so only rank 0 logs more than errors.
  if (group.rank() > 0 && !log::enabled(log::Level::debug)) log::set_level(log::Level::error);
  return group;
}

/// Leaves out --threads, which changes no more than rounding and differs between hosts.
std::map<std::string, std::string> deciding_options(const Arguments& arguments) {
  std::map<std::string, std::string> found;
  for (const Arguments::Setting& setting : arguments.settings()) {
    const bool decides = setting.effect == Effect::result || setting.effect == Effect::rounding;
    if (decides && setting.name != "threads")
      found["--" + setting.name] = fmt::format("{}", fmt::join(setting.values, " "));
  }
  return found;
}

}  // namespace funicular::cli
