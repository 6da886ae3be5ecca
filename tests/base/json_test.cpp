// JSON from elsewhere is read as it stands, or refused by name: it neither ends the program nor is cut.

#include "funicular/base/json.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace funicular {
namespace {

template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

/// `levels` lists and objects, in turn, in each other.
std::string nested(int levels) {
  std::string opened, closed;
  for (int i = 0; i < levels; ++i) {
    opened += i % 2 ? "[" : "{\"a\":";
    closed.insert(0, i % 2 ? "]" : "}");
  }
  return opened + "1" + closed;
}

TEST(JsonDepth, ObjectsAndListsNestToTheLimitAndNoDeeper) {
  EXPECT_NO_THROW(parse_json(nested(kMaximumJsonDepth), "x.json"));
  const std::string message = error_of([] { parse_json("\n\n" + nested(kMaximumJsonDepth + 1), "x.json"); });
  // 64 times {"a":[ and then the 129th, after two line ends.
  EXPECT_NE(message.find("x.json:3: objects and lists are nested more than 128 deep (byte 387)"),
            message.npos)
      << message;
}

TEST(JsonDepth, SixtyThousandLevelsAreRefusedByEachReader) {
  for (const std::string& text : {nested(60'000), repeated("[", 60'000), repeated("{\"a\":", 60'000)}) {
    EXPECT_NE(error_of([&] { parse_json(text, "x.json"); }).find("x.json:1"), std::string::npos);
    EXPECT_NE(json_depth_problem(text), "");
    EXPECT_TRUE(parse_json_or_null(text).is_null());
    EXPECT_TRUE(parse_json_or_null<OrderedJson>(text).is_null());
  }
}

TEST(JsonDepth, BracketsSideBySideOrInTextsAreNoDepth) {
  EXPECT_NO_THROW(parse_json("[" + repeated("[],{},", 5'000) + "1]", "x"));
  EXPECT_NO_THROW(parse_json("[\"" + repeated("[{", 5'000) + "\"]", "x"));
  // An escaped quote does not end the text, and an escaped backslash does not escape the quote after it.
  EXPECT_NO_THROW(parse_json("[\"" + repeated("\\\"[", 500) + "\"]", "x"));
  EXPECT_NE(error_of([] { parse_json("[\"\\\\\"," + repeated("[", 500), "x"); }).find("more than 128 deep"),
            std::string::npos);
}

TEST(JsonDepth, ATextThatIsNoJsonIsNamedAsSuch) {
  EXPECT_NE(error_of([] { parse_json("\"" + repeated("[", 500), "x"); }).find("not valid JSON"),
            std::string::npos);
  EXPECT_NE(error_of([] { parse_json(repeated("]", 500), "x"); }).find("not valid JSON"), std::string::npos);
  EXPECT_TRUE(parse_json_or_null("{\"step\": 4").is_null());
  EXPECT_EQ(parse_json_or_null("{\"step\": 4}")["step"], 4);
}

TEST(JsonNumbers, AnIntegerBeyondItsTypeIsRefusedAndNotCut) {
  const auto refused = [](const std::string& number, auto type) {
    const Json json = parse_json("{\"id\": " + number + "}", "x.json");
    return error_of([&] { json_get<decltype(type)>(json, "id", "x.json"); });
  };
  const std::string expected =
      "x.json: the key \"id\": expected an integer from -2147483648 to 2147483647, found ";
  for (const char* number :
       {"4294967300", "2147483648", "-2147483649", "18446744073709551615", "4.5", "4.0", "1e300", "true"})
    EXPECT_NE(refused(number, int32_t()).find(expected + Json::parse(number).dump()), std::string::npos)
        << number << ": " << refused(number, int32_t());
  for (const char* number : {"9223372036854775808", "18446744073709551620", "-9223372036854775809", "0.5"})
    EXPECT_NE(refused(number, int64_t()), "") << number;
  EXPECT_NE(refused("-1", uint64_t()), "");
  for (const char* number : {"2147483647", "-2147483648", "0"})
    EXPECT_EQ(refused(number, int32_t()), "") << number;
  EXPECT_EQ(refused("9223372036854775807", int64_t()), "");
  EXPECT_EQ(refused("18446744073709551615", uint64_t()), "");
}

TEST(JsonNumbers, TheIntegersOfAListAreCheckedToo) {
  const auto get = [](const char* list) {
    return json_get<std::vector<int64_t>>(Json{{"ids", Json::parse(list)}}, "ids", "x.json");
  };
  EXPECT_EQ(get("[1, -2]"), (std::vector<int64_t>{1, -2}));
  for (const char* list : {"[1, 2.5]", "[9223372036854775808]", "[true]"})
    EXPECT_NE(error_of([&] { get(list); }).find("the key \"ids\": expected an integer"), std::string::npos)
        << list;
  EXPECT_NE(error_of([&] { get("7"); }), "");
}

}  // namespace
}  // namespace funicular
