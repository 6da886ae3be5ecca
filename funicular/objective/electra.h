#pragma once
// Replaced token detection (Clark, Luong, Le, Manning, "ELECTRA: Pre-training Text Encoders as Discriminators Rather
// Than Generators", ICLR 2020, section 2): A small generator guesses masked tokens, and a discriminator tells for
// every token whether the generator replaced it.

#include <memory>
#include <optional>

#include "funicular/model/pretrained.h"
#include "funicular/objective/masked_lm.h"

namespace funicular::objective {

struct ElectraOptions {
  double generator_size = 0.25;  ///< the generator's hidden size, as a share of the discriminator's; (0, 1]
  int64_t generator_layers = 0;  ///< for a new generator; 0: as many as the discriminator has
  double weight = 50;  ///< weight of the discriminator's loss; the generator's is 1 (the paper's section 2)
  bool keep_generator = false;  ///< also saves the generator, in FOLDER/generator
  /// Folder of a generator (transformers' ElectraForMaskedLM or BertForMaskedLM) to continue with. It sets the
  /// generator's layers and size. Its embeddings are not read, as the generator shares the discriminator's. Empty: a
  /// new generator with random weights.
  fs::path generator = {};
};

/// The objective chooses 15 % of a sequence's tokens. As in the authors' code, the generator sees [MASK] in place of
/// 85 % of the chosen tokens and guesses all of them. No token becomes a random one. Each guess is drawn from the
/// generator's softmax and replaces the token in the discriminator's input. No gradient passes through the draw. A
/// token counts as replaced if the guess differs from the original token.
///
/// Generator and discriminator share the embedding tables and their layer norm. Each has its own projection from the
/// embeddings to the width of its layers.
///
/// Batch: MaskedLm's, and `sampling_bits` [M] int64, 53 random bits keyed by seed, draw and position. They are
/// integers, so that no training precision rounds them. Counts: `mlm` = M, `replaced` = T, all tokens including
/// special ones. The loss is the generator's plus 50 times the discriminator's. At the start of training it is about
/// ln V + 50 ln 2.
class Electra : public Objective {
 public:
  /// Copies the parts of the vocabulary that it needs. Throws InputError without [CLS], [SEP] or [MASK], for options
  /// out of range, and for a generator with another tokenizer. `masking.mask_share` and `random_share` are not read.
  Electra(const text::Tokenizer& tokenizer, const MaskedLmOptions& masking, const ElectraOptions& options);
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  int64_t length(const data::Sample& sample) const override { return masked_lm_.length(sample); }
  std::shared_ptr<const data::Dataset> samples(std::shared_ptr<const data::TokenStore> store) const override {
    return masked_lm_.samples(std::move(store));
  }
  /// The discriminator's head.
  model::Head head() const override;
  /// The generator, with its loaded or random weights, followed by the discriminator of these options; see
  /// join_electra.
  Model build(model::ModelOptions discriminator) const override;
  /// perplexity and generator_accuracy (over the chosen tokens), discriminator_accuracy, replaced_precision and
  /// replaced_recall (over all tokens).
  std::unique_ptr<Metrics> metrics() const override;
  LossOver loss_over() const override { return of_class<Electra>(); }
  std::map<std::string, std::string> identity() const override;
  /// Saves the generator, as transformers' ElectraForMaskedLM, in folder/generator.
  void save_more(const Model& model, const format::ModelConfig& config, const text::Tokenizer& tokenizer,
                 const fs::path& folder) const override;

 private:
  format::ModelConfig config_of_generator(const format::ModelConfig& discriminator) const;
  ElectraOptions options_;
  std::optional<model::Pretrained> generator_;  ///< none: a new generator
  MaskedLm masked_lm_;                          ///< makes the generator's batches
};

/// Prefix of the names of the generator's own weights.
inline constexpr const char* kGenerator = "generator.";

/// Derives a new generator's configuration from the discriminator's, as the authors' code does. The width is `size`
/// times the discriminator's. It has one head per 64 channels, rounded down but at least one, and is rounded down to
/// a multiple of the heads. The feed-forward layers are four times as wide. `layers`: the number of layers; 0: as
/// many as the discriminator's.
format::ModelConfig generator_config(const format::ModelConfig& discriminator, double size,
                                     int64_t layers = 0);

/// Joins generator and discriminator to one model; the heads in the options are not read. Segments: the generator's,
/// then the discriminator's. The generator's last segment gives `token_ids` and `replaced`, which the discriminator
/// reads. Outputs, if they are kept: `mlm_best` and `mlm_labels` [M], `replaced_logits` and `replaced` [T]. Throws
/// InputError for configurations of another family, and for embeddings of different sizes.
Model join_electra(model::ModelOptions discriminator, model::ModelOptions generator, double weight = 50);

}  // namespace funicular::objective
