// funicular average: one model of several.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/cli/command.h"
#include "funicular/cli/output_paths.h"
#include "funicular/task/average.h"

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
  }

  int run() override {
    require_folder_name(output_, "--output");
    task::average_models(models_, output_);
    log::info("{} is the average of {} models; next: funicular evaluate {} FILE", output_.string(),
              models_.size(), output_.string());
    return 0;
  }

 private:
  std::vector<fs::path> models_;
  fs::path output_;
};

}  // namespace

std::unique_ptr<Command> make_average() {
  return std::make_unique<Average>();
}

}  // namespace funicular::cli
