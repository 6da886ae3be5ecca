#include "funicular/cli/loss_options.h"

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/task/registry.h"

namespace funicular::cli {

void LossOptions::declare(Arguments& arguments) {
  std::vector<std::string> names = objective::vector_loss_names();
  for (const std::string& name : objective::ranking_loss_names())
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  arguments.section("Loss of embedders and rerankers");
  arguments
      .add("loss", "NAME", loss_, Effect::result,
           "loss of an embedder's vectors or of a reranker's scores; the rows of the whole --batch-size are "
           "compared, "
           "whatever the micro-batches and ranks")
      .choices(names)
      .default_text(
          "multiple-negatives for pairs and triplets, cosent for scores, squared-distance for vectors, bce "
          "for "
          "reranker");
  embedding_.declare(arguments);
  reranking_.declare(arguments);
}

void LossOptions::apply(const Arguments& arguments, task::FinetuneOptions& run) const {
  const std::string& name = run.task->type().option;
  const bool several =
      name == "pairs" || name == "triplets" || name == "scores" || name == "vectors" || name == "reranker";
  if (!several && arguments.given("loss"))
    throw InputError(
        "usage",
        "--loss works only with --task pairs, triplets, scores, vectors or reranker, found --task {}", name);
  embedding_.apply(arguments, loss_, run);
  reranking_.apply(arguments, loss_, run);
}

}  // namespace funicular::cli
