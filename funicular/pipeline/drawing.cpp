#include "funicular/pipeline/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "funicular/base/json.h"
#include "funicular/pipeline/placement.h"

namespace funicular::pipeline {

namespace {

constexpr double kLeft = 70, kTop = 56, kRow = 30, kBox = 24, kMargin = 14, kTitle = 36;

struct Colour {
  const char* name;
  int hue, saturation, lightness;
};

Colour colour_of(Kind kind) {
  switch (kind) {
    case Kind::forward:
      return {"F forward", 212, 62, 62};
    case Kind::input_gradient:
      return {"I input gradient", 174, 46, 52};
    case Kind::weight_gradient:
      return {"W weight gradient", 142, 42, 66};
    case Kind::update:
      return {"U update", 32, 78, 62};
    default:
      return {"B backward", 130, 42, 50};
  }
}

/// The stage's index among the rank's stages.
int chunk_of(const Placement& placement, int rank, int stage) {
  int before = 0;
  for (int other = 0; other < stage; ++other) before += placement.has(rank, other);
  return before;
}

std::string fill(Kind kind, int chunk) {
  const Colour colour = colour_of(kind);
  return fmt::format("hsl({},{}%,{}%)", colour.hue, colour.saturation,
                     std::min(90, colour.lightness + 13 * chunk));
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<' || c == '>' || c == '&' || c == '"')
      result += fmt::format("&#{};", static_cast<int>(c));
    else
      result += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  }
  return result;
}

/// Pixels per unit of time. Boxes are wide enough for their numbers, unless the image would be too wide for a
/// browser.
double scale_of(const Timeline& planned, double longest) {
  double shortest = longest;
  for (const Span& span : planned.spans)
    if (span.end > span.start) shortest = std::min(shortest, span.end - span.start);
  return std::min(22 / std::max(shortest, 1e-9), 12000 / longest);
}

void add_legend(std::string& svg, const Timeline& timeline) {
  double x = kLeft;
  for (const Kind kind :
       {Kind::forward, Kind::backward, Kind::input_gradient, Kind::weight_gradient, Kind::update}) {
    if (std::none_of(timeline.spans.begin(), timeline.spans.end(),
                     [&](const Span& span) { return span.action.kind == kind; }))
      continue;
    const std::string name = colour_of(kind).name;
    fmt::format_to(
        std::back_inserter(svg),
        "<rect x=\"{}\" y=\"30\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"40\">{}</text>\n",
        x, fill(kind, 0), x + 16, name);
    x += 30 + 6.2 * static_cast<double>(name.size());
  }
}

/// Draws one row per rank, the first one at `top`.
void add_rows(std::string& svg, const Schedule& schedule, const Timeline& timeline, double top,
              double scale) {
  const Placement placement(schedule);
  const auto out = std::back_inserter(svg);
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    fmt::format_to(
        out,
        "<text x=\"{}\" y=\"{}\">rank {}</text><rect x=\"{}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" "
        "fill=\"#eee\"/>\n",
        kMargin, top + kRow * rank + 16, rank, kLeft, top + kRow * rank, scale * timeline.makespan, kBox);
  for (const Span& span : timeline.spans) {
    const double left = kLeft + scale * span.start, high = top + kRow * span.rank;
    const double wide = scale * (span.end - span.start);
    fmt::format_to(out,
                   "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" stroke=\"white\" "
                   "stroke-width=\"0.7\"><title>{} {:g}–{:g}</title></rect>",
                   left, high, wide, kBox,
                   fill(span.action.kind, chunk_of(placement, span.rank, span.action.stage)),
                   to_text(span.action), span.start, span.end);
    if (wide >= 12)
      fmt::format_to(out, "<text x=\"{:.2f}\" y=\"{}\" text-anchor=\"middle\">{}</text>", left + wide / 2,
                     high + 16,
                     span.action.kind == Kind::update ? span.action.version : span.action.micro_batch);
    svg += '\n';
  }
}

void add_events(OrderedJson& events, const Schedule& schedule, const Timeline& timeline, int process,
                const char* name) {
  events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", process}, {"args", {{"name", name}}}});
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", process},
                      {"tid", rank},
                      {"args", {{"name", fmt::format("rank {}", rank)}}}});
  for (const Span& span : timeline.spans)
    events.push_back({{"name", to_text(span.action)},
                      {"cat", colour_of(span.action.kind).name},
                      {"ph", "X"},
                      {"pid", process},
                      {"tid", span.rank},
                      {"ts", 1e3 * span.start},
                      {"dur", 1e3 * (span.end - span.start)},
                      {"args", {{"stage", span.action.stage}, {"micro_batch", span.action.micro_batch}}}});
}

}  // namespace

std::string draw_svg(const Schedule& schedule, const Timeline& planned, const Timeline* measured) {
  const double longest = std::max({planned.makespan, measured ? measured->makespan : 0, 1e-9});
  const double scale = scale_of(planned, longest), rows = kRow * schedule.ranks();
  const double width = kLeft + std::max(420.0, scale * longest) + kMargin;
  const double second = kTop + rows + kTitle;  // where measured rows begin
  const double height = (measured ? second : kTop) + rows + kMargin;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n<text x=\"{2}\" y=\"18\" font-size=\"14\">{3}: {4} ranks, {5} stages, {6} "
      "micro-batches, time {7:g}{8}</text>\n",
      width, height, kMargin, escaped(schedule.name), schedule.ranks(), schedule.stages(),
      schedule.micro_batches(), planned.makespan, measured ? " planned" : "");
  add_legend(svg, planned);
  add_rows(svg, schedule, planned, kTop, scale);
  if (measured) {
    fmt::format_to(std::back_inserter(svg),
                   "<text x=\"{}\" y=\"{}\" font-size=\"14\">time {:g} measured</text>\n", kMargin,
                   second - 10, measured->makespan);
    add_rows(svg, schedule, *measured, second, scale);
  }
  return svg + "</svg>\n";
}

std::string draw_trace(const Schedule& schedule, const Timeline& planned, const Timeline* measured) {
  OrderedJson events = OrderedJson::array();
  add_events(events, schedule, planned, 0, "planned");
  if (measured) add_events(events, schedule, *measured, 1, "measured");
  return OrderedJson{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump(1) + "\n";
}

}  // namespace funicular::pipeline
