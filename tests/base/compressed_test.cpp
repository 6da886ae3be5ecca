// Compressed files are known by the first bytes that the formats' documents name.

#include "funicular/base/compressed.h"

#include <gtest/gtest.h>

#include "funicular/base/error.h"

namespace funicular {
namespace {

using namespace std::string_view_literals;

std::string refusal(std::string_view text, const std::string& name) {
  try {
    refuse_compressed(text, name);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

struct Begin {
  std::string_view bytes;
  const char *format, *line;
};

// gzip: RFC 1952, 2.3.1; zstd: RFC 8878, 3.1.1; bzip2's header and the magic of its first block; xz: its file format, 2.1.1.1;
// zip: APPNOTE.TXT, 4.3.7; 7z: 7zFormat.txt, SignatureHeader.
constexpr Begin kBegins[] = {{"\x1F\x8B"sv, "gzip", "gunzip -c < FILE | "},
                             {"\x28\xB5\x2F\xFD"sv, "zstd", "unzstd -c < FILE | "},
                             {"BZh9\x31\x41\x59\x26\x53\x59"sv, "bzip2", "bunzip2 -c < FILE | "},
                             {"BZh1\x31\x41\x59\x26\x53\x59"sv, "bzip2", "bunzip2 -c < FILE | "},
                             {"\xFD"
                              "7zXZ\0"sv,
                              "xz", "unxz -c < FILE | "},
                             {"PK\x03\x04"sv, "zip", "unzip -p FILE | "},
                             {"7z\xBC\xAF\x27\x1C"sv, "7z", "7z x -so FILE | "}};

TEST(Compressed, IsKnownByItsFirstBytesWholeAndNotBefore) {
  for (const auto& [bytes, format, line] : kBegins) {
    const std::string file = std::string(bytes) + "and more";
    EXPECT_NE(refusal(file, "a pipe").find("a pipe is compressed (" + std::string(format) + ")"),
              std::string::npos)
        << format;
    EXPECT_NE(refusal(bytes, "a pipe").find(line), std::string::npos) << refusal(bytes, "a pipe");
    EXPECT_FALSE(may_be_compressed(bytes)) << "nothing is left to be seen";
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_TRUE(may_be_compressed(bytes.substr(0, size))) << format << size;
      EXPECT_EQ(refusal(bytes.substr(0, size), "a pipe"), "") << format << size;
      std::string other = file;
      other[size] = '\n';
      EXPECT_EQ(refusal(other, "a pipe"), "") << format << size;
    }
  }
  for (const char* text : {"text", "BZh9 is a text", "7zip", "PK\n", "BZh\n"}) {
    EXPECT_EQ(refusal(text, "a.txt"), "") << text;
    EXPECT_FALSE(may_be_compressed(text)) << text;
  }
}

TEST(Compressed, IsKnownByItsName) {
  for (const char* name : {"a.txt.gz", "a.GZ", "b.zst", "c.bz2", "d.xz", "e.zip", "f.7z"})
    EXPECT_THROW(refuse_name_of_compressed(name), InputError) << name;
  for (const char* name : {"a.txt", "gz", "a.gz.txt", ""})
    EXPECT_NO_THROW(refuse_name_of_compressed(name)) << name;
}

}  // namespace
}  // namespace funicular
