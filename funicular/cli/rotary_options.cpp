#include "funicular/cli/rotary_options.h"

#include <fmt/format.h>

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
  log::info("rotary positions: base {}, in layers with a window {}; {} positions, were {}",
            bases.full ? fmt::format("{:g}", *bases.full) : "as it was",
            bases.local ? fmt::format("{:g}", *bases.local) : "as it was",
            pretrained.config().encoder.positions.rows, before);
}

std::string RotaryOptions::identity() const {
  const auto text = [](const std::optional<double>& base) {
    return base ? fmt::format("{}", *base) : std::string("the model's");
  };
  return bases.any() ? fmt::format("{}, local {}", text(bases.full), text(bases.local)) : "";
}

}  // namespace funicular::cli
