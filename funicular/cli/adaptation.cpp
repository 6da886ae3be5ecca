#include "funicular/cli/adaptation.h"

#include <fmt/format.h>

#include <initializer_list>

#include "funicular/base/error.h"
#include "funicular/base/log.h"

namespace funicular::cli {

namespace {

struct Recipe {
  const char* name;
  int64_t batch_size;
  int64_t max_steps;  ///< 0: by epochs
  double epochs;
  double learning_rate;
};

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = {
      {"dapt", 2048, 12500, 0, 5e-4},
      {"tapt", 256, 0, 100, 1e-4},
  };
  return all;
}

const Recipe& recipe_of(const std::string& name) {
  for (const Recipe& recipe : recipes())
    if (recipe.name == name) return recipe;
  throw InputError("usage", "--recipe {} is unknown", name);
}

}  // namespace

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) names.emplace_back(recipe.name);
  return names;
}

void apply_recipe(const std::string& name, const Arguments& arguments, TrainingOptions& training) {
  const Recipe& recipe = recipe_of(name);
  // Options that set the same thing in different ways: if one is given, the recipe sets none.
  const auto open = [&](std::initializer_list<const char*> options) {
    for (const char* option : options)
      if (arguments.given(option)) return false;
    return true;
  };
  const bool both = arguments.given("micro-batch-size") && arguments.given("gradient-accumulation-steps");
  if (open({"batch-size", "tokens-per-batch"}) && !both) training.run.batch_size = recipe.batch_size;
  if (open({"max-steps", "num-train-epochs"})) {
    training.run.max_steps = recipe.max_steps;
    training.run.num_train_epochs = recipe.epochs;
  }
  if (open({"learning-rate"})) training.learning_rate = recipe.learning_rate;
  if (open({"lr-scheduler-type"})) training.run.schedule.kind = optim::ScheduleKind::linear;
  if (open({"warmup-steps", "warmup-ratio"})) training.run.schedule.warmup_ratio = 0.06;
  if (open({"optim"})) training.optim = "adamw";
  for (const auto& [option, value] :
       {std::pair("adam-beta1", 0.9), {"adam-beta2", 0.98}, {"adam-epsilon", 1e-6}})
    if (open({option})) training.optimizer_settings.preset(option, value);
  if (open({"weight-decay"})) training.weight_decay = 0.01;
  const std::string length = training.run.max_steps > 0 ? fmt::format("{} steps", training.run.max_steps)
                             : training.run.num_train_epochs > 0
                                 ? fmt::format("{:g} epochs", training.run.num_train_epochs)
                                 : "3 epochs";
  log::info(
      "recipe {}: {}, a batch of {}, learning rate {:g}; options that are written take the place of its own",
      name, length,
      training.run.batch_size > 0 ? fmt::format("{}", training.run.batch_size) : "your own size",
      training.learning_rate);
}

}  // namespace funicular::cli
