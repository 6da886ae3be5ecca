// Claims about files and folders that get their names when they are complete.
#include "funicular/base/temporary.h"

#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <set>

namespace funicular {
namespace {

class Temporary : public ::testing::Test {
 protected:
  Temporary() {
    std::string pattern = (fs::temp_directory_path() / "funicular-base-XXXXXX").string();
    folder = ::mkdtemp(pattern.data());
  }
  ~Temporary() override {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  void put(const fs::path& name, const std::string& text) const {
    fs::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << text;
  }
  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
  fs::path folder;
};

template <class Thrown, class Body>
std::string what_of(const Body& body) {
  try {
    body();
  } catch (const Thrown& error) {
    return error.what();
  }
  return "";
}

TEST_F(Temporary, NamesCannotBeGuessed) {
  std::set<fs::path> names;
  for (int i = 0; i < 1000; ++i) names.insert(temporary_name(folder / "a"));
  EXPECT_EQ(names.size(), 1000u);
}

TEST_F(Temporary, LeftoversAreThoseOfThatPlaceAlone) {
  const fs::path a = make_temporary_folder(folder / "a"), ab = make_temporary_folder(folder / "a-b");
  for (const char* other : {".tmp-a-short", ".tmp-a-12", ".tmp-a-0123456789abcdef0"}) put(other, "");
  EXPECT_EQ(temporaries_of(folder / "a"), std::vector<fs::path>{a});
  EXPECT_EQ(temporaries_of(folder / "a-b"), std::vector<fs::path>{ab});
  EXPECT_EQ(temporaries_of(folder / "a" / ""), std::vector<fs::path>{a})
      << "a slash at the end changes nothing";
  EXPECT_TRUE(temporaries_of(folder / "nowhere" / "a").empty());
}

using Made = funicular::Temporary;

TEST_F(Temporary, OneThatIsPutInPlaceIsGoneAndOneThatIsNotIsRemoved) {
  {
    Made file(folder / "a", Made::Kind::file), other(folder / "b", Made::Kind::file),
        made(folder / "c", Made::Kind::folder);
    std::ofstream(file.path()) << "new";
    std::ofstream(made.path() / "inner") << "new";
    file.rename_file();
    made.rename_folder();
    EXPECT_EQ(entries(), 3u);
  }
  EXPECT_EQ(entries(), 2u);
  EXPECT_EQ(read_file(folder / "a"), "new");
  EXPECT_EQ(read_file(folder / "c" / "inner"), "new");
}

TEST_F(Temporary, AFolderThatAnotherProcessHasMadeMeanwhileStays) {
  Made made(folder / "c", Made::Kind::folder);
  put("c/theirs", "old");
  EXPECT_NE(what_of<RunError>([&] { made.rename_folder(); }).find("meanwhile"), std::string::npos);
  EXPECT_EQ(read_file(folder / "c/theirs"), "old");
}

TEST_F(Temporary, ThoseOfTheSamePlaceAreRemovedUnlessAProcessHoldsThem) {
  put(".tmp-a-0123456789abcdef", "half");
  put(".tmp-a-fedcba9876543210/deep/file", "half");
  put(".tmp-a-not-hexadecimal", "a person's");
  put(".tmp-b-0123456789abcdef", "half");
  const Made held(folder / "a", Made::Kind::file);
  write_file_atomically(folder / "a", "whole");
  EXPECT_TRUE(fs::exists(folder / ".tmp-b-0123456789abcdef"));
  write_file_atomically(folder / "b", "whole");
  fs::remove(folder / "b");
  EXPECT_TRUE(fs::exists(held.path()));
  EXPECT_EQ(entries(), 3u);
}

TEST_F(Temporary, OneThatAnotherProcessHoldsStays) {
  const fs::path place = folder / "deep" / "a";
  fs::create_directory(place.parent_path());
  int ready[2], over[2];
  ASSERT_TRUE(::pipe(ready) == 0 && ::pipe(over) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(over[1]);
    char byte = 0;
    {
      const Made held(place, Made::Kind::file);
      if (::write(ready[1], &byte, 1) != 1 || ::read(over[0], &byte, 1) != 0) ::_exit(1);
    }
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  write_file_atomically(place, "whole");  // this process has not listed the folder before
  EXPECT_EQ(temporaries_of(place).size(), 1u);
  ::close(over[1]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (const int end : {ready[0], ready[1], over[0]}) ::close(end);
}

/// Whether the folder itself has been listed since the last call.
bool was_listed(int watch) {
  bool listed = false;
  alignas(inotify_event) char buffer[4096];
  for (ssize_t size; (size = ::read(watch, buffer, sizeof buffer)) > 0;)
    for (ssize_t at = 0; at < size;) {
      const auto* const event = reinterpret_cast<const inotify_event*>(buffer + at);
      listed |= event->len == 0;
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
  return listed;
}

TEST_F(Temporary, AFolderIsListedOnceHoweverManyFilesAreWrittenIntoIt) {
  const int watch = ::inotify_init1(IN_NONBLOCK);
  ASSERT_GE(::inotify_add_watch(watch, folder.c_str(), IN_ACCESS), 0);
  write_file_atomically(folder / "a", "whole");
  EXPECT_TRUE(was_listed(watch));
  for (const char* const name : {"b", "c", "a"}) {
    write_file_atomically(folder / name, "whole");
    EXPECT_FALSE(was_listed(watch)) << name;
  }
  ::close(watch);
}

TEST_F(Temporary, ASignalEndsTheProcessWithItsExitCodeAndRemovesThem) {
  for (const int signal : {SIGTERM, SIGHUP, SIGXCPU}) {
    const pid_t child = ::fork();
    if (child == 0) {
      end_on_signals(/*quiet=*/true);
      const Made file(folder / "a", Made::Kind::file), made(folder / "b", Made::Kind::folder);
      fs::create_directories(made.path() / "deep" / "deeper");
      for (int i = 0; i < 300; ++i) std::ofstream(made.path() / "deep" / std::to_string(i)) << "x";
      ::raise(signal);
      ::_exit(1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 75) << status;
    EXPECT_EQ(entries(), 0u);
  }
}

TEST_F(Temporary, AFolderIsLockedForOneAtATime) {
  {
    const FolderLock lock(folder, "test");
    EXPECT_NE(what_of<InputError>([&] { FolderLock(folder, "test"); }).find("another process works in"),
              std::string::npos);
  }
  FolderLock(folder, "test");
}

TEST_F(Temporary, AFolderAppearsWholeUnderItsName) {
  put("new/deep/file", "1");
  EXPECT_EQ(put_in_place(folder / "new", folder / "place"), fs::path());
  EXPECT_EQ(read_file(folder / "place/deep/file"), "1");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Temporary, AFolderOfThatNameChangesPlacesWithIt) {
  put("new/file", "new");
  put("place/file", "old");
  const fs::path earlier = put_in_place(folder / "new", folder / "place");
  EXPECT_EQ(read_file(folder / "place/file"), "new");
  EXPECT_EQ(read_file(earlier / "file"), "old");
  EXPECT_EQ(entries(), 2u);
}

TEST_F(Temporary, WhatCannotBePutInPlaceLeavesThePlaceAsItWas) {
  put("place/file", "old");
  EXPECT_NE(what_of<RunError>([&] { put_in_place(folder / "nothing", folder / "place"); }), "");
  put("new/file", "new");
  EXPECT_NE(
      what_of<RunError>([&] { put_in_place(folder / "new", folder / "no/place"); }).find("cannot rename"),
      std::string::npos);
  fs::create_symlink("/dev/null", folder / "new/link");
  EXPECT_NE(what_of<RunError>([&] { put_in_place(folder / "new", folder / "place"); }), "");
  EXPECT_EQ(read_file(folder / "place/file"), "old");
}

TEST_F(Temporary, AFileIsNeverWrittenThroughASymbolicLink) {
  put("precious", "precious");
  fs::create_symlink(folder / "precious", folder / "link");
  EXPECT_NE(what_of<RunError>([&] { FileWriter writer(folder / "link"); }).find("a symbolic link"),
            std::string::npos);
  EXPECT_NE(what_of<RunError>([&] { FileWriter writer(folder / "link", Opening::fresh); }), "");
  EXPECT_EQ(read_file(folder / "precious"), "precious");
  write_file_atomically(folder / "link", "new");  // the link itself is replaced
  EXPECT_EQ(read_file(folder / "precious"), "precious");
  EXPECT_FALSE(fs::is_symlink(folder / "link"));
}

TEST_F(Temporary, AFileThatIsThereIsNoFreshOne) {
  put("there", "old");
  EXPECT_NE(what_of<RunError>([&] { FileWriter writer(folder / "there", Opening::fresh); }), "");
  EXPECT_EQ(read_file(folder / "there"), "old");
}

TEST_F(Temporary, ALinkThatAPersonNamedIsFollowed) {
  put("target", "old");
  fs::create_symlink(folder / "target", folder / "link");
  FileWriter writer(folder / "link", Opening::follow);
  writer.write("new");
  writer.close(false);
  EXPECT_EQ(read_file(folder / "target"), "new");
}

}  // namespace
}  // namespace funicular
