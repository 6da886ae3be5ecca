#pragma once
// Labels and texts that are none: missing values of pandas and Excel, the names of columns.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/data/token_store.h"
#include "funicular/text/tokenizer.h"

namespace funicular::task {

/// Warns of classes whose name is what pandas or Excel write for a missing value or an error ("nan", "<NA>",
/// "#N/A"), one line per file. "None" and "null" count as names.
void warn_of_missing_labels(const std::vector<std::string>& names, const fs::path& file);

/// Warns of rows one of whose texts is nothing but such a value, or "None" or "null", one line for a file.
void warn_of_missing_texts(const data::TokenStore& store, const text::Tokenizer& tokenizer,
                           const fs::path& file);
/// Warns likewise of `missing` rows that have been counted in `name`. `first`: where the first one is, such as
/// "line 7".
void warn_of_missing_texts(int64_t missing, int64_t rows, const std::string& first, const std::string& name);

/// Warns where the label of the first row, and of no other, is what columns of labels are often called ("label",
/// "class"). `names`: of the store's classes. For files that are read as if they had no header.
void warn_of_header_row(const data::TokenStore& store, const std::vector<std::string>& names,
                        const fs::path& file);

}  // namespace funicular::task
