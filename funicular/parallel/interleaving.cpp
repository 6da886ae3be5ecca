#include "funicular/parallel/interleaving.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <sstream>

#include "funicular/base/error.h"

namespace funicular::parallel {

namespace fs = std::filesystem;

namespace {

constexpr const char* kComponent = "interleaving";

std::string header(int server, int workers, int64_t staleness) {
  return fmt::format("funicular interleaving 1: server {}, {} workers, staleness {}", server, workers,
                     staleness);
}

constexpr const char* kKinds[] = {"push", "read", "meet"};  // in the order of Kind

std::string line_of(const ServerEvent& event) {
  return fmt::format("{} {} {}", kKinds[static_cast<int>(event.kind)], event.worker, event.step);
}

}  // namespace

std::deque<ServerEvent> Interleaving::read(const fs::path& file, int server, int workers, int64_t staleness) {
  std::ifstream in(file);
  std::string line;
  const int error = errno;
  const bool is_open = in.is_open();
  if (!is_open || !std::getline(in, line))
    throw InputError(kComponent,
                     "{}: cannot be read: {}; expected the file of a run with --record-interleaving",
                     file.string(), is_open ? "it is empty" : std::strerror(error));
  if (line != header(server, workers, staleness))
    throw InputError(kComponent,
                     "{}:1: expected \"{}\", found \"{}\"; replay with the ranks, --servers and --staleness "
                     "of the recording",
                     file.string(), header(server, workers, staleness), line.substr(0, 100));
  std::deque<ServerEvent> events;
  for (int64_t number = 2; std::getline(in, line); ++number) {
    std::istringstream words(line);
    std::string kind, rest;
    ServerEvent event;
    words >> kind >> event.worker >> event.step;
    const auto* const known = std::find(std::begin(kKinds), std::end(kKinds), kind);
    if (!words || words >> rest || known == std::end(kKinds) || event.worker < 0 || event.worker >= workers ||
        event.step < 1)
      throw InputError(
          kComponent,
          "{}:{}: expected \"push\", \"read\" or \"meet\", a worker below {} and a step; found \"{}\"",
          file.string(), number, workers, line.substr(0, 100));
    event.kind = static_cast<ServerEvent::Kind>(known - std::begin(kKinds));
    events.push_back(event);
  }
  return events;
}

Interleaving Interleaving::record(const fs::path& file, int server, int workers, int64_t staleness,
                                  int64_t done) {
  Interleaving result;
  result.file_ = file;
  std::string kept = header(server, workers, staleness) + "\n";
  if (done > 0 && fs::exists(file))
    for (const ServerEvent& event : read(file, server, workers, staleness))
      if (event.step <= done) kept += line_of(event) + "\n";
  if (file.has_parent_path()) fs::create_directories(file.parent_path());
  result.out_.open(file, std::ios::trunc);
  result.out_ << kept << std::flush;
  if (!result.out_)
    throw InputError(kComponent, "{}: cannot be written: {}", file.string(), std::strerror(errno));
  return result;
}

Interleaving Interleaving::replay(const fs::path& file, int server, int workers, int64_t staleness,
                                  int64_t done) {
  Interleaving result;
  result.file_ = file;
  result.replays_ = true;
  for (const ServerEvent& event : read(file, server, workers, staleness))
    if (event.step > done) result.expected_.push_back(event);
  return result;
}

bool Interleaving::allows(const ServerEvent& event, int64_t meeting) const {
  if (!replays_) return true;
  if (expected_.empty())
    throw RunError(kComponent,
                   "{}: the recording ends before \"{}\"; replay no more steps than were recorded",
                   file_.string(), line_of(event));
  const ServerEvent& next = expected_.front();
  if (next == event) return true;
  const bool meets = next.kind == ServerEvent::Kind::meet;
  // In these cases the recorded event can no longer happen, so waiting would never end.
  const bool other_meetings = meets ? next.step < meeting : next.step > meeting;
  const bool never = event.kind == ServerEvent::Kind::meet || (!meets && next.worker == event.worker);
  if (other_meetings || never)
    throw RunError(
        kComponent,
        "{}: the recording has \"{}\" next, but this run comes to \"{}\" and meets after step {}. Replay "
        "with the --logging-steps, --save-steps, --eval-steps and --max-steps of the recording",
        file_.string(), line_of(next), line_of(event), meeting);
  return false;
}

void Interleaving::take(const ServerEvent& event) {
  if (replays_) expected_.pop_front();
  if (!out_.is_open()) return;
  out_ << line_of(event) << '\n' << std::flush;
  if (!out_) throw RunError(kComponent, "{}: cannot be written: {}", file_.string(), std::strerror(errno));
}

}  // namespace funicular::parallel
