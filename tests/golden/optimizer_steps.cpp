// Weights after steps of LAMB and LARS in float64, for optimizers.py: each line of standard input is a JSON
// object {optimizer, options, layers: [{decay, values}], steps: [{rate, gradients}]}, each line of the answer
// the layers' values at the end.

#include <fmt/format.h>
#include <torch/types.h>

#include <iostream>
#include <string>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/core/flat_parameters.h"
#include "funicular/optim/optimizer.h"

namespace {

using namespace funicular;

optim::OptimizerSpec spec_of(const std::string& name, const Json& options) {
  const auto convention =
      options.at("all_layers").get<bool>() ? optim::TrustRatio::paper : optim::TrustRatio::apex;
  if (name == "lamb")
    return optim::Lamb{.beta1 = options.at("beta1"),
                       .beta2 = options.at("beta2"),
                       .epsilon = options.at("epsilon"),
                       .weight_decay = options.at("weight_decay"),
                       .bias_correction = options.at("bias_correction"),
                       .trust_ratio = convention,
                       .trust_bounds = {0, options.at("highest_ratio")}};
  return optim::Lars{.trust_coefficient = options.at("trust_coefficient"),
                     .momentum = options.at("momentum"),
                     .nesterov = options.at("nesterov"),
                     .weight_decay = options.at("weight_decay"),
                     .epsilon = options.at("epsilon"),
                     .rate_in_momentum = false,
                     .trust_ratio = convention,
                     .clip = options.at("clip")};
}

at::Tensor tensor_of(const Json& values) {
  return torch::tensor(values.get<std::vector<double>>(), at::kDouble);
}

std::vector<std::vector<double>> run(const Json& test) {
  Model model;
  for (const Json& layer : test.at("layers"))
    model.add_parameter(fmt::format("layer {}", model.parameters.size()), tensor_of(layer.at("values")),
                        layer.at("decay").get<bool>() ? ParameterKind::matrix : ParameterKind::vector);
  FlatParameters flat(model);
  const auto optimizer = optim::make_optimizer(spec_of(test.at("optimizer"), test.at("options")));
  optimizer->attach(flat);
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
