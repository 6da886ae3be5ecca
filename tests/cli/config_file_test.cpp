// Random files of options: each key of the file is an option with its values and its line, or the file is refused.

#include "funicular/cli/config_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/cli/command_list.h"
#include "tests/base/random_toml.h"
#include "tests/fuzz_rounds.h"

namespace funicular::cli {

/// The program's own list needs all of its commands.
std::vector<std::string> command_names() {
  return {"finetune", "pretrain"};
}

namespace {

class OptionsFile : public testing::Test {
 protected:
  ~OptionsFile() override { fs::remove(path_); }
  std::vector<ConfigEntry> read(const std::string& text) const {
    fs::remove(path_);  // some file systems flush a file that is cut to nothing and written again
    std::ofstream(path_, std::ios::binary) << text;
    return read_config_file(path_, "finetune");
  }
  std::string error_of(const std::string& text) const {
    try {
      read(text);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  const fs::path path_ =
      fs::path(testing::TempDir()) / ("funicular-config-" + std::to_string(::getpid()) + ".toml");
};

using OptionsFuzz = OptionsFile;

TEST_F(OptionsFile, ATableWithinTheCommandsTableIsRefusedWithItsLine) {
  for (const char* text :
       {"[finetune]\nseed = 1\noptimizer.seed = 2\n", "[finetune]\n\n[finetune.optimizer]\nseed = 2\n"})
    EXPECT_EQ(error_of(text),
              "[config] " + path_.string() + ":3: optimizer expects a text, a number, true or false")
        << text;
  EXPECT_EQ(error_of("[pretrain.optimizer]\nseed = 2\n"), "") << "the table of another command";
}

TEST_F(OptionsFuzz, EachKeyIsAnOptionOrTheFileIsRefused) {
  std::mt19937_64 random(31);
  size_t options = 0, damaged = 0, refused = 0;
  for (int round = 0, rounds = fuzz_rounds(1500); round < rounds; ++round) {
    const RandomToml file = make_random_toml(random, {"finetune", "pretrain"});
    std::map<std::string, ExpectedOption> top, own;
    for (const ConfigEntry& entry : read(file.text)) {
      const size_t colon = entry.origin.rfind(':');
      EXPECT_EQ(entry.origin.substr(0, colon), path_.string());
      (entry.in_own_table ? own : top)[entry.key] = {entry.values,
                                                     std::stoull(entry.origin.substr(colon + 1))};
      ++options;
    }
    const auto expected = [&](const char* table) {
      const auto found = file.tables.find(table);
      return found == file.tables.end() ? std::map<std::string, ExpectedOption>() : found->second;
    };
    ASSERT_EQ(top, expected("")) << file.text;
    ASSERT_EQ(own, expected("finetune")) << file.text;
    const std::string text = damaged_toml(file.text, random), message = error_of(text);
    ++(message.empty() ? damaged : refused);
    ASSERT_TRUE(message.empty() || message.find(path_.string()) != message.npos) << message;
  }
  EXPECT_GT(options, 1000u);
  EXPECT_GT(damaged, 100u);
  EXPECT_GT(refused, 500u);
}

}  // namespace
}  // namespace funicular::cli
