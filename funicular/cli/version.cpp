#include "funicular/cli/version.h"

#include <fmt/format.h>
#include <torch/version.h>  // macros alone

#include "funicular/base/version.h"

namespace funicular::cli {

std::string version_text() {
  return fmt::format("funicular {} (LibTorch {})\n", FUNICULAR_VERSION, TORCH_VERSION);
}

}  // namespace funicular::cli
