#pragma once
// Splits a file of rows into training and evaluation rows.

#include <memory>

#include "funicular/data/row_split.h"
#include "funicular/task/finetune.h"

namespace funicular::task {

/// Returns the function that reads the labels for a stratified split; null: none. The labels of a text with tags are
/// its different tags and "". The label of a question is whether it has an answer.
data::RowSplit::LabelsOf split_labels(const Task& task);

/// The task for the rows of one side of a split. Held-out rows have no weights.
std::shared_ptr<const Task> on_side(const Task& whole, std::shared_ptr<const data::RowSplit> split,
                                    bool held_out);

/// If `options` hold out a share of the training file, `eval_task` reads this share and `task` reads all
/// other rows. Leaves the options as they are, with a warning, if the file has too few rows.
void hold_out_rows(FinetuneOptions& options);

}  // namespace funicular::task
