// Files of other kinds are known by the first bytes that the formats' documents name.

#include "funicular/base/foreign_file.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "funicular/base/error.h"

namespace funicular {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;

std::string refusal(std::string_view text, const std::string& name) {
  try {
    refuse_foreign(text, name);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

struct Begin {
  std::string_view bytes;
  const char *format, *line;
};

// gzip: RFC 1952, 2.3.1; zstd: RFC 8878, 3.1.1 and 3.1.2; bzip2's header and the magic of its first block; xz: its file format, 2.1.1.1;
// zip: APPNOTE.TXT, 4.3.7; 7z: 7zFormat.txt, SignatureHeader.
constexpr Begin kBegins[] = {{"\x1F\x8B"sv, "gzip", "gunzip -c < FILE | "},
                             {"\x28\xB5\x2F\xFD"sv, "zstd", "unzstd -c < FILE | "},
                             {"\x50\x2A\x4D\x18"sv, "zstd", "unzstd -c < FILE | "},
                             {"\x5F\x2A\x4D\x18"sv, "zstd", "unzstd -c < FILE | "},
                             {"BZh9\x31\x41\x59\x26\x53\x59"sv, "bzip2", "bunzip2 -c < FILE | "},
                             {"BZh1\x31\x41\x59\x26\x53\x59"sv, "bzip2", "bunzip2 -c < FILE | "},
                             {"\xFD"
                              "7zXZ\0"sv,
                              "xz", "unxz -c < FILE | "},
                             {"PK\x03\x04"sv, "zip", "unzip -p FILE | "},
                             {"7z\xBC\xAF\x27\x1C"sv, "7z", "7z x -so FILE | "}};

TEST(ForeignFile, CompressedIsKnownByItsFirstBytesWholeAndNotBefore) {
  for (const auto& [bytes, format, line] : kBegins) {
    const std::string file = std::string(bytes) + "and more";
    EXPECT_NE(refusal(file, "a pipe").find("a pipe is compressed (" + std::string(format) + ")"),
              std::string::npos)
        << format;
    EXPECT_NE(refusal(bytes, "a pipe").find(line), std::string::npos) << refusal(bytes, "a pipe");
    EXPECT_FALSE(may_be_foreign(bytes)) << "nothing is left to be seen";
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_TRUE(may_be_foreign(bytes.substr(0, size))) << format << size;
      EXPECT_EQ(refusal(bytes.substr(0, size), "a pipe"), "") << format << size;
      std::string other = file;
      other[size] = '\n';
      EXPECT_EQ(refusal(other, "a pipe"), "") << format << size;
    }
  }
  for (const char* text : {"text", "BZh9 is a text", "7zip", "PK\n", "BZh\n"}) {
    EXPECT_EQ(refusal(text, "a.txt"), "") << text;
    EXPECT_FALSE(may_be_foreign(text)) << text;
  }
}

TEST(ForeignFile, IsKnownByItsName) {
  for (const char* name :
       {"a.txt.gz", "a.GZ", "b.zst", "c.bz2", "d.xz", "e.zip", "f.7z", "g.parquet", "h.XLSX", "i.pdf"})
    EXPECT_THROW(refuse_foreign_name(name), InputError) << name;
  for (const char* name : {"a.txt", "gz", "a.gz.txt", ""}) EXPECT_NO_THROW(refuse_foreign_name(name)) << name;
}

/// The local header of a zip archive's first file (APPNOTE.TXT, 4.3.7).
std::string zip_of(const std::string& first) {
  std::string bytes("PK\x03\x04", 4);
  bytes.resize(26);
  bytes += static_cast<char>(first.size());
  return bytes + std::string(3, '\0') + first + "contents";
}

TEST(ForeignFile, IsCalledByItsNameWithTheRemedy) {
  const std::string lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:4665\nsize 90888945\n";
  const std::string tar = std::string(257, 'x') + "ustar";
  for (const auto& [bytes, kind, remedy] : std::vector<std::array<std::string, 3>>{
           {lfs, "a Git LFS pointer", "git lfs pull"},
           {"PAR1\x15\x04", "a Parquet file", "read_parquet"},
           {"ARROW1\0\0"s, "an Arrow file", "read_feather"},
           {"GGUF\x03\0\0\0"s, "a GGUF model", "model.safetensors"},
           {"\xFF\xFF\xFF\xFF\x70\x03"s, "an Arrow stream", "Dataset.from_file"},
           {"%PDF-1.7", "a PDF file", "pdftotext"},
           {"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", "an Excel file", "read_excel"},
           {zip_of("[Content_Types].xml"), "an Excel file", "read_excel"},
           {zip_of("xl/workbook.xml"), "an Excel file", "read_excel"},
           {zip_of("word/document.xml"), "a Word file", "plain text"},
           {zip_of("archive/data.pkl"), "a PyTorch file", "save_file"},
           {zip_of("rows.csv"), "compressed (zip)", "unzip"},
           {"\x80\x02\x8A\x0A", "a Python pickle", "save_file"},
           {" \n<!DOCTYPE html>\n<html>", "a web page (HTML)", "download the file itself"},
           {"<HTML lang=\"en\">", "a web page (HTML)", "download the file itself"},
           {"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>", "a web page (HTML)", "download"},
           {"Entry not found", "the message of a server", "download"},
           {"404: Not Found", "the message of a server", "download"},
           {std::string(4096, '\0'), "filled with zero bytes", "again"},
           {tar, "a tar archive", "tar xf"},
           {"\x40\0\0\0\0\0\0\0{\"w\":{}}"s, "a safetensors file", "text"}}) {
    const std::string message = refusal(bytes, "a pipe");
    EXPECT_NE(message.find("a pipe is " + kind), std::string::npos) << kind << ": " << message;
    EXPECT_NE(message.find("expected text"), std::string::npos) << message;
    EXPECT_NE(message.find(remedy), std::string::npos) << message;
  }
  for (const std::string& text :
       {"version 2 of the text"s, "<html is a tag"s.substr(1), "%PDF"s, ""s, "\0"s,
        "404: Not Found is an answer of servers that every reader of pages has seen, and of "
        "which this text of several lines goes on to speak at length\n"s})
    EXPECT_EQ(refusal(text, "a.txt"), "") << text;
  EXPECT_NO_THROW(refuse_foreign_stream("<html>", "standard input"));  // what is piped is meant
  EXPECT_THROW(refuse_foreign_stream(lfs, "standard input"), InputError);
}

}  // namespace
}  // namespace funicular
