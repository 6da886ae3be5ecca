#include "funicular/cli/option_effects.h"

#include <utility>

namespace funicular::cli {

namespace {

constexpr std::string_view kOfThisMachine =
    "it measures or checks this machine and makes nothing; run it by itself";
constexpr std::pair<std::string_view, std::string_view> kNoSteps[] = {
    {"chain", "a chain is no step of another; put its steps into this file"},
    {"launch", "ranks = N beside command starts a step as several processes"},
    {"completion", "it is for a shell"},
    {"vocabulary", "its first word, propose, extend or train, is no option; run it by itself"},
    {"doctor", kOfThisMachine},
    {"bench", kOfThisMachine},
    {"prove", kOfThisMachine},
    {"plan", kOfThisMachine},
};

}  // namespace

const char* name_of(Effect effect) {
  switch (effect) {
    case Effect::result:
      return "result";
    case Effect::rounding:
      return "rounding";
    case Effect::none:
      return "none";
    case Effect::presence:
      return "presence";
    case Effect::input:
      return "input";
    case Effect::tokenizer:
      return "tokenizer";
    case Effect::input_or_name:
      return "input or name";
    case Effect::output:
      return "output";
  }
  return "";
}

std::string_view why_no_step(std::string_view command) {
  for (const auto& [name, reason] : kNoSteps)
    if (name == command) return reason;
  return {};
}

}  // namespace funicular::cli
