#pragma once
// A folder of its own for each test, which is the current one while the test runs.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "funicular/base/error.h"
#include "funicular/base/file.h"

namespace funicular::chain {

class Scratch : public testing::Test {
 protected:
  Scratch() : before_(fs::current_path()) {
    std::string pattern = (fs::temp_directory_path() / "funicular-chain-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    fs::current_path(folder_);
  }
  ~Scratch() override {
    fs::current_path(before_);
    fs::remove_all(folder_);
  }

  static void write(const fs::path& path, std::string_view text) {
    if (path.has_parent_path()) fs::create_directories(path.parent_path());
    FileWriter file(path);
    file.write(text);
    file.close(/*sync=*/false);
  }

 private:
  fs::path before_, folder_;
};

/// The message of the InputError that `act` throws, or "" if it throws none.
template <class Act>
std::string refusal(const Act& act) {
  try {
    act();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

inline void expect_named(const std::string& message, std::initializer_list<const char*> names) {
  EXPECT_FALSE(message.empty()) << "accepted";
  for (const char* name : names)
    EXPECT_NE(message.find(name), std::string::npos) << message << " lacks " << name;
}

}  // namespace funicular::chain
