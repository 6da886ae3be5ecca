#include "funicular/nn/device/keyed_generator.h"

#include <ATen/Context.h>

namespace funicular::nn::device {

namespace {

/// Several threads may train on one card (dp --devices 2): each needs the generator from its seed to its last draw.
std::mutex turns;

}  // namespace

KeyedGenerator::KeyedGenerator(const at::Device& device, std::optional<uint64_t> seed) {
  if (!seed) return;
  turn_ = std::unique_lock(turns);
  generator_ = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator_.mutex());
  before_ = generator_.get_state();
  generator_.set_current_seed(*seed);
}

KeyedGenerator::~KeyedGenerator() {
  if (!before_.defined()) return;
  const std::lock_guard lock(generator_.mutex());
  generator_.set_state(before_);
}

}  // namespace funicular::nn::device
