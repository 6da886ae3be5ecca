#include "funicular/task/text_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/log.h"
#include "funicular/data/repeated_rows.h"
#include "funicular/task/missing_values.h"

namespace funicular::task {

void require_texts(const data::TokenStore& store, const fs::path& file) {
  if (store.meta().tokens == 0)
    throw InputError("task", "{}: no row has a text; is --text-column the right one?", file.string());
}

void report_textless(const data::TokenStore& store, const fs::path& file) {
  int64_t count = 0, first = 0;
  for (int64_t row = 0; row < store.rows(); ++row) {
    const data::Sample sample = store.row(row);
    const bool textless =
        std::all_of(sample.columns.begin(), sample.columns.end(),
                    [](const data::Sample::Column& column) { return column.tokens.size() == 0; });
    if (textless && count++ == 0) first = row + 1;
  }
  if (count > 0)
    log::warning(
        "{}: {} of {} rows have no text, the first is row {}; a label is learnt or asked for there all the "
        "same",
        file.string(), count, store.rows(), first);
}

namespace {

std::string counted(const data::Repeats& found) {
  return fmt::format("{}{} of {} rows", found.is_estimate ? "about " : "", found.repeated, found.rows);
}

void report_within(data::Repeats found, const fs::path& file, bool labels_follow_texts = true) {
  if (!labels_follow_texts) found.other_label = 0;
  if (found.repeated == 0) return;
  const std::string text =
      fmt::format("{}: {} repeat the text of another row", file.string(), counted(found));
  if (found.other_label == 0) return log::info("{}", text);
  log::warning("{}, {} of them with another label", text, found.other_label);
}

void report_shared(data::Repeats found, const fs::path& eval_file, const fs::path& train_file,
                   bool labels_follow_texts = true) {
  if (!labels_follow_texts) found.other_label = 0;
  if (found.repeated == 0) return;
  std::error_code ignored;
  const bool same_file = fs::equivalent(eval_file, train_file, ignored);
  const std::string which = same_file ? "the evaluated file is the training file"
                                      : fmt::format("{} have a text that stands in the training file {}",
                                                    counted(found), train_file.string());
  // Short texts repeat in any dataset.
  constexpr int64_t kFew = 100;
  if (!same_file && found.other_label == 0 && found.repeated * kFew <= found.rows)
    return log::info("{}: {}", eval_file.string(), which);
  log::warning(
      "{}: {}{}; scores on texts that the model has learnt say little about new ones", eval_file.string(),
      which, found.other_label > 0 ? fmt::format(", {} of them with another label", found.other_label) : "");
}

}  // namespace

void report_repeats(const data::TokenStore& trained, const fs::path& train_file,
                    const data::TokenStore* evaluated, const fs::path& eval_file, int32_t unknown,
                    bool labels_follow_texts) {
  const data::TextIndex rows(trained, unknown);
  report_within(rows.within(), train_file, labels_follow_texts);
  if (!evaluated) return;
  const data::TextIndex held_out(*evaluated, unknown);
  std::error_code ignored;
  if (!fs::equivalent(eval_file, train_file, ignored))
    report_within(held_out.within(), eval_file, labels_follow_texts);
  report_shared(held_out.shared_with(rows), eval_file, train_file, labels_follow_texts);
}

void report_texts(const data::TokenStore& trained, const fs::path& train_file,
                  const data::TokenStore* evaluated, const fs::path& eval_file, SequenceLimit limit,
                  const text::Tokenizer& tokenizer, bool labels_follow_texts) {
  const auto report = [&](const data::TokenStore& store, const fs::path& file, const char* consequence) {
    report_textless(store, file);
    report_cut(cut_rows(store, limit, tokenizer), file.string(), limit, consequence);
    warn_of_missing_texts(store, tokenizer, file);
  };
  report(trained, train_file, "the model learns from the rest");
  if (evaluated) report(*evaluated, eval_file, "the scores cover the rest");
  report_repeats(trained, train_file, evaluated, eval_file, tokenizer.special().unknown, labels_follow_texts);
}

void report_repeats(const data::TokenStore& evaluated, const fs::path& eval_file, const fs::path& model,
                    int32_t unknown) {
  const data::TextIndex rows(evaluated, unknown);
  report_within(rows.within(), eval_file);
  std::error_code ignored;
  const fs::path run = fs::weakly_canonical(model, ignored).parent_path();
  if (!fs::is_regular_file(run / "run.json", ignored)) return;
  const Json known = parse_json_or_null(read_file(run / "run.json"));
  if (!known.is_object() || !known.contains("train_file") || !known["train_file"].is_string()) return;
  const auto train_file = known["train_file"].get<std::string>();
  for (const auto& entry : fs::directory_iterator(run / "data", ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("train-") || !name.ends_with(".tokens")) continue;
    try {
      const auto trained = data::TokenStore::open(entry.path(), {.verify = false});
      if (trained->meta().tokenizer_fingerprint == evaluated.meta().tokenizer_fingerprint)
        report_shared(rows.shared_with(data::TextIndex(*trained, unknown)), eval_file, train_file);
    } catch (const InputError&) {
      log::debug("{} cannot be read; its rows are not compared with the rows of {}", entry.path().string(),
                 eval_file.string());
    }
  }
}

void report_evaluated(const data::TokenStore& store, const fs::path& file, const fs::path& model,
                      const text::Tokenizer& tokenizer) {
  report_textless(store, file);
  report_repeats(store, file, model, tokenizer.special().unknown);
  warn_of_missing_texts(store, tokenizer, file);
}

}  // namespace funicular::task
