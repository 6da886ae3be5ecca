#pragma once
// The table of techniques for people, programs and the eye.

#include <string>

#include "funicular/base/json.h"
#include "funicular/bench/bar_chart.h"
#include "funicular/bench/techniques.h"

namespace funicular::bench {

/// Keys: "ordinary", "ordinary_evaluation", "techniques" (a list of "name", "alone", "all") and
/// "early_stopping"; a gain has "tokens_per_second", "speed", "memory_bytes" and "memory".
OrderedJson to_json(const TechniquesResult& result);
std::string to_text(const TechniquesResult& result);
/// Explains a bf16 step that alone is slower than the ordinary one; "" if it is faster.
std::string note_on_bf16(const TechniquesResult& result);
/// Speed and memory as ratios to the ordinary step.
BarChart to_chart(const TechniquesResult& result, const std::string& title, const std::string& note);

}  // namespace funicular::bench
