#pragma once
// Sections about layers: accuracy against the layers and the speed of early exit and of cascades, and probes.

#include <string>

#include "funicular/report/files.h"

namespace funicular::report {

/// Charts and a table for each evaluation with "early_exit" or "cascade" (task/exit_speed.h); "" if there is none.
std::string early_exit_section(const ReportFiles& files);
/// A chart of all probes, and a sentence on each (task/probe.h); "" if there is none.
std::string probes_section(const ReportFiles& files);

}  // namespace funicular::report
