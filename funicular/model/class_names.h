#pragma once
// Class names that differ only in spelling.

#include <string>
#include <vector>

namespace funicular::model {

/// Returns `own` with each name spelt as in `wanted`: {POSITIVE, NEGATIVE} and {negative, positive} give {positive,
/// negative}. The lists must have the same names, up to the case of ASCII letters and "-", "_" or a blank between
/// words. Otherwise returns `own` unchanged.
std::vector<std::string> spelt_as(std::vector<std::string> own, const std::vector<std::string>& wanted);

}  // namespace funicular::model
