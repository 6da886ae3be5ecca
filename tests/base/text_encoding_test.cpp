// Encodings told by content, with texts as Python's str.encode writes them, and texts that are mapped for reading.

#include "funicular/base/text_encoding.h"

#include <gtest/gtest.h>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/mapped_text.h"
#include "funicular/base/visible.h"

namespace funicular {
namespace {

using namespace std::string_literals;

// "今天天气很好,我爱北京大学\n".encode("gb18030")
const std::string kGb18030 =
    "\xBD\xF1\xCC\xEC\xCC\xEC\xC6\xF8\xBA\xDC\xBA\xC3,\xCE\xD2\xB0\xAE\xB1\xB1\xBE\xA9\xB4\xF3\xD1\xA7\n";
constexpr const char* kChinese = "今天天气很好,我爱北京大学\n";

std::string wide(std::string_view ascii, bool little) {
  std::string text;
  for (const char c : ascii) text += little ? std::string{c, '\0'} : std::string{'\0', c};
  return text;
}

TEST(LikelyEncoding, IsToldByContent) {
  EXPECT_EQ(likely_encoding(kGb18030), "GB18030");
  EXPECT_EQ(likely_encoding("label,text\n\xBA\xC3," + kGb18030), "GB18030");
  EXPECT_EQ(likely_encoding("\xFF\xFE"s + wide("a,b\n", true)), "UTF-16");
  EXPECT_EQ(likely_encoding("\xFE\xFF"s + wide("a,b\n", false)), "UTF-16");
  EXPECT_EQ(likely_encoding(wide("label,text\n", true)), "UTF-16LE");
  EXPECT_EQ(likely_encoding(wide("label,text\n", false)), "UTF-16BE");
  EXPECT_EQ(likely_encoding("\xFF\xFE\0\0a\0\0\0"s), "UTF-32");
  EXPECT_EQ(likely_encoding("label,text\npro,na\xEFve caf\xE9 \x93quoted\x94 it\x92s 5 \x80\n"),
            "WINDOWS-1252");
  EXPECT_EQ(likely_encoding("M\xFCller und Gr\xF6\xDF"s + "e\n"), "WINDOWS-1252");
  // "Zażółć gęślą jaźń".encode("cp1250"), "Привет, как дела".encode("cp1251"), "これは良い".encode("shift_jis"): none of the above
  EXPECT_EQ(likely_encoding("Za\xBF\xF3\xB3\xE6 g\xEA\x9Cl\xB9 ja\x9F\xF1\n"), "");
  EXPECT_EQ(likely_encoding("\xCF\xF0\xE8\xE2\xE5\xF2, \xEA\xE0\xEA \xE4\xE5\xEB\xE0\n"), "");
  EXPECT_EQ(likely_encoding("\x82\xB1\x82\xEA\x82\xCD\x97\xC7\x82\xA2\n"), "");
  // "これは良い映画".encode("euc_jp")
  EXPECT_EQ(likely_encoding("\xA4\xB3\xA4\xEC\xA4\xCF\xCE\xC9\xA4\xA4\xB1\xC7\xB2\xE8\n"), "EUC-JP");
  EXPECT_EQ(likely_encoding("plain text\n"), "");
}

TEST(TextConverter, GivesWhatTheDecoderKeepsBackAtTheEnd) {
  TextConverter converter("CP1258");  // a letter waits for an accent
  std::string utf8;
  converter.convert("xin chao ba", utf8);
  converter.finish(utf8);
  EXPECT_EQ(utf8, "xin chao ba");
}

TEST(TextConverter, ConvertsInPiecesAndMarksWhatIsNoCharacter) {
  for (size_t piece = 1; piece < 5; ++piece) {
    TextConverter converter("GB18030");
    std::string utf8;
    for (size_t at = 0; at < kGb18030.size(); at += piece)
      converter.convert(std::string_view(kGb18030).substr(at, piece), utf8);
    converter.finish(utf8);
    EXPECT_EQ(utf8, kChinese) << piece;
  }
  const auto converted = [](const char* encoding, const std::string& bytes) {
    TextConverter converter(encoding);
    std::string utf8;
    converter.convert(bytes, utf8);
    converter.finish(utf8);
    return utf8;
  };
  EXPECT_EQ(converted("utf-16le",
                      "a\0\0\xDC"
                      "b\0"s),
            "a\xFF"
            "b");  // half a pair of surrogates
  EXPECT_EQ(converted("UTF-16LE", "a\0b"s), "a\xFF");
  EXPECT_EQ(converted("WINDOWS-1252",
                      "a\x81"
                      "b"),
            "a\xFF"
            "b");
  EXPECT_EQ(converted("WINDOWS-1252", "\x93\xE9\x94"), "“é”");
  EXPECT_EQ(converted("utf-16-le", "a\0"s), "a");  // as Python spells it
  EXPECT_EQ(converted("latin-1", "\xE9"), "é");
  EXPECT_THROW(TextConverter("GB18O30"), InputError);
  EXPECT_TRUE(is_utf8_name("utf8") && is_utf8_name("UTF-8") && is_utf8_name("") && !is_utf8_name("UTF-16"));
}

class MappedTexts : public ::testing::Test {
 protected:
  fs::path put(const std::string& bytes) const {
    const fs::path path = fs::temp_directory_path() / ("mapped-text-" + std::to_string(::getpid()));
    FileWriter writer(path);
    writer.write(bytes);
    writer.close(false);
    return path;
  }
  std::string refusal(const std::string& bytes, const std::string& encoding = "") const {
    try {
      MappedText(put(bytes), encoding);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  void TearDown() override { fs::remove(put("")); }
};

TEST_F(MappedTexts, AreInUtf8WithLinesThatEndInLf) {
  EXPECT_EQ(MappedText(put(kGb18030), "gb18030").text(), kChinese);
  EXPECT_EQ(MappedText(put("\xFF\xFE"s + wide("a\r\nb", true)), "UTF-16").content(), "a\r\nb");
  EXPECT_EQ(MappedText(put("a\rb\r"), "").text(), "a\nb\n");
  EXPECT_EQ(MappedText(put(wide("a\rb\r", true)), "UTF-16LE").text(), "a\nb\n");
  for (const char* text : {"a\rb\n", "a\r\r\nb\r\r\n", "a\r", "a", ""})
    EXPECT_EQ(MappedText(put(text)).text(), text);
  EXPECT_EQ(MappedText(put("\xEF\xBB\xBF"
                           "a\rb"))
                .content(),
            "a\nb");
  std::string large;
  for (int i = 0; i < 200'000; ++i) large += kGb18030;
  const MappedText mapped(put(large), "GB18030");
  EXPECT_EQ(mapped.text().size(), 200'000 * std::string_view(kChinese).size());
  EXPECT_EQ(mapped.text().find('\xFF'), std::string_view::npos);
}

TEST_F(MappedTexts, SayWhatTheyAreIf) {
  EXPECT_NE(refusal("\xFF\xFE"s + wide("a,b\n", true)).find("--encoding UTF-16 converts"), std::string::npos);
  EXPECT_NE(refusal(wide("label,text\n", false)).find("--encoding UTF-16BE converts"), std::string::npos);
  EXPECT_NE(refusal("PAR1\x15 and more").find("a Parquet file"), std::string::npos);
  EXPECT_NE(refusal("a", "LATIN-0815").find("iconv -l"), std::string::npos);
  EXPECT_EQ(read_text(put("\xEF\xBB\xBFgood\r\n")), "good\r\n");
  EXPECT_EQ(read_text(put("good\rbad\r")), "good\nbad\n");
  EXPECT_THROW(read_text(put("\xFF\xFE"
                             "a\0"s)),
               InputError);
}

TEST(Visible, ShowsControlCharactersEscaped) {
  EXPECT_EQ(visible("ham\r\n\t\x1B[31m\x7F"), "ham\\r\n\\t\\x1b[31m\\x7f");
  EXPECT_EQ(visible("\xEF\xBB\xBFgood \xE2\x80\xAE\xC2\x85"), "\\ufeffgood \\u202e\\u0085");
  EXPECT_EQ(visible("é 今天 … \xC2\xA0 \xFF \xE4"), "é 今天 … \xC2\xA0 \xFF \xE4");
  EXPECT_EQ(InputError("text", "found \"{}\"", "ham\r").what(), "[text] found \"ham\\r\""s);
}

}  // namespace
}  // namespace funicular
