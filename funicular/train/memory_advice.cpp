#include "funicular/train/memory_advice.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "funicular/base/memory.h"
#include "funicular/parallel/layout.h"

namespace funicular::train {

namespace {

constexpr const char* kSmallerBatches =
    "a smaller --micro-batch-tokens or --micro-batch-size, or --recompute full";
constexpr double kShare = 2.0 / 3;   // of a limit, for a rank's part of the training
constexpr double kShareOfAll = 0.9;  // and for this part with all weights gathered

/// Returns a size in bytes from /proc/self/status, by its label such as "VmSize:"; 0 if it is not there.
double status_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  double kilobytes = 0;
  for (std::string word; file >> word;)
    if (word == name && file >> kilobytes) return kilobytes * 1024;
  return 0;
}

/// The number of parts into which the replicas divide each kind of tensor.
struct Division {
  int weights = 1;  ///< in the type of the forward pass
  int gradients = 1;
  int states = 1;  ///< of the optimiser, with the float32 masters of 16-bit weights
};

double bytes_held(const TrainingNeeds& needs, const Division& division) {
  const double master = needs.precision == Precision::fp64 ? 8 : 4;
  const bool mixed = needs.precision == Precision::bf16 || needs.precision == Precision::fp16;
  const auto parameters = static_cast<double>(needs.parameters),
             constants = static_cast<double>(needs.constants);
  const double states = static_cast<double>(needs.optimizer.states().size()) + (mixed ? 1 : 0);
  return (parameters + constants) * (mixed ? 2 : master) / division.weights +
         parameters * master / division.gradients + parameters * master * states / division.states;
}

/// Bytes of all weights. Each rank makes them before it keeps its part, and one rank gathers them beside its part
/// to save them.
double bytes_of_weights(const TrainingNeeds& needs) {
  return static_cast<double>(needs.parameters + needs.constants) *
         (needs.precision == Precision::fp64 ? 8 : 4);
}

double gigabytes(double bytes) {
  return bytes / 1e9;
}

}  // namespace

void divide_as(const parallel::Strategy& strategy, TrainingNeeds& needs) {
  needs.parts = needs.replicas = 1;
  needs.zero = 0;
  const auto& names = parallel::strategy_names();
  if (std::find(names.begin(), names.end(), strategy.name()) == names.end()) return;  // a user's own
  const parallel::Layout layout = parallel::Layout::of_strategy(strategy.name());
  if (layout.kind != parallel::Layout::Kind::ranks) return;  // servers: each worker has all of it
  needs.replicas = static_cast<int>(strategy.parts());
  needs.parts = std::max(1, strategy.group().size() / needs.replicas);
  needs.zero = layout.zero;
}

int64_t bytes_of_training(const TrainingNeeds& needs) {
  return static_cast<int64_t>(bytes_held(needs, {}));
}

double bytes_of_a_rank(const TrainingNeeds& needs) {
  return bytes_held(needs, {.weights = needs.zero >= 3 ? needs.replicas : 1,
                            .gradients = needs.zero >= 2 ? needs.replicas : 1,
                            .states = needs.zero >= 1 ? needs.replicas : 1}) /
         needs.parts;
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
  const double bytes = static_cast<double>(bytes_of_training(needs)), weights = bytes_of_weights(needs);
  double ranks = std::max(2.0, bytes / std::max(1.0, kShare * limit));
  // With n ranks, one rank holds bytes / n for its own part and weights * (n - 1) / n gathered from all other
  // ranks.
  if (const double left = kShareOfAll * limit - weights; left > 0)
    ranks = std::max(ranks, (bytes - weights) / left);
  return static_cast<int>(std::ceil(ranks));
}

std::string memory_advice_on_gpu(const TrainingNeeds& needs, const std::string& card, double card_bytes,
                                 const std::string& detail) {
  const double bytes = bytes_of_a_rank(needs);
  const std::string holds = fmt::format(
      "out of memory on {} with {:.2f} GB; the weights of this model with their gradients and optimiser "
      "state take {:.2f} GB",
      card, gigabytes(card_bytes), gigabytes(bytes));
  if (bytes < kShareOfAll * card_bytes)
    return fmt::format(
        "{}, and the batch takes the rest; try {}, and look for other processes in nvidia-smi ({})", holds,
        kSmallerBatches, detail);
  const int wanted = std::max(ranks_that_hold(needs, card_bytes), needs.parts * needs.replicas + 1);
  return fmt::format(
      "{}; divide the model among {} GPUs by funicular launch -n {} -- funicular … --pipeline-parallel {}, "
      "or take "
      "--precision bf16 or a smaller model ({})",
      holds, wanted, wanted, wanted, detail);
}

std::string memory_advice(const TrainingNeeds& needs, double limit, const std::string& detail) {
  const double bytes = static_cast<double>(bytes_of_training(needs)), here = bytes_of_a_rank(needs);
  // Activations and the building of the model need the remaining two thirds.
  if (here < limit / 3) return fmt::format("out of memory; try {} ({})", kSmallerBatches, detail);
  const int parts = static_cast<int>(bytes / here + 1e-6);  // that the training is divided into now
  const int wanted = std::max(ranks_that_hold(needs, limit), parts + 1);
  return fmt::format(
      "out of memory; the weights of this model with their gradients and optimiser state take {:.2f} GB{}, "
      "and this process may have {:.2f} GB. A pipeline of {} ranks divides them: about {:.2f} GB per rank, "
      "and up to {:.2f} GB more while weights are saved. Start it by funicular launch -n {} -- funicular … "
      "--pipeline-parallel {}. The rest of the memory is less with {} ({})",
      gigabytes(here), needs.parts * needs.replicas > 1 ? " on each rank" : "", gigabytes(limit), wanted,
      gigabytes(bytes / wanted), gigabytes(bytes_of_weights(needs)), wanted, wanted, kSmallerBatches, detail);
}

}  // namespace funicular::train
