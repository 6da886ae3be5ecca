#pragma once
// Mixed precision for modules that know nothing of it.

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace funicular {

/// While it lives, LibTorch's operations on devices of that kind cast their inputs by its autocast lists:
/// products to `type`, losses and reductions to float32. Without a type it does nothing. Casts of weights are
/// kept until it ends.
class Autocast {
 public:
  Autocast(std::optional<at::ScalarType> type, c10::DeviceType device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool active_, enabled_before_ = false;
  c10::DeviceType device_;
  at::ScalarType type_before_ = at::ScalarType::BFloat16;
};

}  // namespace funicular
