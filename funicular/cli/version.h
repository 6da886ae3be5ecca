#pragma once
// What `funicular --version` says.

#include <string>

namespace funicular::cli {

/// "funicular 0.1.0 (LibTorch 2.13.0)" and a line end.
std::string version_text();

}  // namespace funicular::cli
