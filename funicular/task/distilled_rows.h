#pragma once
// Checks of a distillation's terms and of the files of its rows.

#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/format/delimited.h"
#include "funicular/format/model_config.h"
#include "funicular/objective/distillation.h"

namespace funicular::task {

struct DistillOptions;

/// Refuses terms that do not fit the stage, probabilities from a file instead of a teacher, or a cache of answers.
void check_terms(const objective::DistillationOptions& chosen, const std::string& stage, bool has_teacher,
                 bool caches);

/// Refuses files without the columns of probabilities. Reads only their headers, before they are tokenised.
/// `evaluated` may be empty.
void require_soft_columns(const fs::path& train, const fs::path& evaluated,
                          const format::TextOptions& layout);

/// The classes in the order of the teacher's logits. Their names come from its config.json; if it has no names,
/// from the task (`named_by_task`), with a warning if the task takes them from `file`.
std::vector<std::string> classes_of_teacher(const format::ModelConfig& teacher,
                                            const std::vector<std::string>& named_by_task,
                                            const fs::path& file);

/// Whether each row of the training file has a label. A custom task's file has none if its header does not name the
/// column. For JSON lines, it has none if the first object lacks the key, or has an object of shares there. A teacher can
/// answer rows without labels, too: logs that labels are not read.
bool has_all_labels(const DistillOptions& options);

}  // namespace funicular::task
