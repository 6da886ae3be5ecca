#include "funicular/core/autocast.h"

#include <ATen/autocast_mode.h>

namespace funicular {

Autocast::Autocast(std::optional<at::ScalarType> type, c10::DeviceType device)
    : active_(type.has_value()), device_(device) {
  if (!active_) return;
  enabled_before_ = at::autocast::is_autocast_enabled(device_);
  type_before_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, *type);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, enabled_before_);
  at::autocast::set_autocast_dtype(device_, type_before_);
}

}  // namespace funicular
