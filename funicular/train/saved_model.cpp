#include "funicular/train/saved_model.h"

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/temporary.h"

namespace funicular::train {

namespace {

constexpr const char* kModel = "model";
constexpr const char* kStepFile = "training.json";  // written last
constexpr const char* kRunFile = "run.json";

void replace_model(const fs::path& temporary, const fs::path& run) {
  std::error_code ignored;
  fs::remove_all(put_in_place(temporary, run / kModel), ignored);
}

/// Makes run/model of what `write` puts into an empty folder, which is gone if that fails.
void replace_model_by(const fs::path& run, const std::function<void(const fs::path& folder)>& write) {
  const fs::path temporary = make_temporary_folder(run / kModel);
  try {
    write(temporary);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
  replace_model(temporary, run);
}

}  // namespace

void check_saved_model(const fs::path& run) {
  const fs::path model = run / kModel;
  std::error_code error;
  if (!fs::exists(fs::symlink_status(model, error))) return;
  const bool folder = fs::is_directory(fs::symlink_status(model, error));
  if (folder && fs::is_empty(model, error)) return;
  if (folder && fs::exists(model / kStepFile, error) && fs::exists(run / kRunFile, error)) return;
  throw InputError(
      "trainer",
      "{} was not written by a run into {}, and training would replace it; choose another folder for "
      "the run, or move that one away",
      model.string(), run.string());
}

void recover_saved_model(const fs::path& run) {
  std::error_code error;
  for (const fs::path& leftover : temporaries_of(run / kModel)) {
    if (!fs::exists(run / kModel, error) && fs::exists(leftover / kStepFile, error))
      replace_model(leftover, run);
    else
      fs::remove_all(leftover, error);
  }
}

int64_t saved_model_step(const fs::path& run) {
  try {
    const fs::path path = run / kModel / kStepFile;
    return json_get<int64_t>(read_json(path), "step", path.string());
  } catch (const InputError&) {
    return 0;
  }
}

void replace_saved_model(const fs::path& run, int64_t step,
                         const std::function<void(const fs::path& folder)>& write) {
  replace_model_by(run, [&](const fs::path& folder) {
    write(folder);
    write_file_atomically(folder / kStepFile, OrderedJson{{"step", step}}.dump() + "\n");
  });
}

void copy_saved_model(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (fs::equivalent(from / kModel, to / kModel, error)) return;
  replace_model_by(to, [&](const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(from / kModel))
      if (entry.path().filename() != kStepFile)
        fs::copy(entry.path(), folder / entry.path().filename(), fs::copy_options::recursive);
    fs::copy(from / kModel / kStepFile, folder / kStepFile);
  });
}

}  // namespace funicular::train
