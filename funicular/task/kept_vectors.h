#pragma once
// Vectors and scores that a command caches in files. After an interruption, the repeated command finds them there.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/format/npy.h"
#include "funicular/task/embed.h"
#include "funicular/task/vector_output.h"

namespace funicular::task {

/// Returns the vectors of `texts` from the file, or embeds the missing ones into it. `identity`: everything that
/// determines the vectors. If an interrupt is requested, throws Error with ExitCode::interrupted in the name of
/// `command`.
format::NpyFile kept_vectors(const fs::path& file, const Json& identity, const Embedder& embedder,
                             const std::vector<std::string>& texts, const char* command);

/// Rows [begin, end) of a table of float32.
at::Tensor rows_of(const format::NpyFile& table, int64_t begin, int64_t end);

/// Numbers that are computed in one order.
class KeptNumbers {
 public:
  /// `identity`: everything that determines the numbers.
  KeptNumbers(const fs::path& file, Json identity);
  /// Returns the next `count` numbers: from an earlier run, or from `compute`, whose result is stored.
  std::vector<float> next(size_t count, const std::function<std::vector<float>()>& compute);

 private:
  VectorOutput output_;
  std::vector<float> kept_;
  size_t next_ = 0;
};

}  // namespace funicular::task
