#pragma once
// The name of the table of an evaluation that tells how accurate answers are if doubtful ones are left out.

namespace funicular::task {

/// The file of an evaluation of one class per text: how many answers are right if the least certain rows get none.
inline constexpr const char* kAbstentionFile = "abstention.tsv";

}  // namespace funicular::task
