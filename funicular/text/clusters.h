#pragma once
// Extended grapheme clusters (Unicode Standard Annex #29, with the rule for Indic conjuncts), as the
// Precompiled normaliser of Hugging Face `tokenizers` cuts text. Also the marks that its StripAccents
// removes. Unlike in the annex, a flag is two clusters. Each of its letters has four bytes, and only clusters
// of less than six bytes matter.

#include <cstdint>

#include "funicular/text/unicode_tables.h"

namespace funicular::text {

unicode::Cluster cluster_of(uint32_t code);
/// Whether a code point is a combining mark of any kind (general categories Mn, Mc, Me).
bool is_combining_mark(uint32_t code);

/// The end of the cluster that begins at `at` (< end). The text is valid UTF-8.
const char* end_of_cluster(const char* at, const char* end);

}  // namespace funicular::text
