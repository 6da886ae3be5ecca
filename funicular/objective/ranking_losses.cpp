#include "funicular/objective/ranking_losses.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "funicular/base/error.h"

namespace funicular::objective {

namespace {

constexpr int64_t kListsAtOnce = 64;  // of the tables of pairs
constexpr double kLeastBestDcg = 1e-10;
constexpr double kLastScore = -1e16;  // for missing texts: sorts them to the end
constexpr double kMu = 10;            // of ndcg_loss2pp

// ---- losses of texts and of lists

/// The table with 0 for missing texts.
at::Tensor without_absent(const at::Tensor& table, const at::Tensor& labels) {
  return table.masked_fill(labels.isnan(), 0);
}

at::Tensor cross_entropies(const at::Tensor& scores, const at::Tensor& labels, double positive_weight) {
  const at::Tensor target = without_absent(labels, labels);
  return at::binary_cross_entropy_with_logits(
      scores, target, {}, at::full({1}, positive_weight, scores.options()), at::Reduction::None);
}

/// The squared error of the first text's lead over each later text.
at::Tensor margin_errors(const at::Tensor& scores, const at::Tensor& labels) {
  const auto leads = [](const at::Tensor& of) { return of.slice(1, 0, 1) - of.slice(1, 1); };
  return (leads(scores) - leads(labels)).square();
}

at::Tensor list_net(const at::Tensor& scores, const at::Tensor& labels) {
  const at::Tensor absent = labels.isnan();
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const at::Tensor wanted = at::softmax(labels.masked_fill(absent, kNone), 1);
  const at::Tensor found = at::log_softmax(scores.masked_fill(absent, kLastScore), 1);
  return -(wanted * found).sum(1);
}

// ---- pairs

/// The texts of lists in the order of their scores, the best first.
struct RankedLists {
  at::Tensor scores, labels, gains;  ///< [R, L]; labels −∞ for missing texts
  at::Tensor discounts;              ///< [L]
};

RankedLists rank(const ListTable& lists, std::optional<int64_t> top_k) {
  const at::Tensor absent = lists.labels.isnan();
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const at::Tensor labels = lists.labels.masked_fill(absent, kNone);
  const auto [scores, order] =
      lists.scores.masked_fill(absent, kLastScore).sort(/*stable=*/true, 1, /*descending=*/true);
  RankedLists ranked{scores, labels.gather(1, order), {}, {}};
  const int64_t longest = labels.size(1);
  ranked.discounts = at::log2(at::arange(2, longest + 2, scores.options().requires_grad(false)));
  const auto gains_of = [](const at::Tensor& of) { return at::exp2(of.clamp_min(0)) - 1; };
  const at::Tensor ideal = std::get<0>(labels.sort(/*stable=*/true, 1, /*descending=*/true));
  const at::Tensor best = (gains_of(ideal) / ranked.discounts)
                              .slice(1, 0, top_k.value_or(longest))
                              .sum(1, /*keepdim=*/true)
                              .clamp_min(kLeastBestDcg);
  ranked.gains = gains_of(ranked.labels) / best;
  return ranked;
}

at::Tensor differences(const at::Tensor& of) {
  return of.unsqueeze(-1) - of.unsqueeze(-2);
}

/// By the distance of the ranks, [L, L].
at::Tensor weights_by_distance(const at::Tensor& discounts) {
  const int64_t longest = discounts.size(0);
  const at::Tensor ranks = at::arange(longest, discounts.options().dtype(at::kLong));
  const at::Tensor distance = differences(ranks).abs();
  const at::Tensor inverse = 1 / discounts;
  const at::Tensor nearer = inverse.index_select(0, (distance - 1).clamp_min(0).flatten()).view_as(distance);
  const at::Tensor farther = inverse.index_select(0, distance.flatten()).view_as(distance);
  return (nearer - farther).abs().masked_fill(distance.eq(0), 0);
}

at::Tensor pair_weights(const RankedLists& ranked, PairWeighting weighting) {
  if (weighting == PairWeighting::ndcg_loss1) return (ranked.gains / ranked.discounts).unsqueeze(-1);
  const at::Tensor gains = differences(ranked.gains).abs();
  const at::Tensor by_distance = weights_by_distance(ranked.discounts);
  if (weighting == PairWeighting::ndcg_loss2) return by_distance * gains;
  const at::Tensor by_rank = differences(1 / ranked.discounts).abs();
  if (weighting == PairWeighting::lambda_rank) return by_rank * gains;
  return (kMu * by_distance + by_rank) * gains;
}

/// The pairs of texts [R, L, L] that take part in the loss.
at::Tensor kept_pairs(const RankedLists& ranked, const RankingLossOptions& options) {
  const at::Tensor leads = differences(ranked.labels);
  const bool all = options.loss == RankingLoss::lambda && options.weighting == PairWeighting::ndcg_loss1;
  at::Tensor kept = leads.isfinite();
  if (!all) kept = kept.logical_and(leads.gt(0));
  if (!options.top_k) return kept;
  const int64_t longest = leads.size(1);
  const at::Tensor top = at::arange(longest, leads.options().dtype(at::kLong)).lt(*options.top_k);
  return kept.logical_and(top.unsqueeze(0).logical_or(top.unsqueeze(1)));
}

RankingLossOfLists::Sums pair_sums(const ListTable& lists, const RankingLossOptions& options) {
  const RankedLists ranked = rank(lists, options.top_k);
  const at::Tensor kept = kept_pairs(ranked, options);
  const at::Tensor leads = differences(ranked.scores).clamp(-1e8, 1e8);
  at::Tensor losses = -at::log_sigmoid(options.sigma * leads) / std::log(2.0);
  if (options.loss == RankingLoss::lambda) losses = losses * pair_weights(ranked, options.weighting);
  return {losses.masked_fill(kept.logical_not(), 0).sum({1, 2}),
          kept.sum({1, 2}).to(lists.scores.scalar_type())};
}

/// The columns in which a list has a text.
ListTable trimmed(const at::Tensor& scores, const at::Tensor& labels) {
  const int64_t longest = labels.numel() == 0 ? 0 : labels.isnan().logical_not().sum(1).max().item<int64_t>();
  return {scores.slice(1, 0, longest), labels.slice(1, 0, longest).to(scores.scalar_type())};
}

}  // namespace

// ---- options

const std::vector<std::string>& ranking_loss_names() {
  static const std::vector<std::string> names{"bce", "mse", "margin-mse", "list-net", "rank-net", "lambda"};
  return names;
}

const std::vector<std::string>& pair_weighting_names() {
  static const std::vector<std::string> names{"ndcg-loss1", "ndcg-loss2", "lambda-rank", "ndcg-loss2++"};
  return names;
}

void RankingLossOptions::check() const {
  const auto refuse_unless = [&](bool read, bool given, const char* option, const char* losses) {
    if (given && !read)
      throw InputError("usage", "{} works only with --loss {}, found --loss {}", option, losses, name());
  };
  refuse_unless(loss == RankingLoss::bce, positive_weight != 1, "--positive-weight", "bce");
  refuse_unless(loss == RankingLoss::lambda, weighting != PairWeighting::ndcg_loss2pp, "--weighting",
                "lambda");
  refuse_unless(reads_pairs(), sigma != 1, "--sigma", "rank-net or lambda");
  refuse_unless(reads_pairs(), top_k.has_value(), "--loss-top-k", "rank-net or lambda");
  if (!(positive_weight > 0) || !std::isfinite(positive_weight))
    throw InputError("usage", "--positive-weight expects a number above 0, found {}", positive_weight);
  if (!(sigma > 0) || !std::isfinite(sigma))
    throw InputError("usage", "--sigma expects a number above 0, found {}", sigma);
  if (top_k && *top_k < 1) throw InputError("usage", "--loss-top-k expects at least 1, found {}", *top_k);
}

Json RankingLossOptions::note() const {
  Json note{{"name", name()}};
  if (loss == RankingLoss::bce) note["positive_weight"] = positive_weight;
  if (loss == RankingLoss::lambda)
    note["weighting"] = pair_weighting_names().at(static_cast<size_t>(weighting));
  if (reads_pairs()) note["sigma"] = sigma;
  if (top_k) note["top_k"] = *top_k;
  return note;
}

RankingLossOptions RankingLossOptions::from(const Json& note) {
  constexpr const char* kOrigin = "config.json (key \"funicular\", ranking_loss)";
  const auto place_of = [&](const char* key, const std::vector<std::string>& names) {
    const auto name = json_get<std::string>(note, key, kOrigin);
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      throw InputError("config", "{}: expected one of {} as {}, found \"{}\"", kOrigin,
                       fmt::join(names, ", "), key, name);
    return found - names.begin();
  };
  if (!note.is_object()) throw InputError("config", "{}: expected an object", kOrigin);
  RankingLossOptions options;
  options.loss = static_cast<RankingLoss>(place_of("name", ranking_loss_names()));
  if (note.contains("weighting"))
    options.weighting = static_cast<PairWeighting>(place_of("weighting", pair_weighting_names()));
  if (note.contains("positive_weight"))
    options.positive_weight = json_get<double>(note, "positive_weight", kOrigin);
  if (note.contains("sigma")) options.sigma = json_get<double>(note, "sigma", kOrigin);
  if (note.contains("top_k")) options.top_k = json_get<int64_t>(note, "top_k", kOrigin);
  options.check();
  return options;
}

void RankingLossOptions::add_identity(std::map<std::string, std::string>& identity) const {
  identity["loss"] = fmt::format("{}, {}, positive weight {}, sigma {}, top {}", name(),
                                 pair_weighting_names().at(static_cast<size_t>(weighting)), positive_weight,
                                 sigma, top_k.value_or(0));
}

// ---- the loss

RankingLossOfLists::RankingLossOfLists(RankingLossOptions options) : options_(std::move(options)) {
  options_.check();
}

double RankingLossOfLists::count(std::span<const double> labels) const {
  const auto texts = static_cast<double>(labels.size());
  switch (options_.loss) {
    case RankingLoss::bce:
    case RankingLoss::mse:
      return texts;
    case RankingLoss::margin_mse:
      return std::max(texts - 1, 0.0);
    case RankingLoss::list_net:
      return 1;
    case RankingLoss::rank_net:
    case RankingLoss::lambda:
      break;
  }
  if (options_.loss == RankingLoss::lambda && options_.weighting == PairWeighting::ndcg_loss1)
    return texts * texts;
  double pairs = 0;
  for (const double a : labels)
    pairs +=
        static_cast<double>(std::count_if(labels.begin(), labels.end(), [&](double b) { return a > b; }));
  return pairs;
}

bool RankingLossOfLists::learns_from(std::span<const double> labels) const {
  if (!options_.reads_lists()) return !labels.empty();
  if (labels.size() < 2) return false;
  if (!options_.reads_pairs()) return true;
  if (options_.loss == RankingLoss::lambda && options_.weighting == PairWeighting::ndcg_loss1)
    return std::any_of(labels.begin(), labels.end(), [](double label) { return label > 0; });
  return count(labels) > 0;
}

RankingLossOfLists::Sums RankingLossOfLists::sums(const ListTable& lists) const {
  const auto& [scores, labels] = lists;
  if (options_.reads_pairs()) return pair_sums(lists, options_);
  const at::Tensor there = labels.isnan().logical_not();
  if (options_.loss == RankingLoss::list_net)
    return {list_net(scores, labels), at::ones({scores.size(0)}, labels.options())};
  if (options_.loss == RankingLoss::margin_mse)
    return {without_absent(margin_errors(scores, without_absent(labels, labels)), labels.slice(1, 1)).sum(1),
            there.slice(1, 1).sum(1)};
  const at::Tensor losses = options_.loss == RankingLoss::bce
                                ? cross_entropies(scores, labels, options_.positive_weight)
                                : (scores - without_absent(labels, labels)).square();
  return {without_absent(losses, labels).sum(1), there.sum(1)};
}

BatchLoss::Result RankingLossOfLists::compute(const TensorMap& rows, int64_t begin, int64_t end,
                                              bool differentiate) const {
  const at::AutoGradMode graph(differentiate);
  const at::Tensor whole = rows.at(kRowVectors).detach().clone().requires_grad_(differentiate);
  const ListTable table = trimmed(whole.squeeze(-1), rows.at(kListLabels));
  const int64_t lists = whole.size(0);
  at::Tensor losses = at::zeros({lists}, table.labels.options());
  double terms = 0;
  for (int64_t first = 0; first < lists; first += kListsAtOnce) {
    const int64_t last = std::min(lists, first + kListsAtOnce);
    const Sums block = sums({table.scores.slice(0, first, last), table.labels.slice(0, first, last)});
    terms += block.terms.sum().item<double>();
    const int64_t from = std::max(first, begin), to = std::min(last, end);
    if (from >= to) continue;
    const at::Tensor own = block.losses.slice(0, from - first, to - first);
    if (differentiate) own.sum().backward({}, /*retain_graph=*/true);
    losses.slice(0, from, to).copy_(own.detach());
  }
  // The term is divided by the number of lists.
  const double factor = static_cast<double>(lists) / std::max(terms, 1.0);
  Result result{losses * factor, {}};
  if (differentiate)
    result.gradients = whole.grad().defined() ? whole.grad() * factor : at::zeros_like(whole.detach());
  return result;
}

}  // namespace funicular::objective
