#pragma once
// The hosts of a launch, and how a launch of its own is started on each. Plain POSIX, no LibTorch.

#include <filesystem>
#include <string>
#include <vector>

#include "funicular/launch/launcher.h"
#include "funicular/launch/rank_process.h"

namespace funicular::launch {

/// Parses "HOST[:RANKS],…". A host without RANKS gets one; an IPv6 address is in brackets. Throws InputError that names
/// the wrong part.
std::vector<LaunchHost> parse_hosts(const std::string& text);

/// Reads lines "HOST [slots=RANKS]". A host without RANKS gets one; "#" begins a comment. Throws InputError that names
/// FILE:LINE.
std::vector<LaunchHost> read_hostfile(const std::filesystem::path& file);

/// Keeps the first `ranks` ranks of the hosts, in order. Throws InputError if the hosts have fewer.
void take_first_ranks(std::vector<LaunchHost>& hosts, int ranks);

/// Returns a start of `funicular launch` for each host; together they are the launch of options.hosts. They go through
/// the remote shell, except on this host ("localhost", or its name). Each is controlled by its standard input.
///
/// They run this program by its path and in this folder, so all hosts must have both. A remote launch gets this
/// process's variables that begin with FUNICULAR_ (but not the secret), HOROVOD_, OMP_ or MKL_, and PATH and
/// LD_LIBRARY_PATH. Rank 0 is on the first host. All others reach it at options.address, if that is given. Otherwise
/// they use its name, or, if it is this host, its address on the route to the first of them.
///
/// The first line that each is told is "FUNICULAR_SECRET=" and the secret, which no command line shows.
std::vector<RankStart> host_starts(const LaunchOptions& options, const std::string& secret, int port,
                                   int restart);

}  // namespace funicular::launch
