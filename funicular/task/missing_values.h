#pragma once
// Detects labels and texts that are mistakes: missing values of pandas and Excel, and names of columns.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/data/token_store.h"
#include "funicular/text/tokenizer.h"

namespace funicular::task {

/// Warns of classes named like a missing value or an error of pandas or Excel ("nan", "<NA>", "#N/A"), with one line
/// per file. "None" and "null" count as names.
void warn_of_missing_labels(const std::vector<std::string>& names, const fs::path& file);

/// Warns of rows with a text that is only such a value, or "None" or "null", with one line per file.
void warn_of_missing_texts(const data::TokenStore& store, const text::Tokenizer& tokenizer,
                           const fs::path& file);
/// Warns likewise of `missing` rows that have been counted in `name`. `first`: where the first one is, such as
/// "line 7".
void warn_of_missing_texts(int64_t missing, int64_t rows, const std::string& first, const std::string& name);

/// Warns if only the first row's label is a common name of label columns ("label", "class"). `names`: the store's
/// classes. For files that are read without a header.
void warn_of_header_row(const data::TokenStore& store, const std::vector<std::string>& names,
                        const fs::path& file);

}  // namespace funicular::task
