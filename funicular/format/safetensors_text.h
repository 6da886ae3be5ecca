#pragma once
// The header of a safetensors file as JSON text, and its errors: what reading and writing such files share.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "funicular/base/json_text.h"

namespace funicular::format {

inline constexpr uint64_t kMaximumSafetensorsHeader = 100'000'000;  // bytes, the reference's limit

/// A name from an untrusted file as it may stand in a message: quoted, escaped and short.
inline std::string shown(std::string_view name) {
  std::string text = json_text(Json(std::string(name)), -1, /*ascii=*/true);
  if (text.size() > 100) text = text.substr(0, 96) + "…\"";
  return text;
}

inline std::string shown(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

}  // namespace funicular::format
