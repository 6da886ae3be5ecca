#pragma once
// Labels and texts that are none: missing values of pandas and Excel, the names of columns.

#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/data/token_store.h"
#include "funicular/text/tokenizer.h"

namespace funicular::cli {

/// Warns of classes whose name is what pandas or Excel write for a missing value or an error ("nan", "<NA>", "#N/A"), one line per file.
/// "None" and "null" count as names.
void warn_of_missing_labels(const std::vector<std::string>& names, const fs::path& file);

/// Warns of rows one of whose texts is nothing but such a value, or "None" or "null", one line for a file.
void warn_of_missing_texts(const data::TokenStore& store, const text::Tokenizer& tokenizer,
                           const fs::path& file);

/// Warns where the label of the first row, and of no other, is what columns of labels are often called ("label", "class").
/// `names`: of the store's classes. For files that are read as if they had no header.
void warn_of_header_row(const data::TokenStore& store, const std::vector<std::string>& names,
                        const fs::path& file);

}  // namespace funicular::cli
