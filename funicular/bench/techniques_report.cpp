#include "funicular/bench/techniques_report.h"

#include <fmt/format.h>

#include <utility>

namespace funicular::bench {

namespace {

OrderedJson json_of(const Gain& gain) {
  return {{"tokens_per_second", gain.tokens_per_second},
          {"speed", gain.speed},
          {"memory_bytes", gain.memory_bytes},
          {"memory", gain.memory},
          {"times", gain.times}};
}

OrderedJson json_of(const EarlyStopping::Run& run) {
  return {{"steps", run.steps},
          {"seconds", run.seconds},
          {"loss", run.loss},
          {"best_loss", run.best_loss},
          {"best_step", run.best_step}};
}

std::string cells(const Gain& gain) {
  return fmt::format("{:>10.0f}{:>7.2f}x{:>10.1f}{:>7.2f}x", gain.tokens_per_second, gain.speed,
                     static_cast<double>(gain.memory_bytes) / 1e6, gain.memory);
}

/// By how much the run became shorter.
double time_ratio(const EarlyStopping& early) {
  return early.without.seconds / early.with.seconds;
}

const TechniqueRow* slow_bf16(const TechniquesResult& result) {
  for (const TechniqueRow& row : result.rows)
    if (row.name == kBf16 && row.alone.speed < 1) return &row;
  return nullptr;
}

}  // namespace

std::string note_on_bf16(const TechniquesResult& result) {
  if (!slow_bf16(result)) return "";
  return "Note: bf16 alone is LibTorch's padded step in bf16, which this processor computes slowly. "
         "This program's step is in the column of all; training takes bf16 only where that is faster.";
}

OrderedJson to_json(const TechniquesResult& result) {
  OrderedJson rows = OrderedJson::array();
  for (const TechniqueRow& row : result.rows)
    rows.push_back({{"name", row.name}, {"alone", json_of(row.alone)}, {"all", json_of(row.all)}});
  return {
      {"ordinary", json_of(result.ordinary)},
      {"ordinary_evaluation", json_of(result.ordinary_evaluation)},
      {"techniques", rows},
      {"early_stopping",
       {{"without", json_of(result.early_stopping.without)}, {"with", json_of(result.early_stopping.with)}}}};
}

std::string to_text(const TechniquesResult& result) {
  std::string text = fmt::format("{:<20}{:^35}{:^35}\n", "", "alone, in LibTorch's step", "with all above");
  text += fmt::format("{:<20}", "");
  for (int i = 0; i < 2; ++i)
    text += fmt::format("{:>10}{:>8}{:>10}{:>8}", "tokens/s", "speed", "MB", "memory");
  text += fmt::format("\n{:<20}{}\n", "ordinary step", cells(result.ordinary));
  for (const TechniqueRow& row : result.rows) {
    if (&row == &result.rows.back())
      text += fmt::format("{:<20}{}\n", "evaluation", cells(result.ordinary_evaluation));
    text += fmt::format("{:<20}{}{}\n", row.name, cells(row.alone), cells(row.all));
  }
  if (const std::string note = note_on_bf16(result); !note.empty()) text += "\n" + note + "\n";
  const EarlyStopping& early = result.early_stopping;
  text += fmt::format(
      "\nearly stopping: {} steps of {}, {:.1f} s of {:.1f} s ({:.2f}x); evaluation loss {:.3f} where it "
      "stopped, {:.3f} at the end, best {:.3f} at step {}\n",
      early.with.steps, early.without.steps, early.with.seconds, early.without.seconds, time_ratio(early),
      early.with.loss, early.without.loss, early.with.best_loss, early.with.best_step);
  return text;
}

BarChart to_chart(const TechniquesResult& result, const std::string& title, const std::string& note) {
  const std::string bf16 = note_on_bf16(result);
  BarChart chart{
      title, note + (bf16.empty() ? "" : " " + bf16), {"alone, in LibTorch's step", "with all above"}, {}};
  BarPanel speed{"Speed, times the ordinary step's (evaluation: times an ordinary one's)", {}};
  BarPanel memory{"Memory, times the ordinary step's", {}};
  for (const TechniqueRow& row : result.rows) {
    speed.groups.push_back({row.name, {row.alone.speed, row.all.speed}});
    memory.groups.push_back({row.name, {row.alone.memory, row.all.memory}});
  }
  speed.groups.push_back({"early stopping", {time_ratio(result.early_stopping), std::nullopt}});
  chart.panels = {std::move(speed), std::move(memory)};
  return chart;
}

}  // namespace funicular::bench
