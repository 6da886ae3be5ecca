#include "funicular/task/average.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/base/temporary.h"
#include "funicular/format/safetensors_writer.h"
#include "funicular/format/sentence_folder.h"
#include "funicular/format/weight_files.h"
#include "funicular/model/class_names.h"
#include "funicular/model/own_decoder.h"
#include "funicular/model/pretrained.h"
#include "funicular/objective/multi_label.h"
#include "funicular/task/calibration.h"

namespace funicular::task {

namespace {

constexpr const char* kWeights = "model.safetensors";

/// The JSON files that define how a sentence folder makes a vector, by name; empty: no sentence folder.
std::map<std::string, Json> modules_of(const fs::path& folder) {
  std::map<std::string, Json> found;
  if (!format::is_sentence_folder(folder)) return found;
  const Json modules = read_json(folder / "modules.json");
  found["modules.json"] = modules;
  for (const Json& module : modules)
    if (const auto name = module.value("path", std::string());
        !name.empty() && fs::is_directory(folder / name))
      for (const auto& entry : fs::directory_iterator(folder / name))
        if (entry.path().extension() == ".json")
          found[fs::relative(entry.path(), folder).string()] = read_json(entry.path());
  return found;
}

/// Whether the classifier reads one or two texts, and which rows of hidden states it reads.
std::string describe_texts(const model::Pretrained& model) {
  return fmt::format("task \"{}\" with {} text column(s), of which the classifier reads the {}",
                     model.note().task, model.note().text_columns,
                     model.config().classifies_mean ? "mean of the tokens" : "first token");
}

std::string shown(const std::string& text) {
  return text.empty() ? "none" : text;
}

/// Throws InputError unless the models have the same computation and the same answers.
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
  if (first.config().problem_type != other.config().problem_type)
    refuse("problem types", shown(first.config().problem_type), shown(other.config().problem_type));
  if (first.config().architectures != other.config().architectures)
    refuse("architectures", shown(fmt::format("{}", fmt::join(first.config().architectures, ", "))),
           shown(fmt::format("{}", fmt::join(other.config().architectures, ", "))));
  if (describe_texts(first) != describe_texts(other))
    refuse("inputs", describe_texts(first), describe_texts(other));
  if (modules_of(first.path()) != modules_of(other.path()))
    refuse("poolings or modules", "one modules.json", "another");
}

/// Throws InputError if other files also have weights, such as exits or an embedder's modules.
void require_one_file(const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".safetensors" && entry.path() != folder / kWeights)
      throw InputError("average", "{}: weights lie in {}, too; expected {} alone", folder.string(),
                       fs::relative(entry.path(), folder).string(), kWeights);
}

/// A tensor that is not a weight, such as the position ids of older versions of transformers.
struct Constant {
  format::TensorDeclaration declaration;
  std::vector<std::byte> data;
};

class Sums {
 public:
  void add(const fs::path& folder) {
    const format::WeightFiles files(folder);
    std::map<std::string, at::Tensor> found;
    for (const format::TensorEntry* entry : files.entries())
      if (const auto type = model::scalar_type(entry->dtype))
        found[entry->name] = model::tensor_of(*entry, *type).to(at::kDouble);
      else
        add_constant(*entry, files.path());
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

  /// Writes the means in fp32, and each constant unchanged.
  void write(const fs::path& file) const {
    std::vector<format::TensorDeclaration> declarations;
    for (const auto& [name, sum] : sums_)
      declarations.push_back({name, format::DType::F32, sum.sizes().vec()});
    for (const auto& [name, constant] : constants_) declarations.push_back(constant.declaration);
    format::SafetensorsWriter writer(file, std::move(declarations));
    for (const format::TensorDeclaration& tensor : writer.order()) {
      if (const auto constant = constants_.find(tensor.name); constant != constants_.end()) {
        writer.write(tensor.name, constant->second.data);
        continue;
      }
      const at::Tensor mean =
          (sums_.at(tensor.name) / static_cast<double>(models_)).to(at::kFloat).contiguous();
      writer.write(tensor.name,
                   {static_cast<const std::byte*>(mean.data_ptr()), static_cast<size_t>(mean.nbytes())});
    }
    writer.close();
  }

 private:
  void add_constant(const format::TensorEntry& entry, const fs::path& file) {
    if (models_ == 0)
      constants_[entry.name] = {{entry.name, entry.dtype, entry.shape},
                                {entry.data.begin(), entry.data.end()}};
    const auto known = constants_.find(entry.name);
    if (known == constants_.end() || known->second.declaration.dtype != entry.dtype ||
        !std::ranges::equal(known->second.data, entry.data))
      throw InputError("average",
                       "{}: {} has the type {} and differs from the first model's; expected numbers of F32, "
                       "F16, BF16 or F64, or the same values in all models. Save the models again with "
                       "transformers to leave it out",
                       file.string(), entry.name, format::dtype_name(entry.dtype));
  }

  std::map<std::string, at::Tensor> sums_;
  std::map<std::string, Constant> constants_;
  int64_t models_ = 0;
};

/// Removes entries that hold for only one model.
void write_config(const fs::path& from, const fs::path& to, const std::vector<fs::path>& models) {
  Json config = read_json(from / "config.json");
  config["dtype"] = "float32";
  config.erase("torch_dtype");
  Json& note = config["funicular"];
  if (note.is_object() && note.erase(kCalibrationNote) > 0)
    log::info("the average is not calibrated; funicular evaluate --calibrate finds its temperature");
  if (note.is_object() && note.erase(objective::kThresholds) > 0)
    log::info(
        "the average gives each label from the probability 0.5 on; funicular predict --threshold changes "
        "that");
  std::vector<std::string> names;
  for (const fs::path& model : models) names.push_back(model.string());
  note["average_of"] = names;
  write_file_atomically(to / "config.json", json_text(config, 2) + "\n");
}

/// Whether the file has one model's weights in another format.
bool holds_weights(const fs::path& file) {
  static const std::set<std::string> kEndings{".safetensors", ".bin", ".pt",      ".pth",
                                              ".onnx",        ".h5",  ".msgpack", ".ot"};
  return kEndings.contains(file.extension().string());
}

/// Copies the first model's other files, and the folders of its modules.
void copy_files(const fs::path& from, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(from))
    if (entry.is_regular_file() && !holds_weights(entry.path()) && entry.path().filename() != "config.json")
      fs::copy_file(entry.path(), to / entry.path().filename());
  if (!format::is_sentence_folder(from)) return;
  for (const Json& module : read_json(from / "modules.json")) {
    const auto name = module.value("path", std::string());
    if (!name.empty() && fs::is_directory(from / name))
      fs::copy(from / name, to / name, fs::copy_options::recursive);
  }
}

void warn_of_repeated(const std::vector<fs::path>& models) {
  std::error_code ignored;
  for (size_t at = 0; at < models.size(); ++at)
    for (size_t earlier = 0; earlier < at; ++earlier)
      if (fs::equivalent(models[at], models[earlier], ignored))
        return log::warning("{} is given twice, so its weights count twice", models[at].string());
}

}  // namespace

void require_place_for_average(const fs::path& output) {
  if (fs::exists(output) && !(fs::is_directory(output) && fs::is_empty(output)))
    throw InputError("usage",
                     "--output {} exists already; expected a folder that is new or empty. Give another name, "
                     "or remove it",
                     output.string());
}

void average_models(const std::vector<fs::path>& models, const fs::path& output) {
  require_place_for_average(output);
  warn_of_repeated(models);
  Sums sums;
  const model::Pretrained first(models.front());
  for (const fs::path& folder : models) {
    if (folder != models.front()) require_alike(first, model::Pretrained(folder));
    require_one_file(folder);
    sums.add(folder);
  }
  const fs::path place = fs::absolute(output);
  make_directories(place.parent_path());
  const Temporary making(place, Temporary::Kind::folder);
  copy_files(models.front(), making.path());
  write_config(models.front(), making.path(), models);
  sums.write(making.path() / kWeights);
  if (const fs::path earlier = put_in_place(making.path(), place); !earlier.empty()) fs::remove_all(earlier);
}

}  // namespace funicular::task
