// Files survive what happens to them, or the error says what happened.

#include "funicular/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <future>
#include <thread>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/json.h"

namespace funicular {
namespace {

class Files : public testing::Test {
 protected:
  Files() : folder_(fs::temp_directory_path() / ("funicular-files-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~Files() override { fs::remove_all(folder_); }
  size_t count() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

template <class Expected, class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Expected& error) {
    return error.what();
  }
  return "";
}

TEST_F(Files, AnAtomicWriteReplacesTheWholeFileAndLeavesNothingElse) {
  const fs::path path = folder_ / "a";
  write_file_atomically(path, std::string(100'000, '1'));
  write_file_atomically(path, std::string("2\0z", 3));
  EXPECT_EQ(read_file(path), std::string("2\0z", 3));
  EXPECT_EQ(count(), 1u);
}

TEST_F(Files, AnAtomicWriteThatFailsKeepsTheOldFile) {
  // A folder in the way of the rename: the write succeeds, the last step fails.
  fs::create_directories(folder_ / "a" / "inner");
  const std::string blocked = error_of<RunError>([&] { write_file_atomically(folder_ / "a", "new"); });
  EXPECT_NE(blocked.find("cannot write " + (folder_ / "a").string() + ":"), blocked.npos) << blocked;
  EXPECT_TRUE(fs::exists(folder_ / "a" / "inner"));
  EXPECT_EQ(count(), 1u);  // no temporary file remains
  // The file that the caller named, not the temporary one beside it, and what to do.
  const std::string missing = error_of<RunError>([&] { write_file_atomically(folder_ / "none" / "a", "x"); });
  EXPECT_NE(
      missing.find((folder_ / "none" / "a").string() + ": No such file or directory; make its folder first"),
      missing.npos)
      << missing;
}

TEST_F(Files, AFileInTheWayOfAFolderIsWrongInput) {
  write_file_atomically(folder_ / "file", "x");
  for (const fs::path& path : {folder_ / "file", folder_ / "file" / "inner"}) {
    const std::string message = error_of<InputError>([&] { make_directories(path); });
    EXPECT_NE(message.find(path.string() + ": " + (folder_ / "file").string() + " is a file; remove it"),
              message.npos)
        << message;
  }
  make_directories(folder_ / "a" / "b");
  make_directories(folder_ / "a" / "b");  // there already
  EXPECT_TRUE(fs::is_directory(folder_ / "a" / "b"));
  const std::string refused = error_of<RunError>([&] { make_directories(folder_ / std::string(300, 'x')); });
  EXPECT_NE(refused.find("File name too long"), refused.npos) << refused;
}

TEST_F(Files, AFullDiskIsReportedWithThePath) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  const std::string small = error_of<RunError>([] {
    FileWriter writer("/dev/full");
    writer.write("x");
    writer.close(false);
  });
  EXPECT_NE(small.find("cannot write /dev/full: No space left on device; free some space"), small.npos)
      << small;
  const std::string large = error_of<RunError>([] {
    FileWriter writer("/dev/full");
    writer.write(std::string(5 << 20, 'x'));
  });
  EXPECT_NE(large.find("No space left"), large.npos) << large;
}

TEST_F(Files, AnEmptyFileMapsToAnEmptySpan) {
  write_file_atomically(folder_ / "empty", "");
  const MappedFile file(folder_ / "empty");
  EXPECT_TRUE(file.bytes().empty());
  EXPECT_TRUE(file.text().empty());
  EXPECT_EQ(hash_file(folder_ / "empty"), hash_bytes("", 0));
}

TEST_F(Files, AWriterGoesOnBehindWhatIsThereAndCutsIt) {
  write_file_atomically(folder_ / "a", "abcdefgh");
  {
    FileWriter writer(folder_ / "a", Opening::go_on);
    writer.cut(3);
    writer.write("XY");
    writer.close(/*sync=*/false);
  }
  EXPECT_EQ(read_file(folder_ / "a"), "abcXY");
  FileWriter(folder_ / "a", Opening::go_on).close(/*sync=*/false);
  EXPECT_EQ(read_file(folder_ / "a"), "abcXY");
  fs::create_symlink(folder_ / "a", folder_ / "link");
  EXPECT_THROW(FileWriter(folder_ / "link", Opening::go_on), RunError);
}

TEST_F(Files, AMappingMovesWithItsObject) {
  write_file_atomically(folder_ / "a", "abcdefgh");
  MappedFile first(folder_ / "a"), second;
  second = std::move(first);
  MappedFile third(std::move(second));
  EXPECT_EQ(third.text(), "abcdefgh");
  EXPECT_EQ(third.as<uint32_t>().size(), 2u);
}

TEST_F(Files, WhatCannotBeReadIsNamed) {
  EXPECT_NE(error_of<InputError>([&] { read_file(folder_ / "none"); }).find("none: No such file"),
            std::string::npos);
  EXPECT_NE(error_of<InputError>([&] { MappedFile file(folder_ / "none"); }).find("none: No such file"),
            std::string::npos);
  EXPECT_NE(error_of<InputError>([&] { read_file(folder_); }).find("expected a file, found a folder"),
            std::string::npos);
}

/// The message of the InputError that `action` throws within a time in which it must have looked at a pipe
/// that nobody writes to; the test fails where it waits for a writer.
template <class Action>
std::string error_without_waiting(const fs::path& pipe, const Action& action) {
  auto message = std::async(std::launch::async, [&] { return error_of<InputError>(action); });
  if (message.wait_for(std::chrono::seconds(10)) == std::future_status::ready) return message.get();
  const int writer = ::open(pipe.c_str(), O_WRONLY | O_NONBLOCK);  // it comes, so that the test ends
  ::close(writer);
  return "it waited for a writer";
}

TEST_F(Files, APipeOrADeviceIsRefusedAtOnceWhereAFileIsNeeded) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string expected = "pipe: expected a regular file, found a pipe; write its contents to a file";
  for (const std::string& message : {error_without_waiting(pipe, [&] { read_file(pipe); }),
                                     error_without_waiting(pipe, [&] { MappedFile file(pipe); }),
                                     error_without_waiting(pipe, [&] { hash_file(pipe); }),
                                     error_without_waiting(pipe, [&] { read_json(pipe); })})
    EXPECT_NE(message.find(expected), message.npos) << message;
  EXPECT_NE(error_of<InputError>([] { read_file("/dev/null"); }).find("found a device"), std::string::npos);
  EXPECT_NE(error_of<InputError>([] { MappedFile file("/dev/zero"); }).find("found a device"),
            std::string::npos);
}

TEST_F(Files, APipeIsReadToItsEndWhereOneMayBeGiven) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string text(300'000, 'p');
  std::thread writer([&] { std::ofstream(pipe) << text; });
  const std::string found = read_file_or_pipe(pipe);
  writer.join();
  EXPECT_TRUE(found == text);
  write_file_atomically(folder_ / "a", "plain");
  EXPECT_EQ(read_file_or_pipe(folder_ / "a"), "plain");
  EXPECT_NE(error_of<InputError>([&] { read_file_or_pipe(folder_); }).find("found a folder"),
            std::string::npos);
}

TEST_F(Files, WritesOfAnySizeArriveInOrder) {
  std::string expected;
  FileWriter writer(folder_ / "a");
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1} << 20, size_t{5}, (size_t{1} << 20) + 1,
                            size_t{3} << 20, size_t{7}}) {
    const std::string piece(size, static_cast<char>('a' + size % 26));
    writer.write(piece);
    expected += piece;
    EXPECT_EQ(writer.position(), expected.size());
  }
  writer.flush();
  EXPECT_EQ(hash_file(folder_ / "a"), hash_bytes(expected));
  writer.close(true);
  EXPECT_TRUE(read_file(folder_ / "a") == expected);
}

TEST(Hash, KnownAnswersAndPieces) {
  EXPECT_EQ(hash_text(hash_bytes("", 0)),
            "2d06800538d394c2");  // XXH3_64bits of nothing, as xxhsum -H3 prints it
  EXPECT_EQ(hash_text(0xAB), "00000000000000ab");
  const std::string text(10'000, 'q');
  StreamHash stream;
  for (size_t at = 0; at < text.size(); at += 77)
    stream.update(text.data() + at, std::min<size_t>(77, text.size() - at));
  EXPECT_EQ(stream.digest(), hash_bytes(text));
}

TEST_F(Files, JsonErrorsNameFileLineAndKey) {
  write_file_atomically(folder_ / "a.json", "{\n  \"a\": 1,\n  \"b\": tru\n}\n");
  const std::string message = error_of<InputError>([&] { read_json(folder_ / "a.json"); });
  EXPECT_NE(message.find("a.json:3: not valid JSON"), message.npos) << message;
  const Json json = parse_json(R"({"a": "text", "n": null})", "x.json");
  EXPECT_NE(error_of<InputError>([&] {
              json_get<int>(json, "a", "x.json");
            }).find("x.json: the key \"a\" has an unexpected value of type string"),
            std::string::npos);
  EXPECT_NE(
      error_of<InputError>([&] { json_get<int>(json, "c", "x.json"); }).find("the key \"c\" is missing"),
      std::string::npos);
  EXPECT_EQ(json_get_or<int>(json, "n", 5, "x.json"), 5);
}

TEST(Nearest, SuggestsWhatIsMeantAndNothingFarAway) {
  const std::vector<std::string> names = {"--learning-rate", "--seed", "--batch-size"};
  const auto near = [&](const char* word) {
    return nearest(word, names.data(), names.data() + names.size());
  };
  EXPECT_EQ(near("--learning-rat"), "--learning-rate");
  EXPECT_EQ(near("--sead"), "--seed");
  EXPECT_EQ(near("--bacth-size"), "--batch-size");
  EXPECT_EQ(near("completely-different"), "");
  const std::vector<std::string> alike = {"seat", "seal"};
  EXPECT_EQ(nearest("sea", alike.data(), alike.data() + 2), "seat") << "of equally near ones the first";
  EXPECT_EQ(nearest("x", nullptr, nullptr), "");
}

TEST(Errors, CarryTheirComponentAndExitCode) {
  const InputError input("tokenizer", "expected {}, found {}", 3, "x");
  EXPECT_STREQ(input.what(), "[tokenizer] expected 3, found x");
  EXPECT_EQ(input.code(), ExitCode::usage);
  EXPECT_EQ(RunError("a", "b").code(), ExitCode::failed);
}

}  // namespace
}  // namespace funicular
