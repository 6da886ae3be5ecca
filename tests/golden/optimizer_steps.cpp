// Weights after steps of an optimiser in float64, for optimizers.py: each line of standard input is a JSON
// object {optimizer, settings, layers: [{decay, values}], steps: [{rate, gradients}]}, each line of the answer
// the layers' values at the end.

#include <fmt/format.h>
#include <torch/types.h>

#include <iostream>
#include <string>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/optim/optimizer_kind.h"
#include "funicular/parallel/holding/holding.h"

namespace {

using namespace funicular;

optim::SettingValue value_of(const Json& value) {
  if (value.is_array()) return optim::Bounds{value.at(0), value.at(1)};
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_string()) return value.get<std::string>();
  return value.get<double>();
}

optim::OptimizerSpec spec_of(const std::string& name, const Json& settings) {
  optim::OptimizerSpec spec = optim::optimizer_kind(name).defaults();
  for (const auto& [setting, value] : settings.items()) spec.set(setting, value_of(value));
  return spec;
}

at::Tensor tensor_of(const Json& values) {
  return torch::tensor(values.get<std::vector<double>>(), at::kDouble);
}

std::vector<std::vector<double>> run(const Json& test) {
  Model model;
  for (const Json& layer : test.at("layers"))
    model.add_parameter(fmt::format("layer {}", model.parameters.size()), tensor_of(layer.at("values")),
                        layer.at("decay").get<bool>() ? ParameterKind::matrix : ParameterKind::vector);
  parallel::Holding flat(model);
  const auto optimizer = optim::make_optimizer(spec_of(test.at("optimizer"), test.at("settings")));
  optimizer->attach(flat.target());
  int64_t count = 0;
  for (const Json& step : test.at("steps")) {
    for (size_t i = 0; i < model.parameters.size(); ++i)
      model.parameters[i]->gradient.copy_(tensor_of(step.at("gradients").at(i)));
    optimizer->step({.learning_rate = step.at("rate"), .step = ++count});
  }
  std::vector<std::vector<double>> result;
  for (const auto& parameter : model.parameters) {
    const at::Tensor values = parameter->master.detach().contiguous();
    result.emplace_back(values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
  }
  return result;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    fmt::print("{}\n", Json(run(Json::parse(line))).dump());
}
