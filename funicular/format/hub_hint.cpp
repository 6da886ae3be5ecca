#include "funicular/format/hub_hint.h"

#include "funicular/format/model_folder.h"

namespace funicular::format {

std::string hub_hint(const fs::path& folder) {
  const std::string name = folder.string();
  if (!is_hub_name(name)) return "";
  std::error_code ignored;
  const fs::path parent = folder.parent_path();
  if (!parent.empty() && fs::exists(parent, ignored)) return "";
  return "; to download the model of this name from the Hugging Face Hub, run: hf download " + name;
}

}  // namespace funicular::format
