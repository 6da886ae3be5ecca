#include "funicular/task/average.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/format/weight_files.h"
#include "funicular/model/class_names.h"
#include "funicular/model/own_decoder.h"
#include "funicular/model/pretrained.h"
#include "funicular/model/tensor_file.h"
#include "funicular/objective/multi_label.h"
#include "funicular/task/calibration.h"

namespace funicular::task {

namespace {

constexpr const char* kWeights = "model.safetensors";

/// Throws InputError unless the models compute and answer alike.
void require_alike(const model::Pretrained& first, const model::Pretrained& other) {
  const auto refuse = [&](const char* what, const std::string& a, const std::string& b) {
    throw InputError("average", "{} and {} have different {}: {}, and {}; expected models of one kind",
                     first.path().string(), other.path().string(), what, a, b);
  };
  const std::string a = model::describe_model(first.config()), b = model::describe_model(other.config());
  if (a != b) refuse("sizes", a, b);
  const std::vector<std::string> own = model::class_names(first.config()),
                                 theirs = model::class_names(other.config());
  if (own != theirs)
    refuse("labels", fmt::format("{}", fmt::join(own, ", ")), fmt::format("{}", fmt::join(theirs, ", ")));
  const auto fingerprint = [](const model::Pretrained& model) { return model.tokenizer()->fingerprint(); };
  if (fingerprint(first) != fingerprint(other)) refuse("tokenisers", "one vocabulary", "another");
}

/// Throws InputError if weights lie in other files too, such as exits or the modules of an embedder.
void require_one_file(const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".safetensors" && entry.path() != folder / kWeights)
      throw InputError("average", "{}: weights lie in {}, too; expected {} alone", folder.string(),
                       fs::relative(entry.path(), folder).string(), kWeights);
}

class Sums {
 public:
  void add(const fs::path& folder) {
    const format::WeightFiles files(folder);
    std::map<std::string, at::Tensor> found;
    for (const format::TensorEntry* entry : files.entries()) {
      const auto type = model::scalar_type(entry->dtype);
      if (!type)
        throw InputError("average", "{}: {} has the type {}; expected F32, F16, BF16 or F64",
                         files.path().string(), entry->name, format::dtype_name(entry->dtype));
      found[entry->name] = model::tensor_of(*entry, *type).to(at::kDouble);
    }
    for (const auto& [name, tensor] : found) {
      const auto sum = sums_.find(name);
      if (models_ > 0 && (sum == sums_.end() || sum->second.sizes() != tensor.sizes()))
        throw InputError("average", "{}: the weight {} is another one than in the first model",
                         files.path().string(), name);
      if (models_ == 0)
        sums_[name] = tensor;
      else
        sum->second += tensor;
    }
    if (found.size() != sums_.size())
      throw InputError("average", "{}: expected {} weights as in the first model, found {}",
                       files.path().string(), sums_.size(), found.size());
    ++models_;
  }

  std::map<std::string, at::Tensor> means() const {
    std::map<std::string, at::Tensor> means;
    for (const auto& [name, sum] : sums_)
      means[name] = (sum / static_cast<double>(models_)).to(at::kFloat).contiguous();
    return means;
  }

 private:
  std::map<std::string, at::Tensor> sums_;
  int64_t models_ = 0;
};

/// Leaves out what is true of one model alone.
void write_config(const fs::path& from, const fs::path& to, const std::vector<fs::path>& models) {
  Json config = read_json(from / "config.json");
  config["dtype"] = "float32";
  config.erase("torch_dtype");
  Json& note = config["funicular"];
  for (const char* key : {kCalibrationNote, objective::kThresholds})
    if (note.is_object() && note.erase(key) > 0)
      log::info("the average has no {} yet; funicular evaluate finds them", key);
  std::vector<std::string> names;
  for (const fs::path& model : models) names.push_back(model.string());
  note["average_of"] = names;
  write_file_atomically(to / "config.json", json_text(config, 2) + "\n");
}

}  // namespace

void average_models(const std::vector<fs::path>& models, const fs::path& output) {
  if (models.size() < 2)
    throw InputError("usage", "expected two models or more to average, found {}", models.size());
  if (fs::exists(output) && !(fs::is_directory(output) && fs::is_empty(output)))
    throw InputError("usage", "--output {}: there is something already; give another name", output.string());
  Sums sums;
  const model::Pretrained first(models.front());
  for (const fs::path& folder : models) {
    if (folder != models.front()) require_alike(first, model::Pretrained(folder));
    require_one_file(folder);
    sums.add(folder);
  }
  make_directories(output);
  for (const auto& entry : fs::directory_iterator(models.front()))
    if (entry.is_regular_file() && entry.path().filename() != kWeights &&
        entry.path().filename() != "config.json")
      fs::copy_file(entry.path(), output / entry.path().filename());
  write_config(models.front(), output, models);
  model::write_tensors(sums.means(), output / kWeights);
}

}  // namespace funicular::task
