#pragma once
// The calibration in config.json, and a user's decisions on the answers of a model with classes.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/model/pretrained.h"
#include "funicular/task/abstention_file.h"

namespace funicular::task {

class Task;

/// The key of a calibration in config.json's "funicular": {"temperature": T, "rows": N, "coverage": […]}.
inline constexpr const char* kCalibrationNote = "calibration";

/// Reads the temperature in `note` (config.json's key "funicular"); 1 if it has none. Throws InputError unless it is
/// a positive number.
double temperature_in(const Json& note);
/// Removes the calibration from the note of a model with early exit, as its exits have their own temperatures
/// (model::ExitRule).
Json without_calibration(Json note);
/// Returns the logits divided by the temperature. With 1 they are bit-identical.
at::Tensor cooled(const at::Tensor& logits, double temperature);

/// The text of kAbstentionFile: lines "COVERAGE<tab>ACCURACY<tab>THRESHOLD" below a header. They are the points of
/// `coverage` (objective::read_coverage) nearest to some round shares of the rows, each once.
std::string abstention_table(const OrderedJson& coverage);

/// Whether the temperature is as small or as large as the search allows.
bool at_bound(const Json& calibration);

/// Throws InputError unless a calibrated copy of `model` may be written to the folder `copy`. It must lie outside the
/// model, and be new or empty or hold an earlier calibrated copy of the same model.
void require_place_of_copy(const fs::path& copy, const fs::path& model);
/// Writes a copy of the model's folder with the calibration. `copy` appears in one step when it is complete.
void write_calibrated_copy(const fs::path& model, const fs::path& copy, Json calibration);
/// Throws InputError unless config.json can be written. A link is refused: it leads into a cache that other programs
/// read.
void require_calibratable(const fs::path& folder);
/// Writes the calibration into the folder's config.json, which keeps everything else.
void keep_calibration(const fs::path& folder, const Json& calibration);

/// The user's decisions on how `predict` answers. At most one of `abstain` and `abstain_accuracy` is set.
struct Decision {
  std::optional<double> abstain{};  ///< rows with a lower confidence get no label
  std::optional<double>
      abstain_accuracy{};  ///< as `abstain`, at the confidence that reached this accuracy in the calibration
  std::optional<double> threshold{};  ///< several labels per text: the least probability of a predicted label
  std::string
      aggregation{};  ///< tags: one of aggregation_names(), for entities with their characters; "": words

  std::optional<int64_t> n_best{};  ///< spans: how many candidates each answer lists

  bool given() const { return abstain || abstain_accuracy || threshold || !aggregation.empty() || n_best; }
  /// Returns the model's note with the decision added, for Task::answers. Throws InputError for a task that does not
  /// support the decision, and for an accuracy that no confidence reached.
  Json over(const model::Pretrained& pretrained, const Task& task) const;
};

/// The keys of Decision::over: the confidence below which a row gets no label, and the threshold of all labels.
inline constexpr const char *kAbstain = "abstain", *kThreshold = "threshold";

}  // namespace funicular::task
