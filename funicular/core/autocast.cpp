#include "funicular/core/autocast.h"

#include <ATen/autocast_mode.h>

namespace funicular {

Autocast::Autocast(std::optional<at::ScalarType> type) : active_(type.has_value()) {
  if (!active_) return;
  enabled_before_ = at::autocast::is_autocast_enabled(at::kCPU);
  type_before_ = at::autocast::get_autocast_dtype(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, *type);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, enabled_before_);
  at::autocast::set_autocast_dtype(at::kCPU, type_before_);
}

}  // namespace funicular
