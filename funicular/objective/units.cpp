#include "funicular/objective/units.h"

namespace funicular::objective {

std::vector<Unit> TokenUnits::divide(const MaskView& view, const MaskKey&, size_t) const {
  std::vector<Unit> units(view.tokens.size());
  for (size_t i = 0; i < units.size(); ++i) units[i] = {static_cast<int32_t>(i), static_cast<int32_t>(i) + 1};
  return units;
}

std::vector<Unit> WordUnits::divide(const MaskView& view, const MaskKey&, size_t) const {
  return words_of(view);
}

}  // namespace funicular::objective
