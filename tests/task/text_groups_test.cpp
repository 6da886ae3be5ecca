// Claims about rows that are numbered, whose vectors a teacher gives.
#include "funicular/task/text_groups.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace funicular::task::text_groups_tests {
namespace {

TEST(NumberedRows, CountTheRowsOfAllPieces) {
  std::vector<data::MemorySource::Row> rows;
  for (int row = 0; row < 10; ++row) rows.push_back({{"text " + std::to_string(row)}, "a label"});
  const NumberedRows numbered(std::make_unique<data::MemorySource>(rows, 1, /*has_labels=*/false, 3), 100);
  ASSERT_EQ(numbered.pieces(), 4u);
  EXPECT_TRUE(numbered.has_labels());
  std::vector<std::string> labels;
  for (size_t piece = 0; piece < numbered.pieces(); ++piece)
    numbered.read(piece, [&](const data::SourceRow& row) { labels.emplace_back(row.label); });
  ASSERT_EQ(labels.size(), 10u);
  for (int row = 0; row < 10; ++row) EXPECT_EQ(labels[static_cast<size_t>(row)], std::to_string(100 + row));
}

}  // namespace
}  // namespace funicular::task::text_groups_tests
