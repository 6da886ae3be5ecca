#pragma once
// The page of a report: HTML that needs nothing beside it, and the same comparison as text.

#include <string>
#include <string_view>

#include "funicular/report/files.h"

namespace funicular::report {

/// A library for charts, included in the page. If empty, draw_svg draws the charts.
struct ChartLibrary {
  std::string_view script, style, licence;
};

/// uPlot (MIT licence), where the build has found it (tools/setup.sh), else empty.
ChartLibrary chart_library();

/// Returns the whole page. The texts in `files` may hold any characters.
std::string render_page(const ReportFiles& files, const std::string& title,
                        const ChartLibrary& library = chart_library());

/// Whether a file's contents are such a page.
bool is_page(std::string_view contents);

/// Compares the evaluated models, one line per model: size, measures, rows per second. Empty without evaluations.
std::string render_table(const ReportFiles& files);

/// The charts of the page, in order: one chart per field that any run has recorded.
std::vector<Chart> charts_of(const ReportFiles& files);

}  // namespace funicular::report
