#include "funicular/prove/reference_losses.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "funicular/base/hash.h"
#include "funicular/prove/reference_batch_losses.h"

namespace funicular::prove {

namespace {

using WeightOf = ReferenceEncoder::WeightOf;
using Counts = std::map<std::string, double>;
using Sums = std::map<std::string, at::Tensor>;

double size_of(const at::Tensor& rows) {
  return static_cast<double>(rows.size(0));
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels) {
  return at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum);
}

/// Binary cross-entropy, summed; `answers` are 0 or 1.
at::Tensor yes_or_no_loss(const at::Tensor& logits, const at::Tensor& answers) {
  return -(answers * at::log_sigmoid(logits) + (1 - answers) * at::log_sigmoid(-logits)).sum();
}

/// [Devlin], section 3.1, task 1: the cross-entropy of the original tokens over the vocabulary. Sentence order,
/// [Lan], section 3.1: a classifier on the pooled first vector tells whether two segments were swapped.
class MaskedWords final : public ReferenceLoss {
 public:
  MaskedWords(const ReferenceLossSettings& settings, const WeightOf& weight, bool orders)
      : encoder_(settings.config, weight, settings.seed), orders_(orders) {}
  Counts counts(const ReferenceRow& row) const override {
    Counts counts = {{"mlm", size_of(row.masked_positions)}};
    if (orders_) counts["sentence_order"] = row.order.item<int64_t>() >= 0 ? 1 : 0;
    return counts;
  }
  Sums sums(const ReferenceRow& row) const override {
    const at::Tensor hidden = encoder_.run(row.token_ids, row.token_type_ids, row.draw).back().hidden;
    const at::Tensor logits = encoder_.word_logits(hidden.index_select(0, row.masked_positions));
    Sums sums = {{"mlm", cross_entropy(logits, row.original_tokens)}};
    if (!orders_) return sums;
    const format::Family& family = encoder_.family();
    const at::Tensor pooled =
        at::tanh(encoder_.linear(hidden.narrow(0, 0, 1), family.in_encoder(family.names.pooler)));
    sums["sentence_order"] = cross_entropy(encoder_.linear(pooled, family.pair_relation), row.order);
    return sums;
  }

 private:
  ReferenceEncoder encoder_;
  bool orders_;
};

/// [Devlin], section 4.1: cross-entropy for one class, squared error for a regression, binary cross-entropy for
/// several labels.
class Classes final : public ReferenceLoss {
 public:
  Classes(const ReferenceLossSettings& settings, const WeightOf& weight)
      : encoder_(settings.config, weight, settings.seed),
        several_(settings.kind == ReferenceKind::several_labels) {}
  Counts counts(const ReferenceRow& row) const override {
    return {{term(), several_ ? size_of(row.labels) : 1}};
  }
  Sums sums(const ReferenceRow& row) const override {
    const at::Tensor hidden = encoder_.run(row.token_ids, row.token_type_ids, row.draw).back().hidden;
    const at::Tensor logits = encoder_.class_logits(hidden, row.draw);
    if (several_) return {{term(), yes_or_no_loss(logits.squeeze(0), row.labels)}};
    if (is_number()) return {{term(), (logits.squeeze(0) - row.labels).square().sum()}};
    return {{term(), cross_entropy(logits, row.labels.to(at::kLong))}};
  }

 private:
  bool is_number() const {
    const format::ModelConfig& config = encoder_.config();
    return config.problem_type == "regression" || (config.problem_type.empty() && config.num_labels == 1);
  }
  std::string term() const {
    return several_ ? "multi_label" : is_number() ? "regression" : "classification";
  }

  ReferenceEncoder encoder_;
  bool several_;
};

/// [Hinton], section 2, with given shares as the teacher's distribution: cross-entropy at a temperature, times its
/// square. Rows are weighted.
class Shares final : public ReferenceLoss {
 public:
  Shares(const ReferenceLossSettings& settings, const WeightOf& weight)
      : settings_(settings),
        encoder_(settings.config, weight, settings.seed),
        several_(settings.kind == ReferenceKind::several_shares) {}
  Counts counts(const ReferenceRow& row) const override {
    const double asked = several_ ? row.labels.isfinite().sum().item<double>() : 1;
    return {{term(), asked * row.weight}};
  }
  Sums sums(const ReferenceRow& row) const override {
    const double temperature = settings_.temperature;
    const at::Tensor hidden = encoder_.run(row.token_ids, row.token_type_ids, row.draw).back().hidden;
    const at::Tensor logits =
        encoder_.class_logits(hidden.narrow(0, 0, 1), row.draw).squeeze(0) / temperature;
    const at::Tensor loss = several_ ? of_labels(logits, row.labels) : of_classes(logits, row.labels);
    return {{term(), loss * (row.weight * temperature * temperature)}};
  }

 private:
  const char* term() const { return several_ ? "multi_label" : "classification"; }
  at::Tensor flat(const at::Tensor& share) const { return share.pow(1 / settings_.temperature); }

  at::Tensor of_classes(const at::Tensor& logits, const at::Tensor& shares) const {
    const at::Tensor raised = flat(shares);
    const double uniform = settings_.smoothing / size_of(shares);
    const at::Tensor target = raised / raised.sum() * (1 - settings_.smoothing) + uniform;
    return -(target * at::log_softmax(logits, 0)).sum();
  }

  at::Tensor of_labels(const at::Tensor& logits, const at::Tensor& shares) const {
    const at::Tensor known = shares.isfinite(), given = shares.masked_select(known);
    const at::Tensor yes = flat(given), no = flat(1 - given);
    return yes_or_no_loss(logits.masked_select(known), yes / (yes + no));
  }

  ReferenceLossSettings settings_;
  ReferenceEncoder encoder_;
  bool several_;
};

/// [Devlin], section 5.3: the last vector of each word's first token, dropped as in the published code.
class WordTags final : public ReferenceLoss {
 public:
  WordTags(const ReferenceLossSettings& settings, const WeightOf& weight)
      : encoder_(settings.config, weight, settings.seed) {}
  Counts counts(const ReferenceRow& row) const override { return {{"tags", size_of(row.tag_positions)}}; }
  Sums sums(const ReferenceRow& row) const override {
    const double probability = encoder_.family().tags_drop_hidden ? encoder_.config().encoder.dropouts.hidden
                                                                  : encoder_.classifier_dropout();
    const at::Tensor hidden = encoder_.drop(
        encoder_.token_layer(encoder_.run(row.token_ids, row.token_type_ids, row.draw).back().hidden),
        probability, Purpose::dropout_classifier, 0, row.draw);
    const at::Tensor logits = encoder_.linear(hidden.index_select(0, row.tag_positions), "classifier");
    return {{"tags", cross_entropy(logits, row.labels.to(at::kLong))}};
  }

 private:
  ReferenceEncoder encoder_;
};

/// [Clark], section 2; section 3.2 for the shared embeddings. The generator's guesses are drawn from its softmax and
/// replace the masked tokens. The discriminator tells for each token whether it was replaced.
class ReplacedTokens final : public ReferenceLoss {
 public:
  ReplacedTokens(const ReferenceLossSettings& settings, const WeightOf& weight)
      : generator_(settings.generator, of_generator(settings.generator, weight),
                   hash_bytes(fmt::format("{} {}", kPrefix, settings.seed))),
        discriminator_(settings.config, weight, settings.seed),
        replaced_weight_(settings.replaced_weight) {}
  Counts counts(const ReferenceRow& row) const override {
    return {{"mlm", size_of(row.masked_positions)}, {"replaced", size_of(row.token_ids)}};
  }
  double weight(const std::string& term) const override { return term == "replaced" ? replaced_weight_ : 1; }
  Sums sums(const ReferenceRow& row) const override {
    const at::Tensor guessed = generator_.run(row.token_ids, row.token_type_ids, row.draw).back().hidden;
    const at::Tensor words = generator_.word_logits(guessed.index_select(0, row.masked_positions));
    const at::Tensor drawn = draw(words.detach(), row.sampling_bits);
    const at::Tensor ids = row.token_ids.index_copy(0, row.masked_positions, drawn);
    const at::Tensor replaced =
        at::zeros({ids.size(0)}, at::kDouble)
            .index_copy(0, row.masked_positions, drawn.ne(row.original_tokens).to(at::kDouble));
    const format::Family::ReplacedTokens& names = discriminator_.family().replaced_tokens;
    const at::Tensor hidden = discriminator_.run(ids, row.token_type_ids, row.draw).back().hidden;
    const at::Tensor logits = discriminator_.linear(
        discriminator_.activate(discriminator_.linear(hidden, names.dense)), names.output);
    return {{"mlm", cross_entropy(words, row.original_tokens)},
            {"replaced", yes_or_no_loss(logits.squeeze(1), replaced)}};
  }

 private:
  static constexpr const char* kPrefix = "generator.";

  /// The tables of embeddings and their normalisation are the discriminator's; all else is the generator's own.
  static WeightOf of_generator(const format::ModelConfig& config, WeightOf weight) {
    const format::Family& family = format::family_of(config);
    return [&family, weight = std::move(weight)](const std::string& name) -> const at::Tensor& {
      const format::WeightNames& names = family.names;
      for (const std::string& common :
           {names.words, names.positions, names.token_types, names.embedding_norm})
        if (name.starts_with(family.in_encoder(common) + ".")) return weight(name);
      return weight(kPrefix + name);
    };
  }

  /// Inverse transform sampling: the first word whose cumulative probability is above the uniform number.
  static at::Tensor draw(const at::Tensor& logits, const at::Tensor& bits) {
    const at::Tensor uniform = bits.to(at::kDouble) * std::ldexp(1.0, -53);
    const at::Tensor below = at::softmax(logits, 1).cumsum(1).le(uniform.unsqueeze(1));
    return below.sum(1).clamp_max(logits.size(1) - 1);
  }

  ReferenceEncoder generator_, discriminator_;
  double replaced_weight_;
};

/// The terms of distillation that ReferenceLossSettings names.
class Distilled final : public ReferenceLoss {
 public:
  Distilled(const ReferenceLossSettings& settings, const WeightOf& weight)
      : settings_(settings),
        student_(settings.config, weight, settings.seed),
        teacher_(
            settings.teacher,
            [weight](const std::string& name) -> const at::Tensor& { return weight("teacher." + name); },
            std::nullopt) {}
  double weight(const std::string& term) const override { return settings_.terms.at(term); }

  Counts counts(const ReferenceRow& row) const override {
    const double tokens = size_of(row.token_ids),
                 masked = row.masked_positions.defined() ? size_of(row.masked_positions) : 0;
    const auto width = static_cast<double>(settings_.config.encoder.width),
               heads = static_cast<double>(settings_.config.encoder.heads);
    const auto relation_heads = static_cast<double>(settings_.relation_heads);
    double patient = 0;
    for (const auto& [student, teacher] : settings_.layers) patient += is_patient(student) ? width : 0;
    const Counts all = {{"attention", heads * tokens * tokens},
                        {"hidden", tokens * static_cast<double>(settings_.teacher.encoder.width)},
                        {"soft", static_cast<double>(settings_.config.num_labels)},
                        {"hard", 1},
                        {"patient", patient},
                        {"relations", tokens * relation_heads},
                        {"cosine", tokens},
                        {"tokens", masked},
                        {"all-tokens", tokens},
                        {"mlm", masked}};
    Counts counts;
    for (const auto& [term, weight] : settings_.terms) counts[term] = all.at(term);
    return counts;
  }

  Sums sums(const ReferenceRow& row) const override {
    const Layers own = student_.run(row.token_ids, row.token_type_ids, row.draw),
                 theirs = teacher_.run(row.token_ids, row.token_type_ids, row.draw);
    Sums sums;
    for (const auto& [term, weight] : settings_.terms) sums[term] = sum_of(term, row, own, theirs);
    return sums;
  }

 private:
  using Layers = std::vector<ReferenceLayer>;

  bool is_patient(int64_t student) const { return student < settings_.config.encoder.layers; }

  at::Tensor sum_of(const std::string& term, const ReferenceRow& row, const Layers& own,
                    const Layers& theirs) const {
    const at::Tensor &last = own.back().hidden, &taught = theirs.back().hidden;
    if (term == "attention") return attention(own, theirs);
    if (term == "hidden") return hidden(own, theirs);
    if (term == "patient") return patient(own, theirs);
    if (term == "relations") return relations(own.back(), theirs.back());
    if (term == "cosine")  // [Sanh], section 3
      return size_of(last) - at::cosine_similarity(last, taught, 1).sum();
    if (term == "mlm") return cross_entropy(words(student_, last, row), row.original_tokens);
    if (term == "tokens") return divergence(words(student_, last, row), words(teacher_, taught, row));
    if (term == "all-tokens") return divergence(student_.word_logits(last), teacher_.word_logits(taught));
    const at::Tensor logits = student_.class_logits(last, row.draw);
    if (term == "hard") return cross_entropy(logits, row.labels.to(at::kLong));
    // [Jiao], equation 10.
    const at::Tensor target = at::softmax(teacher_.class_logits(taught, row.draw) / settings_.temperature, 1);
    return -(target * at::log_softmax(logits / settings_.temperature, 1)).sum();
  }

  static at::Tensor words(const ReferenceEncoder& encoder, const at::Tensor& hidden,
                          const ReferenceRow& row) {
    return encoder.word_logits(hidden.index_select(0, row.masked_positions));
  }

  /// [Hinton], section 2: cross-entropy at a temperature, times its square. In [Sanh] it is the KL divergence.
  at::Tensor divergence(const at::Tensor& logits, const at::Tensor& taught) const {
    const double temperature = settings_.temperature;
    const at::Tensor target = at::softmax(taught / temperature, 1);
    return temperature * temperature *
           (target * (at::log(target) - at::log_softmax(logits / temperature, 1))).sum();
  }

  /// x [n, width] as products of its rows in each head, over √d: [heads, n, n].
  static at::Tensor scores(const at::Tensor& a, const at::Tensor& b, int64_t heads) {
    const int64_t rows = a.size(0), width = a.size(1) / heads;
    const auto of_heads = [&](const at::Tensor& x) { return x.view({rows, heads, width}).transpose(0, 1); };
    return at::matmul(of_heads(a), of_heads(b).transpose(1, 2)) / std::sqrt(static_cast<double>(width));
  }

  /// [Jiao], equation 7, of scores before the softmax, as the text below it says.
  at::Tensor attention(const Layers& own, const Layers& theirs) const {
    const int64_t heads = settings_.config.encoder.heads;
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (const auto& [student, teacher] : settings_.layers) {
      const ReferenceLayer &a = own.at(static_cast<size_t>(student)),
                           &b = theirs.at(static_cast<size_t>(teacher));
      sum = sum + (scores(a.query, a.key, heads) - scores(b.query, b.key, heads)).square().sum();
    }
    return sum;
  }

  /// [Jiao], equations 8 and 9: the embeddings, too, by one learnt projection for all layers, as in the published code.
  at::Tensor hidden(const Layers& own, const Layers& theirs) const {
    at::Tensor sum = at::zeros({}, at::kDouble);
    std::vector<std::pair<int64_t, int64_t>> pairs = settings_.layers;
    pairs.emplace_back(0, 0);
    for (const auto& [student, teacher] : pairs)
      sum = sum + (student_.linear(own.at(static_cast<size_t>(student)).hidden, "distillation.projection") -
                   theirs.at(static_cast<size_t>(teacher)).hidden)
                      .square()
                      .sum();
    return sum;
  }

  /// [Sun], equation 7, of layers below the student's last.
  at::Tensor patient(const Layers& own, const Layers& theirs) const {
    const auto unit = [](const ReferenceLayer& layer) {
      const at::Tensor first = layer.hidden.select(0, 0);
      return first / first.square().sum().sqrt();
    };
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (const auto& [student, teacher] : settings_.layers)
      if (is_patient(student))
        sum =
            sum + (unit(own.at(static_cast<size_t>(student))) - unit(theirs.at(static_cast<size_t>(teacher))))
                      .square()
                      .sum();
    return sum;
  }

  /// [Wang], equations 5 to 8: relations among queries, among keys and among values.
  at::Tensor relations(const ReferenceLayer& own, const ReferenceLayer& theirs) const {
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (const auto part : {&ReferenceLayer::query, &ReferenceLayer::key, &ReferenceLayer::value}) {
      const at::Tensor a = at::log_softmax(scores(own.*part, own.*part, settings_.relation_heads), -1),
                       b = at::softmax(scores(theirs.*part, theirs.*part, settings_.relation_heads), -1);
      sum = sum + (b * (at::log(b) - a)).sum();
    }
    return sum;
  }

  ReferenceLossSettings settings_;
  ReferenceEncoder student_, teacher_;
};

}  // namespace

std::unique_ptr<ReferenceLoss> make_reference_loss(const ReferenceLossSettings& settings,
                                                   const ReferenceEncoder::WeightOf& weight) {
  switch (settings.kind) {
    case ReferenceKind::masked_lm:
    case ReferenceKind::sentence_order:
      return std::make_unique<MaskedWords>(settings, weight, settings.kind == ReferenceKind::sentence_order);
    case ReferenceKind::electra:
      return std::make_unique<ReplacedTokens>(settings, weight);
    case ReferenceKind::tags:
      return std::make_unique<WordTags>(settings, weight);
    case ReferenceKind::shares:
    case ReferenceKind::several_shares:
      return std::make_unique<Shares>(settings, weight);
    case ReferenceKind::related_texts:
    case ReferenceKind::scored_texts:
    case ReferenceKind::ranked_texts:
      return make_reference_batch_loss(settings, weight);
    case ReferenceKind::distillation:
      return std::make_unique<Distilled>(settings, weight);
    default:
      return std::make_unique<Classes>(settings, weight);
  }
}

}  // namespace funicular::prove
