#pragma once
// Line charts as inline SVG, drawn here: a page with them needs no other program.

#include <string>
#include <vector>

namespace funicular::report {

/// Points of one run, x rising.
struct Line {
  std::string name;
  std::vector<double> x, y;  ///< of one length; a y that is not finite is a gap
  size_t run = 0;            ///< its place among the runs of the report: it has one colour in all charts
};

/// The contents of one picture.
struct Chart {
  std::string title;
  std::vector<Line> lines;
  std::vector<double> medians = {};  ///< of each line, shown beside its last value; empty: none is shown
};

/// The colour of a run, "#rrggbb". Colours come again after eight, and then the lines are dashed.
const char* colour(size_t run);
/// Lengths of strokes and gaps of a run's lines, as SVG has them; "" for whole lines.
std::string dashes(size_t run);

/// Places of marks on an axis from `low` to `high`: 1, 2 or 5 times a power of ten apart, at most `most` of them.
std::vector<double> ticks(double low, double high, int most);

/// A number as a person writes it: "0.0002", "1.5M".
std::string short_value(double value);

/// Returns at most `most` points. Each part of the line keeps its first, last, lowest and highest point, so the
/// picture looks the same.
Line thinned(const Line& line, size_t most);

/// An <svg> element of 600 x 260 units. Without a finite point it says so.
std::string draw_svg(const Chart& chart);

/// `text` with the characters replaced that mean something in HTML.
std::string escaped(std::string_view text);

}  // namespace funicular::report
