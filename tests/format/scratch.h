#pragma once
// A folder of a test's own, and the message of an expected error.

#include <gtest/gtest.h>
#include <unistd.h>

#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/hash.h"
#include "funicular/base/json.h"

namespace funicular {

/// Removed with everything in it when the test ends.
class Scratch {
 public:
  Scratch()
      : path_(fs::temp_directory_path() / ("funicular-test-" + std::to_string(::getpid()) + "-" + name())) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Scratch() { fs::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  fs::path operator/(std::string_view file) const { return path_ / file; }
  const fs::path& path() const { return path_; }
  /// Writes a file plainly and returns its path.
  fs::path put(std::string_view file, std::string_view contents) const {
    fs::remove(path_ / file);  // some file systems flush a file that is cut to nothing and written again
    FileWriter writer(path_ / file);
    writer.write(contents);
    writer.close(false);
    return path_ / file;
  }

 private:
  static std::string name() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    return test ? std::string(test->test_suite_name()) + "." + test->name() : "none";
  }
  fs::path path_;
};

/// The message of the error that `action` throws, or "" if it throws none. Any other exception fails the
/// test.
template <class Expected = InputError, class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Expected& error) {
    return error.what();
  }
  return "";
}

/// `text` with a few random edits: flipped, removed, doubled and swapped bytes.
inline std::string mutate(std::string text, std::mt19937_64& random) {
  const auto below = [&](size_t bound) { return bound == 0 ? 0 : static_cast<size_t>(random() % bound); };
  static constexpr std::string_view kSpecial = "{}[]\",:\\0123456789eE-+.\n\r\t \x00\xff\"";
  for (size_t edits = 1 + below(4); edits > 0 && !text.empty(); --edits) {
    const size_t at = below(text.size()), length = 1 + below(std::min<size_t>(text.size() - at, 12));
    switch (below(5)) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text[at] = kSpecial[below(kSpecial.size())];
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(below(text.size()), text.substr(at, length));
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

/// A value as a file from elsewhere may hold in place of a sensible one: bounds of integer types and beyond,
/// other types, structures, deep ones too.
inline Json strange_value(std::mt19937_64& random) {
  static const std::vector<Json> kValues = [] {
    std::vector<Json> values = {nullptr,
                                true,
                                false,
                                "",
                                "4",
                                "gelu",
                                0,
                                1,
                                2,
                                4,
                                -1,
                                0.5,
                                -0.5,
                                1e30,
                                -1e300,
                                1e-300,
                                Json::object(),
                                Json::array(),
                                Json{{"0", "a"}, {"1", "b"}},
                                Json{{"0", 4294967300}},
                                Json{{"4294967296", "a"}},
                                Json::array({1, "a", nullptr})};
    for (const int bits : {7, 8, 15, 16, 20, 24, 31, 32, 53, 62, 63})
      for (const int64_t near : {-1, 0, 4}) {
        values.emplace_back((uint64_t{1} << bits) + static_cast<uint64_t>(near));
        if (bits < 63) values.emplace_back(-(int64_t{1} << bits) - near);
      }
    values.emplace_back(UINT64_MAX);
    values.emplace_back(INT64_MIN);
    Json deep = 1;
    for (int level = 0; level < kMaximumJsonDepth; ++level) deep = Json::array({std::move(deep)});
    values.push_back(std::move(deep));
    return values;
  }();
  return kValues[random() % kValues.size()];
}

}  // namespace funicular
