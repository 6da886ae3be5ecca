// Files of gzip and zstd are unpacked in bounded memory, whatever their members and pieces; damage is refused with its byte.

#include "funicular/base/decompressor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/input_stream.h"
#include "funicular/base/mapped_text.h"
#include "tests/fuzz_rounds.h"

namespace funicular {
namespace {

using namespace std::string_literals;

// RFC 8878, 3.1.1 and 3.1.2.
const std::string kFrameOf128KiB = "\x28\xB5\x2F\xFD\x00\x38"s;  // the window's size; no sum
const std::string kFrameOf256MiB = "\x28\xB5\x2F\xFD\x00\x90"s;
const std::string kBlockOf128KiB =
    "\x02\x00\x10"
    "a"s;  // not the last one; "a" is repeated
const std::string kSkippedFrame = "\x50\x2A\x4D\x18\x04\x00\x00\x00size"s;

/// What a program of the system prints for `text`; "": it is not installed.
std::string printed(const std::string& command, const std::string& text) {
  const fs::path input = fs::temp_directory_path() / ("decompressor-" + std::to_string(::getpid()));
  FileWriter writer(input);
  writer.write(text);
  writer.close(false);
  std::string output;
  std::FILE* const pipe = ::popen((command + " < " + input.string() + " 2>/dev/null").c_str(), "r");
  char piece[4096];
  for (size_t count; (count = std::fread(piece, 1, sizeof piece, pipe)) > 0;) output.append(piece, count);
  ::pclose(pipe);
  fs::remove(input);
  return output;
}

std::string unpacked(std::string_view bytes, size_t piece, size_t* largest = nullptr) {
  Decompressor unpacker(compression_of(bytes), "rows.csv.gz");
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    unpacker.give(bytes.substr(at, piece));
    for (std::string_view part = unpacker.take(); !part.empty(); part = unpacker.take()) {
      text += part;
      if (largest) *largest = std::max(*largest, part.size());
    }
  }
  unpacker.finish();
  return text;
}

std::string refusal(const std::function<void()>& run) {
  try {
    run();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

class Decompressed : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!unpacks(GetParam())) GTEST_SKIP() << "this build does not unpack files of " << GetParam();
    packed_ = printed(GetParam() + " -c"s, text_);
    if (packed_.empty()) GTEST_SKIP() << GetParam() << " is not installed";
  }
  static std::string make_text() {
    std::mt19937 random(3);
    std::string text;
    for (int row = 0; row < 4000; ++row) text += std::to_string(random() % 1000) + ",a good film\n";
    return text;
  }
  const std::string text_ = make_text();
  std::string packed_;
};

TEST_P(Decompressed, MembersOneBehindTheOtherAreOneTextWhateverThePieces) {
  EXPECT_TRUE(may_be_compressed(packed_.substr(0, 1)));
  EXPECT_FALSE(may_be_compressed(packed_.substr(0, 4)));
  const std::string both = packed_ + printed(GetParam() + " -c"s, "") + packed_;
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{4096}, both.size()})
    EXPECT_TRUE(unpacked(both, piece) == text_ + text_) << piece;
}

TEST_P(Decompressed, MemoryIsBoundedWhateverTheTextHas) {
  const std::string zeros(size_t{3} << 20, 'a');
  size_t largest = 0;
  // Without a sum behind it, the last block's text is larger than a piece when all bytes have been read.
  const std::string command = GetParam() == "zstd"s ? "zstd --no-check -c" : "gzip -c";
  EXPECT_EQ(unpacked(printed(command, zeros), 1 << 16, &largest).size(), zeros.size());
  EXPECT_LE(largest, size_t{1} << 16);
}

TEST_P(Decompressed, FilesThatEndEarlyOrAreDamagedAreRefusedWithTheByte) {
  for (const size_t size : {packed_.size() - 1, packed_.size() / 2, size_t{5}})
    EXPECT_NE(refusal([&] {
                unpacked(packed_.substr(0, size), 100);
              }).find("rows.csv.gz: the file ends at byte " + std::to_string(size)),
              std::string::npos);
  std::string damaged = packed_;
  damaged[damaged.size() - 3] ^= 0x10;  // of the sums at the end
  EXPECT_NE(refusal([&] { unpacked(damaged, 4096); }).find("rows.csv.gz: expected data as "),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              unpacked(packed_ + "garbage", 1 << 20);
            }).find("from byte " + std::to_string(packed_.size())),
            std::string::npos);
}

TEST_P(Decompressed, MappedTextsAndStreamsGiveTheText) {
  const fs::path file = fs::temp_directory_path() / ("decompressed-" + std::to_string(::getpid()));
  const auto write = [&](const std::string& bytes) {
    FileWriter writer(file);
    writer.write(bytes);
    writer.close(false);
  };
  const auto streamed = [&] {
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    InputStream stream(descriptor, "rows.csv.gz");
    std::string text;
    for (std::string_view piece = stream.read(); !piece.empty(); piece = stream.read()) text += piece;
    ::close(descriptor);
    return text;
  };
  write(packed_);
  EXPECT_TRUE(MappedText(file).text() == text_);
  EXPECT_TRUE(streamed() == text_);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::thread slow([&] {  // the first byte alone does not tell
    EXPECT_EQ(::write(ends[1], packed_.data(), 1), 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(::write(ends[1], packed_.data() + 1, packed_.size() - 1), std::ssize(packed_) - 1);
    ::close(ends[1]);
  });
  InputStream arriving(ends[0], "standard input");
  std::string text;
  for (std::string_view piece = arriving.read(); !piece.empty(); piece = arriving.read()) text += piece;
  slow.join();
  ::close(ends[0]);
  EXPECT_TRUE(text == text_);
  write(packed_.substr(0, packed_.size() - 9));
  EXPECT_NE(refusal([&] { MappedText text(file); }).find("the file ends at byte"), std::string::npos);
  EXPECT_NE(refusal([&] { streamed(); }).find("the file ends at byte"), std::string::npos);
  write(printed(GetParam() + " -c"s, "PAR1\x15 and more"));
  EXPECT_NE(refusal([&] { MappedText text(file); }).find("a Parquet file"), std::string::npos);
  write(printed(GetParam() + " -c"s, "a\rb\r"));
  EXPECT_EQ(MappedText(file).text(), "a\nb\n");
  for (const std::string& plain : {""s, "\x1F"s, "\x28\xB5"s, text_}) {
    write(plain);
    EXPECT_TRUE(streamed() == plain);
  }
  fs::remove(file);
}

TEST_P(Decompressed, FuzzedFilesAreReadWithinBoundsOrRefused) {
  std::mt19937 random(7);
  const std::string base = packed_.substr(0, 2000) + packed_;
  for (int round = 0, rounds = fuzz_rounds(300); round < rounds; ++round) {
    std::string bytes = random() % 2 ? base : packed_;
    for (unsigned edits = random() % 4; edits > 0; --edits)
      bytes[4 + random() % (bytes.size() - 4)] ^= 1 << random() % 8;
    bytes.resize(4 + random() % (bytes.size() - 3));
    std::string whole;
    const std::string all = refusal([&] { whole = unpacked(bytes, bytes.size()); });
    std::string parts;
    const std::string split = refusal([&] { parts = unpacked(bytes, 1 + random() % 5000); });
    EXPECT_EQ(all.empty(), split.empty()) << all << split;
    EXPECT_TRUE(whole == parts);
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, Decompressed, ::testing::Values("gzip", "zstd"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Decompressor, ZeroBytesBehindAMemberOfGzipArePadding) {
  const std::string packed = printed("gzip -c", "a,b\n");
  if (packed.empty() || !unpacks("gzip")) GTEST_SKIP() << "no gzip";
  EXPECT_EQ(unpacked(packed + std::string(700, '\0'), 512), "a,b\n");
  EXPECT_EQ(unpacked(packed + std::string(700, '\0') + packed, 512), "a,b\na,b\n");
}

TEST(Decompressor, AFileOf4GiBIsUnpackedMemberByMember) {
  const std::string member = printed("gzip -c", "a,b\n");
  if (member.empty() || !unpacks("gzip")) GTEST_SKIP() << "no gzip";
  for (const size_t size :
       {size_t{4} << 30, (size_t{4} << 30) + 10}) {  // memory that is not touched costs none
    void* const memory =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) GTEST_SKIP() << "the address space is limited";
    std::copy_n((member + member).data(), 2 * member.size(), static_cast<char*>(memory));
    Decompressor unpacker(Compression::gzip, "rows.csv.gz");
    unpacker.give({static_cast<const char*>(memory), size});
    for (int i = 0; i < 2; ++i) EXPECT_EQ(unpacker.take(), "a,b\n") << size;
    ::munmap(memory, size);
  }
}

TEST(Decompressor, ABlockOfZstdIsGivenWholeBeforeTheNextOneArrives) {
  if (!unpacks("zstd")) GTEST_SKIP() << "this build does not unpack files of zstd";
  Decompressor unpacker(Compression::zstd, "standard input");
  const std::string flushed = kFrameOf128KiB + kBlockOf128KiB;
  unpacker.give(flushed);
  size_t given = 0;
  for (std::string_view text = unpacker.take(); !text.empty(); text = unpacker.take()) given += text.size();
  EXPECT_EQ(given, size_t{128} << 10);
}

TEST(Decompressor, AWindowThatIsTooLargeIsRefusedWithTheLineThatUnpacks) {
  if (!unpacks("zstd")) GTEST_SKIP() << "this build does not unpack files of zstd";
  const std::string message = refusal([] { unpacked(kFrameOf256MiB + kBlockOf128KiB, 100); });
  EXPECT_NE(message.find("rows.csv.gz: expected frames of zstd with a window of at most 128 MiB"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("zstd -dc --long=31 < FILE"), std::string::npos) << message;
}

TEST(Decompressor, AFrameThatIsSkippedMayBeginAFileOfZstd) {
  const std::string packed = printed("zstd -c", "a,b\n");
  if (packed.empty() || !unpacks("zstd")) GTEST_SKIP() << "no zstd";
  for (const char mark : {'\x50', '\x5F'}) {
    const std::string file = mark + kSkippedFrame.substr(1) + packed;
    EXPECT_TRUE(may_be_compressed(file.substr(0, 3)));
    EXPECT_FALSE(may_be_compressed(file.substr(0, 4)));
    ASSERT_EQ(compression_of(file), Compression::zstd);
    for (const size_t piece : {size_t{1}, file.size()}) EXPECT_EQ(unpacked(file, piece), "a,b\n");
  }
  for (const char* text : {"O*M\x18", "`*M\x18", "P*M"})
    EXPECT_EQ(compression_of(text), Compression::none) << text;
}

}  // namespace
}  // namespace funicular
