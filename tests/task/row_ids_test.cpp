#include "funicular/task/row_ids.h"

#include <gtest/gtest.h>

namespace funicular::task {
namespace {

TEST(RowIds, AreColumnsThatAreNamedSo) {
  for (const char* name : {"id", "ID", "idx", "index", "guid", "uid", "#1 ID", "review_id", "pairID",
                           "sentenceId", "id_str", "Index"})
    EXPECT_TRUE(is_id_name(name)) << name;
  for (const char* name : {"", "text", "rapid", "idea", "hybrid", "video", "label", "identity"})
    EXPECT_FALSE(is_id_name(name)) << name;
}

}  // namespace
}  // namespace funicular::task
