#pragma once
// The name of an evaluation's abstention table: the accuracy if uncertain answers are left out.

namespace funicular::task {

/// The file of an evaluation of one class per text: how many answers are right if the least certain rows get none.
inline constexpr const char* kAbstentionFile = "abstention.tsv";

}  // namespace funicular::task
