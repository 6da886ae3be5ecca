#include "funicular/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

namespace funicular::report {

namespace {

// Paul Tol's "bright" palette and two more of like weight: told apart by the colour-blind, too.
constexpr std::array kColours{"#4477aa", "#ee6677", "#228833", "#ccbb44",
                              "#66ccee", "#aa3377", "#cc7722", "#777777"};

constexpr double kWidth = 600, kHeight = 260, kLeft = 64, kRight = 12, kTop = 10, kBottom = 30;
constexpr size_t kMostMarked = 40;  ///< points of a line that get a dot each

/// The range of values on an axis.
struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();

  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  /// Gives a single value some room on both sides.
  void widen() {
    if (high > low) return;
    const double room = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= room;
    high += room;
  }
  double share(double value) const { return (value - low) / (high - low); }
};

struct Frame {
  Range x, y;
  double across(double value) const { return kLeft + x.share(value) * (kWidth - kLeft - kRight); }
  double down(double value) const { return kHeight - kBottom - y.share(value) * (kHeight - kTop - kBottom); }
};

bool is_drawn(const Line& line, size_t at) {
  return std::isfinite(line.x[at]) && std::isfinite(line.y[at]);
}

Frame frame_of(const Chart& chart) {
  Frame frame;
  for (const Line& line : chart.lines)
    for (size_t at = 0; at < line.x.size(); ++at)
      if (is_drawn(line, at)) frame.x.take(line.x[at]), frame.y.take(line.y[at]);
  frame.x.widen();
  frame.y.widen();
  return frame;
}

std::string draw_axes(const Frame& frame) {
  std::string svg;
  for (const double tick : ticks(frame.y.low, frame.y.high, 6)) {
    const double y = frame.down(tick);
    svg += fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", kLeft,
                       kWidth - kRight, y, y);
    svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kLeft - 6, y + 4,
                       short_value(tick));
  }
  for (const double tick : ticks(frame.x.low, frame.x.high, 8)) {
    if (tick != std::floor(tick)) continue;  // there is no half a step
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>", frame.across(tick),
                       kHeight - kBottom + 16, short_value(tick));
  }
  return svg + fmt::format("<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>", kLeft,
                           kWidth - kRight, kHeight - kBottom, kHeight - kBottom);
}

std::string draw_line(const Line& line, const Frame& frame) {
  std::string path, dots;
  bool pen_is_down = false;
  const bool marked = line.x.size() <= kMostMarked;
  for (size_t at = 0; at < line.x.size(); ++at) {
    if (!is_drawn(line, at)) {
      pen_is_down = false;
      continue;
    }
    const double x = frame.across(line.x[at]), y = frame.down(line.y[at]);
    path += fmt::format("{}{:.1f} {:.1f}", pen_is_down ? "L" : "M", x, y);
    pen_is_down = true;
    if (marked)
      dots += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"><title>{}: {} at step "
          "{}</title></circle>",
          x, y, colour(line.run), escaped(line.name), line.y[at], line.x[at]);
  }
  const std::string dashed =
      dashes(line.run).empty() ? "" : fmt::format(" stroke-dasharray=\"{}\"", dashes(line.run));
  return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"{}/>{}", path,
                     colour(line.run), dashed, dots);
}

}  // namespace

const char* colour(size_t run) {
  return kColours[run % kColours.size()];
}

std::string dashes(size_t run) {
  const size_t round = run / kColours.size();
  return round == 0 ? "" : fmt::format("{} 3", 2 + 4 * (round - 1));
}

std::vector<double> ticks(double low, double high, int most) {
  if (!(high > low) || !std::isfinite(high - low)) return {low};
  const double least = (high - low) / most, power = std::pow(10.0, std::floor(std::log10(least)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least) {
      step = factor * power;
      break;
    }
  std::vector<double> found;
  for (double number = std::ceil(low / step);
       number * step <= high && found.size() <= static_cast<size_t>(most); ++number)
    found.push_back(number * step == 0 ? 0 : number * step);
  return found;
}

std::string short_value(double value) {
  const double size = std::abs(value);
  for (const auto& [unit, name] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}})
    if (size >= unit) return fmt::format("{:.6g}{}", value / (unit == 1e4 ? 1e3 : unit), name);
  return fmt::format("{:.6g}", value);
}

Line thinned(const Line& line, size_t most) {
  const size_t count = line.x.size(), parts = std::max<size_t>(1, most / 4);
  if (count <= most) return line;
  Line thin{line.name, {}, {}, line.run};
  for (size_t part = 0; part < parts; ++part) {
    const size_t begin = count * part / parts, end = count * (part + 1) / parts;
    size_t low = begin, high = begin;  // of values that are numbers, where there are any
    for (size_t at = begin; at < end; ++at) {
      if (line.y[at] < line.y[low] || std::isnan(line.y[low])) low = at;
      if (line.y[at] > line.y[high] || std::isnan(line.y[high])) high = at;
    }
    std::array kept{begin, low, high, end - 1};
    std::sort(kept.begin(), kept.end());
    for (size_t at = 0; at < kept.size(); ++at)
      if (at == 0 || kept[at] != kept[at - 1])
        thin.x.push_back(line.x[kept[at]]), thin.y.push_back(line.y[kept[at]]);
  }
  return thin;
}

std::string draw_svg(const Chart& chart) {
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", kWidth, kHeight,
                                escaped(chart.title));
  const Frame frame = frame_of(chart);
  if (!std::isfinite(frame.x.low))
    return svg + "<text x=\"64\" y=\"130\">nothing finite was recorded</text></svg>";
  svg += draw_axes(frame);
  for (const Line& line : chart.lines) svg += draw_line(line, frame);
  return svg + "</svg>";
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) switch (c) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  return result;
}

}  // namespace funicular::report
