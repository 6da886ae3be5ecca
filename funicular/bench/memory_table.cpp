#include "funicular/bench/memory_table.h"

#include <fmt/format.h>

#include <utility>

namespace funicular::bench {

namespace {

std::string heading() {
  return fmt::format("{:<63}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "peak memory in MB", "weights",
                     "gradients", "optimiser", "activations", "workspace", "together");
}

/// A name that is too long stands on a line of its own.
std::string first_column(const std::string& name) {
  constexpr size_t kWidth = 52;
  return name.size() < kWidth ? fmt::format("{:<{}}", name, kWidth)
                              : fmt::format("{}\n{:<{}}", name, "", kWidth);
}

std::string cells(const std::string& name, const StepMemory& memory) {
  std::string text = fmt::format("{:<11}", name);
  for (const int64_t bytes : {memory.weights, memory.gradients, memory.optimizer, memory.activations,
                              memory.workspace, memory.peak()})
    text += fmt::format("{:>12.1f}", static_cast<double>(bytes) / 1e6);
  return text + "\n";
}

}  // namespace

OrderedJson to_json(const StepMemory& memory) {
  return {{"weights", memory.weights},     {"gradients", memory.gradients},
          {"optimizer", memory.optimizer}, {"activations", memory.activations},
          {"workspace", memory.workspace}, {"gathered", memory.gathered},
          {"peak", memory.peak()}};
}

MemoryRow measure_case(const std::function<Model()>& make_model, const MemoryCase& settings,
                       const Rows& batch, uint64_t seed, bool on_cpu) {
  const StepOptions options{settings.precision, settings.recompute, settings.accumulation > 1};
  const train::GlobalBatch micro_batches = make_batch(batch, 0, settings.micro_batch_size(), seed);
  MemoryRow row{settings, micro_batches.tokens, {}, {}};
  if (on_cpu) row.predicted = predict_memory(make_model, options, micro_batches);
  TrainingStep step(make_model(), options);
  step.run(micro_batches);
  row.measured = measure_memory(step, micro_batches);
  return row;
}

OrderedJson to_json(const std::vector<MemoryRow>& rows) {
  OrderedJson list = OrderedJson::array();
  for (const auto& [settings, tokens, measured, predicted] : rows) {
    list.push_back({{"precision", precision_name(settings.precision)},
                    {"batch_size", settings.batch_size},
                    {"micro_batch_size", settings.micro_batch_size()},
                    {"max_length", settings.max_length},
                    {"tokens", tokens},
                    {"recompute", recompute_name(settings.recompute)},
                    {"measured", to_json(measured)}});
    if (predicted) list.back()["predicted"] = to_json(*predicted);
  }
  return list;
}

std::string to_text(const std::vector<MemoryRow>& rows) {
  std::string text = heading();
  for (const auto& [settings, tokens, measured, predicted] : rows) {
    const std::string name = fmt::format(
        "{}, {} rows of {} in parts of {}, {}", precision_name(settings.precision), settings.batch_size,
        settings.max_length, settings.micro_batch_size(), recompute_name(settings.recompute));
    text += first_column(name) + cells("measured", measured);
    if (predicted) text += fmt::format("{:<52}", "") + cells("predicted", *predicted);
  }
  return text;
}

OrderedJson to_json(const std::vector<RankMemoryRow>& rows) {
  OrderedJson list = OrderedJson::array();
  for (const auto& [settings, strategy, predicted] : rows) {
    OrderedJson by_rank = OrderedJson::array();
    for (const StepMemory& memory : predicted) by_rank.push_back(to_json(memory));
    list.push_back({{"strategy", strategy},
                    {"ranks", predicted.size()},
                    {"precision", precision_name(settings.precision)},
                    {"batch_size", settings.batch_size},
                    {"max_length", settings.max_length},
                    {"recompute", recompute_name(settings.recompute)},
                    {"predicted", std::move(by_rank)}});
    if (settings.accumulation > 0) list.back()["gradient_accumulation_steps"] = settings.accumulation;
  }
  return list;
}

std::string to_text(const std::vector<RankMemoryRow>& rows) {
  std::string text = heading();
  for (const auto& [settings, strategy, predicted] : rows) {
    const std::string parts =
        settings.accumulation > 0 ? fmt::format(" in {} parts a rank", settings.accumulation) : "";
    std::string name =
        fmt::format("{}, {}, {} rows of {}{}, {}", strategy, precision_name(settings.precision),
                    settings.batch_size, settings.max_length, parts, recompute_name(settings.recompute));
    for (size_t rank = 0; rank < predicted.size(); ++rank) {
      text += first_column(name) + cells(fmt::format("rank {}", rank), predicted[rank]);
      name.clear();
    }
  }
  return text;
}

}  // namespace funicular::bench
