#include "funicular/data/token_store.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <set>

#include "funicular/base/hash.h"
#include "funicular/base/json.h"
#include "funicular/data/store_files.h"
#include "store_fixture.h"

namespace funicular::data {
namespace {

class TokenStoreTest : public ScratchTest {
 protected:
  fs::path path() const { return folder_ / "a.tokens"; }
};

void write_file(const fs::path& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

// What the store should hold for these rows, straight from the tokeniser.
void expect_rows(const TokenStore& store, const std::vector<MemorySource::Row>& rows,
                 const text::WordPiece& tokenizer) {
  ASSERT_EQ(store.rows(), static_cast<int64_t>(rows.size()));
  uint64_t tokens = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    const Sample sample = store.row(static_cast<int64_t>(r));
    EXPECT_EQ(sample.sample_id, static_cast<int64_t>(r));
    ASSERT_EQ(sample.columns.size(), rows[r].columns.size());
    for (size_t c = 0; c < rows[r].columns.size(); ++c) {
      const auto expected = tokenizer.tokenize(rows[r].columns[c]);
      EXPECT_EQ(ids(sample.columns[c].tokens), expected.ids) << "row " << r << ", column " << c;
      EXPECT_EQ(starts(sample.columns[c]), expected.word_starts) << "row " << r << ", column " << c;
      tokens += expected.ids.size();
    }
  }
  EXPECT_EQ(store.meta().tokens, tokens);
}

TEST_F(TokenStoreTest, GivesBackEveryRowOfOneTwoAndFiveColumnsInBothWidths) {
  for (int columns : {1, 2, 5})
    for (int padding : {0, 66000}) {
      const auto rows = random_rows(700, columns);
      const auto store = make_store(path(), rows, columns, {.threads = 2, .overwrite = true}, padding, 37);
      EXPECT_EQ(store->meta().token_bytes, padding ? 4 : 2);
      EXPECT_EQ(store->meta().columns, columns);
      expect_rows(*store, rows, letters(padding));
      EXPECT_NO_THROW(store->verify());
    }
}

TEST_F(TokenStoreTest, MoreColumnsThanAStoreHasAreRefused) {
  for (const int columns : {0, 1001})
    EXPECT_NE(input_error([&] { MemorySource({}, columns, false); }).find("1 to 1000 text columns"),
              std::string::npos)
        << columns;
}

TEST_F(TokenStoreTest, KeepsRaggedAndEmptyRows) {
  const std::vector<MemorySource::Row> rows = {{{"", ""}, "0"},
                                               {{"ab c", ""}, "1"},
                                               {{"", "z"}, "0"},
                                               {{std::string(100000, 'q'), "x y"}, "1"},
                                               {{"", ""}, "1"}};
  const auto store = make_store(path(), rows, 2);
  expect_rows(*store, rows, letters());
  EXPECT_EQ(store->meta().longest_row, 3u) << "a word beyond 100 characters is one unknown token";
  EXPECT_EQ(store->meta().unknown_tokens, 1u);
}

TEST_F(TokenStoreTest, AStoreWithoutRowsOpens) {
  const auto store = make_store(path(), {}, 1, {.labels = LabelKind::classes});
  EXPECT_EQ(store->rows(), 0);
  EXPECT_EQ(store->documents(), 0);
  EXPECT_NO_THROW(store->verify());
  EXPECT_THROW(store->row(0), InputError);
  EXPECT_THROW(store->document_rows(0), InputError);
}

TEST_F(TokenStoreTest, DocumentsCoverAllRowsInOrder) {
  const auto rows = random_rows(500, 2);
  const auto store = make_store(path(), rows, 2, {.threads = 3}, 0, 11);
  std::vector<uint64_t> begins = {0};
  for (size_t i = 1; i < rows.size(); ++i)
    if (rows[i].new_document) begins.push_back(i);
  ASSERT_EQ(store->documents(), static_cast<int64_t>(begins.size()));
  begins.push_back(rows.size());
  uint64_t token = 0;
  for (int64_t d = 0; d < store->documents(); ++d) {
    EXPECT_EQ(store->document_rows(d).begin, begins[static_cast<size_t>(d)]);
    EXPECT_EQ(store->document_rows(d).end, begins[static_cast<size_t>(d) + 1]);
    EXPECT_EQ(store->document_tokens(d).begin, token);
    token = store->document_tokens(d).end;
  }
  EXPECT_EQ(token, store->meta().tokens);
}

TEST_F(TokenStoreTest, ClassesAreNumberedByTheirSortedNamesHoweverTheRowsAreOrdered) {
  const std::vector<MemorySource::Row> rows = {
      {{"a"}, "no"}, {{"b"}, "yes"}, {{"c"}, "maybe"}, {{"d"}, "no"}};
  const auto store = make_store(path(), rows, 1, {.labels = LabelKind::classes}, 0, 2);
  EXPECT_EQ(store->meta().label_names, (std::vector<std::string>{"maybe", "no", "yes"}));
  const double expected[] = {1, 2, 0, 1};
  for (int64_t r = 0; r < 4; ++r) EXPECT_EQ(store->row(r).label, expected[r]);
  EXPECT_NO_THROW(store->verify()) << "the checksum is that of the final numbers";
}

TEST_F(TokenStoreTest, ClassesThatAreNumbersAreOrderedAsNumbers) {
  const std::vector<MemorySource::Row> rows = {{{"a"}, "10"}, {{"b"}, "9"}, {{"c"}, "-1"}};
  const auto store = make_store(path(), rows, 1, {.labels = LabelKind::classes});
  EXPECT_EQ(store->meta().label_names, (std::vector<std::string>{"-1", "9", "10"}));
}

TEST_F(TokenStoreTest, GivenClassNamesKeepTheirNumbersAndRefuseOthers) {
  const std::vector<MemorySource::Row> rows = {{{"a"}, "no"}, {{"b"}, "no"}};
  const auto store =
      make_store(path(), rows, 1, {.labels = LabelKind::classes, .label_names = {"yes", "no"}});
  EXPECT_EQ(store->row(0).label, 1);
  EXPECT_EQ(store->meta().label_names, (std::vector<std::string>{"yes", "no"}));
  const auto message = input_error([&] {
    make_store(folder_ / "b.tokens", {{{"a"}, "perhaps"}}, 1,
               {.labels = LabelKind::classes, .label_names = {"yes", "no"}});
  });
  EXPECT_NE(message.find("perhaps"), std::string::npos) << message;
  EXPECT_NE(message.find("yes, no"), std::string::npos) << message;
}

TEST_F(TokenStoreTest, ValuesKeepAllTheirBits) {
  const std::vector<MemorySource::Row> rows = {{{"a"}, "0.1"}, {{"b"}, "-3.25e-7"}, {{"c"}, "5"}};
  const auto store = make_store(path(), rows, 1, {.labels = LabelKind::values});
  EXPECT_EQ(store->row(0).label, 0.1);
  EXPECT_EQ(store->row(1).label, -3.25e-7);
  EXPECT_EQ(store->row(2).label, 5.0);
  for (const char* wrong : {"x", "", "nan", "inf", "1.5 ", "1e999"})
    EXPECT_THROW(make_store(folder_ / "b.tokens", {{{"a"}, wrong}}, 1, {.labels = LabelKind::values}),
                 InputError)
        << wrong;
}

TEST_F(TokenStoreTest, IsRefusedForAnotherTokeniserAndNamesBoth) {
  const auto store = make_store(path(), random_rows(5, 1), 1);
  EXPECT_NO_THROW(store->require_tokenizer(letters()));
  const auto& other = letters(3);
  const auto message = input_error([&] { store->require_tokenizer(other); });
  EXPECT_NE(message.find(hash_text(letters().fingerprint())), std::string::npos) << message;
  EXPECT_NE(message.find(hash_text(other.fingerprint())), std::string::npos) << message;
}

TEST_F(TokenStoreTest, SaysWhatIsWrongWhereThereIsNoStore) {
  EXPECT_NE(input_error([&] { TokenStore::open(path()); }).find("no such store"), std::string::npos);
  fs::create_directories(path());
  EXPECT_NE(input_error([&] { TokenStore::open(path()); }).find("meta.json is missing"), std::string::npos);
  write_file(folder_ / "file", "text");
  EXPECT_NE(input_error([&] { TokenStore::open(folder_ / "file"); }).find("is a folder"), std::string::npos);
}

TEST_F(TokenStoreTest, RefusesEveryTruncationAndGrowthOfEveryFile) {
  make_store(path(), random_rows(100, 2), 2, {.labels = LabelKind::classes});
  for (const auto& entry : fs::directory_iterator(path())) {
    const std::string whole = read_file(entry.path());
    std::set<size_t> sizes = {0, 1, whole.size() / 3, whole.size() / 2, whole.size() - 9, whole.size() - 2};
    // meta.json ends with a line end that does not matter.
    if (entry.path().filename() != kMetaFile)
      sizes.insert({whole.size() - 1, whole.size() + 1, whole.size() + 8});
    for (size_t size : sizes) {
      std::string cut = whole;
      cut.resize(size);
      write_file(entry.path(), cut);
      const auto message = input_error([&] { TokenStore::open(path()); });
      EXPECT_NE(message.find(entry.path().filename().string()), std::string::npos) << message;
    }
    fs::remove(entry.path());
    input_error([&] { TokenStore::open(path()); });
    write_file(entry.path(), whole);
    EXPECT_NO_THROW(TokenStore::open(path())->verify());
  }
}

TEST_F(TokenStoreTest, RefusesAnotherFormatVersion) {
  make_store(path(), random_rows(3, 1), 1);
  std::string meta = read_file(path() / kMetaFile);
  const std::string version = "\"version\": 1";
  meta.replace(meta.find(version), version.size(), "\"version\": 7");
  write_file(path() / kMetaFile, meta);
  const auto message = input_error([&] { TokenStore::open(path()); });
  EXPECT_NE(message.find("version 7"), std::string::npos) << message;
}

TEST_F(TokenStoreTest, VerifyFindsEveryChangedByte) {
  make_store(path(), random_rows(20, 2), 2, {.labels = LabelKind::values});
  for (const char* name : {kTokensFile, kRowsFile, kDocumentsFile, kWordsFile, kLabelsFile}) {
    const std::string whole = read_file(path() / name);
    for (size_t place = 0; place < whole.size(); place += 1 + whole.size() / 50) {
      std::string changed = whole;
      changed[place] = static_cast<char>(changed[place] ^ 0x10);
      write_file(path() / name, changed);
      const auto message = input_error([&] { TokenStore::open(path(), {.verify = false})->verify(); });
      EXPECT_NE(message.find(name), std::string::npos) << message;
    }
    write_file(path() / name, whole);
  }
  EXPECT_NO_THROW(TokenStore::open(path())->verify());
}

TEST_F(TokenStoreTest, VerifyFindsContentsThatMakeNoSenseUnderRightChecksums) {
  make_store(path(), {{{"a b c"}, "0"}, {{"d"}, "1"}}, 1, {.labels = LabelKind::classes});
  const auto verify_with = [&](uint16_t id) {
    std::string tokens = read_file(path() / kTokensFile);
    tokens[0] = static_cast<char>(id & 0xFF);
    tokens[1] = static_cast<char>(id >> 8);
    write_file(path() / kTokensFile, tokens);
    StoreMeta meta = read_store_meta(read_file(path() / kMetaFile), "meta.json");
    meta.files[0].checksum = hash_bytes(tokens);
    meta.files[0].blocks = {meta.files[0].checksum};
    write_file(path() / kMetaFile, write_store_meta(meta));
    TokenStore::open(path())->verify();
  };
  const auto size = static_cast<uint16_t>(letters().vocabulary().size());
  for (const uint16_t id : {uint16_t{65535}, size}) {
    const std::string message = input_error([&] { verify_with(id); });
    EXPECT_NE(message.find("id " + std::to_string(id)), std::string::npos) << message;
  }
  EXPECT_NO_THROW(verify_with(size - 1));
}

TEST_F(TokenStoreTest, MetaIsReadBackAsWritten) {
  const auto store = make_store(path(), random_rows(30, 2), 2, {.labels = LabelKind::classes});
  EXPECT_EQ(read_store_meta(write_store_meta(store->meta()), "meta.json"), store->meta());
}

TEST_F(TokenStoreTest, TheFingerprintFollowsTheContents) {
  const auto rows = random_rows(30, 1);
  auto other = rows;
  other[7].columns[0] += " z";
  const uint64_t first = make_store(folder_ / "1", rows, 1)->fingerprint();
  EXPECT_EQ(make_store(folder_ / "2", rows, 1)->fingerprint(), first);
  EXPECT_NE(make_store(folder_ / "3", other, 1)->fingerprint(), first);
  EXPECT_NE(make_store(folder_ / "4", rows, 1, {}, 1)->fingerprint(), first) << "another tokeniser";
  std::vector<std::string> words = letters().vocabulary();
  words.emplace_back("unused");
  build_token_store(text::WordPiece(words, {}, {}), MemorySource(rows, 1, true, 256), folder_ / "5", {});
  EXPECT_NE(TokenStore::open(folder_ / "5")->fingerprint(), first) << "another one that gives the same ids";
}

// Reads all that a store gives; any InputError is an answer, anything else (a crash, another exception) is
// not.
void read_all(const TokenStore& store) {
  const auto attempt = [](auto&& action) {
    try {
      action();
    } catch (const Error&) {
    }
  };
  int64_t sum = 0;
  const auto add = [&](const Sample::Column& column) {
    for (size_t i = 0; i < column.tokens.size(); ++i) sum += column.tokens[i] + column.word_starts[i];
  };
  for (int64_t row = 0; row < std::min<int64_t>(store.rows(), 100); ++row)
    attempt([&] {
      const Sample sample = store.row(row);
      for (const Sample::Column& column : sample.columns) add(column);
    });
  for (int64_t document = 0; document < std::min<int64_t>(store.documents(), 100); ++document)
    attempt([&] { add(store.tokens(store.document_tokens(document))); });
  attempt([&] { store.verify(); });
  volatile int64_t keep = sum;
  (void)keep;
}

class TokenStoreFuzz : public TokenStoreTest {
 protected:
  std::mt19937_64 random_{20240517};
  uint64_t draw(uint64_t bound) { return random_() % bound; }

  std::string mutate(std::string text) {
    static const std::string kPieces[] = {
        "-1", "0", "1e30", "null", "{}", "[]", "18446744073709551615", "281474976710656", "\"", ","};
    for (uint64_t changes = 1 + draw(4); changes > 0 && !text.empty(); --changes) {
      const size_t place = draw(text.size());
      switch (draw(5)) {
        case 0:
          text[place] = static_cast<char>(draw(256));
          break;
        case 1:
          text.erase(place, 1 + draw(8));
          break;
        case 2:
          text.insert(place, kPieces[draw(std::size(kPieces))]);
          break;
        case 3:
          text[place] = static_cast<char>('0' + draw(10));
          break;
        default:
          text.replace(place, draw(6), kPieces[draw(std::size(kPieces))]);
          break;
      }
    }
    return text;
  }
};

TEST_F(TokenStoreFuzz, DamagedMetaGivesAnErrorOrASafeStore) {
  make_store(path(), random_rows(40, 2), 2, {.labels = LabelKind::classes});
  const std::string meta = read_file(path() / kMetaFile);
  const std::string object = meta.substr(0, meta.rfind(",\n \"xxh3\"")) + "\n}";  // without its own checksum
  int opened = 0;
  for (int round = 0; round < 4000; ++round) {
    write_file(path() / kMetaFile, seal_store_meta(mutate(object)));
    try {
      const auto store = TokenStore::open(path());
      ++opened;
      read_all(*store);
    } catch (const InputError&) {
    }
  }
  EXPECT_GT(opened, 10) << "the mutations should also reach what lies behind the parser";
}

TEST_F(TokenStoreFuzz, DamagedOffsetsAndLabelsGiveAnErrorOrASafeStore) {
  make_store(path(), random_rows(40, 2), 2, {.labels = LabelKind::classes});
  for (const char* name : {kRowsFile, kDocumentsFile, kLabelsFile}) {
    const std::string whole = read_file(path() / name);
    for (int round = 0; round < 700; ++round) {
      std::string changed = whole;
      for (uint64_t changes = 1 + draw(3); changes > 0; --changes) {
        const size_t place = 8 * draw(whole.size() / 8);
        const uint64_t values[] = {0,          UINT64_MAX,        random_(),
                                   draw(1000), uint64_t{1} << 63, draw(uint64_t{1} << 40)};
        changed.replace(place, 8, std::string_view(reinterpret_cast<const char*>(&values[draw(6)]), 8));
      }
      write_file(path() / name, changed);
      try {
        read_all(*TokenStore::open(path(), {.verify = false}));
      } catch (const InputError&) {
      }
    }
    write_file(path() / name, whole);
  }
}

}  // namespace
}  // namespace funicular::data
