#pragma once
// When the passes of a pipeline really ran, to set beside what a schedule plans.

#include <string>
#include <vector>

#include "funicular/pipeline/schedule.h"
#include "funicular/pipeline/timeline.h"

namespace funicular::pipeline {

/// Recording of the micro-batches between two moments in which the pipeline was empty. Times are milliseconds
/// of one clock, from the first pass on.
struct Recording {
  Schedule schedule;  ///< without messages
  /// Of F, B, I and W and of the updates between them, what the rank waited for before each left out.
  std::vector<Span> spans;
};

/// A file of JSON: the rows, and [rank, "2F0", start, end] for each pass and update.
std::string to_json_text(const Recording& recording);
/// From that text. Throws InputError naming `path` for what is no such text, and for passes that its rows do not have or that come
/// twice.
Recording parse_recording(const std::string& text, const std::string& path);
/// Reads that file. Throws InputError for the same, and where no pass is in it.
Recording read_recording(const std::string& path);

/// What a pass took on each stage: the mean of its micro-batches but the first, which is slower, if there are others. Of stages
/// with B alone I has all of it. The same of updates, 0 where none was noted.
Costs mean_costs(const Recording& recording);

/// As it was. A rank's peak in flight and versions come from its row.
Timeline measured_timeline(const Recording& recording);

}  // namespace funicular::pipeline
