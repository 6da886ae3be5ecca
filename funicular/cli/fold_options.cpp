#include "funicular/cli/fold_options.h"

#include <fmt/format.h>

#include <string>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/chain/contents.h"
#include "funicular/task/folds.h"
#include "funicular/task/registry.h"

namespace funicular::cli {

namespace {

/// All that decides the results: what the options say, and the contents of the files that they name.
std::string key_of(const Arguments& arguments, const task::FinetuneOptions& options) {
  std::string text;
  for (const Arguments::Setting& setting : arguments.settings()) {
    if (setting.effect != Effect::result && setting.effect != Effect::presence) continue;
    text += setting.name + '\n';
    for (const std::string& value : setting.values) text += value + '\n';
  }
  chain::Contents contents;
  for (const fs::path& input : {options.model, options.train_file, options.teacher})
    if (!input.empty()) text += contents.hash(input) + '\n';
  return hash_text(hash_bytes(text));
}

void show(const task::FoldsResult& result) {
  const auto spreads = result.spreads();
  std::string head = fmt::format("{:<10}{:>8}", "fold", "rows");
  for (const auto& [name, spread] : spreads) head += fmt::format("{:>20}", name);
  log::info("{}", head);
  for (size_t fold = 0; fold < result.folds.size(); ++fold) {
    std::string line = fmt::format("{:<10}{:>8}", fold + 1, result.folds[fold].rows);
    for (const auto& [name, spread] : spreads)
      line += fmt::format("{:>20.4f}", result.folds[fold].values.at(name));
    log::info("{}", line);
  }
  std::string mean = fmt::format("{:<18}", "mean"), deviation = fmt::format("{:<18}", "deviation");
  for (const auto& [name, spread] : spreads) {
    mean += fmt::format("{:>20.4f}", spread.mean);
    deviation += fmt::format("{:>20.4f}", spread.deviation);
  }
  log::info("{}", mean);
  log::info("{}", deviation);
  const auto constants = result.spreads(&task::FoldScores::constant);
  if (constants.empty()) return;
  std::string constant = fmt::format("{:<18}", "constant answer"), skipped;
  for (const auto& [name, spread] : spreads) {
    skipped += std::string(20, ' ');
    if (!constants.contains(name)) continue;
    constant += skipped.substr(20) + fmt::format("{:>20.4f}", constants.at(name).mean);
    skipped.clear();
  }
  log::info("{}", constant);
}

}  // namespace

void FoldOptions::declare(Arguments& arguments) {
  arguments
      .add("folds", "K", count, Effect::result,
           "train K models, each without another K-th of the rows, and measure each on the rows that it has "
           "not "
           "seen")
      .default_text("one training")
      .range(2, 1000);
}

void FoldOptions::check(const Arguments& arguments) const {
  for (const char* option : {"eval", "eval-fraction", "eval-label-column", "metric-for-best-model"})
    if (arguments.given(option))
      throw InputError(
          "usage",
          "--folds and --{} are both given. A fold's model is the last one, and it is measured on "
          "the rows that it has not seen; leave out --{}",
          option, option);
}

int FoldOptions::run(const task::FinetuneOptions& options, const Arguments& arguments) const {
  const task::FoldsResult result = task::train_folds(options, *count, key_of(arguments, options));
  options.group.barrier();
  if (result.interrupted) return static_cast<int>(ExitCode::interrupted);
  if (options.group.rank() > 0) return 0;
  show(result);
  const fs::path& run = options.trainer.output;
  log::info("the answers by models that have not seen the rows are in {}",
            (run / task::kFoldAnswers).string());
  if (const std::string& name = options.task->type().name; name == "classes" || name == "labels")
    log::info("next: funicular label-errors {}", run.string());
  fmt::print("{}\n", json_text(result.json()));
  return 0;
}

}  // namespace funicular::cli
