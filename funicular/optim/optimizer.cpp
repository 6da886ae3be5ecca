#include "funicular/optim/optimizer.h"

#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "funicular/base/error.h"
#include "funicular/optim/flat_update.h"
#include "funicular/optim/optimizer_kind.h"

namespace funicular::optim {

void check_updatable(const UpdateTarget& target) {
  const at::Tensor& master = target.matrix_master;
  const bool here = master.is_cpu() || master.is_cuda();
  if (!here || (master.scalar_type() != at::kFloat && master.scalar_type() != at::kDouble))
    throw InputError("optimizer",
                     "expected parameters of type Float or Double on the CPU or CUDA, found {} on {}",
                     c10::toString(master.scalar_type()), master.device().str());
}

at::Tensor make_state(const UpdateTarget& target) {
  const at::TensorOptions options = target.matrix_master.options().requires_grad(false);
  return target.make_state ? target.make_state(target.state_size, options)
                           : at::zeros({target.state_size}, options);
}

const std::vector<const OptimizerKind*>& optimizer_kinds() {
#define FUNICULAR_KIND(Settings) &Settings::kind(),
  static const std::vector<const OptimizerKind*> kinds{FUNICULAR_OPTIMIZERS(FUNICULAR_KIND)};
#undef FUNICULAR_KIND
  return kinds;
}

const OptimizerKind& optimizer_kind(std::string_view name) {
  for (const OptimizerKind* kind : optimizer_kinds())
    if (kind->name == name) return *kind;
  throw InputError("optimizer", "unknown optimiser \"{}\"; expected one of: {}", name,
                   fmt::join(optimizer_names(), ", "));
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerKind* kind : optimizer_kinds()) names.push_back(kind->name);
  return names;
}

OptimizerSpec usual_optimizer(std::string_view name) {
  const OptimizerKind& kind = optimizer_kind(name);
  OptimizerSpec spec = kind.defaults();
  for (const Setting& setting : kind.settings)
    if (setting.usual) spec.set(setting.name, *setting.usual);
  return spec;
}

const Setting& OptimizerKind::setting(std::string_view wanted) const {
  for (const Setting& each : settings)
    if (each.name == wanted) return each;
  throw std::out_of_range(fmt::format("{} has no setting {}", name, wanted));
}

SettingValue OptimizerSpec::get(std::string_view name) const {
  return kind_->setting(name).get(settings_.get());
}

void OptimizerSpec::set(std::string_view name, const SettingValue& value) {
  settings_ = kind_->copy(settings_.get());
  kind_->setting(name).set(settings_.get(), value);
}

void OptimizerSpec::check() const {
  for (const Setting& setting : kind_->settings) setting.check(settings_.get(), "optimizer", kind_->name);
  kind_->check(settings_.get());
}

std::vector<std::string> OptimizerSpec::states() const {
  return kind_->states(settings_.get());
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec) {
  spec.check();
  return spec.kind_->make(spec.settings_.get());
}

double peak_learning_rate(const OptimizerSpec& spec) {
  return std::get<double>(spec.get("learning_rate"));
}

const std::string& optimizer_name(const OptimizerSpec& spec) {
  return spec.kind().name;
}

OrderedJson describe(const OptimizerSpec& spec) {
  OrderedJson description = {{"name", optimizer_name(spec)}};
  for (const Setting& setting : spec.kind().settings)
    description[setting.name] = to_json(spec.get(setting.name));
  return description;
}

}  // namespace funicular::optim
