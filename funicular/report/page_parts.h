#pragma once
// The parts of a report's page that are tables, as HTML.

#include <string>

#include "funicular/report/files.h"

namespace funicular::report {

std::string_view page_style();

/// Compares the evaluated models: what each is and can do. This section and the next ones are empty if there is
/// nothing to show.
std::string models_section(const ReportFiles& files);
/// A table of the runs: settings and results.
std::string runs_section(const ReportFiles& files);
/// The steps of a chain.
std::string steps_section(const ReportFiles& files);
/// For each evaluation: the scores of each class, the confusion matrix, and the wrong answers.
std::string evaluations_section(const ReportFiles& files);
/// The origin of each run: its run.json.
std::string provenance_section(const ReportFiles& files);

}  // namespace funicular::report
