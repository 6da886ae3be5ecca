// funicular launch: a program as several ranks, on this host or on several.

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "funicular/base/error.h"
#include "funicular/cli/command_list.h"
#include "funicular/cli/commands_library.h"
#include "funicular/launch/hosts.h"
#include "funicular/launch/launcher.h"

namespace funicular::cli {

namespace {

/// Puts this program in front of the words if the first is one of its commands.
void name_own_program(std::vector<std::string>& command) {
  const std::vector<std::string> names = command_names();
  if (command.empty() || std::find(names.begin(), names.end(), command.front()) == names.end()) return;
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) throw RunError("launch", "cannot tell where this program lies: {}", error.message());
  command.insert(command.begin(), self.string());
}

class Launch final : public Command {
 public:
  Launch()
      : Command(
            "launch",
            "Starts COMMAND as N processes on this host, or on several with --hosts. Each process gets its "
            "rank and the number of ranks in torchrun's environment variables. Standard output of rank 0 "
            "appears unchanged; all other lines begin with \"[rank] \". If a rank fails, launch prints its "
            "last lines and ends all ranks. The exit code is that of the first rank that failed, or 128 + "
            "the signal that ended it. It is 75 if the ranks were interrupted and can be resumed, else 0.") {
    arguments.example("train with two processes", "funicular launch -n 2 pretrain --config pretrain.toml");
    arguments.example("start a program of your own on two hosts",
                      "funicular launch -np 4 -H first:2,second:2 -- ./train --epochs 3");
    arguments.rest(
        "[--] COMMAND…", options_.command,
        "the program to start and its arguments; without --, a command of funicular needs no program's name");
    arguments
        .add("ranks", "N", ranks_, Effect::rounding,
             "processes on this host; with --hosts or --hostfile on all hosts, the first hosts first")
        .letter('n')
        .letters("np")
        .alias("nproc-per-node")
        .alias("num-proc")
        .range(1, 65536);
    declare_hosts();
    arguments.add("nnodes", "N", nodes_, Effect::rounding, "hosts, each with N ranks and a launch of its own")
        .range(1, 65536);
    arguments.add("node-rank", "R", node_rank_, Effect::none, "number of this host, from 0").range(0, 65535);
    arguments.add("first-rank", "R", first_rank_, Effect::none, "the first rank of this host")
        .range(0, 65536 * 1024)
        .default_text("computed from N, if each host has N ranks");
    arguments.add("world-size", "N", world_size_, Effect::rounding, "ranks of all hosts")
        .range(1, 65536 * 1024)
        .default_text("computed from N, if each host has N ranks");
    arguments
        .add("rendezvous", "HOST:PORT", rendezvous_, Effect::none,
             "meeting point of the ranks: the host of rank 0, and a free port")
        .default_text("this host, a free port");
    arguments
        .add("max-restarts", "K", restarts_, Effect::none,
             "start all ranks again after one failed, at most so often; not after exit code 2 or 75")
        .range(0, 1e6);
    arguments
        .add("grace", "SECONDS", options_.grace_seconds, Effect::none,
             "time that the remaining ranks have to end before they are killed")
        .range(0, 1e6);
    arguments.add("pin", options_.pin, Effect::none,
                  "keep each rank on cores of its own, where there are enough");
    arguments.add("first-restart", "K", first_restart_, Effect::none, "FUNICULAR_RESTART of the first start")
        .range(0, 1e6)
        .hidden();
    arguments
        .add("controlled", options_.controlled, Effect::none,
             "take \"signal N\" for a signal, and the end, from standard input: how --hosts starts a launch "
             "on each")
        .hidden();
  }

  int run() override {
    options_.ranks = static_cast<int>(ranks_);
    options_.nodes = static_cast<int>(nodes_);
    options_.node_rank = static_cast<int>(node_rank_);
    options_.max_restarts = static_cast<int>(restarts_);
    options_.first_rank = static_cast<int>(first_rank_.value_or(-1));
    options_.world_size = static_cast<int>(world_size_.value_or(0));
    options_.first_restart = static_cast<int>(first_restart_);
    if (arguments.given("hosts") || arguments.given("hostfile")) take_hosts();
    if (ranks_ > 1024 && options_.hosts.empty())
      throw InputError("usage", "funicular launch: --ranks must be at most 1024 on one host, found {}",
                       ranks_);
    if (!rendezvous_.empty()) split_rendezvous();
    if (!arguments.operands().second.dashed) name_own_program(options_.command);
    options_.own_program = run_as;
    options_.before_forks = [this] {
      if (options_.command.size() > 1 && is_in_library(options_.command[1])) commands_library();
    };
    return launch::launch(options_);
  }

 private:
  void declare_hosts() {
    arguments
        .add("hosts", "HOST:RANKS,…", hosts_, Effect::rounding,
             "start the ranks on these hosts, by a remote shell; program and folder are the same there")
        .letter('H')
        .default_text("this one");
    arguments
        .add("hostfile", "FILE", hostfile_, Effect::input,
             "read the hosts from a file with lines \"HOST slots=RANKS\", as mpirun and horovodrun do")
        .default_text("none");
    arguments.rivals({"hosts", "hostfile"});
    arguments.add("remote-shell", "COMMAND", options_.remote_shell, Effect::none,
                  "program that gets a host and a command line for its shell");
  }

  void take_hosts() {
    const char* const given = arguments.given("hosts") ? "hosts" : "hostfile";
    for (const char* other : {"nnodes", "node-rank", "first-rank", "world-size"})
      if (arguments.given(other))
        throw InputError("usage", "funicular launch: --{} tells how many ranks each host has; leave out --{}",
                         given, other);
    if (arguments.given("hosts") && arguments.given("hostfile"))
      throw InputError("usage", "funicular launch: --hosts and --hostfile are both given; give one of them");
    options_.hosts =
        arguments.given("hosts") ? launch::parse_hosts(hosts_) : launch::read_hostfile(hostfile_);
    if (arguments.given("ranks")) launch::take_first_ranks(options_.hosts, options_.ranks);
  }

  void split_rendezvous() {
    const size_t colon = rendezvous_.rfind(':');
    const char* end = rendezvous_.data() + rendezvous_.size();
    const bool host = colon != std::string::npos && colon > 0;
    const auto parsed = std::from_chars(host ? rendezvous_.data() + colon + 1 : end, end, options_.port);
    if (parsed.ec != std::errc() || parsed.ptr != end || options_.port < 1 || options_.port > 65535)
      throw InputError(
          "usage",
          "funicular launch: --rendezvous expects HOST:PORT with a port from 1 to 65535, found \"{}\"",
          rendezvous_);
    options_.address_given = true;
    options_.address = rendezvous_.substr(0, colon);
    if (options_.address.size() > 2 && options_.address.front() == '[' && options_.address.back() == ']')
      options_.address = options_.address.substr(1, options_.address.size() - 2);  // an IPv6 address
  }

  launch::LaunchOptions options_;
  int64_t ranks_ = 1, nodes_ = 1, node_rank_ = 0, restarts_ = 0, first_restart_ = 0;
  std::optional<int64_t> first_rank_, world_size_;
  std::string hosts_, rendezvous_;
  fs::path hostfile_;
};

}  // namespace

std::unique_ptr<Command> make_launch() {
  return std::make_unique<Launch>();
}

}  // namespace funicular::cli
