#pragma once
// A teacher's answers (probabilities, logits or layers) for the rows of a dataset. They come from a file, or from a
// cache that one pass of the teacher over the data filled.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/core/batch.h"
#include "funicular/core/model.h"
#include "funicular/data/sample.h"
#include "funicular/format/delimited.h"

namespace funicular::objective {

class TeacherRows {
 public:
  virtual ~TeacherRows() = default;
  /// Adds to a batch of these samples, in their order, the tensors that a teacher in the model would output, under
  /// the same names. Thread-safe.
  virtual void add(MicroBatch& batch, std::span<const data::Sample> samples) const = 0;
};

/// Reads class probabilities from a file, one column per class, and gives their logarithms as logits [S, classes].
/// Sample i is row i. Throws InputError naming FILE:LINE if a row's numbers are not from 0 to 1 or do not sum to 1.
/// Also throws it if there are not `rows` rows. A sum may be off by 0.001, or by the rounding to the written
/// decimals. A warning counts the rows that are off by more than 0.001.
std::shared_ptr<const TeacherRows> read_soft_labels(const fs::path& file, format::TextOptions layout,
                                                    int64_t rows);

/// Identity of a cache. A cache with another identity is refused.
struct CacheIdentity {
  std::string teacher;    ///< weights, configuration, arithmetic
  std::string data;       ///< the dataset's contents
  std::string sequences;  ///< the rules by which rows become sequences
};

/// An activation that the cache stores: `width` numbers per sequence (float32) or per token (bfloat16).
struct KeptActivation {
  std::string name;  ///< the tensor's name in the batch
  int64_t width = 0;
  bool of_tokens = false;
};

/// Outputs of the teacher, by name, for samples [begin, end) of the dataset.
using TeacherPass = std::function<TensorMap(int64_t begin, int64_t end)>;

/// Opens the cache in `folder`, or makes it. `lengths[i]` is the number of tokens of sample i's sequence. Continues
/// the work of an interrupted process. `pass` is called for neighbouring samples of at most `tokens` tokens; a longer
/// sequence is passed alone. Null: the cache must be complete.
///
/// Throws InputError for a cache with another identity, and names the difference. With `verify` it also throws for
/// damaged bytes, and names the rows. Throws CacheInterrupted after a signal; the finished part stays on disk.
struct CacheInterrupted {};
std::shared_ptr<const TeacherRows> open_teacher_cache(const fs::path& folder, const CacheIdentity& identity,
                                                      const std::vector<KeptActivation>& activations,
                                                      const std::vector<int32_t>& lengths, int64_t tokens,
                                                      const TeacherPass& pass, bool verify = true);

}  // namespace funicular::objective
