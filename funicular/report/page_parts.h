#pragma once
// The parts of a report's page that are tables, as HTML.

#include <string>

#include "funicular/report/files.h"

namespace funicular::report {

std::string_view page_style();

/// What each evaluated model is and can do, beside each other. These are empty where there is nothing to show.
std::string models_section(const ReportFiles& files);
/// A table of the runs: settings and results.
std::string runs_section(const ReportFiles& files);
/// The steps of a chain.
std::string steps_section(const ReportFiles& files);
/// Of each evaluation the scores of each class, the confusion matrix, and what was answered wrongly.
std::string evaluations_section(const ReportFiles& files);
/// Where each run comes from: its run.json.
std::string provenance_section(const ReportFiles& files);

}  // namespace funicular::report
