#pragma once
// Names of classes that differ only in how they are spelt.

#include <string>
#include <vector>

namespace funicular::model {

/// `own`, with each name spelt as in `wanted`: {POSITIVE, NEGATIVE} and {negative, positive} give {positive, negative}.
/// The two lists must hold the same names but for the case of ASCII letters, and "-", "_" or a blank between words.
/// Otherwise returns `own` as it is.
std::vector<std::string> spelt_as(std::vector<std::string> own, const std::vector<std::string>& wanted);

}  // namespace funicular::model
