#include "funicular/train/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/log.h"
#include "funicular/format/manifest.h"
#include "funicular/train/saved_model.h"

namespace funicular::train {

namespace {

constexpr const char* kEvaluationData = "evaluation_data";

/// Adds "learning_rate was 5e-05 and is 0.001" if the values differ. JSON objects are compared field by field.
void add_difference(const std::string& name, const std::string& before, const std::string& now,
                    std::vector<std::string>& found) {
  if (before == now) return;
  const auto object = [](const std::string& text) {
    return text.starts_with('{') ? parse_json_or_null<OrderedJson>(text) : OrderedJson();
  };
  OrderedJson old_fields = object(before), fields = object(now);
  if (!old_fields.is_object() || !fields.is_object() ||
      old_fields.value("name", "") != fields.value("name", ""))
    return found.push_back(fmt::format("{} was {} and is {}", name, before, now));
  const auto show = [](const OrderedJson& fields_of, const std::string& key) {
    return fields_of.contains(key) ? fields_of[key].dump() : std::string("nothing");
  };
  OrderedJson all = old_fields;
  all.update(fields);
  for (const auto& [key, unused] : all.items())
    add_difference(key, show(old_fields, key), show(fields, key), found);
}

/// Returns " batch_size was 32 and is 16", several differences on a line each, or an empty text if both are equal.
std::string difference(const std::map<std::string, std::string>& old_values,
                       const std::map<std::string, std::string>& values) {
  const auto value_in = [](const auto& map, const std::string& name) {
    const auto found = map.find(name);
    return found == map.end() ? std::string("nothing") : found->second.empty() ? "\"\"" : found->second;
  };
  std::map<std::string, std::string> all = old_values;
  all.insert(values.begin(), values.end());
  std::vector<std::string> found;
  for (const auto& [name, unused] : all)
    add_difference(name, value_in(old_values, name), value_in(values, name), found);
  if (found.empty()) return {};
  return found.size() == 1 ? " " + found.front() : fmt::format("\n  {}", fmt::join(found, "\n  "));
}

void forget_best(TrainingState& state) {
  state.best_step = 0;
  state.best_evaluation.clear();
  state.evaluations_without_gain = 0;
  state.evaluated_step =
      std::min(state.evaluated_step, state.step - 1);  // an evaluation of this step is done again
}

}  // namespace

fs::path find_checkpoint(const fs::path& output, const std::string& resume) {
  const fs::path checkpoints = output / "checkpoints";
  const bool own = !output.empty() && !list_checkpoints(checkpoints).empty();
  if (resume == "never") {
    if (own)
      throw InputError(
          "trainer",
          "{} holds checkpoints of an earlier run; resume it, or choose another folder, or remove that one",
          output.string());
    return {};
  }
  if (resume == "auto") {
    const fs::path newest = newest_valid_checkpoint(checkpoints);
    if (own && newest.empty())
      throw InputError("trainer",
                       "no checkpoint in {} is valid; remove the folder to start from the beginning",
                       checkpoints.string());
    return newest.empty() ? newest : fs::canonical(newest);
  }
  const fs::path path = resume;
  if (!fs::is_directory(path))
    throw InputError("trainer", "cannot resume from {}: there is no such folder", path.string());
  fs::path found;
  if (!list_checkpoints(path / "checkpoints").empty())
    found = newest_valid_checkpoint(path / "checkpoints");
  else if (!list_checkpoints(path).empty())
    found = newest_valid_checkpoint(path);
  else if (const auto problem = format::verify_manifest(path); !problem)
    found = path;
  else
    throw InputError("trainer", "cannot resume from {}: {}", path.string(), *problem);
  if (found.empty())
    throw InputError("trainer", "cannot resume from {}: no checkpoint in it is valid", path.string());
  found = fs::canonical(found);  // "run/checkpoints/step-000010/" has that folder itself for its parent path
  if (own && !fs::equivalent(found.parent_path(), checkpoints))
    throw InputError("trainer", "{} holds checkpoints of another run than {}; choose another folder",
                     output.string(), found.string());
  return found;
}

namespace {

/// Returns the value of `key` in the part `part` of the newest state that has it. Reads the run that `resume`
/// selects; "" if there is none.
std::string value_of_run(const fs::path& output, const std::string& resume, const char* part,
                         const char* key) {
  if (resume == "never") return "";
  std::vector<fs::path> folders;
  if (resume == "auto")
    folders = {output / "checkpoints", output / "head" / "checkpoints"};
  else
    folders = {fs::path(resume) / "checkpoints", fs::path(resume)};
  std::vector<fs::path> checkpoints;
  for (const fs::path& folder : folders)
    for (const auto& [step, path] : list_checkpoints(folder)) checkpoints.push_back(path);
  if (resume != "auto") checkpoints.emplace_back(resume);
  std::error_code ignored;
  for (const fs::path& checkpoint : checkpoints) {
    if (!fs::exists(checkpoint / "state.json", ignored)) continue;
    const auto state = parse_json_or_null<OrderedJson>(read_file(checkpoint / "state.json"));
    if (!state.is_object() || !state.contains(part) || !state[part].is_object()) continue;
    if (std::string value = state[part].value(key, ""); !value.empty()) return value;
  }
  return "";
}

}  // namespace

std::string precision_of_run(const fs::path& output, const std::string& resume) {
  return value_of_run(output, resume, "identity", "precision");
}

std::string best_metric_of_run(const fs::path& output, const std::string& resume) {
  return value_of_run(output, resume, "settings", "best_metric");
}

void check_resumable(const TrainingState& saved, const std::map<std::string, std::string>& identity,
                     const std::map<std::string, std::string>& settings, const fs::path& checkpoint,
                     bool goes_on) {
  const std::string refused = difference(saved.identity, identity);
  if (!refused.empty())
    throw InputError("trainer",
                     "{} cannot be resumed; it belongs to another run:{}\n"
                     "Use the same settings, or another --output",
                     checkpoint.string(), refused);
  const std::string changed = difference(saved.settings, settings);
  if (changed.empty()) return;
  if (goes_on) return log::warning("the run resumes with other settings than it began with:{}", changed);
  // Only the evaluation data may differ, because the model is then evaluated again.
  auto same = settings;
  if (const auto data = saved.settings.find(kEvaluationData); data != saved.settings.end())
    same[kEvaluationData] = data->second;
  const std::string refused_settings = difference(saved.settings, same);
  const auto planned = saved.settings.find("max_steps"), now = settings.find("max_steps");
  const bool stopped = planned != saved.settings.end() && now != settings.end() &&
                       planned->second != now->second && planned->second != std::to_string(saved.step);
  if (!refused_settings.empty())
    throw InputError("trainer", "the run in {} {}, with other settings:{}; another --output begins a new run",
                     checkpoint.parent_path().parent_path().string(),
                     stopped ? fmt::format("has taken {} steps, as many as are asked for or more", saved.step)
                             : "is finished",
                     refused_settings);
  log::warning("the run has taken its last step, with other settings:{}", changed);
}

void forget_other_evaluation(TrainingState& saved, const std::map<std::string, std::string>& settings) {
  const auto before = saved.settings.find(kEvaluationData);
  const auto now = settings.find(kEvaluationData);
  if (saved.best_step == 0 || before == saved.settings.end() || now == settings.end() ||
      before->second == now->second)
    return;
  log::warning(
      "the evaluation data changed, so the best evaluation so far (step {}) cannot be compared with later "
      "ones. The next evaluation, or the end of the run, replaces the model",
      saved.best_step);
  forget_best(saved);
}

void set_newer_aside(const fs::path& output, const fs::path& checkpoint, int64_t step) {
  for (const auto& [other, path] : list_checkpoints(output / "checkpoints"))
    if (other > step && fs::equivalent(path.parent_path(), checkpoint.parent_path())) {
      const fs::path aside = path.parent_path() / ("abandoned-" + path.filename().string());
      fs::remove_all(aside);
      fs::rename(path, aside);
      log::warning("{} is newer than where the run resumes; it is now {}", path.string(), aside.string());
    }
}

void take_best_model(const fs::path& output, const fs::path& checkpoint, TrainingState& state) {
  if (state.best_step == 0) return;
  const fs::path source = checkpoint.parent_path().parent_path();
  if (saved_model_step(source) == state.best_step) {
    copy_saved_model(source, output);
    return;
  }
  log::warning(
      "the model of the best evaluation, at step {}, is no longer there; the next evaluation counts as the "
      "best so far",
      state.best_step);
  forget_best(state);
}

}  // namespace funicular::train
