#include "funicular/task/distilled_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <variant>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/log.h"
#include "funicular/data/row_source.h"
#include "funicular/format/row_rules.h"
#include "funicular/model/class_names.h"
#include "funicular/task/distill.h"
#include "funicular/task/task.h"

namespace funicular::task {

void check_terms(const objective::DistillationOptions& chosen, const std::string& stage, bool has_teacher,
                 bool caches) {
  using Kind = objective::DistillationKind;
  const bool prediction = stage == "prediction";
  if (chosen.reads_logits() != prediction)
    throw InputError("usage", "--stage {}: {}", stage,
                     prediction ? "expects a term of the answers: soft, hard or logits"
                                : "soft, hard and logits are terms of the stage prediction");
  if (!has_teacher)
    for (const objective::DistillationTerm& term : chosen.terms)
      if (term.kind != Kind::soft && term.kind != Kind::hard)
        throw InputError(
            "usage",
            "the terms {} read a teacher's layers or logits, which probabilities do not tell; with "
            "--soft-columns expected soft, hard",
            objective::describe(chosen.terms));
  if (caches && chosen.reads_hidden_words())
    throw InputError("usage",
                     "--cache-teacher: tokens, all-tokens and mlm hide other words in every epoch, so that "
                     "the teacher reads "
                     "other texts; expected terms of texts as they are");
}

void require_soft_columns(const fs::path& train, const fs::path& evaluated,
                          const format::TextOptions& layout) {
  const format::TextFile learnt(train, layout);
  if (evaluated.empty()) return;
  try {
    const format::TextFile measured(evaluated, layout);
  } catch (const InputError& error) {
    throw InputError("distillation",
                     "{}; rows that are evaluated have the columns of --soft-columns, by which their loss is "
                     "measured, besides their label. Add them, or leave --eval out and give the student to "
                     "funicular evaluate, which reads labels alone",
                     error.what());
  }
}

std::vector<std::string> classes_of_teacher(const format::ModelConfig& teacher,
                                            const std::vector<std::string>& named_by_task,
                                            const fs::path& file) {
  const std::vector<std::string>& named = teacher.id2label;
  const bool nameless = std::all_of(named.begin(), named.end(),
                                    [](const std::string& name) { return name.starts_with("LABEL_"); });
  if (!nameless) return model::spelt_as(named, named_by_task);
  if (named_by_task.empty())
    log::warning(
        "the teacher's classes have no names: the names in {}, sorted, are taken for them in this order",
        file.string());
  return named_by_task;
}

namespace {

bool lacks_label(const fs::path& file, const data::TextFileSourceOptions& layout) {
  if (!layout.label_column || !std::holds_alternative<std::string>(*layout.label_column)) return false;
  const auto& name = std::get<std::string>(*layout.label_column);
  const format::TextFormat format = layout.format.value_or(format::guess_text_format(file));
  const bool header = layout.header && format::has_columns(format);
  const format::TextFile rows(file, {.format = format, .header = header, .style = layout.style});
  bool lacks = false, has_shares = false;
  if (rows.format() == format::TextFormat::jsonl) {
    const auto first = parse_json_or_null<Json>(rows.text().substr(0, rows.text().find('\n')));
    lacks = first.is_object() && !first.contains(name);
    has_shares = first.is_object() && !lacks && first[name].is_object();
  } else if (!rows.header().empty()) {
    lacks = std::find(rows.header().begin(), rows.header().end(), name) == rows.header().end();
  }
  if (lacks)
    log::info("{} has no column \"{}\": the student learns the teacher's answers, which need no label",
              file.string(), name);
  if (has_shares)
    log::info(
        "{}: \"{}\" holds shares and no label: the student learns the teacher's answers, which need no label",
        file.string(), name);
  return lacks || has_shares;
}

bool has_empty_label(const Task& task, const fs::path& file, const format::BadRows* bad_rows) {
  RowsOptions options;
  if (bad_rows) options.bad_rows = std::make_shared<format::BadRows>(bad_rows->skip());
  const std::unique_ptr<data::RowSource> source = task.open_rows(file, options);
  uint64_t empty = 0;
  for (size_t piece = 0; piece < source->pieces(); ++piece)
    source->read(piece,
                 [&](const data::SourceRow& row) { empty += row.label.empty() && row.shares.empty(); });
  if (empty > 0)
    log::info(
        "{}: {} row{} an empty label, so no label of this file is read; the student learns the teacher's "
        "answers",
        file.string(), empty, empty == 1 ? " has" : "s have");
  return empty > 0;
}

}  // namespace

bool has_all_labels(const DistillOptions& options) {
  return !lacks_label(options.train_file, options.task->columns()) &&
         !has_empty_label(*options.task, options.train_file, options.bad_rows.get());
}

}  // namespace funicular::task
