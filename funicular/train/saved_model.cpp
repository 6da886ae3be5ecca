#include "funicular/train/saved_model.h"

#include <fcntl.h>
#include <stdio.h>  // renameat2

#include "funicular/base/error.h"
#include "funicular/base/json.h"

namespace funicular::train {

namespace {

constexpr const char* kModel = "model";
constexpr const char* kTemporary = ".model-new";
constexpr const char* kStepFile = "training.json";

/// Replaces `folder` by `replacement` in one step where the system can.
void replace_folder(const fs::path& replacement, const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder)) {
    fs::rename(replacement, folder, error);
  } else if (::renameat2(AT_FDCWD, replacement.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(replacement, error);
  } else {
    fs::remove_all(folder);
    fs::rename(replacement, folder, error);
  }
  if (error) throw RunError("trainer", "cannot put {} in place: {}", folder.string(), error.message());
}

}  // namespace

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
  const fs::path temporary = run / kTemporary;
  fs::remove_all(temporary);
  make_directories(temporary);
  write(temporary);
  write_file_atomically(temporary / kStepFile, OrderedJson{{"step", step}}.dump() + "\n");
  replace_folder(temporary, run / kModel);
}

void copy_saved_model(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (fs::equivalent(from / kModel, to / kModel, error)) return;
  const fs::path temporary = to / kTemporary;
  fs::remove_all(temporary);
  fs::copy(from / kModel, temporary, fs::copy_options::recursive);
  replace_folder(temporary, to / kModel);
}

}  // namespace funicular::train
