#include "funicular/cli/option_effects.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

namespace funicular::cli {

namespace {

struct Effects {
  using enum Effect;

  /// "OPTION" of every command, or "COMMAND OPTION" where it is another thing there.
  static constexpr std::pair<std::string_view, Effect> kRows[] = {
      // What is read and made.
      {"model", input},
      {"data", input},
      {"eval-data", input},
      {"train", input},
      {"eval", input},
      {"input", input},
      {"teacher", input},
      {"student", input_or_name},
      {"generator", input_or_name},
      {"tokenizer", tokenizer},
      {"word-refs", input},
      {"verify", input},
      {"lexicon", input},
      {"word-dictionary", input},
      {"word-weights", input},
      {"similar-words", input},
      {"vectors", input},
      {"stop-words", input},
      {"models", input},
      {"vocabulary words", input},
      {"replay-interleaving", input},
      {"output", output},
      {"predictions", output},
      {"record-interleaving", output},
      {"record-passes", output},

      // Other values give the same result up to rounding: sums are cut otherwise, or added up in another order.
      {"micro-batch-tokens", rounding},
      {"eval-batch-size", rounding},
      {"device", rounding},
      {"use-cpu", rounding},
      {"threads", rounding},
      {"devices", rounding},
      {"data-parallel", rounding},
      {"tensor-parallel", rounding},
      {"zero", rounding},
      {"sequence-parallel", rounding},
      {"window", rounding},
      {"vectors window", result},
      // Variants are words, which rounding can change; augment starts over if one of these has another value.
      {"augment micro-batch-tokens", result},
      {"augment device", result},
      {"augment use-cpu", result},
      // No sum depends on how many threads share this work.
      {"tokenize threads", none},
      {"vectors threads", none},
      {"augment threads", none},

      // Other values give the same bits; only time, memory and the number of messages differ.
      {"logging-steps", none},
      {"save-steps", none},  // but with schedules of PipeDream: see StepReader::take_saves() in chain.cpp
      {"save-total-limit", none},
      {"recompute", none},
      {"gradient-checkpointing", none},
      {"num-workers", none},
      {"debug-collectives", none},
      {"interface", none},
      {"offload-optimizer", none},
      {"vectors-cache", none},
      {"cache-teacher", presence},  // a cache keeps layers in bf16
      {"overwrite", none},
      {"config", none},  // what is in the file counts as if it stood in the step

      // With schedules that update weights while the pipeline is full each of these gives other weights.
      {"pipeline-parallel", result},
      {"schedule", result},
      {"stages-per-rank", result},
      {"stages", result},

      // Data, and how its files look.
      {"task", result},
      {"text-column", result},
      {"label-column", result},
      {"label-type", result},
      {"label-names", result},
      {"label-separator", result},
      {"format", result},
      {"header", result},
      {"encoding", result},
      {"quotes", result},
      {"regression", result},
      {"multi-label", result},
      {"words", result},
      {"output-format", result},
      {"size", result},
      {"min-count", result},
      {"lower-case", result},
      {"count", result},
      {"least-times", result},
      {"least-pieces", result},
      {"skip-bad-words", result},
      {"data-weights", result},
      {"skip-bad-rows", result},
      {"separate-columns", result},
      {"pairs", result},
      {"eval-fraction", result},
      {"max-length", result},
      {"truncation", result},

      // What is learnt.
      {"objective", result},
      {"generator-size", result},
      {"keep-generator", result},
      {"freeze-encoder-steps", result},
      {"head-learning-rate", result},
      {"mlm-probability", result},
      {"masking", result},
      {"whole-words", result},
      {"ngram-shares", result},
      {"replacement", result},
      {"similar-count", result},
      {"similar-vocabulary", result},
      {"compat", result},
      {"pack-sentences", result},
      {"static-masks", result},
      {"class-weights", result},
      {"label-smoothing", result},
      {"stage", result},
      {"soft-columns", result},
      {"init-layers", result},
      {"terms", result},
      {"layer-map", result},
      {"temperature", result},
      {"soft-mean", result},
      {"relation-heads", result},
      {"relation-layer", result},
      {"teacher-precision", result},
      {"recipe", result},
      {"candidates", result},
      {"probability", result},
      {"variants", result},
      {"negatives", result},
      {"epochs", result},

      // How it is learnt.
      {"batch-size", result},
      {"micro-batch-size", result},
      {"gradient-accumulation-steps", result},
      {"max-steps", result},
      {"num-train-epochs", result},
      {"shuffle", result},
      {"drop-last", result},
      {"optim", result},
      {"learning-rate", result},
      {"weight-decay", result},
      {"lr-scheduler-type", result},
      {"warmup-steps", result},
      {"warmup-ratio", result},
      {"max-grad-norm", result},
      {"eval-steps", result},
      {"patience", result},
      {"metric-for-best-model", result},
      {"resume", result},
      {"precision", result},
      {"bf16", result},
      {"fp16", result},
      {"loss-scale", result},
      {"initial-loss-scale", result},
      {"min-loss-scale", result},
      {"loss-scale-window", result},
      {"hysteresis", result},
      {"seed", result},
      {"strategy", result},  // that of workers which do not wait for each other has another result
      {"servers", result},
      {"staleness", result},
      {"deterministic", result},
      {"reduce-precision", result},

      // What is told of it.
      {"details", result},
      {"show", result},
      {"examples", result},
      {"sequences", result},
      {"json", result},
      {"title", result},
  };
};

constexpr std::string_view kOfThisMachine =
    "it measures or checks this machine and makes nothing; run it by itself";
constexpr std::pair<std::string_view, std::string_view> kNoSteps[] = {
    {"chain", "a chain is no step of another; put its steps into this file"},
    {"launch", "ranks = N beside command starts a step as several processes"},
    {"completion", "it is for a shell"},
    {"vocabulary", "its first word, propose or extend, is no option; run it by itself"},
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

std::optional<Effect> effect_of(std::string_view command, std::string_view option) {
  static const std::map<std::string_view, Effect> kEffects(std::begin(Effects::kRows),
                                                           std::end(Effects::kRows));
  const std::string own = fmt::format("{} {}", command, option);
  for (const std::string_view wanted : {std::string_view(own), option})
    if (const auto found = kEffects.find(wanted); found != kEffects.end()) return found->second;
  return std::nullopt;
}

std::string_view why_no_step(std::string_view command) {
  for (const auto& [name, reason] : kNoSteps)
    if (name == command) return reason;
  return {};
}

}  // namespace funicular::cli
