// Measures our all-reduces beside Gloo's, between processes of one host.
//
//   funicular launch -n 2 -- all_reduce_bench [LARGEST=400000000 bytes] [ROUNDS=9]
//
// Of each size, in float: microseconds by Gloo, around our ring over Gloo's connections, and through shared
// memory, and how many times as fast as Gloo's the latter two are. The three take turns; a round's time is
// that of the slowest rank; medians are given.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/comm/gloo_link.h"
#include "funicular/comm/meeting.h"
#include "funicular/comm/ring.h"
#include "funicular/comm/shared_memory.h"
#include "funicular/launch/environment.h"

namespace {

using namespace funicular;
using namespace funicular::comm;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kTimeout{5};

struct Row {
  const char* name;
  std::function<void(std::byte* data, int64_t size)> run;
  std::vector<double> seconds{};
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Seconds of one run by the slowest rank.
double time(const Row& row, Link& link, std::byte* data, int64_t size, int repetitions) {
  double nothing = 0;
  link.all_reduce(&nothing, 1, Element::float64, Reduction::sum);  // all begin together
  const auto start = Clock::now();
  for (int i = 0; i < repetitions; ++i) row.run(data, size);
  double seconds = std::chrono::duration<double>(Clock::now() - start).count() / repetitions;
  link.all_reduce(&seconds, 1, Element::float64, Reduction::maximum);
  return seconds;
}

void measure(std::vector<Row> rows, Link& link, int64_t bytes, int rounds) {
  const int64_t size = bytes / 4;
  std::vector<float> values(static_cast<size_t>(size), 0.0f);
  auto* data = reinterpret_cast<std::byte*>(values.data());
  const int repetitions = static_cast<int>(std::clamp<int64_t>((1 << 20) / bytes, 1, 100));
  for (int round = -1; round < rounds; ++round)  // the first is not counted
    for (Row& row : rows) {
      const double seconds = time(row, link, data, size, repetitions);
      if (round >= 0) row.seconds.push_back(seconds);
    }
  if (link.rank() != 0) return;
  std::string line = fmt::format("{:>10}", bytes);
  const double peer = median(rows[0].seconds);
  for (const Row& row : rows)
    line += fmt::format("  {} {:>9.1f} us {:>5.1f} x", row.name, 1e6 * median(row.seconds),
                        peer / median(row.seconds));
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void run(int64_t largest, int rounds) {
  const launch::Environment place = launch::read_environment();
  if (place.size < 2)
    throw InputError("bench", "there is one rank only; start with: funicular launch -n 2 -- …");
  const Meeting meeting(place, {});
  Link link(meeting.within("link"), place.rank, place.size, kTimeout, nullptr);
  std::vector<int> members(static_cast<size_t>(place.size));
  std::iota(members.begin(), members.end(), 0);
  const auto memory = SharedMemory::open(meeting.within("memory"), members, place.rank, kTimeout, nullptr);
  std::vector<Row> rows{
      {"gloo",
       [&](std::byte* data, int64_t size) { link.all_reduce(data, size, Element::float32, Reduction::sum); }},
      {"ring", [&](std::byte* data, int64_t size) {
         const auto shards = shards_of(size, place.size);
         ring_reduce_scatter(link, data, shards, Element::float32, Reduction::sum);
         ring_all_gather(link, data, shards, 4);
       }}};
  if (memory)
    rows.push_back({"memory", [&](std::byte* data, int64_t size) {
                      memory->all_reduce(data, size, Element::float32, Reduction::sum, 1);
                    }});
  for (int64_t bytes = 1000; bytes <= largest; bytes = bytes < 256000 ? bytes * 4 : bytes * 5 / 2)
    measure(rows, link, bytes / 4 * 4, rounds);
  if (largest >= 400000000) measure(rows, link, 400000000, rounds);
}

}  // namespace

int main(int count, char** words) {
  try {
    run(count > 1 ? std::atoll(words[1]) : 400000000, count > 2 ? std::max(1, std::atoi(words[2])) : 9);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  }
}
