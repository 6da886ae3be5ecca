#include "funicular/cli/rotary_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "funicular/base/log.h"

namespace funicular::cli {

void RotaryOptions::declare(Arguments& arguments) {
  arguments
      .add("rope-theta", "BASE", bases.full, Effect::result,
           "base of the rotary positions of layers that see all tokens, for a stage with longer sequences: "
           "--max-length may then exceed the model's positions")
      .default_text("the model's")
      .range(1, model::RotaryBases::kMost);
  arguments
      .add("local-rope-theta", "BASE", bases.local, Effect::result,
           "base of the rotary positions of layers that see a window of tokens")
      .default_text("the model's")
      .range(1, model::RotaryBases::kMost);
}

void RotaryOptions::apply(model::Pretrained& pretrained, int64_t max_length) const {
  if (!bases.any()) return;
  const int64_t before = pretrained.config().encoder.positions.rows;
  pretrained.set_rotary(bases, max_length);
  std::vector<std::string> changes;
  if (bases.full) changes.push_back(fmt::format("base {}", *bases.full));
  if (bases.local) changes.push_back(fmt::format("base {} in layers with a window", *bases.local));
  if (const int64_t after = pretrained.config().encoder.positions.rows; after != before)
    changes.push_back(fmt::format("{} positions instead of {}", after, before));
  log::info("rotary positions: {}", fmt::join(changes, ", "));
}

std::string RotaryOptions::identity() const {
  const auto text = [](const std::optional<double>& base) {
    return base ? fmt::format("{}", *base) : std::string("the model's");
  };
  return bases.any() ? fmt::format("{}, local {}", text(bases.full), text(bases.local)) : "";
}

}  // namespace funicular::cli
