#pragma once
// For the files of single optimisers: checks of their settings, their descriptions, and their makers for make_optimizer().

#include <cmath>
#include <memory>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/optim/optimizer.h"

namespace funicular::optim {

std::unique_ptr<Optimizer> make_one(const Lamb& options);
std::unique_ptr<Optimizer> make_one(const Lars& options);
OrderedJson describe_one(const Lamb& options);
OrderedJson describe_one(const Lars& options);

/// Throws InputError unless 0 <= value < below.
inline void check_range(const char* optimizer, const char* name, double value, double below = INFINITY) {
  if (!(value >= 0 && value < below))
    throw InputError("optimizer", "{}: expected {} in [0, {}), found {}", optimizer, name, below, value);
}

/// Where a gradient is always 0 the update is 0 / epsilon, in the parameters' type.
inline void check_epsilon(const char* optimizer, double epsilon) {
  check_range(optimizer, "epsilon", epsilon);
  if (!(static_cast<float>(epsilon) > 0))
    throw InputError("optimizer", "{}: expected epsilon above 0 as a 32-bit number, found {}", optimizer,
                     epsilon);
}

inline void check_bounds(const char* optimizer, const char* name, const Bounds& bounds) {
  if (!(bounds.lowest >= 0 && bounds.lowest <= bounds.highest && bounds.highest > 0))
    throw InputError("optimizer", "{}: expected {} with 0 <= lowest <= highest, found [{}, {}]", optimizer,
                     name, bounds.lowest, bounds.highest);
}

inline const char* trust_ratio_name(TrustRatio convention) {
  return convention == TrustRatio::paper ? "paper" : "apex";
}

/// [lowest, highest]; null where there is no upper bound, which JSON cannot write.
inline OrderedJson describe_bounds(const Bounds& bounds) {
  OrderedJson highest;
  if (std::isfinite(bounds.highest)) highest = bounds.highest;
  return OrderedJson::array({bounds.lowest, highest});
}

}  // namespace funicular::optim
