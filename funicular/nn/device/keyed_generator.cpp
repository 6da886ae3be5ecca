#include "funicular/nn/device/keyed_generator.h"

#include <ATen/Context.h>

#include <mutex>

namespace funicular::nn::device {

KeyedGenerator::KeyedGenerator(const at::Device& device, std::optional<uint64_t> seed) {
  if (!seed) return;
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
