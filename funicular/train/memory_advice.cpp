#include "funicular/train/memory_advice.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <variant>

#include "funicular/base/memory.h"

namespace funicular::train {

namespace {

constexpr double kShare = 2.0 / 3;  // of a limit, for what is held all the time

int64_t states_of(const optim::OptimizerSpec& optimizer) {
  if (const auto* sgd = std::get_if<optim::Sgd>(&optimizer)) return sgd->momentum != 0;
  return std::holds_alternative<optim::Lars>(optimizer) ? 1 : 2;
}

/// Of this process, "VmSize:" and the like; 0 if it is not told.
double status_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  double kilobytes = 0;
  for (std::string word; file >> word;)
    if (word == name && file >> kilobytes) return kilobytes * 1024;
  return 0;
}

double gigabytes(double bytes) {
  return bytes / 1e9;
}

}  // namespace

int64_t bytes_of_training(const TrainingNeeds& needs) {
  const int64_t master = needs.precision == Precision::fp64 ? 8 : 4;
  const bool mixed = needs.precision == Precision::bf16 || needs.precision == Precision::fp16;
  return needs.parameters * (master * (2 + states_of(needs.optimizer)) + (mixed ? 2 : 0)) +
         needs.constants * (mixed ? 2 : master);
}

double memory_limit() {
  double limit = std::max(0.0, available_memory());
  const auto soft = [&](auto resource, double besides) {
    rlimit found{};
    if (::getrlimit(resource, &found) == 0 && found.rlim_cur != RLIM_INFINITY)
      limit = std::min(limit, std::max(0.0, static_cast<double>(found.rlim_cur) - besides));
  };
  soft(RLIMIT_DATA, 0);
  soft(RLIMIT_AS, status_bytes("VmSize:") - status_bytes("VmData:"));
  return limit;
}

int ranks_that_hold(const TrainingNeeds& needs, double limit) {
  const double bytes = static_cast<double>(bytes_of_training(needs));
  return std::max(2, static_cast<int>(std::ceil(bytes / std::max(1.0, kShare * limit))));
}

std::string memory_advice(const TrainingNeeds& needs, double limit, const std::string& detail) {
  const std::string batches = "a smaller --micro-batch-tokens or --micro-batch-size, or --recompute full";
  const double bytes = static_cast<double>(bytes_of_training(needs)), here = bytes / needs.parts;
  // A third of what there is: the rest is for activations, and for what building the model takes.
  if (here < limit / 3) return fmt::format("out of memory; try {} ({})", batches, detail);
  const int wanted = std::max(ranks_that_hold(needs, limit), needs.parts + 1);
  return fmt::format(
      "out of memory; the weights of this model with their gradients and optimiser state take {:.2f} GB{}, "
      "and this process "
      "may have {:.2f} GB. A pipeline of {} ranks divides them, about {:.2f} GB a rank: funicular launch -n "
      "{} -- funicular "
      "… --pipeline-parallel {}. What comes on top is less with {} ({})",
      gigabytes(here), needs.parts > 1 ? " on each rank" : "", gigabytes(limit), wanted,
      gigabytes(bytes / wanted), wanted, wanted, batches, detail);
}

}  // namespace funicular::train
