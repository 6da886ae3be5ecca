#include "funicular/bench/bar_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace funicular::bench {

namespace {

constexpr double kLabels = 190, kAxis = 420, kNumbers = 70, kMargin = 16, kBar = 11, kGap = 8, kTitle = 30;
constexpr std::array<const char*, 4> kColours = {"#8aa9c9", "#1f5a92", "#c98a5a", "#5a8a4a"};

std::string escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '&')
      result += "&amp;";
    else if (c == '"')
      result += "&quot;";
    else
      result += c;
  }
  return result;
}

class Drawing {
 public:
  explicit Drawing(const BarChart& chart) : chart_(chart) {}

  std::string svg() {
    text(kMargin, kMargin + 12, chart_.title, "font-size=\"16\" font-weight=\"bold\"");
    text(kMargin, kMargin + 32, chart_.note, "fill=\"#555\"");
    y_ = kMargin + 48;
    legend();
    for (const BarPanel& panel : chart_.panels) draw(panel);
    const double width = kMargin + kLabels + kAxis + kNumbers + kMargin;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
        "fill=\"white\"/>\n{2}</svg>\n",
        width, y_ + kMargin, body_);
  }

 private:
  void text(double x, double y, std::string_view value, std::string_view style) {
    body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, style, escape(value));
  }
  void bar(double x, double y, double width, size_t series, std::string_view hint) {
    body_ += fmt::format(
        "<rect class=\"bar\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" "
        "fill=\"{}\"><title>{}</title></rect>\n",
        x, y, width, kBar, kColours[series % kColours.size()], escape(hint));
  }
  void legend() {
    double x = kMargin + kLabels;
    for (size_t s = 0; s < chart_.series.size(); ++s) {
      body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", x,
                           y_, kColours[s % kColours.size()]);
      text(x + 18, y_ + 11, chart_.series[s], "");
      x += 40 + 7.5 * static_cast<double>(chart_.series[s].size());
    }
    y_ += 20;
  }
  void draw(const BarPanel& panel) {
    text(kMargin, y_ + 18, panel.title, "font-weight=\"bold\"");
    y_ += kTitle;
    double largest = 1;
    for (const BarGroup& group : panel.groups)
      for (const auto& value : group.values) largest = std::max(largest, value.value_or(0));
    const double top = y_, left = kMargin + kLabels;
    for (const BarGroup& group : panel.groups) {
      const double middle = y_ + kBar * static_cast<double>(group.values.size()) / 2 + 4;
      text(left - 8, middle, group.label, "text-anchor=\"end\"");
      for (size_t s = 0; s < group.values.size(); ++s, y_ += kBar) {
        if (!group.values[s]) continue;
        const double width = kAxis * *group.values[s] / largest;
        const std::string number = fmt::format("{:.2f}", *group.values[s]);
        bar(left, y_, width, s, fmt::format("{}, {}: {}", group.label, chart_.series[s], number));
        text(left + width + 4, y_ + kBar - 2, number, "font-size=\"10\" fill=\"#333\"");
      }
      y_ += kGap;
    }
    const double one = left + kAxis / largest;
    body_ += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#999\" "
        "stroke-dasharray=\"3 3\"/>\n",
        one, top - 4, y_ - 4);
  }

  const BarChart& chart_;
  std::string body_;
  double y_ = 0;
};

}  // namespace

std::string draw_svg(const BarChart& chart) {
  return Drawing(chart).svg();
}

}  // namespace funicular::bench
