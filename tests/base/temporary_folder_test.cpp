#include "funicular/base/temporary_folder.h"

#include <gtest/gtest.h>

namespace funicular {
namespace {

TEST(TemporaryFolders, AreGoneWithTheObject) {
  fs::path path;
  {
    const TemporaryFolder folder;
    path = folder.path();
    write_file_atomically(path / "file", "x");
  }
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace funicular
