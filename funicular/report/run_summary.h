#pragma once
// Summarises each run in a row of a table.

#include <string>

#include "funicular/report/files.h"
#include "funicular/report/table.h"

namespace funicular::report {

/// The kind of a run: losses of runs of one kind can be compared. It is "mlm", "electra", "classification",
/// "regression", "multi-label", "tags", "distillation of soft 1", …; "" where run.json does not say it.
std::string kind_of(const RunFiles& run);

/// These skip values that are not finite, and return NaN if no value is left.
double last_value(const Line& line);
double least_value(const Line& line);
double median_value(const Line& line);

/// A row for each run, with its kind, steps, time, parameters, last and least training loss, best evaluation, and its median of
/// tokens per second. A column that no run has a value for is left out.
Table runs_table(const ReportFiles& files);

}  // namespace funicular::report
