#include "funicular/task/projection.h"

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/log.h"
#include "funicular/format/safetensors_writer.h"
#include "funicular/format/weight_files.h"
#include "funicular/model/own_decoder.h"
#include "funicular/objective/distillation_terms.h"

namespace funicular::task {

namespace {

constexpr std::array<const char*, 2> kParts{"weight", "bias"};

std::string name_in_file(const char* part) {
  return std::string(kPublishedProjection) + part;
}

Parameter* parameter_of(const Model& model, const char* part) {
  return model.find(std::string(objective::kDistillation) + "projection." + part);
}

const format::TensorEntry* find(const format::WeightFiles& files, const std::string& name) {
  for (const format::TensorEntry* entry : files.entries())
    if (entry->name == name) return entry;
  return nullptr;
}

void copy(const format::TensorEntry& entry, const fs::path& file, Parameter& parameter) {
  const auto type = model::scalar_type(entry.dtype);
  if (!type || entry.shape != parameter.master.sizes().vec())
    throw InputError("weights", "{}: {} is {} of [{}]; expected numbers of 16, 32 or 64 bits, [{}]",
                     file.string(), entry.name, format::dtype_name(entry.dtype), fmt::join(entry.shape, ", "),
                     fmt::join(parameter.master.sizes(), ", "));
  const at::Tensor value = model::tensor_of(entry, *type);
  if (!at::isfinite(value).all().item<bool>())
    throw InputError("weights", "{}: {} holds NaN or infinite values; take another copy, or remove the file",
                     file.string(), entry.name);
  parameter.master.copy_(value);
}

}  // namespace

KeptProjection::KeptProjection(const fs::path& folder) {
  std::error_code ignored;
  own_file_ = fs::exists(folder / kProjectionFile, ignored);
  if (own_file_) {
    file_ = folder / kProjectionFile;
    shape_ = format::SafetensorsFile(file_).at(name_in_file("weight")).shape;
  } else if (fs::is_directory(folder, ignored) && format::has_weight_files(folder)) {
    const format::WeightFiles files(folder);
    const format::TensorEntry* const weight = find(files, name_in_file("weight"));
    if (!weight || !find(files, name_in_file("bias"))) return;
    file_ = files.path_of(*weight);
    shape_ = weight->shape;
  }
}

void KeptProjection::note(std::map<std::string, std::string>& identity) const {
  if (own_file_) identity["projection"] = hash_text(hash_file(file_));
}

void KeptProjection::load_student(const model::Pretrained& folder, Model& model, bool starts_anew) const {
  folder.load(model, starts_anew, model::classes_layer(folder.config()), model::Head::classification,
              found() ? objective::kDistillation : "", kPublishedProjection);
  if (starts_anew) load(model);
}

void KeptProjection::load(Model& model) const {
  const Parameter* const weight = parameter_of(model, "weight");
  if (!found() || !weight) return;
  if (shape_ != weight->master.sizes().vec()) {
    log::info("{}: its projection is [{}], and this student and teacher need [{}]; a new one is learnt",
              file_.string(), fmt::join(shape_, ", "), fmt::join(weight->master.sizes(), ", "));
    return;
  }
  const at::NoGradGuard no_gradient;
  for (const char* part : kParts) {
    Parameter& parameter = *parameter_of(model, part);
    if (own_file_) {
      const format::SafetensorsFile file(file_);
      copy(file.at(name_in_file(part)), file_, parameter);
    } else {
      const format::WeightFiles files(file_.parent_path());
      copy(*find(files, name_in_file(part)), file_, parameter);
    }
  }
  log::info("the projection of {} is continued", file_.string());
}

void save_projection(const Model& model, const fs::path& folder) {
  if (!parameter_of(model, "weight")) return;
  std::vector<format::TensorDeclaration> declarations;
  for (const char* part : kParts)
    declarations.push_back(
        {name_in_file(part), format::DType::F32, parameter_of(model, part)->master.sizes().vec()});
  format::SafetensorsWriter writer(folder / kProjectionFile, std::move(declarations));
  for (const char* part : kParts) {
    const at::Tensor value = parameter_of(model, part)->master.detach().to(at::kCPU, at::kFloat).contiguous();
    writer.write(name_in_file(part),
                 {static_cast<const std::byte*>(value.data_ptr()), static_cast<size_t>(value.nbytes())});
  }
  writer.close();
}

}  // namespace funicular::task
