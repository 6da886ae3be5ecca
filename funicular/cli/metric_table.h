#pragma once
// The result of an evaluation as a table for people.

#include <optional>
#include <string>

#include "funicular/base/json.h"
#include "funicular/task/baseline.h"

namespace funicular::cli {

/// A line per number of `found`, with the baseline's score beside its metric. Then come the classes of --details, and
/// the names of what only JSON shows. No line end at the end.
std::string metric_table(const OrderedJson& found, const std::optional<task::Baseline>& baseline);

}  // namespace funicular::cli
