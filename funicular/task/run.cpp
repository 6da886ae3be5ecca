#include "funicular/task/run.h"

#include "funicular/base/log.h"
#include "funicular/comm/together.h"
#include "funicular/objective/metrics.h"
#include "funicular/parallel/strategy.h"
#include "funicular/train/checkpoint.h"
#include "funicular/train/resume.h"

namespace funicular::task {

bool starts_anew(const RunOptions& run) {
  const std::string& resume = run.trainer.resume;
  return resume == "never" ||
         (resume == "auto" && train::list_checkpoints(run.trainer.output / "checkpoints").empty());
}

std::string choose_best_metric(const RunOptions& run, const MetricNames& known) {
  if (!run.best_metric.empty()) return run.best_metric;
  const std::string &own = known.best, &earlier = known.earlier_best;
  if (earlier.empty()) return own;
  const std::string began = comm::from_first(
      run.group, [&] { return train::best_metric_of_run(run.trainer.output, run.trainer.resume); });
  if (began != earlier) return own;
  log::info("the best model is chosen by {}, as the run began; a new run chooses it by {}", earlier, own);
  return earlier;
}

train::FitResult fit(Model& model, const RunOptions& run, train::TrainerOptions& options,
                     const train::Source& rows, const train::Evaluation& evaluation,
                     const std::function<void(const fs::path& folder)>& save) {
  const train::StrategyFactory strategy =
      run.strategy ? run.strategy(model, rows, options) : train::StrategyFactory(parallel::make_single);
  train::Trainer trainer(options, strategy, run.optimizer);
  trainer.callbacks.save_model = save;
  return trainer.fit(model, rows, evaluation);
}

}  // namespace funicular::task
