#include "funicular/parallel/holding/exchange_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

namespace funicular::parallel {
namespace {

/// Three segments with a unit each, 0 to 2, and unit 3, which segments 0 and 2 use.
ExchangedUnits three_segments(bool gathered) {
  ExchangedUnits units;
  for (size_t segment = 0; segment < 3; ++segment) units.add({{segment}, gathered});
  units.add({{0, 2}, gathered});
  return units;
}

/// "forward 0: gather 0, gather 3; release 0 …"
std::string text_of(const ExchangePlan& plan) {
  constexpr const char* kPhases[] = {"forward", "again", "backward"};
  constexpr const char* kExchanges[] = {" gather ", " reduce ", " settle "};
  std::string text;
  for (size_t visit = 0; visit < plan.visits.size(); ++visit) {
    const ExchangePlan::Visit& one = plan.visits[visit];
    text += fmt::format("{} {}:", kPhases[one.phase], one.segment);
    for (const ExchangePlan::Exchange& exchange : plan.exchanges)
      if (exchange.visit == visit) text += kExchanges[exchange.what] + std::to_string(exchange.unit);
    for (const size_t unit : one.released) text += " release " + std::to_string(unit);
    text += "\n";
  }
  return text;
}

TEST(ExchangePlan, OfAWholeModelKeepsWhatTwoNeighboursUse) {
  const ExchangePlan plan({.kind = ExchangedPass::forward_backward, .begin = 0, .end = 3},
                          three_segments(true));
  EXPECT_EQ(text_of(plan),
            "forward 0: gather 0 gather 3 release 0 release 3\n"
            "forward 1: gather 1 release 1\n"
            "forward 2: gather 2 gather 3\n"
            "backward 2: reduce 2 release 2 release 3\n"
            "backward 1: gather 1 reduce 1 release 1\n"
            "backward 0: gather 0 gather 3 reduce 0 reduce 3 release 0 release 3\n");
  EXPECT_EQ(plan.visit_of(ExchangePlan::Visit::backward, 1), 4);
  EXPECT_EQ(plan.visit_of(ExchangePlan::Visit::again, 1), ExchangePlan::kNowhere);
}

TEST(ExchangePlan, StartsTheNextGathersBeforeTheReductionsOfTheVisitBefore) {
  const ExchangePlan plan({.kind = ExchangedPass::forward_backward, .begin = 0, .end = 3},
                          three_segments(true));
  std::string text;
  for (const ExchangePlan::Exchange& exchange : plan.exchanges)
    text +=
        fmt::format("{}{} ", exchange.what == ExchangePlan::Exchange::gather ? "gather " : "", exchange.unit);
  EXPECT_EQ(text, "gather 0 gather 3 gather 1 gather 2 gather 3 gather 1 2 gather 0 gather 3 1 0 3 ");
}

TEST(ExchangePlan, KeepsAGroupThatIsComputedAgainUntilItsBackwardPass) {
  const ExchangePlan plan({.kind = ExchangedPass::backward, .begin = 0, .end = 3, .groups = {0, 1}},
                          three_segments(true));
  EXPECT_EQ(text_of(plan),
            "again 1: gather 1\n"
            "again 2: gather 2 gather 3\n"
            "backward 2: reduce 2 release 2 release 3\n"
            "backward 1: reduce 1 release 1\n"
            "again 0: gather 0 gather 3\n"
            "backward 0: reduce 0 reduce 3 release 0 release 3\n");
}

TEST(ExchangePlan, OfASplitBackwardPassGathersForIAloneAndReducesInWAlone) {
  const ExchangedUnits units = three_segments(true);
  const ExchangedPass pass{.kind = ExchangedPass::input_gradient, .begin = 1, .end = 3};
  EXPECT_EQ(text_of({pass, units}),
            "backward 2: gather 2 gather 3 settle 2 settle 3 release 2 release 3\n"
            "backward 1: gather 1 settle 1 release 1\n");
  EXPECT_EQ(text_of({{.kind = ExchangedPass::weight_gradient, .begin = 1, .end = 3}, units}),
            "backward 2: reduce 2 reduce 3\n"
            "backward 1: reduce 1\n");
}

TEST(ExchangePlan, OfWeightsThatAreWholeReducesAlone) {
  EXPECT_EQ(text_of({{.kind = ExchangedPass::forward, .begin = 0, .end = 2}, three_segments(false)}),
            "forward 0:\nforward 1:\n");
  EXPECT_EQ(text_of({{.kind = ExchangedPass::backward, .begin = 0, .end = 3}, three_segments(false)}),
            "backward 2: reduce 2\nbackward 1: reduce 1\nbackward 0: reduce 0 reduce 3\n");
}

}  // namespace
}  // namespace funicular::parallel
