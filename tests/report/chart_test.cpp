#include "funicular/report/chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>

namespace funicular::report {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

TEST(Ticks, StandAtRoundNumbersWithinTheRange) {
  EXPECT_EQ(ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(ticks(-1.5, 1.2, 6), (std::vector<double>{-1.5, -1, -0.5, 0, 0.5, 1}));
  const std::vector<double> small = ticks(1e-5, 5e-5, 4);
  ASSERT_EQ(small.size(), 5U);
  EXPECT_NEAR(small[1], 2e-5, 1e-18);
  for (const double span : {1e-30, 0.37, 9.99, 1e6, 3e200})
    for (const int most : {2, 6, 8}) {
      const std::vector<double> found = ticks(7 * span, 8 * span, most);
      EXPECT_GE(found.size(), 1U) << span;
      EXPECT_LE(found.size(), static_cast<size_t>(most) + 1) << span;
      for (const double tick : found)
        EXPECT_TRUE(tick >= 7 * span * (1 - 1e-9) && tick <= 8 * span * (1 + 1e-9)) << tick;
    }
  EXPECT_EQ(ticks(3, 3, 5), std::vector<double>{3});
}

TEST(ShortValues, AreAsAPersonWritesThem) {
  EXPECT_EQ(short_value(0), "0");
  EXPECT_EQ(short_value(0.0002), "0.0002");
  EXPECT_EQ(short_value(1500), "1500");
  EXPECT_EQ(short_value(15000), "15k");
  EXPECT_EQ(short_value(-2.5e6), "-2.5M");
  EXPECT_EQ(short_value(3e9), "3G");
}

TEST(ThinnedLines, KeepTheEndsAndTheExtremes) {
  Line line{"run", {}, {}};
  for (int at = 0; at < 100000; ++at) {
    line.x.push_back(at);
    line.y.push_back(std::sin(at * 0.001));
  }
  line.y[54321] = 50;
  line.y[777] = -50;
  const Line thin = thinned(line, 1000);
  EXPECT_LE(thin.x.size(), 1000U);
  EXPECT_EQ(thin.x.front(), 0);
  EXPECT_EQ(thin.x.back(), 99999);
  EXPECT_TRUE(std::is_sorted(thin.x.begin(), thin.x.end()));
  EXPECT_EQ(std::count(thin.y.begin(), thin.y.end(), 50.0), 1);
  EXPECT_EQ(std::count(thin.y.begin(), thin.y.end(), -50.0), 1);
  for (size_t at = 0; at < thin.x.size(); ++at)
    EXPECT_EQ(thin.y[at], line.y[static_cast<size_t>(thin.x[at])]);
  EXPECT_EQ(thinned(line, 100000).x.size(), line.x.size());
}

/// The points of the n-th path.
std::vector<std::pair<double, double>> points(const std::string& svg, int n = 0) {
  static const std::regex kPath("<path d=\"([^\"]*)\""), kPoint("[ML]([0-9.]+) ([0-9.]+)");
  auto path = std::sregex_iterator(svg.begin(), svg.end(), kPath);
  std::advance(path, n);
  const std::string places = (*path)[1];
  std::vector<std::pair<double, double>> found;
  for (auto point = std::sregex_iterator(places.begin(), places.end(), kPoint);
       point != std::sregex_iterator(); ++point)
    found.emplace_back(std::stod((*point)[1]), std::stod((*point)[2]));
  return found;
}

TEST(Charts, PlaceEachPointByItsNumbers) {
  const std::string svg = draw_svg({"loss", {{"a", {0, 5, 10}, {1, 3, 2}}, {"b", {10}, {1}}}});
  const auto a = points(svg), b = points(svg, 1);
  ASSERT_EQ(a.size(), 3U);
  ASSERT_EQ(b.size(), 1U);
  EXPECT_NEAR(a[1].first, (a[0].first + a[2].first) / 2, 0.1);
  EXPECT_GT(a[0].second, a[2].second) << "a greater value stands higher";
  EXPECT_NEAR(a[2].second, (a[0].second + a[1].second) / 2, 0.1);
  EXPECT_NEAR(b[0].first, a[2].first, 0.1);
  EXPECT_NEAR(b[0].second, a[0].second, 0.1);
  EXPECT_NE(svg.find("<title>a: 3 at step 5</title>"), std::string::npos);
}

TEST(Charts, HaveAGapWhereAValueIsNotFinite) {
  const std::string svg = draw_svg({"loss", {{"a", {0, 1, 2, 3}, {1, kNone, 3, 4}}}});
  EXPECT_EQ(points(svg).size(), 3U);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(std::count(svg.begin(), svg.end(), 'M'), 2);
  EXPECT_NE(draw_svg({"loss", {{"a", {0}, {kNone}}}}).find("nothing finite"), std::string::npos);
  EXPECT_NE(draw_svg({"loss", {}}).find("nothing finite"), std::string::npos);
}

TEST(Escaped, TextsHaveNoMeaningInHtml) {
  EXPECT_EQ(escaped("<a href=\"x\">&amp;"), "&lt;a href=&quot;x&quot;&gt;&amp;amp;");
  EXPECT_EQ(draw_svg({"<b>", {}}).find("<b>"), std::string::npos);
}

}  // namespace
}  // namespace funicular::report
