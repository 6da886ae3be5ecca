#pragma once
// Entities of a lexicon, masked as a whole (Sun et al. 2019, "ERNIE: Enhanced Representation through Knowledge
// Integration", section 3.2.3).

#include "funicular/objective/phrases.h"
#include "funicular/objective/units.h"

namespace funicular::objective {

/// Finds entities from left to right: at each word the longest entity that consists of whole words. Every other word
/// is a unit of its own. An empty lexicon gives the same units as WordUnits.
class EntityUnits final : public Units {
 public:
  explicit EntityUnits(Phrases entities) : entities_(std::move(entities)) {}
  std::vector<Unit> divide(const MaskView& view, const MaskKey& key, size_t most) const override;

 private:
  Phrases entities_;
};

/// Reads a file of entities, one per line. Skips entities with an unknown token; `left_out` counts them. Throws
/// InputError for a line with a tab (FILE:LINE). An empty file is an empty lexicon.
Phrases read_entities(const fs::path& file, const text::Tokenizer& tokenizer, int64_t& left_out);

}  // namespace funicular::objective
