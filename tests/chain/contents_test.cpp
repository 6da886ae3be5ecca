#include "funicular/chain/contents.h"

#include <sys/stat.h>

#include <chrono>
#include <map>

#include "scratch.h"

namespace funicular::chain {
namespace {

using namespace std::chrono_literals;

class ContentsOfFiles : public Scratch {
 protected:
  /// As if the file had been written long ago.
  static void age(const fs::path& path) { fs::last_write_time(path, fs::file_time_type::clock::now() - 1h); }
};

TEST_F(ContentsOfFiles, AreTheSameWhateverNameAndTimesTheFileHas) {
  write("a", "text");
  write("folder/b", "text");
  age("a");
  EXPECT_EQ(Contents().hash("a"), Contents().hash("folder/b"));
  write("a", "texT");
  EXPECT_NE(Contents().hash("a"), Contents().hash("folder/b"));
  EXPECT_EQ(Contents().hash("nothing"), "");
}

TEST_F(ContentsOfFiles, OfAFolderAreItsNamesAndWhatIsInTheFiles) {
  write("one/a", "1");
  write("one/sub/b", "2");
  fs::copy("one", "two", fs::copy_options::recursive);
  const std::string whole = Contents().hash("one");
  EXPECT_EQ(Contents().hash("two/"), whole);
  write("two/.hidden", "x");
  EXPECT_EQ(Contents().hash("two"), whole);
  write("two/sub/b", "3");
  EXPECT_NE(Contents().hash("two"), whole);
  write("two/sub/b", "2");
  fs::rename("two/sub/b", "two/sub/c");
  EXPECT_NE(Contents().hash("two"), whole);
  fs::remove("two/sub/c");
  EXPECT_NE(Contents().hash("two"), whole);
}

TEST_F(ContentsOfFiles, OfATokenizerDoNotDependOnTheWeightsBesideIt) {
  write("m/vocab.txt", "a");
  write("m/model.safetensors", "1");
  const std::string tokenizer = Contents().hash("m", Part::tokenizer), all = Contents().hash("m");
  write("m/model.safetensors", "2");
  EXPECT_EQ(Contents().hash("m", Part::tokenizer), tokenizer);
  EXPECT_NE(Contents().hash("m"), all);
  write("m/vocab.txt", "b");
  EXPECT_NE(Contents().hash("m", Part::tokenizer), tokenizer);
}

TEST_F(ContentsOfFiles, OfARunAreItsRecordsAndNotItsCheckpoints) {
  write("run/run.json", "{}");
  write("run/metrics.jsonl", "");
  write("run/checkpoints/step-1/model", "1");
  const std::string before = Contents().hash("run");
  write("run/checkpoints/step-1/model", "2");
  EXPECT_EQ(Contents().hash("run"), before);
  write("run/metrics.jsonl", "{}");
  EXPECT_NE(Contents().hash("run"), before);
}

TEST_F(ContentsOfFiles, AreReadOnceAsLongAsTheFileIsTheSame) {
  write("a", "text");
  Contents first;
  const std::string hash = first.hash("a");
  EXPECT_EQ(first.bytes_read(), 4U);
  EXPECT_TRUE(first.known().empty()) << "just written: a later change might have the same times";

  // As it stands after a while: the change of its times is old, too.
  std::map<std::string, FileRecord> known;
  const std::string path = fs::absolute("a").string();
  {
    Contents again;
    again.hash("a");
    FileRecord record;
    ASSERT_TRUE(again.known().empty());
    struct stat found {};
    ASSERT_EQ(::stat("a", &found), 0);
    record = {.size = 4,
              .inode = found.st_ino,
              .modified = found.st_mtim.tv_sec * 1'000'000'000L + found.st_mtim.tv_nsec,
              .changed = found.st_ctim.tv_sec * 1'000'000'000L + found.st_ctim.tv_nsec,
              .hash = hash};
    known[path] = record;
  }
  Contents later(known);
  EXPECT_EQ(later.hash("a"), hash);
  EXPECT_EQ(later.bytes_read(), 0U);
  EXPECT_EQ(later.known(), known);
  EXPECT_EQ(later.hash("a"), hash);
  EXPECT_EQ(later.bytes_read(), 0U);

  write("a", "texT");
  Contents changed(known);
  EXPECT_NE(changed.hash("a"), hash);
  EXPECT_EQ(changed.bytes_read(), 4U);
  EXPECT_EQ(changed.known().count(path), 0U);
}

TEST_F(ContentsOfFiles, OfWhatIsNoFileAreRefused) {
  ASSERT_EQ(::mkfifo("pipe", 0600), 0);
  expect_named(refusal([] { Contents().hash("pipe"); }), {"pipe", "neither a file nor a folder"});
}

}  // namespace
}  // namespace funicular::chain
