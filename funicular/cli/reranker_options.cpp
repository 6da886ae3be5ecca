#include "funicular/cli/reranker_options.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/format/cross_encoder.h"
#include "funicular/task/registry.h"

namespace funicular::cli {

namespace {

constexpr const char* kRerankerOptions[] = {"positive-weight", "weighting", "sigma", "loss-top-k",
                                            "activation"};

ptrdiff_t place_among(const std::vector<std::string>& names, const std::string& name, const char* option) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw InputError("usage", "--{} {} does not fit --task reranker; expected one of {}", option, name,
                     fmt::join(names, ", "));
  return found - names.begin();
}

}  // namespace

void RerankerOptions::declare(Arguments& arguments) {
  arguments.section("Rerankers (--task reranker)");
  arguments
      .add("positive-weight", "X", loss_.positive_weight, Effect::result,
           "with bce, how much positive texts count beside negative ones")
      .above(0);
  arguments.add("weighting", "NAME", loss_.weighting, objective::pair_weighting_names(), Effect::result,
                "with lambda, how much a pair of texts counts");
  arguments
      .add("sigma", "X", loss_.sigma, Effect::result,
           "with rank-net and lambda, factor of the differences of scores")
      .above(0);
  arguments
      .add("loss-top-k", "K", loss_.top_k, Effect::result,
           "with rank-net and lambda, read only pairs of which one text is among the K best scores of its "
           "query")
      .range(1, objective::kMostListTexts)
      .default_text("all pairs");
  arguments
      .add("activation", "NAME", activation_, Effect::result,
           "what makes a logit a score in evaluate, predict and sentence-transformers")
      .choices(format::score_activation_names())
      .default_text("the model's own, else sigmoid for bce, identity otherwise");
}

void RerankerOptions::apply(const Arguments& arguments, const std::string& loss,
                            task::FinetuneOptions& run) const {
  const std::string& name = run.task->type().option;
  const bool ranks = name == "reranker";
  for (const char* option : kRerankerOptions)
    if (!ranks && arguments.given(option))
      throw InputError("usage", "--{} works only with --task reranker, found --task {}", option, name);
  if (!ranks) return;
  task::RankingChoice& ranking = run.ranking;
  ranking.chosen = true;
  ranking.loss = loss_;
  if (!loss.empty())
    ranking.loss.loss =
        static_cast<objective::RankingLoss>(place_among(objective::ranking_loss_names(), loss, "loss"));
  if (!activation_.empty())
    ranking.activation = static_cast<format::ScoreActivation>(
        place_among(format::score_activation_names(), activation_, "activation"));
  ranking.loss.check();
}

}  // namespace funicular::cli
