#include "funicular/task/greedy_soup.h"

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/model/pretrained.h"
#include "funicular/objective/metrics.h"
#include "funicular/task/average.h"

namespace funicular::task {

namespace {

class SoupScores {
 public:
  SoupScores(const EvaluateOptions& rows, std::string metric) : rows_(rows), metric_(std::move(metric)) {}
  const std::string& metric() const { return metric_; }

  double of(const fs::path& model) {
    EvaluateOptions options = rows_;
    options.model = model;
    options.quiet = true;
    model::Pretrained folder(model);
    const std::vector<std::string> labels = model::class_names(folder.config());
    const Evaluation found = evaluate(std::move(folder), options);
    if (metric_.empty()) metric_ = found.task->metrics(labels).best;
    const auto score = found.scores.find(metric_);
    if (score != found.scores.end() && score->is_number()) return score->get<double>();
    std::string names;
    for (const auto& [name, value] : found.scores.items())
      if (value.is_number() && name != "samples" && name != "windows")
        names += (names.empty() ? "" : ", ") + name;
    throw InputError("usage", "--metric {}: the evaluation of {} gives {}", metric_, model.string(), names);
  }
  double of_average(const std::vector<fs::path>& models) {
    const TemporaryFolder folder;
    average_models(models, folder.path() / "soup");
    return of(folder.path() / "soup");
  }
  bool is_better(double a, double b) const { return objective::greater_is_better(metric_) ? a > b : a < b; }

 private:
  EvaluateOptions rows_;
  std::string metric_;
};

}  // namespace

std::vector<fs::path> GreedySoup::models() const {
  std::vector<fs::path> kept;
  for (const SoupStep& step : steps)
    if (step.kept) kept.push_back(step.model);
  return kept;
}

GreedySoup choose_soup(const std::vector<fs::path>& models, const EvaluateOptions& rows,
                       const std::string& metric) {
  SoupScores scores(rows, metric);
  GreedySoup soup;
  for (const fs::path& model : models) soup.steps.push_back({model, scores.of(model)});
  soup.metric = scores.metric();
  std::stable_sort(soup.steps.begin(), soup.steps.end(),
                   [&](const SoupStep& a, const SoupStep& b) { return scores.is_better(a.alone, b.alone); });
  for (SoupStep& step : soup.steps) {
    std::vector<fs::path> tried = soup.models();
    tried.push_back(step.model);
    step.with = tried.size() == 1 ? step.alone : scores.of_average(tried);
    step.kept = tried.size() == 1 || !scores.is_better(soup.score, step.with);
    if (step.kept) soup.score = step.with;
    log::info("{}: {} {:.4f}, in the average {:.4f}: {}", step.model.string(), soup.metric, step.alone,
              step.with, step.kept ? "kept" : "left out");
  }
  return soup;
}

}  // namespace funicular::task
