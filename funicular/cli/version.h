#pragma once
// The text of `funicular --version`.

#include <string>

namespace funicular::cli {

/// The program's version and LibTorch's, "funicular X.Y.Z (LibTorch X.Y.Z)", and a line end.
std::string version_text();

}  // namespace funicular::cli
