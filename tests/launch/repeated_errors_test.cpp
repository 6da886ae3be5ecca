// Claims about errors that several ranks tell.
#include "funicular/launch/repeated_errors.h"

#include <gtest/gtest.h>

namespace funicular::launch {
namespace {

TEST(RepeatedErrors, OfOtherRanksAreRecognisedWithTheirLines) {
  RepeatedErrors errors;
  RepeatedErrors::Reader first, second, third;
  EXPECT_FALSE(errors.is_repeated("error: [trainer] it belongs to another run:", first));
  EXPECT_TRUE(errors.is_repeated("error: [trainer] it belongs to another run:", second));
  EXPECT_FALSE(errors.is_repeated("  seed was 42 and is 7", first));
  EXPECT_TRUE(errors.is_repeated("  seed was 42 and is 7", second));
  EXPECT_FALSE(errors.is_repeated("the model is in run/model", second));
  EXPECT_FALSE(errors.is_repeated("  a line of that", second));
  EXPECT_TRUE(errors.is_repeated("2026-11-24 06:58:03 error: [trainer] it belongs to another run:", third));
  EXPECT_TRUE(
      errors.is_repeated("error: [ranks] rank 0 stopped: [trainer] it belongs to another run:", third));
}

TEST(RepeatedErrors, AreNoOtherLinesHoweverOftenTheyCome) {
  RepeatedErrors errors;
  RepeatedErrors::Reader reader, other;
  for (const char* line :
       {"warning: slow", "", "error", "loss error: 3", "  error: x", "2026-11-24 06:58:03 hello"})
    for (auto* one : {&reader, &other}) EXPECT_FALSE(errors.is_repeated(line, *one)) << line;
  EXPECT_FALSE(errors.is_repeated("error: one", reader));
  EXPECT_FALSE(errors.is_repeated("error: two", other));
  EXPECT_FALSE(errors.is_repeated("error: [ranks] rank x stopped: one", other));
}

}  // namespace
}  // namespace funicular::launch
