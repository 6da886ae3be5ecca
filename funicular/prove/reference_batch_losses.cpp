#include "funicular/prove/reference_batch_losses.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

namespace funicular::prove {

namespace {

using WeightOf = ReferenceEncoder::WeightOf;
using Counts = std::map<std::string, double>;
using Sums = std::map<std::string, at::Tensor>;

/// Vectors of texts: the mean of all tokens' last hidden states.
class Vectors final : public ReferenceLoss {
 public:
  Vectors(const ReferenceLossSettings& settings, const WeightOf& weight)
      : settings_(settings), encoder_(settings.config, weight, settings.seed) {}
  Counts counts(const ReferenceRow& /*row*/) const override { return {{term(), 1.0 / texts()}}; }
  Sums sums(const ReferenceRow& /*row*/) const override { return {}; }
  Sums sums_of_batch(std::span<const ReferenceRow> rows) const override {
    std::vector<at::Tensor> vectors;
    for (const ReferenceRow& row : rows)
      vectors.push_back(encoder_.run(row.token_ids, row.token_type_ids, row.draw).back().hidden.mean(0));
    if (is_scored()) return {{term(), order_of_scores(vectors, rows)}};
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (const int64_t size : settings_.vector_sizes) sum = sum + joint(vectors, size);
    return {{term(), sum}};
  }

 private:
  using Texts = std::vector<at::Tensor>;
  bool is_scored() const { return settings_.kind == ReferenceKind::scored_texts; }
  int texts() const { return is_scored() ? 2 : 3; }
  const char* term() const { return is_scored() ? "cosent" : "multiple-negatives"; }
  static at::Tensor cosine(const at::Tensor& a, const at::Tensor& b) {
    return a.dot(b) / (a.dot(a) * b.dot(b)).sqrt();
  }

  /// [Su]: log(1 + Σ exp(λ (cos_j - cos_i))) over all pairs of rows of which i has the greater label; times the rows,
  /// whose number divides it.
  at::Tensor order_of_scores(const Texts& vectors, std::span<const ReferenceRow> rows) const {
    at::Tensor inside = at::ones({}, at::kDouble);
    const auto of = [&](size_t row) { return cosine(vectors[2 * row], vectors[2 * row + 1]); };
    for (size_t i = 0; i < rows.size() / 2; ++i)
      for (size_t j = 0; j < rows.size() / 2; ++j)
        if (rows[2 * i].labels.item<double>() > rows[2 * j].labels.item<double>())
          inside = inside + at::exp(settings_.scale * (of(j) - of(i)));
    return at::log(inside) * (size_of(rows) / 2);
  }
  static double size_of(std::span<const ReferenceRow> rows) { return static_cast<double>(rows.size()); }

  /// [Zhang], equations 3 and 4, with [Kusupati]'s first numbers of each vector; more similar negatives weigh more.
  at::Tensor joint(const Texts& vectors, int64_t size) const {
    const size_t rows = vectors.size() / 3;
    const auto cut = [&](size_t row, size_t text) { return vectors[3 * row + text].narrow(0, 0, size); };
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (size_t i = 0; i < rows; ++i) {
      const at::Tensor anchor = cut(i, 0), positive = cut(i, 1);
      const at::Tensor own = at::exp(settings_.scale * cosine(anchor, positive));
      at::Tensor partition = own;
      for (size_t j = 0; j < rows; ++j) {
        const bool same = i == j;
        const double hardness = same ? settings_.hardness : settings_.batch_hardness;
        for (size_t text = 1; text < 3; ++text) {
          const at::Tensor similarity = cosine(anchor, cut(j, text));
          if (!same || text > 1)
            partition = partition + at::exp(settings_.scale * similarity + hardness * similarity.detach());
          if (!same) partition = partition + at::exp(settings_.scale * cosine(positive, cut(j, text)));
        }
        partition = partition + at::exp(settings_.scale * cosine(positive, cut(j, 0)));
        if (!same) partition = partition + at::exp(settings_.scale * cosine(anchor, cut(j, 0)));
      }
      sum = sum + at::log(partition / own);
    }
    return sum;
  }

  ReferenceLossSettings settings_;
  ReferenceEncoder encoder_;
};

/// [Wang18], equations 13, 15 and 18: pairs of texts of a query with different labels, one of which is among the first k.
class RankedTexts final : public ReferenceLoss {
 public:
  RankedTexts(const ReferenceLossSettings& settings, const WeightOf& weight)
      : settings_(settings), encoder_(settings.config, weight, settings.seed) {}
  Counts counts(const ReferenceRow& row) const override {
    return {{"lambda", row.draw % settings_.list_draws == 0 ? 1 : 0}};
  }
  Sums sums(const ReferenceRow& /*row*/) const override { return {}; }
  Sums sums_of_batch(std::span<const ReferenceRow> rows) const override {
    std::map<uint64_t, std::vector<Text>> lists;
    for (const ReferenceRow& row : rows) {
      const at::Tensor hidden = encoder_.run(row.token_ids, row.token_type_ids, row.draw).back().hidden;
      lists[row.draw / settings_.list_draws].push_back(
          {encoder_.class_logits(hidden.narrow(0, 0, 1), row.draw).squeeze(), row.labels.item<double>()});
    }
    at::Tensor sum = at::zeros({}, at::kDouble);
    double pairs = 0;
    for (const auto& [query, texts] : lists) pairs += add_pairs(texts, sum);
    return {{"lambda", sum * (static_cast<double>(lists.size()) / std::max(pairs, 1.0))}};
  }

 private:
  struct Text {
    at::Tensor score;
    double label;
  };
  static double discount(int64_t rank) { return std::log2(1 + static_cast<double>(rank)); }
  static double gain(const Text& text) { return std::exp2(text.label) - 1; }
  /// One more than the texts of a greater number.
  template <class Number>
  static int64_t rank_of(const std::vector<Text>& texts, const Text& own, const Number& number) {
    return 1 + std::count_if(texts.begin(), texts.end(),
                             [&](const Text& one) { return number(one) > number(own); });
  }

  /// Adds the losses of a list's pairs to `sum`, and returns how many there are.
  double add_pairs(const std::vector<Text>& texts, at::Tensor& sum) const {
    std::vector<double> ideal;
    for (const Text& text : texts) ideal.push_back(gain(text));
    std::sort(ideal.rbegin(), ideal.rend());
    double best = 0, pairs = 0;
    for (size_t i = 0; i < std::min(ideal.size(), static_cast<size_t>(settings_.top_k)); ++i)
      best += ideal[i] / discount(static_cast<int64_t>(i) + 1);
    const auto score = [](const Text& text) { return text.score.item<double>(); };
    for (const Text& a : texts)
      for (const Text& b : texts) {
        const int64_t i = rank_of(texts, a, score), j = rank_of(texts, b, score), distance = std::abs(i - j);
        if (!(a.label > b.label) || std::min(i, j) > settings_.top_k) continue;
        const double near = 1 / discount(distance) - 1 / discount(distance + 1);
        const double far = std::abs(1 / discount(i) - 1 / discount(j));
        const double weight =
            (10 * std::abs(near) + far) * std::abs(gain(a) - gain(b)) / std::max(best, 1e-10);
        sum = sum - weight * at::log2(at::sigmoid(settings_.sigma * (a.score - b.score)));
        ++pairs;
      }
    return pairs;
  }

  ReferenceLossSettings settings_;
  ReferenceEncoder encoder_;
};
}  // namespace

std::unique_ptr<ReferenceLoss> make_reference_batch_loss(const ReferenceLossSettings& settings,
                                                         const ReferenceEncoder::WeightOf& weight) {
  if (settings.kind == ReferenceKind::ranked_texts) return std::make_unique<RankedTexts>(settings, weight);
  return std::make_unique<Vectors>(settings, weight);
}

}  // namespace funicular::prove
