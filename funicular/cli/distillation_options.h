#pragma once
// What a student learns of its teacher, as options.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "funicular/cli/arguments.h"
#include "funicular/data/row_source.h"
#include "funicular/format/delimited.h"
#include "funicular/objective/distillation.h"

namespace funicular::cli {

/// The folders in that of --cache-teacher: of the rows that are learnt, and of those that are evaluated.
inline constexpr const char* kCacheParts[] = {"train", "eval"};

struct DistillationOptions {
  std::string init_layers;  ///< as model::parse_init_layers takes it; empty: none
  std::string layer_map = "uniform", soft_mean = "classes", teacher_precision;
  std::vector<std::string> terms;
  double temperature = 1, mlm_probability = 0.15;
  int64_t relation_heads = 12, relation_layer = 0;

  void declare(Arguments& arguments);
  /// Throws InputError for values that no option refuses by itself.
  void check() const;
  /// The terms, and what they need; `prediction`: of that stage, whose term is soft unless others are given. Throws
  /// InputError.
  void apply(objective::DistillationOptions& wanted, bool prediction) const;
  /// Says which options were given that do nothing with these terms.
  void warn_of_idle_options(const Arguments& arguments, const objective::DistillationOptions& chosen) const;
};

/// Refuses terms that do not go with the stage, with probabilities of a file instead of a teacher, or with a cache of its answers.
void check_terms(const objective::DistillationOptions& chosen, const std::string& stage, bool has_teacher,
                 bool caches);

/// Refuses files without the columns of probabilities, by their headers: before they are tokenised. `evaluated` may be empty.
void require_soft_columns(const fs::path& train, const fs::path& evaluated,
                          const format::TextOptions& layout);

/// The classes in the order of the teacher's logits. Their names are those of its config.json; if it has none, those of the
/// task (`named_by_task`), with a warning if the task's come from `file`.
std::vector<std::string> classes_of_teacher(const format::ModelConfig& teacher,
                                            const std::vector<std::string>& named_by_task,
                                            const fs::path& file);

/// Whether a custom task's file has no label column. It has none if its header does not name the column, or if the first object
/// of JSON lines lacks the key. A teacher answers such rows as well. Logs that labels are not read.
bool lacks_label(const fs::path& file, const data::TextFileSourceOptions& layout);

/// Refuses a folder for the teacher's answers that would put files into what the run reads, which would be another input
/// afterwards, or into what it replaces. `inputs`: options and their paths; those that are no path are passed over.
void check_cache_place(const fs::path& cache, const fs::path& output,
                       std::initializer_list<std::pair<const char*, fs::path>> inputs);

}  // namespace funicular::cli
