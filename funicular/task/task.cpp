#include "funicular/task/task.h"

#include <utility>

#include "funicular/base/error.h"
#include "funicular/core/loss_watch.h"

namespace funicular::task {

namespace {

const std::vector<std::string>& no_names() {
  static const std::vector<std::string> none;
  return none;
}

/// Weights apply only to training, so they are not noted.
data::ShareColumns shares_in(const Json& columns, const char* origin, const std::string& weight) {
  return {.columns = json_get_or<std::vector<std::string>>(columns, "soft_columns", {}, origin),
          .objects = json_get_or<bool>(columns, "soft_labels", false, origin),
          .normalize = json_get_or<bool>(columns, "normalize_shares", false, origin),
          .weight = weight};
}

}  // namespace

void FileOptions::fill_from(const Json& note) {
  if (!note.is_object() || !note.contains(kColumnsNote)) return;
  constexpr const char* kOrigin = "config.json (key \"funicular\")";
  const Json& columns = note[kColumnsNote];
  if (!columns.is_object())
    throw InputError("config", "{}: expected an object as \"{}\"", kOrigin, kColumnsNote);
  // Rows with a label column have no shares, even if the model was trained on shares.
  if (label.empty() && !shares.has_shares()) shares = shares_in(columns, kOrigin, shares.weight);
  if (text.empty()) text = json_get<std::vector<std::string>>(columns, "text", kOrigin);
  if (label.empty()) label = json_get<std::string>(columns, "label", kOrigin);
  if (!header) header = json_get<bool>(columns, "header", kOrigin);
  if (!stride && columns.contains("stride")) stride = json_get<int64_t>(columns, "stride", kOrigin);
  margins = margins || json_get_or<bool>(columns, "margins", false, kOrigin);
  if (label_separator.empty()) label_separator = json_get<std::string>(columns, "label_separator", kOrigin);
}

Json FileOptions::note() const {
  Json note = {
      {"text", text}, {"label", label}, {"header", header.value_or(true)}, {"label_separator", separator()}};
  if (stride) note["stride"] = *stride;
  if (!shares.columns.empty()) note["soft_columns"] = shares.columns;
  if (shares.objects) note["soft_labels"] = true;
  if (shares.normalize) note["normalize_shares"] = true;
  if (margins) note["margins"] = true;
  return note;
}

const std::string& FileOptions::separator() const {
  static const std::string comma = ",";
  return label_separator.empty() ? comma : label_separator;
}

Task::Task(const TaskType& type, std::string name, FileOptions files)
    : type_(type), name_(std::move(name)), files_(std::move(files)) {}

const std::vector<std::string>& Task::label_names() const {
  return no_names();
}

const std::vector<std::string>& Task::spellings() const {
  return no_names();
}

TaskSamples Task::samples(const objective::Objective& objective, const text::Tokenizer& /*tokenizer*/,
                          std::shared_ptr<const data::TokenStore> store, const fs::path& /*file*/) const {
  return {objective.samples(std::move(store)), objective.metrics()};
}

std::unique_ptr<data::RowSource> Task::own_side(std::unique_ptr<data::RowSource> rows) const {
  if (!files_.split) return rows;
  return std::make_unique<data::SplitSource>(std::move(rows), files_.split, files_.held_out);
}

std::vector<std::string> Task::answer_keys() const {
  return {"error", "label", "labels", "layer", "model", "probabilities", "score", "value"};
}

double Task::diverged_at() const {
  return LossWatch::kGrowth;
}

std::vector<std::string> Task::labels_of(const format::ModelConfig& config, const fs::path& /*model*/) const {
  return model::class_names(config);
}

model::TaskNote note_of(const Task& task, int64_t max_length, const std::string& truncation) {
  model::TaskNote note{task.name(), task.texts(), max_length, truncation, Json::object()};
  if (const Json columns = task.note(); !columns.is_null()) note.source[kColumnsNote] = columns;
  return note;
}

}  // namespace funicular::task
