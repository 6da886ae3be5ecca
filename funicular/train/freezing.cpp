#include "funicular/train/freezing.h"

#include <algorithm>

#include "funicular/base/error.h"

namespace funicular::train {

namespace {

bool matches(const std::string& name, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& prefix) { return name.starts_with(prefix); });
}

void check_prefixes(const Model& model, const std::vector<std::string>& prefixes) {
  std::vector<std::string> names;
  for (const auto& parameter : model.parameters) names.push_back(parameter->name);
  for (const std::string& prefix : prefixes) {
    if (std::any_of(names.begin(), names.end(),
                    [&](const std::string& name) { return name.starts_with(prefix); }))
      continue;
    const std::string near = nearest(prefix, names.data(), names.data() + names.size());
    throw InputError("trainer", "no parameter's name begins with \"{}\"; {} is one of the names", prefix,
                     near.empty() ? names.empty() ? "none" : names.front() : near);
  }
}

void set(Parameter& parameter, bool learns) {
  parameter.trainable = learns;
  parameter.compute.set_requires_grad(learns);
  if (!learns) {
    parameter.compute.mutable_grad().reset();
    parameter.gradient.reset();
  }
}

}  // namespace

Freezing::Freezing(Model& model, const std::vector<std::string>& trainable,
                   const std::vector<std::string>& frozen) {
  check_prefixes(model, trainable);
  check_prefixes(model, frozen);
  for (const auto& parameter : model.parameters) {
    before_.push_back({parameter.get(), parameter->trainable});
    const bool learns = parameter->trainable && (trainable.empty() || matches(parameter->name, trainable)) &&
                        !matches(parameter->name, frozen);
    set(*parameter, learns);
  }
}

Freezing::~Freezing() {
  for (const auto& [parameter, trainable] : before_) set(*parameter, trainable);
}

}  // namespace funicular::train
