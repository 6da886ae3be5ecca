#pragma once
// A teacher's answers (probabilities, logits or layers) for the rows of a data set, read from a file or kept from one pass of
// the teacher over the data.

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
  /// Adds to a batch of these samples, in their order, the tensors that a teacher in the model would give, by the
  /// same names. Thread-safe.
  virtual void add(MicroBatch& batch, std::span<const data::Sample> samples) const = 0;
};

/// Probabilities of the classes, a column each, from the rows of a file: as logits, their logarithms [S, classes].
/// Sample i is row i. Throws InputError naming FILE:LINE if a row's numbers are not from 0 to 1 or do not sum to 1. Also throws it if
/// there are not `rows` rows. A sum may be off by 0.001, or by the rounding to the written decimals; a warning counts the latter rows.
std::shared_ptr<const TeacherRows> read_soft_labels(const fs::path& file, format::TextOptions layout,
                                                    int64_t rows);

/// Identity of a cache. A cache whose own differs is refused.
struct CacheIdentity {
  std::string teacher;    ///< weights, configuration, arithmetic
  std::string data;       ///< the data set's contents
  std::string sequences;  ///< how rows become sequences
};

/// An activation that is kept: a row of `width` numbers a sequence or a token; logits in float32, others in bfloat16.
struct KeptActivation {
  std::string name;  ///< as the batch has it
  int64_t width = 0;
  bool of_tokens = false;
};

/// Outputs of the teacher, by name, for samples [begin, end) of the data set.
using TeacherPass = std::function<TensorMap(int64_t begin, int64_t end)>;

/// Opens the cache in `folder`, or makes it: `lengths[i]` is how many tokens the sequence of sample i has.
/// Continues the work of an interrupted process. `pass` is called for neighbouring samples of at most
/// `tokens` tokens (one longer sequence stands alone); null: the cache must be whole. Throws InputError for a
/// cache of another identity, naming what differs, and with `verify` for one whose bytes are not those that
/// were written, naming the rows; CacheInterrupted where a signal came: what is done is kept.
struct CacheInterrupted {};
std::shared_ptr<const TeacherRows> open_teacher_cache(const fs::path& folder, const CacheIdentity& identity,
                                                      const std::vector<KeptActivation>& activations,
                                                      const std::vector<int32_t>& lengths, int64_t tokens,
                                                      const TeacherPass& pass, bool verify = true);

}  // namespace funicular::objective
