// Claims about the record of what an output was made of.
#include "funicular/base/made_record.h"

#include <gtest/gtest.h>

#include <fstream>

#include "funicular/base/temporary_folder.h"

namespace funicular {
namespace {

TEST(MadeRecord, TellsAnOutputThatIsCompleteAndUnchangedFromOthers) {
  const TemporaryFolder folder;
  for (const fs::path& output : {folder.path() / "file", folder.path() / "folder"}) {
    const bool is_folder = output.filename() == "folder";
    if (is_folder) fs::create_directories(output / "inner");
    const fs::path file = is_folder ? output / "inner" / "file" : output;
    std::ofstream(file) << "whole";
    const Json made_of{{"seed", 1}};
    EXPECT_TRUE(counts_if_made_of(output, made_of).is_null());
    write_made_record(output, hash_of_output(output), made_of, {{"rows", 3}});
    EXPECT_EQ(counts_if_made_of(output, made_of), Json({{"rows", 3}}));
    EXPECT_EQ(counts_if_made_of(is_folder ? output / "" : output, made_of), Json({{"rows", 3}}));
    EXPECT_TRUE(counts_if_made_of(output, {{"seed", 2}}).is_null());
    EXPECT_TRUE(counts_if_made_of(output, {}).is_null());
    std::ofstream(file) << "other";
    EXPECT_TRUE(counts_if_made_of(output, made_of).is_null());
    fs::remove_all(output);
    EXPECT_TRUE(counts_if_made_of(output, made_of).is_null());
  }
}

TEST(MadeRecord, AFolderThatCannotBeReadIsRefusedByName) {
  const TemporaryFolder folder;
  const fs::path loop = folder.path() / "loop";
  fs::create_symlink(loop, loop);
  try {
    hash_of_output(folder.path());
    FAIL() << "a symbolic link to itself is no file";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("cannot read " + loop.string()), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace funicular
