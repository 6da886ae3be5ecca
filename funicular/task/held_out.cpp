#include "funicular/task/held_out.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/data/row_split.h"
#include "funicular/format/column_list.h"
#include "funicular/task/registry.h"

namespace funicular::task {

data::RowSplit::LabelsOf split_labels(const Task& task) {
  if (task.label_kind() == data::LabelKind::classes)
    return [](std::string_view label) { return std::vector<std::string>{std::string(label)}; };
  // Rows with shares come with a list of labels.
  const bool names_labels =
      data::has_shares(task.label_kind()) && task.label_kind() != data::LabelKind::numbers;
  if (task.label_kind() != data::LabelKind::sets && !names_labels) return nullptr;
  return [separator = task.files().separator()](std::string_view label) {
    const std::vector<std::string_view> labels = format::split_list(label, separator);
    // Rows without a label form one group, too.
    return labels.empty() ? std::vector<std::string>{""}
                          : std::vector<std::string>(labels.begin(), labels.end());
  };
}

std::shared_ptr<const Task> on_side(const Task& whole, std::shared_ptr<const data::RowSplit> split,
                                    bool held_out) {
  FileOptions files = whole.files();
  files.split = std::move(split);
  files.held_out = held_out;
  if (held_out) files.shares.weight.clear();
  return with_files(whole, std::move(files));
}

void hold_out_rows(FinetuneOptions& options) {
  if (options.eval_fraction == 0 || !options.eval_file.empty()) return;
  const Task& whole = *options.task;
  if (!whole.splits_rows())
    throw InputError("usage", "--eval-fraction cannot hold out rows for {} yet; give rows with --eval FILE",
                     whole.type().asked_for());
  const auto split = std::make_shared<data::RowSplit>(options.eval_fraction, options.trainer.seed,
                                                      split_labels(whole), whole.split_columns());
  const bool by_text = whole.split_columns() == data::RowSplit::kAnyColumn;
  const bool by_query = whole.split_columns() > 0 && !by_text;
  split->choose(*whole.open_rows(options.train_file, {.bad_rows = options.bad_rows}));
  const bool leads = options.group.rank() == 0;
  if (split->held_out_rows() == 0) {
    if (leads)
      log::warning("{}: {}, so the model is not evaluated; {}give rows with --eval FILE",
                   options.train_file.string(),
                   by_query  ? "there are fewer than five rows, or no query has so few rows that the share "
                               "can hold all of them"
                   : by_text ? "there are fewer than five rows, or no rows that share texts are so few that "
                               "the share can hold "
                               "all of them"
                             : "each label has too few rows to hold some out",
                   by_query || by_text ? "raise --eval-fraction, or " : "");
    return;
  }
  options.eval_file = options.train_file;
  options.eval_task = on_side(whole, split, true);
  options.task = on_side(whole, split, false);  // replaces `whole`: last
  if (leads)
    log::info(
        "{}: {} rows are held out for evaluation (--eval-fraction {}), {}; --eval FILE gives other rows",
        options.train_file.string(), split->held_out_rows(), options.eval_fraction,
        by_query  ? "each query with all its rows"
        : by_text ? "each text with all rows that have it"
                  : "as large a share of each label");
}

}  // namespace funicular::task
