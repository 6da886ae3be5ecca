#include "funicular/task/calibration.h"

#include <fmt/format.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/base/temporary.h"
#include "funicular/objective/calibration.h"
#include "funicular/task/entity_answers.h"
#include "funicular/task/registry.h"
#include "funicular/task/spans.h"

namespace funicular::task {

namespace {

/// The key of a calibrated copy that names the original model.
constexpr const char* kCopyOf = "copy_of";

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

/// Follows links, and drops a slash at the end.
fs::path resolved(const fs::path& path) {
  const fs::path found = fs::weakly_canonical(fs::absolute(path));
  return found.has_filename() ? found : found.parent_path();
}

/// Whether `path` is `folder` or lies in it.
bool lies_in(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

bool is_copy_of(const fs::path& copy, const fs::path& model) {
  const fs::path file = copy / "config.json";
  if (!fs::is_regular_file(file)) return false;
  const Json config = parse_json_or_null(read_file(file));
  const Json note = config.is_object() ? config.value("funicular", Json()) : Json();
  const Json* const kept = note.is_object() ? calibration_in(note) : nullptr;
  return kept && kept->value(kCopyOf, Json()) == Json(model.string());
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

std::string abstention_table(const OrderedJson& coverage) {
  std::string table = "coverage\taccuracy\tthreshold\n", last;
  const auto share_of = [](const OrderedJson& point) { return point.at("coverage").get<double>(); };
  for (const double wanted : {1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5}) {
    const auto nearest =
        std::min_element(coverage.begin(), coverage.end(), [&](const auto& a, const auto& b) {
          return std::abs(share_of(a) - wanted) < std::abs(share_of(b) - wanted);
        });
    if (nearest == coverage.end()) break;
    const std::string line =
        fmt::format("{:.4f}\t{:.4f}\t{:.4f}\n", share_of(*nearest), nearest->at("accuracy").get<double>(),
                    nearest->at("threshold").get<double>());
    if (line != last) table += line;
    last = line;
  }
  return table;
}

bool at_bound(const Json& calibration) {
  constexpr double kNear = 1e-3;
  return std::abs(std::log(calibration["temperature"].get<double>())) >
         objective::kTemperatureLogarithm - kNear;
}

void require_place_of_copy(const fs::path& copy, const fs::path& model) {
  const fs::path to = resolved(copy), from = resolved(model);
  if (to == from)
    throw InputError("usage",
                     "--calibrated {} is the model itself; expected another folder. Without --calibrated the "
                     "model keeps the temperature",
                     copy.string());
  if (lies_in(to, from) || lies_in(from, to))
    throw InputError("usage", "--calibrated {} {} the model {}; expected a folder beside it", copy.string(),
                     lies_in(to, from) ? "lies in" : "contains", model.string());
  if (!fs::exists(copy) || is_copy_of(copy, from)) return;
  if (!fs::is_directory(copy))
    throw InputError("usage", "--calibrated {} is a file; expected a folder that is new or empty",
                     copy.string());
  if (!fs::is_empty(copy))
    throw InputError("usage",
                     "--calibrated {} holds files already; expected a folder that is new or empty, or an "
                     "earlier calibrated copy of {}. Give another name, or remove the folder",
                     copy.string(), model.string());
}

void write_calibrated_copy(const fs::path& model, const fs::path& copy, Json calibration) {
  const fs::path place = fs::absolute(copy);
  std::vector<fs::path> files;  // listed first, so that the copy is not copied itself
  for (const auto& entry :
       fs::recursive_directory_iterator(model, fs::directory_options::follow_directory_symlink))
    files.push_back(fs::relative(entry.path(), model));
  make_directories(place.parent_path());
  const Temporary making(place, Temporary::Kind::folder);
  for (const fs::path& file : files)
    if (fs::is_directory(model / file))
      fs::create_directory(making.path() / file);
    else
      fs::copy_file(model / file, making.path() / file);
  calibration[kCopyOf] = resolved(model).string();
  keep_calibration(making.path(), calibration);
  if (const fs::path earlier = put_in_place(making.path(), place); !earlier.empty()) fs::remove_all(earlier);
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
  if (!aggregation.empty() && kind != "tags")
    throw InputError("usage", "--aggregation works only with a tag for each word; {} gives {}",
                     pretrained.path().string(), task.type().gives);
  if (n_best && kind != "spans")
    throw InputError("usage", "--n-best works only with spans of a context; {} gives {}",
                     pretrained.path().string(), task.type().gives);
  if (abstain && abstain_accuracy)
    throw InputError("usage", "--abstain and --abstain-accuracy each choose a confidence; give one");
  if (abstain) note[kAbstain] = *abstain;
  if (abstain_accuracy) note[kAbstain] = confidence_for(pretrained, note, *abstain_accuracy);
  if (threshold) note[kThreshold] = *threshold;
  if (!aggregation.empty()) note[kAggregation] = aggregation;
  if (n_best) note[kBestSpans] = *n_best;
  return note;
}

}  // namespace funicular::task
