#include "funicular/comm/local_processes.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>

namespace funicular::comm {

char state_of_process(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  // A stream's iterators would throw where the process ends between opening and reading.
  std::getline(file, text, '\0');
  const size_t end = text.rfind(')');
  return end == std::string::npos || end + 2 >= text.size() ? '\0' : text[end + 2];
}

LocalProcesses::LocalProcesses(const std::vector<Peer>& peers, int rank) {
  for (int other = 0; other < static_cast<int>(peers.size()); ++other) {
    const Peer& peer = peers[static_cast<size_t>(other)];
    if (other == rank || peer.host != peers[static_cast<size_t>(rank)].host) continue;
    const int descriptor = static_cast<int>(::syscall(SYS_pidfd_open, peer.process, 0));
    if (descriptor >= 0) processes_.push_back({other, peer.process, descriptor});
  }
}

LocalProcesses::~LocalProcesses() {
  for (const Process& one : processes_) ::close(one.descriptor);
}

std::string LocalProcesses::describe(int rank) const {
  for (const Process& one : processes_) {
    if (one.rank != rank) continue;
    const char state = state_of_process(one.process);
    const bool stopped = state == 'T' || state == 't';
    return fmt::format("rank {} (process {}{})", rank, one.process, stopped ? ", which is stopped" : "");
  }
  return fmt::format("rank {}", rank);
}

bool LocalProcesses::has_ended(int rank) const {
  for (const Process& one : processes_) {
    pollfd polled{one.descriptor, POLLIN, 0};
    if (one.rank == rank && ::poll(&polled, 1, 0) > 0) return true;
  }
  return false;
}

std::optional<LocalProcesses::Process> LocalProcesses::find_ended() const {
  for (const Process& one : processes_)
    if (has_ended(one.rank)) return one;
  return std::nullopt;
}

}  // namespace funicular::comm
