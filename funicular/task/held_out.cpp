#include "funicular/task/held_out.h"

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "funicular/base/log.h"
#include "funicular/data/row_split.h"
#include "funicular/format/column_list.h"
#include "funicular/task/registry.h"

namespace funicular::task {

namespace {

/// Messages of a split: how rows stay together, and why none could be held out.
struct SplitWords {
  const char *kept, *none;
  bool may_raise;  ///< whether a larger share helps
};

SplitWords split_words_of(const Task& task) {
  switch (task.split_columns()) {
    case 0:
      if (task.label_kind() == data::LabelKind::tags)
        return {"at most this share of the texts with each tag", "each tag stands in too few texts", false};
      return {"as large a share of each label", "each label has too few rows to hold some out", false};
    case data::RowSplit::kAnyColumn:
      return {"each text with all rows that have it",
              "there are fewer than five rows, or no rows that share texts are so few that the share can "
              "hold all of them",
              true};
    case data::RowSplit::kLastColumn:
      return {
          "each context with all its questions, and at most this share of the questions with and without an "
          "answer",
          "there are fewer than five questions, or no context has so few questions that the share can "
          "hold all of them",
          true};
    default:
      return {"each query with all its rows",
              "there are fewer than five rows, or no query has so few rows that the share can hold all of "
              "them",
              true};
  }
}

}  // namespace

data::RowSplit::LabelsOf split_labels(const Task& task) {
  const bool has_questions = task.split_columns() == data::RowSplit::kLastColumn;
  if (task.label_kind() == data::LabelKind::classes || has_questions)
    return [](std::string_view label) { return std::vector<std::string>{std::string(label)}; };
  if (task.label_kind() == data::LabelKind::tags)
    return [](std::string_view label) {
      const std::vector<std::string_view> tags = format::split_list(label, " ");
      std::set<std::string> different(tags.begin(), tags.end());
      different.emplace();  // of every text, so that short texts do not exceed the share
      return std::vector<std::string>(different.begin(), different.end());
    };
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
  const auto split = std::make_shared<data::RowSplit>(options.eval_fraction, options.trainer.seed,
                                                      split_labels(whole), whole.split_columns());
  const SplitWords words = split_words_of(whole);
  split->choose(*whole.open_rows(options.train_file, {.bad_rows = options.bad_rows}));
  const bool leads = options.group.rank() == 0;
  if (split->held_out_rows() == 0) {
    if (leads)
      log::warning("{}: {}, so the model is not evaluated; {}give rows with --eval FILE",
                   options.train_file.string(), words.none,
                   words.may_raise ? "raise --eval-fraction, or " : "");
    return;
  }
  options.eval_file = options.train_file;
  options.eval_task = on_side(whole, split, true);
  options.task = on_side(whole, split, false);  // replaces `whole`: last
  if (leads)
    log::info(
        "{}: {} rows are held out for evaluation (--eval-fraction {}), {}; --eval FILE gives other rows",
        options.train_file.string(), split->held_out_rows(), options.eval_fraction, words.kept);
}

}  // namespace funicular::task
