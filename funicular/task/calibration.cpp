#include "funicular/task/calibration.h"

#include <torch/types.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/objective/calibration.h"
#include "funicular/task/registry.h"

namespace funicular::task {

namespace {

constexpr const char* kPlace = "config.json (key \"funicular\", \"calibration\")";

const Json* calibration_in(const Json& note) {
  const auto found = note.find(kCalibrationNote);
  return found == note.end() || !found->is_object() ? nullptr : &*found;
}

double confidence_for(const model::Pretrained& pretrained, const Json& note, double accuracy) {
  const Json* const kept = calibration_in(note);
  if (!kept || !kept->contains("coverage"))
    throw InputError("usage",
                     "--abstain-accuracy: {} has not been calibrated, so no accuracy is known; run funicular "
                     "evaluate --calibrate, or give --abstain with a confidence",
                     pretrained.path().string());
  const auto curve = objective::read_coverage((*kept)["coverage"], kPlace);
  const auto point = objective::widest_coverage(curve, accuracy);
  if (!point)
    throw InputError("usage", "--abstain-accuracy {}: the surest answers of the calibration reached {:.4g}",
                     accuracy, curve.empty() ? 0 : curve.front().accuracy);
  log::info(
      "--abstain {:.6g}: {:.1f} % of the rows that calibrated the model get an answer, {:.4f} of these right",
      point->threshold, 100 * point->coverage, point->accuracy);
  return point->threshold;
}

}  // namespace

double temperature_in(const Json& note) {
  const Json* const kept = calibration_in(note);
  if (!kept) return 1;
  const auto temperature = json_get<double>(*kept, "temperature", kPlace);
  if (!(temperature > 0) || !std::isfinite(temperature))
    throw InputError("config", "{}: expected a positive temperature, found {}", kPlace, temperature);
  return temperature;
}

Json without_calibration(Json note) {
  note.erase(kCalibrationNote);
  return note;
}

at::Tensor cooled(const at::Tensor& logits, double temperature) {
  return temperature == 1 ? logits : logits / temperature;
}

bool at_bound(const Json& calibration) {
  constexpr double kNear = 1e-3;
  return std::abs(std::log(calibration["temperature"].get<double>())) >
         objective::kTemperatureLogarithm - kNear;
}

void require_place_of_model(const fs::path& folder) {
  if (fs::exists(folder) &&
      !(fs::is_directory(folder) && (fs::is_empty(folder) || fs::exists(folder / "config.json"))))
    throw InputError("usage", "--calibrated {}: there is something that is no model; give another name",
                     folder.string());
}

void require_calibratable(const fs::path& folder) {
  const fs::path file = folder / "config.json";
  if (fs::is_symlink(file))
    throw InputError("usage",
                     "--calibrate: {} is a link into a cache; copy the model to a folder of its own first",
                     file.string());
  if (::access(folder.c_str(), W_OK) != 0)
    throw InputError("usage", "--calibrate: cannot write to {}: {}", folder.string(), errno_text(errno));
}

void keep_calibration(const fs::path& folder, const Json& calibration) {
  const fs::path file = folder / "config.json";
  auto config = parse_json_or_null<OrderedJson>(read_file(file));
  config["funicular"][kCalibrationNote] = calibration;
  write_file_atomically(file, json_text(config, 2) + "\n");
}

Json Decision::over(const model::Pretrained& pretrained, const Task& task) const {
  Json note = pretrained.note().source;
  if (!given()) return note;
  const std::string& kind = task.type().name;
  if ((abstain || abstain_accuracy) && kind != "classes")
    throw InputError("usage", "--abstain works only with one class per text; {} gives {}",
                     pretrained.path().string(), task.type().gives);
  if (threshold && kind != "labels")
    throw InputError("usage", "--threshold works only with several labels per text; {} gives {}",
                     pretrained.path().string(), task.type().gives);
  if (abstain && abstain_accuracy)
    throw InputError("usage", "--abstain and --abstain-accuracy each choose a confidence; give one");
  if (abstain) note[kAbstain] = *abstain;
  if (abstain_accuracy) note[kAbstain] = confidence_for(pretrained, note, *abstain_accuracy);
  if (threshold) note[kThreshold] = *threshold;
  return note;
}

}  // namespace funicular::task
