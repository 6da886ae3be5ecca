#include "funicular/launch/hosts.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/launch/secret.h"

extern char** environ;

namespace funicular::launch {

namespace {

/// A host as messages name it.
struct HostEntry {
  std::string where;      ///< the option, or FILE:LINE
  const char* form = "";  ///< how a host and its ranks are written there
  std::string found;      ///< as it is written
};

[[noreturn]] void refuse(const HostEntry& entry, const std::string& expected) {
  throw InputError(kLaunch, "{}: expected {}, found \"{}\"", entry.where, expected, entry.found);
}

/// `text`: HOST or HOST:RANKS.
LaunchHost parse_host(const std::string& text, const HostEntry& entry) {
  const size_t bracket = text.rfind(']');
  const size_t colon = text.find(':', bracket == std::string::npos ? 0 : bracket);
  LaunchHost host{text.substr(0, colon), 1};
  if (colon != std::string::npos) {
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data() + colon + 1, end, host.ranks);
    if (parsed.ec != std::errc() || parsed.ptr != end || host.ranks < 1 || host.ranks > 1024)
      refuse(entry, fmt::format("{} with 1 to 1024 ranks", entry.form));
  }
  if (host.name.size() > 2 && host.name.front() == '[' && host.name.back() == ']')
    host.name = host.name.substr(1, host.name.size() - 2);
  // The remote shell would take such a name for an option.
  if (host.name.empty() || host.name.front() == '-') refuse(entry, "the name of a host");
  return host;
}

void add_host(std::vector<LaunchHost>& hosts, const std::string& text, const HostEntry& entry) {
  LaunchHost host = parse_host(text, entry);
  for (const LaunchHost& other : hosts)
    if (other.name == host.name)
      throw InputError(kLaunch, "{}: the host {} is named twice; give it once, with all its ranks",
                       entry.where, host.name);
  hosts.push_back(std::move(host));
}

std::string own_name() {
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

bool is_here(const std::string& host) {
  return host == "localhost" || host == "127.0.0.1" || host == "::1" || host == own_name();
}

/// Quotes a word for a POSIX shell.
std::string quote(std::string_view word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// Whether a variable is passed to other hosts. The secret is not, because ps shows a command to everyone.
bool travels(std::string_view variable) {
  if (variable.starts_with(kSecretVariable)) return false;
  for (const std::string_view prefix :
       {"FUNICULAR_", "HOROVOD_", "OMP_", "MKL_", "PATH=", "LD_LIBRARY_PATH="})
    if (variable.starts_with(prefix)) return true;
  return false;
}

/// The command line `cd FOLDER && exec env VARIABLES WORDS`.
std::string remote_command(const std::vector<std::string>& words) {
  std::string command = "cd " + quote(std::filesystem::current_path().string()) + " && exec env";
  for (char** entry = environ; *entry; ++entry)
    if (travels(*entry)) command.append(" ").append(quote(*entry));
  for (const std::string& word : words) command.append(" ").append(quote(word));
  return command;
}

std::vector<std::string> launch_words(const LaunchOptions& options, const std::string& program,
                                      const std::string& rendezvous, size_t node, int first, int world,
                                      int restart) {
  std::vector<std::string> words = {program,
                                    "launch",
                                    "--controlled",
                                    "-n",
                                    fmt::to_string(options.hosts[node].ranks),
                                    "--nnodes",
                                    fmt::to_string(options.hosts.size()),
                                    "--node-rank",
                                    fmt::to_string(node),
                                    "--first-rank",
                                    fmt::to_string(first),
                                    "--world-size",
                                    fmt::to_string(world),
                                    "--first-restart",
                                    fmt::to_string(restart),
                                    "--rendezvous",
                                    rendezvous,
                                    "--grace",
                                    fmt::format("{}", options.grace_seconds)};
  if (!options.pin) words.push_back("--no-pin");
  words.push_back("--");
  words.insert(words.end(), options.command.begin(), options.command.end());
  return words;
}

/// The address of this host from which it reaches `other`; none if the system does not know that name (a remote shell
/// may).
std::optional<std::string> address_towards(const std::string& other) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (::getaddrinfo(other.c_str(), "9", &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  for (const addrinfo* to = found; to; to = to->ai_next) {
    const int descriptor = ::socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    char text[NI_MAXHOST] = {};
    // Nothing is sent: connecting a datagram socket only chooses its route.
    const bool known = ::connect(descriptor, to->ai_addr, to->ai_addrlen) == 0 &&
                       ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
                       ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof text, nullptr, 0,
                                     NI_NUMERICHOST) == 0;
    ::close(descriptor);
    // A link-local address names an interface of this host, which means nothing on another.
    if (known && std::string_view(text).find('%') == std::string_view::npos) return text;
  }
  return {};
}

/// The address at which other hosts reach the first one. A host's own name often stands for a loopback address on
/// itself. So if this is the first host, it takes the address on the route to another one.
std::string meeting_address(const LaunchOptions& options) {
  if (options.address_given) return options.address;
  const std::string& first = options.hosts.front().name;
  for (const LaunchHost& host : options.hosts)
    if (!is_here(host.name)) return is_here(first) ? address_towards(host.name).value_or(own_name()) : first;
  return "127.0.0.1";
}

}  // namespace

std::vector<LaunchHost> parse_hosts(const std::string& text) {
  std::vector<LaunchHost> hosts;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) add_host(hosts, part, {"-H", "HOST:RANKS", part});
  if (hosts.empty()) throw InputError(kLaunch, "-H: expected HOST:RANKS,…, found nothing");
  return hosts;
}

std::vector<LaunchHost> read_hostfile(const std::filesystem::path& file) {
  std::vector<LaunchHost> hosts;
  std::istringstream lines(read_file(file));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const HostEntry entry{fmt::format("{}:{}", file.string(), ++number), "HOST slots=RANKS", line};
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, slots, more;
    if (!(words >> name)) continue;
    constexpr std::string_view kSlots = "slots=";
    const bool counted = static_cast<bool>(words >> slots);
    if ((counted && !slots.starts_with(kSlots)) || words >> more) refuse(entry, entry.form);
    add_host(hosts, counted ? name + ":" + slots.substr(kSlots.size()) : name, entry);
  }
  if (hosts.empty())
    throw InputError(kLaunch, "{}: expected lines HOST slots=RANKS, found none", file.string());
  return hosts;
}

void take_first_ranks(std::vector<LaunchHost>& hosts, int ranks) {
  int left = ranks;
  for (LaunchHost& host : hosts) left -= host.ranks = std::min(host.ranks, left);
  if (left > 0)
    throw InputError(kLaunch, "{} ranks are asked for, and the hosts have {}; give them more, or fewer ranks",
                     ranks, ranks - left);
  std::erase_if(hosts, [](const LaunchHost& host) { return host.ranks == 0; });
}

std::vector<RankStart> host_starts(const LaunchOptions& options, const std::string& secret, int port,
                                   int restart) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::string address = meeting_address(options);
  if (address.find(':') != std::string::npos) address = "[" + address + "]";
  const std::string rendezvous = fmt::format("{}:{}", address, port);
  int world = 0, first = 0;
  for (const LaunchHost& host : options.hosts) world += host.ranks;
  std::vector<RankStart> starts;
  for (size_t node = 0; node < options.hosts.size(); ++node) {
    const LaunchHost& host = options.hosts[node];
    RankStart start;
    start.name = "host " + host.name;
    start.controlled = true;
    start.plain_output = true;  // the launch there has set the ranks before the lines
    start.first_line = fmt::format("{}={}", kSecretVariable, secret);
    for (char** entry = environ; *entry; ++entry) start.environment.emplace_back(*entry);
    const std::vector<std::string> words =
        launch_words(options, program, rendezvous, node, first, world, restart);
    if (is_here(host.name)) {
      start.path = program;
      start.arguments = words;
    } else {
      std::istringstream shell(options.remote_shell);
      for (std::string word; shell >> word;) start.arguments.push_back(word);
      if (start.arguments.empty())
        throw InputError(kLaunch, "--remote-shell is empty; expected \"ssh\", say");
      start.path = find_program(start.arguments.front());
      start.arguments.push_back(host.name);
      start.arguments.push_back(remote_command(words));
    }
    starts.push_back(std::move(start));
    first += host.ranks;
  }
  return starts;
}

}  // namespace funicular::launch
