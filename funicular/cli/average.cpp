// funicular average: one model of several.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/log.h"
#include "funicular/cli/command.h"
#include "funicular/cli/output_paths.h"
#include "funicular/task/average.h"
#include "funicular/task/greedy_soup.h"

namespace funicular::cli {

namespace {

class Average final : public Command {
 public:
  Average()
      : Command(
            "average",
            "Averages the weights of models that were fine-tuned from the same weights, with other seeds or "
            "other options: a uniform soup. It answers as fast as one of them, and is often better than the "
            "best. Shapes, labels and tokenisers must be equal.") {
    arguments.example("average three runs", "funicular average runs/a runs/b runs/c --output soup");
    arguments.example("average the folds of a run",
                      "funicular average runs/k/fold-1 runs/k/fold-2 --output soup");
    arguments.unnamed({"models"});
    arguments.add("models", "RUN", models_, Effect::input, "folders of runs or of models, two or more")
        .takes_model()
        .required();
    arguments.add("output", "DIR", output_, Effect::output, "folder for the average, a model").required();
    arguments
        .add("greedy", "FILE", greedy_, Effect::input,
             "average only the models that do not lower the score on these labelled rows, the best model "
             "first")
        .default_text("all models are averaged");
    arguments.add("metric", "NAME", metric_, Effect::result, "with --greedy: the score, as evaluate calls it")
        .default_text("the one that chooses the best model in finetune");
  }

  int run() override {
    require_folder_name(output_, "--output");
    if (models_.size() < 2)
      throw InputError("usage", "expected two models or more to average, found {}", models_.size());
    if (greedy_.empty() && !metric_.empty())
      throw InputError("usage", "--metric works only with --greedy, which measures the models");
    task::require_place_for_average(output_);
    const std::vector<fs::path> models = greedy_.empty() ? models_ : chosen_models();
    task::average_models(models, output_);
    log::info("{} is the average of {} models; next: funicular evaluate {} FILE", output_.string(),
              models.size(), output_.string());
    return 0;
  }

 private:
  /// Prints what was chosen, too.
  std::vector<fs::path> chosen_models() const {
    const task::GreedySoup soup = task::choose_soup(models_, {.data = greedy_}, metric_);
    OrderedJson names = OrderedJson::array();
    for (const fs::path& model : soup.models()) names.push_back(model.string());
    fmt::print("{}\n", OrderedJson{{"average_of", names}, {soup.metric, soup.score}}.dump());
    return soup.models();
  }

  std::vector<fs::path> models_;
  fs::path output_, greedy_;
  std::string metric_;
};

}  // namespace

std::unique_ptr<Command> make_average() {
  return std::make_unique<Average>();
}

}  // namespace funicular::cli
