#pragma once
// A small tokeniser, small stores and a scratch folder for the tests of the data layer.

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/data/token_store_builder.h"
#include "funicular/text/word_piece.h"

namespace funicular::data {

/// A folder of this test's own, removed afterwards.
class ScratchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / ("funicular_" + std::string(info->test_suite_name()) + "_" +
                                           info->name() + "_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

/// Letters are words: "a" … "z" and their continuations "##a" … "##z"; `padding` more tokens make the ids
/// wide. Made once for each padding, since the tables of a tokeniser take a while.
inline const text::WordPiece& letters(int padding = 0) {
  static std::map<int, text::WordPiece> made;
  const auto found = made.find(padding);
  if (found != made.end()) return found->second;
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; i < padding; ++i) vocabulary.push_back("padding" + std::to_string(i));
  for (char letter = 'a'; letter <= 'z'; ++letter) vocabulary.push_back(std::string(1, letter));
  for (char letter = 'a'; letter <= 'z'; ++letter) vocabulary.push_back("##" + std::string(1, letter));
  return made.emplace(padding, text::WordPiece(vocabulary, {}, {})).first->second;
}

inline std::vector<int32_t> ids(const TokenSpan& tokens) {
  std::vector<int32_t> out;
  for (size_t i = 0; i < tokens.size(); ++i) out.push_back(tokens[i]);
  return out;
}

inline std::vector<uint8_t> starts(const Sample::Column& column) {
  std::vector<uint8_t> out;
  for (size_t i = 0; i < column.tokens.size(); ++i) out.push_back(column.word_starts[i]);
  return out;
}

/// The message of the InputError that `action` throws; fails the test where it throws none.
template <class F>
std::string input_error(F&& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected an InputError";
  return "";
}

/// `count` rows of letters, of 0 to 40 words, in documents of 1 to 7 rows; the same for the same arguments.
inline std::vector<MemorySource::Row> random_rows(int count, int columns, uint64_t seed = 1) {
  uint64_t state = seed;
  const auto draw = [&](uint64_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % bound;
  };
  std::vector<MemorySource::Row> rows;
  for (int i = 0; i < count; ++i) {
    MemorySource::Row row;
    for (int c = 0; c < columns; ++c) {
      std::string text;
      for (uint64_t words = draw(8) == 0 ? 0 : draw(41); words > 0; --words) {
        for (uint64_t letters = 1 + draw(4); letters > 0; --letters)
          text += static_cast<char>('a' + draw(26));
        text += draw(30) == 0 ? " ? " : " ";
      }
      row.columns.push_back(text);
    }
    row.label = std::to_string(draw(12));
    row.new_document = draw(4) == 0;
    rows.push_back(row);
  }
  return rows;
}

/// Builds and opens a store of these rows.
inline std::shared_ptr<const TokenStore> make_store(const fs::path& path,
                                                    const std::vector<MemorySource::Row>& rows, int columns,
                                                    StoreBuildOptions options = {}, int padding = 0,
                                                    size_t rows_per_piece = 256) {
  build_token_store(letters(padding), MemorySource(rows, columns, true, rows_per_piece), path, options);
  return TokenStore::open(path);
}

}  // namespace funicular::data
