// Numbers as Python's float() and numpy.float32() read them, but for those beyond the range, which they call inf.

#include "funicular/base/number.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace funicular {
namespace {

TEST(Number, IsReadWholeAndWithinTheRange) {
  EXPECT_EQ(read_number("1e-400"), 0.0);
  EXPECT_EQ(read_number("-4.9406564584124654e-324"), -std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(read_number("1.7976931348623157e308"), std::numeric_limits<double>::max());
  EXPECT_EQ(read_float("1e-50"), 0.0f);
  EXPECT_EQ(read_float("1e-400"), 0.0f);
  EXPECT_EQ(read_float("1e-45"), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(read_float("3.4028235e38"), std::numeric_limits<float>::max());
  EXPECT_EQ(read_number(std::string(400, '0') + ".5"), 0.5);
  for (const char* text : {"1e400", "-1e400", "1e309", "1e39", "-1e99999999999", "inf", "nan"}) {
    if (std::string(text) != "1e39") {
      EXPECT_EQ(read_number(text), std::nullopt) << text;
    }
    EXPECT_EQ(read_float(text), std::nullopt) << text;
  }
  for (const char* text : {"", "1 ", " 1", "1x", "1,5", "--1", "0x10", "1e", "+1"})
    EXPECT_EQ(read_number(text), std::nullopt) << text;
  EXPECT_EQ(read_whole_number<int>("2147483648"), std::nullopt);
  EXPECT_EQ(read_whole_number<unsigned>("-1"), std::nullopt);
  EXPECT_EQ(read_whole_number<int>("12."), std::nullopt);
  EXPECT_EQ(read_whole_number<int>("-12"), -12);
}

TEST(Number, MayHaveADecimalComma) {
  EXPECT_EQ(read_number_with_comma("0,125"), 0.125);
  EXPECT_EQ(read_number_with_comma("0.125"), 0.125);
  for (const char* text : {"1.000,5", "1,000,5", ",", "1,5,"})
    EXPECT_EQ(read_number_with_comma(text), std::nullopt) << text;
}

}  // namespace
}  // namespace funicular
