#include "funicular/format/column_list.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "funicular/base/error.h"

namespace funicular::format {
namespace {

using Elements = std::vector<std::string_view>;

TEST(SplitList, GivesWhatStandsBetweenTheSeparatorsWithoutBlanksAround) {
  EXPECT_EQ(split_list("joy, love ,calm", ","), (Elements{"joy", "love", "calm"}));
  EXPECT_EQ(split_list("a b", ","), (Elements{"a b"}));
  EXPECT_EQ(split_list("a||b", "||"), (Elements{"a", "b"}));
  EXPECT_EQ(split_list("a b", " "), (Elements{"a", "b"}));
}

TEST(SplitList, LeavesOutWhatIsEmpty) {
  EXPECT_EQ(split_list("", ","), Elements{});
  EXPECT_EQ(split_list(" ,, a, ", ","), Elements{"a"});
}

TEST(SplitList, TakesAListOfJsonAsItIs) {
  EXPECT_EQ(split_list("\x1e"
                       "a, b\x1e c ",
                       ","),
            (Elements{"a, b", " c "}));
  EXPECT_EQ(split_list("\x1e", ","), Elements{});
}

TEST(SplitList, RefusesASeparatorOfNothing) {
  EXPECT_THROW(split_list("a", ""), InputError);
}

}  // namespace
}  // namespace funicular::format
