#include "funicular/task/outcome.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "funicular/base/log.h"
#include "funicular/model/pretrained.h"
#include "funicular/task/evaluate.h"

namespace funicular::task {

namespace {

/// The first characters of a text, on one line.
std::string beginning_of(const std::string& text) {
  constexpr size_t kCharacters = 72;
  std::string shown;
  size_t count = 0;
  for (const char byte : text) {
    count += (byte & 0xC0) != 0x80;
    if (count > kCharacters) return shown + "…";
    shown += byte == '\n' || byte == '\t' || byte == '\r' ? ' ' : byte;
  }
  return shown;
}

/// "pro", or "pro, new" for several labels.
std::string name_of(const OrderedJson& label) {
  if (label.is_string()) return label.get<std::string>();
  if (!label.is_array()) return label.dump();
  std::vector<std::string> names;
  for (const OrderedJson& name : label) names.push_back(name_of(name));
  return names.empty() ? "no label" : fmt::format("{}", fmt::join(names, ", "));
}

void report_mistakes(const Evaluation& found, int64_t most) {
  const OrderedJson mistakes = found.sheet->mistakes(*found.rows);
  int64_t shown = 0;
  for (const OrderedJson& mistake : mistakes) {
    const char* const label = mistake.contains("labels") ? "labels" : "label";
    if (!mistake.contains(label) || !mistake.contains("predicted") || !mistake.contains("texts")) return;
    if (shown == 0)
      log::info("the {} mistakes of which the model is most certain:",
                std::min<int64_t>(most, std::ssize(mistakes)));
    std::vector<std::string> texts;
    for (const OrderedJson& text : mistake["texts"]) texts.push_back(beginning_of(text.get<std::string>()));
    log::info("  \"{}\" is {}, and the model says {} ({:.2f} for {})", fmt::join(texts, "\" \""),
              name_of(mistake[label]), name_of(mistake["predicted"]), mistake["label_score"].get<double>(),
              name_of(mistake[label]));
    if (++shown == most) return;
  }
}

void report_score(const Baseline& baseline, const RunResult& result) {
  std::vector<std::string> own, constant;
  for (const auto& [metric, score] : baseline.scores) {
    constant.push_back(fmt::format("{} {:.4g}", metric, score));
    const auto found = result.fit.best_evaluation.find(metric);
    if (found != result.fit.best_evaluation.end())
      own.push_back(fmt::format("{} {:.4g}", metric, found->second));
  }
  log::info("on the evaluated rows: {}{}an answer that is {} has {}", fmt::join(own, ", "),
            own.empty() ? "" : "; ", baseline.answer, fmt::join(constant, ", "));
}

}  // namespace

void report_outcome(const FinetuneOptions& options, const RunResult& result, int64_t mistakes) {
  if (!result.eval_task || result.fit.best_evaluation.empty()) return;
  if (result.baseline) report_score(*result.baseline, result);
  if (mistakes <= 0 || !result.eval_task->scores_classes()) return;
  EvaluateOptions asked{.model = result.options.output / "model",
                        .data = result.eval_file,
                        .task = result.eval_task,
                        .bad_rows = options.bad_rows};
  asked.device = options.device;
  asked.stores = result.options.output / "data";
  asked.quiet = true;
  asked.precision = options.dtype == at::kDouble ? "fp64" : precision_name(result.options.precision);
  report_mistakes(evaluate(asked), mistakes);
}

}  // namespace funicular::task
