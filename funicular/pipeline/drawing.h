#pragma once
// Draws what each rank of a pipeline does when, planned and, if it is known, measured below: as an SVG image, and as a trace for
// chrome://tracing.

#include <string>

#include "funicular/pipeline/schedule.h"
#include "funicular/pipeline/timeline.h"

namespace funicular::pipeline {

/// An SVG image: one row a rank, time to the right; the number in a box is its micro-batch, an update's its version; colours tell F, B, I, W and updates
/// apart, and shades the stages of a rank. `measured` (null: none) has rows of its own below, on the same scale.
std::string draw_svg(const Schedule& schedule, const Timeline& planned, const Timeline* measured = nullptr);

/// Chrome's trace format (JSON), for chrome://tracing and Perfetto: one thread a rank, a unit of time is a millisecond.
/// `measured` is a process of its own.
std::string draw_trace(const Schedule& schedule, const Timeline& planned, const Timeline* measured = nullptr);

}  // namespace funicular::pipeline
