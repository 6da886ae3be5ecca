#pragma once
// The hosts of a launch, and how a launch of their own is started on each. Plain POSIX, no LibTorch.

#include <filesystem>
#include <string>
#include <vector>

#include "funicular/launch/launcher.h"
#include "funicular/launch/rank_process.h"

namespace funicular::launch {

/// "HOST[:RANKS],…", one rank where none are given; an IPv6 address in brackets. Throws InputError naming the
/// part that is wrong.
std::vector<LaunchHost> parse_hosts(const std::string& text);

/// Lines "HOST [slots=RANKS]", one rank where none are given; "#" begins a comment. Throws InputError naming FILE:LINE.
std::vector<LaunchHost> read_hostfile(const std::filesystem::path& file);

/// Keeps this many ranks: the ranks of the first hosts. Throws InputError where the hosts have fewer.
void take_first_ranks(std::vector<LaunchHost>& hosts, int ranks);

/// Starts of `funicular launch`, one a host, that together are the launch of options.hosts: through the
/// remote shell, except on this host ("localhost", its name). Each is controlled by its standard input.
///
/// They run this program by its path and in this folder, which all hosts must have, with the variables of
/// this process that begin with FUNICULAR_, HOROVOD_, OMP_ or MKL_, PATH and LD_LIBRARY_PATH. Rank 0's host is the
/// first; the others reach it at options.address where that is given, else, where it is this host, at the
/// address from which this one reaches the first of them, else by its name.
///
/// The first line that each is told is "FUNICULAR_SECRET=" and the secret, which no command line shows.
std::vector<RankStart> host_starts(const LaunchOptions& options, const std::string& secret, int port,
                                   int restart);

}  // namespace funicular::launch
