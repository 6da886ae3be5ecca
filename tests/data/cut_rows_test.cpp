// Claims about rows that are longer than sequences: texts are counted together, or each by itself.
#include "funicular/data/cut_rows.h"

#include <gtest/gtest.h>

#include "tests/data/store_fixture.h"

namespace funicular::data::cut_rows_tests {
namespace {

class CutRowsTest : public ScratchTest {
 protected:
  /// Rows of 3 + 1, 1 + 2 and 5 + 4 tokens.
  std::shared_ptr<const TokenStore> store() const {
    return make_store(folder_ / "a.tokens", {{{"a b c", "d"}}, {{"a", "b c"}}, {{"a b c d e", "a b c d"}}},
                      2);
  }
};

void expect(const CutRows& found, int64_t cut, int64_t left_out) {
  EXPECT_EQ(found.rows, 3);
  EXPECT_EQ(found.tokens, 16);
  EXPECT_EQ(found.cut, cut);
  EXPECT_EQ(found.tokens_left_out, left_out);
}

TEST_F(CutRowsTest, TheTextsOfARowShareItsRoomOrHaveEachTheirOwn) {
  const auto rows = store();
  expect(count_cut_rows(*rows, 3), 2, 1 + 6);
  expect(count_cut_texts(*rows, 3), 1, 2 + 1);
  expect(count_cut_texts(*rows, 2), 2, 1 + 3 + 2);
  expect(count_cut_texts(*rows, 5), 0, 0);
  expect(count_cut_texts(*rows, 9), 0, 0);
  expect(count_cut_texts(*rows, -1), 3, 16);
}

}  // namespace
}  // namespace funicular::data::cut_rows_tests
