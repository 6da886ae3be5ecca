#pragma once
// The measured times of a pipeline's passes, to compare with a schedule's plan.

#include <string>
#include <vector>

#include "funicular/pipeline/schedule.h"
#include "funicular/pipeline/timeline.h"

namespace funicular::pipeline {

/// A recording of the micro-batches between two moments at which the pipeline was empty. Times are milliseconds since
/// the first pass, by one clock.
struct Recording {
  Schedule schedule;  ///< without messages
  /// Spans of F, B, I and W and of the updates between them, without the rank's waiting time before each.
  std::vector<Span> spans;
};

/// Returns JSON: the rows, and [rank, "2F0", start, end] for each pass and update.
std::string to_json_text(const Recording& recording);
/// Parses to_json_text's output. Throws InputError naming `path` for malformed text, and for passes that are not in
/// the rows or occur twice.
Recording parse_recording(const std::string& text, const std::string& path);
/// Reads a file of this text. Throws InputError as parse_recording does, and for a file without a pass.
Recording read_recording(const std::string& path);

/// Returns the mean time of each kind of pass per stage. The first micro-batch is left out if there are more, as it
/// is slower. For stages with B instead of I and W, input_gradient is the time of B. The mean time of updates is 0 if
/// none was recorded.
Costs mean_costs(const Recording& recording);

/// Returns the recorded timeline. A rank's peak_in_flight and versions follow from its row.
Timeline measured_timeline(const Recording& recording);

}  // namespace funicular::pipeline
