#include "funicular/format/hub_hint.h"

namespace funicular::format {

std::string hub_hint(const fs::path& folder) {
  const std::string name = folder.string();
  const bool like_a_name = name.find_first_of("/.~") == name.npos ||
                           (name.find_first_of(".~/") == name.find('/') && name.front() != '/' &&
                            name.find('/') == name.rfind('/') && name.back() != '/');
  if (!like_a_name) return "";
  return "; a model on a hub is downloaded first (hf download NAME --local-dir FOLDER), and its folder given";
}

}  // namespace funicular::format
