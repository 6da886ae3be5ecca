#pragma once
// Entities of a lexicon, hidden as a whole (Sun et al. 2019, "ERNIE: Enhanced Representation through Knowledge
// Integration", section 3.2.3).

#include "funicular/objective/phrases.h"
#include "funicular/objective/units.h"

namespace funicular::objective {

/// From left to right the longest entity that begins at a word and ends with one; every other word is a unit of its
/// own. With an empty lexicon the units are those of WordUnits.
class EntityUnits final : public Units {
 public:
  explicit EntityUnits(Phrases entities) : entities_(std::move(entities)) {}
  std::vector<Unit> divide(const MaskView& view, const MaskKey& key, size_t most) const override;

 private:
  Phrases entities_;
};

/// Reads a file of entities, one a line. Those that have an unknown token are left out; `left_out` counts them. Throws
/// InputError for a line with a tab (FILE:LINE). An empty file is an empty lexicon.
Phrases read_entities(const fs::path& file, const text::Tokenizer& tokenizer, int64_t& left_out);

}  // namespace funicular::objective
