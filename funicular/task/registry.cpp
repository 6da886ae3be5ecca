#include "funicular/task/registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/task/classes.h"
#include "funicular/task/embedders.h"
#include "funicular/task/labels.h"
#include "funicular/task/numbers.h"
#include "funicular/task/rerankers.h"
#include "funicular/task/spans.h"
#include "funicular/task/tags.h"

namespace funicular::task {

const std::vector<TaskType>& task_types() {
  static const std::vector<TaskType> rows{Tags::row(),
                                          Spans::row(),
                                          Embedders::row(TextGroup::pairs),
                                          Embedders::row(TextGroup::triplets),
                                          Embedders::row(TextGroup::scores),
                                          Embedders::row(TextGroup::vectors),
                                          Rerankers::row(),
                                          Labels::row(),
                                          Numbers::row(),
                                          Classes::row()};
  return rows;
}

std::string TaskType::asked_for() const {
  return "--task " + option + (more.empty() ? "" : " " + more);
}

const TaskType& type_of(const format::ModelConfig& config) {
  const auto& rows = task_types();
  return *std::find_if(rows.begin(), rows.end(), [&](const TaskType& row) { return row.owns(config); });
}

std::vector<std::string> text_task_names() {
  std::vector<std::string> names;
  for (const data::NamedTask& row : data::named_tasks()) names.push_back(row.name);
  names.emplace_back(TextTask::kOption);
  return names;
}

std::vector<std::string> task_names() {
  std::vector<std::string> names = text_task_names();
  for (const TaskType& row : task_types())
    if (row.option != TextTask::kOption) names.push_back(row.option);
  return names;
}

namespace {

const TaskType& type_by_name(const std::string& name) {
  for (const TaskType& row : task_types())
    if (name == row.name || (name == TextTask::kOption && row.name == "classes")) return row;
  const std::vector<std::string> names = task_names();
  const std::string near = nearest(name, names.data(), names.data() + names.size());
  throw InputError("task", "unknown task \"{}\"{}; known are {}", name,
                   near.empty() ? "" : ", did you mean " + near + "?", fmt::join(names, ", "));
}

std::shared_ptr<const Task> made(const TaskType& type, FileOptions files, const data::NamedTask* named) {
  std::shared_ptr<const Task> task = type.make(type, std::move(files), named);
  const data::ShareColumns& shares = task->files().shares;
  if ((shares.has_shares() && (named || !task->reads_shares())) ||
      (!shares.weight.empty() && (named || !task->weighs_rows())))
    throw InputError("usage", "{} cannot be given for {}, which gives {}",
                     shares.has_shares() ? "--soft-columns and --soft-labels" : "--weight-column",
                     named ? "--task " + named->name : type.asked_for(), type.gives);
  return task;
}

}  // namespace

std::shared_ptr<const Task> find_task(const std::string& name, FileOptions files) {
  const data::NamedTask* const named = data::find_named_task(name);
  const TaskType& type = type_by_name(named ? named->type : name);
  return made(type, std::move(files), named);
}

std::shared_ptr<const Task> with_files(const Task& task, FileOptions files) {
  return task.type().make(task.type(), std::move(files), data::find_named_task(task.name()));
}

std::shared_ptr<const Task> task_of(const model::Pretrained& pretrained, FileOptions said) {
  const model::TaskNote note = pretrained.note();
  const TaskType& type = type_of(pretrained.config());
  const data::NamedTask* named = data::find_named_task(note.task);
  if (named && named->type != type.name) named = nullptr;
  said.fill_from(note.source);
  return type.make(type, std::move(said), named);
}

}  // namespace funicular::task
