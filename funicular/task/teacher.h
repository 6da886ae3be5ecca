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

/// Subfolders of a teacher's answers: for training rows and for evaluation rows.
inline constexpr const char* kCacheParts[] = {"train", "eval"};

class Teacher {
 public:
  /// Opens the folder, if there is one. Throws InputError.
  explicit Teacher(const DistillOptions& options);

  bool is_model() const { return folder_.has_value(); }
  /// Only if is_model().
  const model::Pretrained& folder() const { return *folder_; }
  const std::string& precision() const { return precision_; }
  /// For checkpoints: everything on which the teacher's answers depend.
  std::string identity() const;

  /// The model, with the activations that the terms of `objective` read.
  Model make(const objective::Distillation& objective) const;

  /// Answers known before the training, or null if the model runs in each step.
  struct Known {
    std::shared_ptr<const objective::TeacherRows> train = nullptr, eval = nullptr;
    bool interrupted = false;  ///< interrupted while they were made; finished parts are kept
  };
  /// `held_out` may be null; `length`: of sequences. Throws InputError for malformed probabilities, and for cached
  /// answers of another teacher or other rows. Collective.
  Known read(const objective::Distillation& objective, const data::Dataset& rows,
             const data::Dataset* held_out, int64_t length) const;

  /// The layout of the columns of probabilities.
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
