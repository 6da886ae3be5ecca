#pragma once
#include <cstdint>

namespace funicular {

constexpr int64_t kMiB = int64_t{1} << 20;

}  // namespace funicular
