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

/// RankingLossOptions::check() cannot see an option that repeats a default.
void refuse_unread(const Arguments& arguments, const objective::RankingLossOptions& loss) {
  using objective::RankingLoss;
  const auto refuse_unless = [&](bool read, const char* option, const char* losses) {
    if (arguments.given(option) && !read)
      throw InputError("usage", "--{} works only with --loss {}, found --loss {}", option, losses,
                       loss.name());
  };
  refuse_unless(loss.loss == RankingLoss::bce, "positive-weight", "bce");
  refuse_unless(loss.loss == RankingLoss::lambda, "weighting", "lambda");
  refuse_unless(loss.reads_pairs(), "sigma", "rank-net or lambda");
  refuse_unless(loss.reads_pairs(), "loss-top-k", "rank-net or lambda");
}

}  // namespace

void RerankerOptions::declare(Arguments& arguments) {
  arguments.section("Rerankers (--task reranker)");
  arguments
      .add("positive-weight", "X", loss_.positive_weight, Effect::result,
           "factor of the loss of positive labels with --loss bce (BinaryCrossEntropyLoss pos_weight)")
      .above(0);
  arguments.add("weighting", "NAME", loss_.weighting, objective::pair_weighting_names(), Effect::result,
                "pair weights with --loss lambda (LambdaLoss weighting_scheme)");
  arguments
      .add("sigma", "X", loss_.sigma, Effect::result,
           "factor of score differences with --loss rank-net and lambda (LambdaLoss sigma)")
      .above(0);
  arguments
      .add(
          "loss-top-k", "K", loss_.top_k, Effect::result,
          "with --loss rank-net and lambda, skip pairs without one of the K best-scored texts (LambdaLoss k)")
      .range(1, objective::kMostListTexts)
      .default_text("all pairs");
  arguments
      .add("activation", "NAME", activation_, Effect::result,
           "activation_fn that predict, evaluate and CrossEncoder apply to the logit")
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
  refuse_unread(arguments, ranking.loss);
  ranking.loss.check();
}

}  // namespace funicular::cli
