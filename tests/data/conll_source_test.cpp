#include "funicular/data/conll_source.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "funicular/format/bad_rows.h"
#include "funicular/format/column_list.h"
#include "store_fixture.h"

namespace funicular::data {
namespace {

using TaggedSentences = std::vector<std::pair<std::string, std::string>>;  ///< words and tags, joined by "|"

class Conll : public ScratchTest {
 protected:
  fs::path write(const std::string& text, const std::string& name = "a.conll") const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  static std::string joined(std::string_view list) {
    std::string text;
    for (const std::string_view element : format::split_list(list, " "))
      text += (text.empty() ? "" : "|") + std::string(element);
    return text;
  }
  static TaggedSentences read(const ConllSource& source) {
    TaggedSentences found;
    for (size_t piece = 0; piece < source.pieces(); ++piece)
      source.read(piece, [&](const SourceRow& row) {
        found.emplace_back(joined(row.columns[0]), joined(row.label));
      });
    return found;
  }
  TaggedSentences read(const std::string& text, const ConllOptions& options = {}) const {
    return read(ConllSource(write(text), options));
  }
  std::string error_of(const std::string& text, ConllOptions options = {}) const {
    try {
      read(ConllSource(write(text), options));
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
};

constexpr const char* kText =
    "-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n\n\nPeter\tNNP\tI-NP\tB-PER\r\n"
    "Blackburn\tNNP\tI-NP\tI-PER";

TEST_F(Conll, SentencesEndAtBlankLinesAndTheLastColumnIsTheTag) {
  const ConllSource source(write(kText));
  EXPECT_EQ(read(source), (TaggedSentences{{"EU|rejects", "B-ORG|O"}, {"Peter|Blackburn", "B-PER|I-PER"}}));
  EXPECT_TRUE(source.has_labels());
}

TEST_F(Conll, ColumnsCanBeChosenAndTagsLeftOut) {
  EXPECT_EQ(read(ConllSource(write(kText), {.word_column = 1, .tag_column = 0})).front(),
            (std::pair<std::string, std::string>{"NNP|VBZ", "EU|rejects"}));
  EXPECT_EQ(read(ConllSource(write("one\ntwo\n\nthree"), {.tagged = false})),
            (TaggedSentences{{"one|two", ""}, {"three", ""}}));
}

TEST_F(Conll, OfUniversalDependenciesHasCommentsAndRanges) {
  const std::string text =
      "# text = im "
      "Haus\n1-2\tim\t_\t_\n1\tin\tin\tADP\n2\tdem\tder\tDET\n2.1\tx\tx\tX\n3\tHaus\tHaus\tNOUN\n\n";
  const fs::path file = write(text, "a.conllu");
  EXPECT_EQ(read(ConllSource(file, {.conll_u = is_conll_u(file)})),
            (TaggedSentences{{"in|dem|Haus", "ADP|DET|NOUN"}}));
}

TEST_F(Conll, TabsAloneSeparateWhereThereAreSome) {
  const TaggedSentences expected{{"New York|is", "B-Home Town|O"}};
  EXPECT_EQ(read("New York\tB-Home Town\nis\tO\n"), expected);
  EXPECT_EQ(read("New York\t\tB-Home Town \nis\tO\t\n"), expected) << "tabs that line columns up";
  EXPECT_EQ(read("\xC2\xA0\tO\n \tO\n\xE2\x80\x8B\tO\n"),
            (TaggedSentences{{"\xC2\xA0| |\xE2\x80\x8B", "O|O|O"}}));
  EXPECT_EQ(read("is O\nit O\nso O\n\nNew York\tB-LOC\n"),
            (TaggedSentences{{"is|it|so", "O|O|O"}, {"New York", "B-LOC"}}))
      << "in a sentence of its own";
  EXPECT_EQ(read("\xC2\xA0 O\n\xE2\x80\x8B O\n"), (TaggedSentences{{"\xC2\xA0|\xE2\x80\x8B", "O|O"}}));
  const std::string others = "\n\na\tO\nb\tO\nc\tO\n";
  for (const char* line : {"is\tO\nNew York\n", "New York\n"})
    EXPECT_NE(error_of(line + others).find("in at least 2 columns between tabs, found 1: \"New York\""),
              std::string::npos)
        << error_of(line + others);
}

TEST_F(Conll, AllLinesHaveAsManyColumns) {
  EXPECT_NE(error_of("a O\nNew York B-LOC\nb O\n")
                .find("a.conll:2: expected 2 columns, as in the sentence's other lines, found 3: \"New York "
                      "B-LOC\"; a "
                      "word or tag that holds blanks needs tabs between the columns"),
            std::string::npos);
  EXPECT_NE(error_of("a O\nb O\n\nNew York B-LOC\n")
                .find("a.conll:4: expected 2 columns, as in most lines of the file, found 3"),
            std::string::npos);
  EXPECT_NE(error_of("a\tO\nb\tx\tO\nc\tO\n").find("a.conll:2: expected 2 columns between tabs"),
            std::string::npos);
  EXPECT_NE(error_of("\tO\nb\tO\n").find("a.conll:1: expected a word in column 1, found none"),
            std::string::npos);
  // A column that is given by number is read whatever follows it.
  EXPECT_EQ(read("a O x\n\nb O x y\n", {.tag_column = 1}), (TaggedSentences{{"a", "O"}, {"b", "O"}}));
}

TEST_F(Conll, OfLabelStudioHasTagsWithBlanks) {
  EXPECT_EQ(read("-DOCSTART- -X- O\nPeter -X- _ B-First Name\nis -X- _ O\n\nNew -X- _ B-Home Town\nYork -X- "
                 "_ I-Home Town\n"),
            (TaggedSentences{{"Peter|is", "B-First Name|O"}, {"New|York", "B-Home Town|I-Home Town"}}));
}

TEST_F(Conll, CommentsAreNoWordsAndANumberSignIsOne) {
  const TaggedSentences expected{{"a|b", "O|O"}};
  for (const char* comment : {"# id 0000-1\tdomain=en", "# text = a b", "# sent_id=4", "# newdoc id = 5",
                              "#text = a b", "# what else there is", "#"})
    EXPECT_EQ(read(std::string(comment) + "\na O\nb O\n"), expected) << comment;
  EXPECT_EQ(read("# id 0000-1\tdomain=en\na _ _ O\nb _ _ O\n"), expected);
  EXPECT_EQ(read("a O\nb O\n\n# what is it\n\n# O\n"), (TaggedSentences{{"a|b", "O|O"}, {"#", "O"}}));
  EXPECT_EQ(read("# O\n#1 B-X\n# I-X\n\na\tO\n#\tO\n"),
            (TaggedSentences{{"#|#1|#", "O|B-X|I-X"}, {"a|#", "O|O"}}));
  EXPECT_NE(error_of("a O\n# what is it\n").find("a.conll:2: expected 2 columns"), std::string::npos);
}

TEST_F(Conll, DocumentsEndTheirSentences) {
  const TaggedSentences expected{{"a", "O"}, {"b", "O"}};
  for (const char* between :
       {"-DOCSTART- -X- O O\n", "-DOCSTART-\t-X-\n", "-DOCSTART-\n", "\xEF\xBB\xBF-DOCSTART- O\n"})
    EXPECT_EQ(read(std::string("a O\n") + between + "b O\n"), expected) << between;
}

TEST_F(Conll, LinesEndAsInAnyFile) {
  const TaggedSentences expected{{"a|b", "O|B-X"}, {"c", "O"}};
  for (const char* end : {"\n", "\r\n", "\r\r\n", "\r"})
    for (const char* blank : {"", " ", "\t", "\xC2\xA0", "\xE3\x80\x80 "}) {
      const std::string text =
          std::string("\xEF\xBB\xBF") + "a O" + end + "b B-X" + end + blank + end + "c O" + end;
      EXPECT_EQ(read(text), expected) << testing::PrintToString(text);
      EXPECT_NE(error_of(text + "d" + end).find("a.conll:5: "), std::string::npos);
    }
}

TEST_F(Conll, WordsThatAreCountedAreOfCoNllUOrRefused) {
  const std::string row = "\tin\tin\tADP\t_\t_\t0\troot\t_\t_\n";
  EXPECT_EQ(read("# text = x\n1" + row + "2-3" + row + "2" + row + "3" + row),
            (TaggedSentences{{"in|in|in", "ADP|ADP|ADP"}}));
  EXPECT_NE(error_of("1 a O\n2 b O\n3 c O\n").find("the first column counts the words"), std::string::npos);
  EXPECT_EQ(read("1 O\n\n1 O\n2 O\n"), (TaggedSentences{{"1", "O"}, {"1|2", "O|O"}}))
      << "words may be numbers";
}

/// Names of CoNLL-2012 are spans in brackets; datasets reads them as B and I, too.
TEST_F(Conll, SpansInBracketsAreTags) {
  const std::string text =
      "#begin document (a); part 000\nf 0 0 Mr. NNP *\nf 0 1 Wu NNP (PERSON)\nf 0 2 New NNP (GPE*\nf 0 3 "
      "York NNP "
      "*)\n\n#end document\n";
  EXPECT_NE(error_of(text).find("CoNLL-2012"), std::string::npos);
  EXPECT_EQ(read(text, {.word_column = 3, .tag_column = 5}),
            (TaggedSentences{{"Mr.|Wu|New|York", "O|B-PERSON|B-GPE|I-GPE"}}));
}

TEST_F(Conll, PiecesOfAnySizeHoldTheSameSentences) {
  const fs::path file = write(kText);
  const TaggedSentences whole = read(ConllSource(file));
  for (uint64_t bytes = 1; bytes < 90; ++bytes)
    EXPECT_EQ(read(ConllSource(file, {.piece_bytes = bytes})), whole) << bytes;
  EXPECT_GT(ConllSource(file, {.piece_bytes = 1}).pieces(), 1u);
}

/// Lists of words are told apart by it (format/column_list.h).
TEST_F(Conll, ARecordSeparatorIsInNoWordAndNoTag) {
  EXPECT_NE(error_of("a O\nb\x1e"
                     "c O\n")
                .find("a.conll:2: expected no record separator (U+001E) in column 1"),
            std::string::npos);
  EXPECT_NE(error_of("\x1e O\n").find("a.conll:1: expected no record separator (U+001E) in column 1"),
            std::string::npos);
  EXPECT_NE(error_of("a O\x1e\n").find("a.conll:1: expected no record separator (U+001E) in column 2"),
            std::string::npos);
  EXPECT_EQ(read("a \x1e O\n"), (TaggedSentences{{"a", "O"}})) << "a column that is not read";
}

TEST_F(Conll, ASentenceOfRangesAloneIsBad) {
  const std::string rest = "\tim\tim\tADP\n";
  EXPECT_NE(error_of("1" + rest + "\n1-2" + rest + "2.1" + rest, {.conll_u = true})
                .find("a.conll:3: expected a word, found only ranges"),
            std::string::npos);
}

TEST_F(Conll, CommentsOfCoNllUEndNoSentenceWhateverThePieces) {
  const auto line = [](const std::string& number) { return number + "\tin\tin\tADP\t_\t_\t0\troot\t_\t_\n"; };
  const std::string text = line("1") + line("2") + "# text = x\n" + line("1") + line("2") + line("3");
  for (const uint64_t bytes : {1, 1000})
    EXPECT_EQ(read(text, {.piece_bytes = bytes}),
              (TaggedSentences{{"in|in|in|in|in", "ADP|ADP|ADP|ADP|ADP"}}))
        << bytes;
}

TEST_F(Conll, BadLinesAreNamed) {
  EXPECT_NE(error_of("EU B-ORG\nrejects\n")
                .find("a.conll:2: expected a word and its tag in at least 2 columns, found 1: \"rejects\""),
            std::string::npos);
  EXPECT_NE(error_of("a O\n\nb\xFF O\n").find("a.conll:3: expected UTF-8, found the byte 0xFF"),
            std::string::npos);
  EXPECT_NE(error_of("a O\n", {.tag_column = 3}).find("in at least 4 columns, found 2"), std::string::npos);
}

/// From a file to a store: words of several tokens, tags in the words' order, numbered by name.
TEST_F(Conll, AStoreKeepsATagForEachWord) {
  const ConllSource source(write("ab Z\nc A\nd Z\n\ne A\n"));
  build_token_store(letters(), source, folder_ / "a.tokens", {.labels = LabelKind::tags});
  const auto store = TokenStore::open(folder_ / "a.tokens");
  EXPECT_EQ(store->meta().label_names, (std::vector<std::string>{"A", "Z"}));
  const Sample first = store->row(0), second = store->row(1);
  EXPECT_EQ(ids(first.columns[0].tokens), (std::vector<int32_t>{5, 32, 7, 8}));
  EXPECT_EQ(std::vector<int32_t>(first.label_set.begin(), first.label_set.end()),
            (std::vector<int32_t>{1, 0, 1}));
  EXPECT_EQ(std::vector<int32_t>(second.label_set.begin(), second.label_set.end()),
            (std::vector<int32_t>{0}));
  std::string starts;
  for (size_t i = 0; i < 4; ++i) starts += first.columns[0].word_starts[i] ? '1' : '0';
  EXPECT_EQ(starts, "1011");
}

TEST_F(Conll, AStoreOfKnownTagsRefusesOthersByTheSentencesLine) {
  const ConllSource source(write("a O\n\nb O\nc B-X\n"));
  try {
    build_token_store(letters(), source, folder_ / "a.tokens",
                      {.labels = LabelKind::tags, .label_names = {"O"}});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("a.conll:3: expected one of the labels O, found \"B-X\""),
              std::string::npos)
        << error.what();
  }
}

TEST_F(Conll, BadSentencesCanBeLeftOut) {
  const auto bad = std::make_shared<format::BadRows>(true);
  std::vector<std::string> told;
  const ConllSource source(
      write("a O\n\nb\nc\n\nd B-X\n\ne O\n"),
      {.bad_rows = bad, .on_bad = [&](const std::string& problem) { told.push_back(problem); }});
  const StoreBuildResult result = build_token_store(letters(), source, folder_ / "a.tokens",
                                                    {.labels = LabelKind::tags, .label_names = {"O"}});
  EXPECT_EQ(result.meta.rows, 2u);
  EXPECT_EQ(result.skipped_rows, 2u);
  EXPECT_NE(bad->summary("left out").find("a.conll:3"), std::string::npos);
  EXPECT_NE(bad->summary("left out").find("a.conll:6"), std::string::npos);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_NE(told[0].find("a.conll:3: expected a word and its tag"), std::string::npos);
}

TEST_F(Conll, AWordWithoutATagIsRefused) {
  const MemorySource source({{{"a b c"}, "O O"}}, 1, true);
  try {
    build_token_store(letters(), source, folder_ / "a.tokens", {.labels = LabelKind::tags});
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("3 words and 2 tags"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace funicular::data
