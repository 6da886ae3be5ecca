#pragma once
// Plain horizontal bar charts as SVG files that any browser opens.

#include <optional>
#include <string>
#include <vector>

namespace funicular::bench {

/// Bars in groups: a label, and a bar for each series; none where there is no value.
struct BarGroup {
  std::string label;
  std::vector<std::optional<double>> values;  ///< at least 0, as many as there are series
};

/// A set of groups on an axis of its own, from 0 to the largest value.
struct BarPanel {
  std::string title;
  std::vector<BarGroup> groups;
};

struct BarChart {
  std::string title, note;  ///< the note stands under the title
  std::vector<std::string> series;
  std::vector<BarPanel> panels;
};

/// The chart as the text of an SVG file. A thin line marks 1 on each axis: where nothing has changed.
std::string draw_svg(const BarChart& chart);

}  // namespace funicular::bench
