#pragma once
// Draws the timeline of each rank of a pipeline, as an SVG image or as a trace for chrome://tracing. If measured
// times are known, they are drawn below the planned ones.

#include <string>

#include "funicular/pipeline/schedule.h"
#include "funicular/pipeline/timeline.h"

namespace funicular::pipeline {

/// Returns an SVG image with one row per rank and time to the right. A box shows the number of its micro-batch, or
/// for an update the version. Colours distinguish F, B, I, W and updates; shades distinguish the stages of a rank.
/// `measured` (null: none) has its own rows below, on the same scale.
std::string draw_svg(const Schedule& schedule, const Timeline& planned, const Timeline* measured = nullptr);

/// Returns Chrome's trace format (JSON), for chrome://tracing and Perfetto: one thread per rank, one millisecond per
/// unit of time. `measured` is a separate process.
std::string draw_trace(const Schedule& schedule, const Timeline& planned, const Timeline* measured = nullptr);

}  // namespace funicular::pipeline
