#include "funicular/data/conll_source.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "funicular/format/bad_rows.h"
#include "funicular/format/list.h"
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
    "-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n\n\nPeter\tNNP\tI-NP\tB-PER\r\nBlackburn "
    "NNP I-NP I-PER";

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

TEST_F(Conll, PiecesOfAnySizeHoldTheSameSentences) {
  const fs::path file = write(kText);
  const TaggedSentences whole = read(ConllSource(file));
  for (uint64_t bytes = 1; bytes < 90; ++bytes)
    EXPECT_EQ(read(ConllSource(file, {.piece_bytes = bytes})), whole) << bytes;
  EXPECT_GT(ConllSource(file, {.piece_bytes = 1}).pieces(), 1u);
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
  const ConllSource source(write("a O\n\nb\nc\n\nd B-X\n\ne O\n"), {.bad_rows = bad});
  const StoreBuildResult result = build_token_store(letters(), source, folder_ / "a.tokens",
                                                    {.labels = LabelKind::tags, .label_names = {"O"}});
  EXPECT_EQ(result.meta.rows, 2u);
  EXPECT_EQ(result.skipped_rows, 2u);
  EXPECT_NE(bad->summary("left out").find("a.conll:3"), std::string::npos);
  EXPECT_NE(bad->summary("left out").find("a.conll:6"), std::string::npos);
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
