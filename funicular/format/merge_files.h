#pragma once
// The merges of byte-pair encoding in files: "merges" of a tokenizer.json, and merges.txt.

#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/text/bpe_merges.h"

namespace funicular::format {

/// model["merges"]: "a b" or ["a", "b"]. Throws InputError naming the number of the merge.
std::vector<text::Merge> read_merges(const Json& model, const std::vector<std::string>& vocabulary,
                                     const std::string& origin);
/// merges.txt. Throws InputError naming the line.
std::vector<text::Merge> read_merges_file(const fs::path& path, const std::vector<std::string>& vocabulary);

/// "a b" where no part has a blank, which every version of tokenizers reads; else ["a", "b"].
OrderedJson merges_json(const std::vector<text::Merge>& merges, const std::vector<std::string>& vocabulary);

}  // namespace funicular::format
