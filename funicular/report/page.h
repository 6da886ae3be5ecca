#pragma once
// The page of a report: HTML that needs nothing beside it, and the same comparison as text.

#include <string>
#include <string_view>

#include "funicular/report/files.h"

namespace funicular::report {

/// A library for charts to be put into the page, as its own files are; empty: the charts are those of draw_svg.
struct ChartLibrary {
  std::string_view script, style, licence;
};

/// uPlot (MIT licence), where the build has found it (tools/setup.sh), else empty.
ChartLibrary chart_library();

/// The whole page. What stands in `files` may be any text.
std::string render_page(const ReportFiles& files, const std::string& title,
                        const ChartLibrary& library = chart_library());

/// Whether a file's contents are such a page.
bool is_page(std::string_view contents);

/// The evaluated models beside each other, a line each: size, what was measured, rows a second. Empty without evaluations.
std::string render_table(const ReportFiles& files);

/// The charts of the page, in order: a chart a field that any run has recorded.
std::vector<Chart> charts_of(const ReportFiles& files);

}  // namespace funicular::report
