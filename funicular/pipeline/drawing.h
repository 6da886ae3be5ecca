#pragma once
// Draws what each rank of a pipeline does when: as an SVG image, and as a trace for chrome://tracing.

#include <string>

#include "funicular/pipeline/schedule.h"
#include "funicular/pipeline/timeline.h"

namespace funicular::pipeline {

/// An SVG image: one row a rank, time to the right; the number in a box is its micro-batch, colours tell F, B, I and W
/// apart, and shades the stages of a rank.
std::string draw_svg(const Schedule& schedule, const Timeline& timeline);

/// Chrome's trace format (JSON), for chrome://tracing and Perfetto: one thread a rank, a unit of time is a millisecond.
std::string draw_trace(const Schedule& schedule, const Timeline& timeline);

}  // namespace funicular::pipeline
