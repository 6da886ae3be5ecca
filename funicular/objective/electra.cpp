#include "funicular/objective/electra.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/log.h"
#include "funicular/base/random.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/model/builder.h"
#include "funicular/model/own_decoder.h"
#include "funicular/model/replaced_tokens.h"
#include "funicular/objective/metrics.h"

namespace funicular::objective {

namespace {

constexpr const char *kIds = "token_ids", *kReplaced = "replaced", *kBits = "sampling_bits";

/// The share of the chosen tokens that become [MASK] in the authors' code; the rest stays as it is.
constexpr double kMaskShare = 0.85;

// ---- the generator

/// Returns the batch's tokens with the drawn tokens in the places of the chosen ones. A second tensor marks the drawn
/// tokens that differ from the original.
Activations with_drawn_tokens(const at::Tensor& ids, const at::Tensor& drawn, const MicroBatch& batch) {
  const at::Tensor &rows = batch["mlm_rows"], &labels = batch["mlm_labels"];
  const at::Tensor differs = drawn.ne(labels).to(at::kLong);
  return {{kIds, ids.index_copy(0, rows, drawn)},
          {kReplaced, at::zeros_like(ids).index_copy(0, rows, differs)}};
}

void add_generator_head(model::Builder& builder) {
  const model::MaskedLmWeights weights = model::add_masked_lm_weights(builder);
  builder.add_segment("generator", {model::hidden_of_head(builder.options()), model::of_tokens(kIds)},
                      {model::of_tokens(kIds), model::of_tokens(kReplaced)},
                      [weights](Activations in, const Pass& pass) {
                        nn::VocabularyDraw draw;
                        draw.uniforms = pass.batch[kBits].to(at::kDouble) * 0x1p-53;
                        draw.wants_best = pass.loss.keep_outputs;
                        model::add_masked_lm_loss(in.at(model::kHidden), weights, pass, &draw);
                        if (draw.wants_best) {
                          pass.loss.output("mlm_best", draw.best);
                          pass.loss.output("mlm_labels", pass.batch["mlm_labels"]);
                        }
                        return with_drawn_tokens(in.at(kIds), draw.tokens, pass.batch);
                      },
                      {weights.decoder});
}

model::Head generator_head() {
  model::Head head = model::Head::masked_lm;
  head.name = "generator";
  head.add = add_generator_head;
  return head;
}

// ---- metrics

class ElectraMetrics final : public Metrics {
 public:
  void start() override { *this = {}; }
  void add(const TensorMap& outputs) override {
    const at::Tensor best = outputs.at("mlm_best").to(at::kCPU),
                     hidden = outputs.at("mlm_labels").to(at::kCPU);
    guessed_ += count(best.eq(hidden));
    chosen_ += static_cast<double>(hidden.numel());
    const at::Tensor told = outputs.at("replaced_logits").to(at::kCPU).gt(0);
    const at::Tensor replaced = outputs.at("replaced").to(at::kCPU).to(at::kBool);
    tokens_ += static_cast<double>(replaced.numel());
    right_ += count(told.eq(replaced));
    told_ += count(told);
    replaced_ += count(replaced);
    found_ += count(told.logical_and(replaced));
  }
  void losses(const std::map<std::string, double>& terms) override { mlm_ = terms.at("mlm"); }
  std::map<std::string, double> finish(double) override {
    return {{"perplexity", perplexity(mlm_)},
            {"generator_accuracy", share(guessed_, chosen_)},
            {"discriminator_accuracy", share(right_, tokens_)},
            {"replaced_precision", share(found_, told_)},
            {"replaced_recall", share(found_, replaced_)}};
  }

 private:
  static double count(const at::Tensor& flags) { return static_cast<double>(flags.sum().item<int64_t>()); }
  /// 0 if `whole` is 0, as in scikit-learn.
  static double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

  double mlm_ = 0, guessed_ = 0, chosen_ = 0, tokens_ = 0, right_ = 0, told_ = 0, replaced_ = 0, found_ = 0;
};

// ---- batches

/// Random bits for the masked tokens, keyed by the seed, the draw of the token's sequence and its position there.
at::Tensor bits_of(const MicroBatch& batch, const RandomState& random) {
  const RandomKey key = make_key(random.seed, Purpose::mask_replace, /*layer=*/1);
  const Packing& packing = batch.packing;
  const at::Tensor& rows = batch["mlm_rows"];
  const at::Tensor bits = at::empty({rows.numel()}, at::kLong);
  const int64_t* const row = rows.const_data_ptr<int64_t>();
  size_t sequence = 0;
  for (int64_t i = 0; i < rows.numel(); ++i) {
    while (packing.host_offsets[sequence + 1] <= row[i]) ++sequence;
    const auto position = static_cast<uint32_t>(row[i] - packing.host_offsets[sequence]);
    const auto draw = static_cast<uint64_t>(packing.host_draw_ids[sequence]);
    bits.data_ptr<int64_t>()[i] =
        static_cast<int64_t>(uniform(philox(key, make_counter(0, position, draw))) * 0x1p53);
  }
  return bits;
}

MaskedLmOptions with_shares(MaskedLmOptions masking) {
  masking.mask_share = kMaskShare;
  masking.random_share = 0;
  return masking;
}

void require_same_embeddings(const format::ModelConfig& a, const format::ModelConfig& b) {
  if (a.encoder.vocabulary == b.encoder.vocabulary && a.encoder.positions.rows == b.encoder.positions.rows &&
      a.encoder.token_types == b.encoder.token_types &&
      a.encoder.embedding_width() == b.encoder.embedding_width())
    return;
  throw InputError(
      "electra",
      "generator and discriminator share their embeddings, so both tables need one size. Found {} tokens, {} "
      "positions and {} segments of {}, and {}, {} and {} of {}. Give the generator that was trained with "
      "this model (funicular vocabulary extend keeps it), or start a new one: --generator random",
      a.encoder.vocabulary, a.encoder.positions.rows, a.encoder.token_types, a.encoder.embedding_width(),
      b.encoder.vocabulary, b.encoder.positions.rows, b.encoder.token_types, b.encoder.embedding_width());
}

/// Reads a BERT as a generator. Warns if the BERT's head was trained with another activation than a generator's head
/// uses.
void read_generator_as_electra(model::Pretrained& generator) {
  const bool own_activation = !format::family_of(generator.config()).masked_lm.plain_gelu;
  generator.read_as_electra();
  const std::string& activation = generator.config().encoder.activation;
  if (own_activation && format::family_of(generator.config()).masked_lm.plain_gelu && activation != "gelu")
    log::warning(
        "{}: the masked-token head of this BERT was trained with {}, and a generator's head computes gelu: "
        "its first guesses are worse than the BERT's. A generator with gelu avoids this; so does --generator "
        "random",
        generator.path().string(), activation);
}

/// Loads the generator's own weights in the joint model from the generator's folder.
void load_generator(Model& model, const fs::path& folder) {
  const std::string prefix = kGenerator;
  const auto in_file = [&](const std::string& name) {
    return name.starts_with(prefix) ? name.substr(prefix.size()) : std::string();
  };
  model::LoadReport report = model::load_pretrained(model, folder, "", in_file);
  std::erase_if(report.missing, [&](const std::string& name) { return !name.starts_with(prefix); });
  if (!report.missing.empty())
    throw InputError(
        "electra",
        "{}: expected a generator (ElectraForMaskedLM), as pretrain --keep-generator leaves it, found "
        "one without {} and {} other weights; give another, or begin a new one: --generator random",
        folder.string(), in_file(report.missing.front()), report.missing.size() - 1);
}

/// The weights that the generator shares with the discriminator.
std::vector<std::string> shared_weights(const format::ModelConfig& config) {
  const format::Family& family = format::family_of(config);
  const format::WeightNames& names = family.names;
  std::vector<std::string> all;
  for (const std::string& name :
       {names.words + ".weight", names.positions + ".weight", names.token_types + ".weight",
        names.embedding_norm + ".weight", names.embedding_norm + ".bias"})
    all.push_back(family.in_encoder(name));
  return all;
}

}  // namespace

format::ModelConfig generator_config(const format::ModelConfig& discriminator, double size, int64_t layers) {
  constexpr int64_t kHead = 64;
  format::ModelConfig config = discriminator;
  config.encoder.embedding_size = discriminator.encoder.embedding_width();
  config.tie_word_embeddings = model::says_tied(discriminator);  // a new head has new weights
  const auto width =
      static_cast<int64_t>(std::llround(size * static_cast<double>(discriminator.encoder.width)));
  config.encoder.heads = std::max<int64_t>(1, width / kHead);
  config.encoder.width = std::max<int64_t>(1, width / config.encoder.heads) * config.encoder.heads;
  config.encoder.feed_forward.width = 4 * config.encoder.width;
  if (layers > 0) config.encoder.set_layers(layers);
  return config;
}

Model join_electra(model::ModelOptions discriminator, model::ModelOptions generator, double weight) {
  require_same_embeddings(discriminator.config, generator.config);
  discriminator.head = model::replaced_tokens_head(weight);
  generator.head = generator_head();
  Model model = model::build_model(discriminator);
  Scope scope{.prefix = kGenerator, .shared_ports = {kIds, "token_type_ids", kReplaced}};
  const std::vector<std::string> own = shared_weights(discriminator.config),
                                 theirs = shared_weights(generator.config);
  for (size_t i = 0; i < own.size(); ++i) scope.shared_weights[theirs[i]] = own[i];
  scope.exported = false;
  scope.first = true;
  model.append(model::build_model(generator), scope);
  return model;
}

Electra::Electra(const text::Tokenizer& tokenizer, const MaskedLmOptions& masking,
                 const ElectraOptions& options)
    : options_(options), masked_lm_(tokenizer, with_shares(masking)) {
  const fs::path& generator = options.generator;
  if (!generator.empty()) {
    generator_.emplace(generator, model::Pretrained::Expect::folder, "--generator");
    read_generator_as_electra(*generator_);
  }
  if (generator_ && format::has_tokenizer(generator) &&
      format::load_tokenizer(generator)->fingerprint() != tokenizer.fingerprint())
    throw InputError(
        "electra",
        "{}: the generator's tokeniser is not the model's ({}); give the generator that was trained with "
        "this model, or begin a new one: --generator random",
        generator.string(), tokenizer.description());
  if (masking.compat == Compat::hf && masking.masking == Masking::whole_word)
    throw InputError("electra",
                     "--compat hf replaces every token of a masked word by [MASK], but ELECTRA does so for "
                     "{} % of them; leave --compat out, or give another value",
                     100 * kMaskShare);
  if (!(options.generator_size > 0 && options.generator_size <= 1))
    throw InputError("electra", "expected a size of the generator above 0 and at most 1, found {}",
                     options.generator_size);
  if (options.generator_layers < 0)
    throw InputError("electra",
                     "expected layers of the generator, or 0 for as many as the discriminator's, found {}",
                     options.generator_layers);
  if (generator_ && options.generator_layers > 0)
    throw InputError("electra",
                     "{}: this generator has its own layers; leave out generator_layers, or the generator",
                     generator.string());
  if (!(options.weight >= 0))
    throw InputError("electra", "expected a weight of the discriminator's loss of at least 0, found {}",
                     options.weight);
}

MicroBatch Electra::collate(std::span<const data::Sample> samples, const RandomState& random) const {
  MicroBatch batch = masked_lm_.collate(samples, random);
  batch.tensors[kBits] = bits_of(batch, random);
  batch.counts[kReplaced] = static_cast<double>(batch.packing.tokens());
  return batch;
}

model::Head Electra::head() const {
  return model::replaced_tokens_head(options_.weight);
}

Model Electra::build(model::ModelOptions discriminator) const {
  model::ModelOptions generator = discriminator;
  generator.config = config_of_generator(discriminator.config);
  generator.loaded = generator_ ? generator_->options().loaded : nullptr;
  generator.seed = hash_bytes(fmt::format("{} {}", kGenerator, discriminator.seed));
  Model model = join_electra(std::move(discriminator), std::move(generator), options_.weight);
  if (generator_) load_generator(model, generator_->path());
  model.declare_loss(loss_over());
  return model;
}

format::ModelConfig Electra::config_of_generator(const format::ModelConfig& discriminator) const {
  if (generator_) return generator_->config();
  return generator_config(discriminator, options_.generator_size, options_.generator_layers);
}

std::unique_ptr<Metrics> Electra::metrics() const {
  return std::make_unique<ElectraMetrics>();
}

std::map<std::string, std::string> Electra::identity() const {
  std::map<std::string, std::string> all = masked_lm_.identity();
  std::string generator = generator_ ? fmt::format("the generator {}", generator_->weights_hash())
                                     : fmt::format("a generator of {} of the width", options_.generator_size);
  if (!generator_ && options_.generator_layers > 0)
    generator += fmt::format(" and {} layers", options_.generator_layers);
  all["objective"] = fmt::format("electra, {}, weight {}, {}", generator, options_.weight, all["objective"]);
  return all;
}

void Electra::save_more(const Model& model, const format::ModelConfig& config,
                        const text::Tokenizer& tokenizer, const fs::path& folder) const {
  if (!options_.keep_generator) return;
  const std::string prefix = kGenerator;
  std::map<std::string, at::Tensor> weights;
  for (const auto& parameter : model.parameters)
    for (const Parameter::Slice& slice : parameter->slices)
      if (slice.name.starts_with(prefix))
        weights[slice.name.substr(prefix.size())] =
            parameter->master.detach().narrow(0, slice.begin, slice.end - slice.begin);
  for (const std::string& name : shared_weights(config)) weights[name] = model.find(name)->master.detach();
  const format::ModelConfig own = config_of_generator(config);
  model::save_weights(weights, own, generator_head(), folder / model::kGeneratorFolder);
  model::save_tokenizer(own, tokenizer, folder / model::kGeneratorFolder);
}

}  // namespace funicular::objective
