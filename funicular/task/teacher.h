#pragma once
// The teacher of a distillation: a model's folder, or columns of probabilities in the rows' files.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/core/model.h"
#include "funicular/format/delimited.h"
#include "funicular/model/pretrained.h"
#include "funicular/objective/distillation.h"
#include "funicular/objective/teacher_rows.h"
#include "funicular/task/run.h"

namespace funicular::task {

struct DistillOptions;

/// The folders within the folder of a teacher's answers: of the rows that are learnt, and of the rows that are
/// evaluated.
inline constexpr const char* kCacheParts[] = {"train", "eval"};

class Teacher {
 public:
  /// Opens the folder, if there is one. Throws InputError.
  explicit Teacher(const DistillOptions& options);

  bool is_model() const { return folder_.has_value(); }
  /// Only if is_model().
  const model::Pretrained& folder() const { return *folder_; }
  const std::string& precision() const { return precision_; }
  /// For checkpoints: what the teacher's answers depend on.
  std::string identity() const;

  /// The model, with the activations that the terms of `objective` read.
  Model make(const objective::Distillation& objective) const;

  /// Answers that are known before the training, or null if the model is asked in each step.
  struct Known {
    std::shared_ptr<const objective::TeacherRows> train = nullptr, eval = nullptr;
    bool interrupted = false;  ///< while they were made; what is done is kept
  };
  /// `held_out` may be null; `length`: of sequences. Throws InputError for probabilities that make no sense and for
  /// kept answers of another teacher or other rows. Collective.
  Known read(const objective::Distillation& objective, const data::Dataset& rows,
             const data::Dataset* held_out, int64_t length) const;

  /// How the columns of probabilities lie.
  format::TextOptions soft_layout() const;

 private:
  std::shared_ptr<const objective::TeacherRows> open_cache(const std::string& part,
                                                           const objective::Distillation& objective,
                                                           const data::Dataset& rows, int64_t length,
                                                           bool fills) const;

  const DistillOptions& o_;
  std::optional<model::Pretrained> folder_;
  std::string precision_;
};

}  // namespace funicular::task
