#include "funicular/horovod/stall_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "funicular/base/log.h"

namespace funicular::horovod {

namespace {

constexpr size_t kNamesInWarning = 10;

}  // namespace

std::string describe(const Stalled& stalled) {
  return fmt::format("{}: asked for by rank {}, not by rank {}, for {:.1f} s", stalled.name,
                     fmt::join(stalled.asked, ", "), fmt::join(stalled.missing, ", "),
                     std::chrono::duration<double>(stalled.age).count());
}

std::chrono::milliseconds StallWatch::patience() const {
  return warning_.count() == 0 || (failure_.count() > 0 && failure_ < warning_) ? failure_ : warning_;
}

std::vector<Message> StallWatch::give_up(const Negotiation& negotiation) const {
  std::vector<Message> messages;
  if (failure_.count() > 0)
    for (Stalled& stalled : negotiation.stalled(failure_))
      messages.push_back({.kind = Message::Kind::abandon, .name = std::move(stalled.name)});
  return messages;
}

bool StallWatch::warn(const Negotiation& negotiation) {
  if (warning_.count() == 0 || Clock::now() - last_warning_ < warning_) return false;
  const std::vector<Stalled> found = negotiation.stalled(warning_);
  if (found.empty()) return false;
  last_warning_ = Clock::now();
  std::vector<std::string> lines;
  for (const Stalled& stalled : found)
    if (lines.size() < kNamesInWarning) lines.push_back(describe(stalled));
  if (found.size() > lines.size()) lines.push_back(fmt::format("and {} more", found.size() - lines.size()));
  log::warning("[{}] not all ranks ask for the same: {}", kHorovod, fmt::join(lines, "; "));
  return true;
}

}  // namespace funicular::horovod
