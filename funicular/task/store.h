#pragma once
// The token store of a task's file.

#include <memory>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/data/token_store.h"
#include "funicular/task/task.h"
#include "funicular/text/tokenizer.h"

namespace funicular::task {

struct StoreOptions {
  std::vector<std::string> labels = {};  ///< the classes in order; empty: learnt from the file (sorted)
  bool labelled = true;                  ///< false: the rows' labels are not read
  bool verify = true;  ///< read an existing store completely, and compare it with its checksums
  std::shared_ptr<format::BadRows> bad_rows = {};
};

/// Tokenises a task's file into the store folder/NAME-KEY.tokens, and warns of rows that it leaves out. Opens the
/// store if it was made before from the same file, task, tokeniser and labels; a damaged store is made again, with
/// a warning. Throws InputError: a wrong row or an unknown label (with file:line), a file without rows.
std::shared_ptr<const data::TokenStore> open_store(const Task& task, const fs::path& file,
                                                   const std::string& name, const text::Tokenizer& tokenizer,
                                                   const fs::path& folder, const StoreOptions& options = {});

}  // namespace funicular::task
