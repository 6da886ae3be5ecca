#pragma once
// Replaced token detection (Clark, Luong, Le, Manning, "ELECTRA: Pre-training Text Encoders as Discriminators
// Rather Than Generators", ICLR 2020, section 2): a small generator guesses hidden tokens, and a
// discriminator tells of every token whether the generator has put it there.

#include <memory>
#include <optional>

#include "funicular/model/pretrained.h"
#include "funicular/objective/masked_lm.h"

namespace funicular::objective {

struct ElectraOptions {
  double generator_size = 0.25;  ///< the generator's hidden size, as a share of the discriminator's; (0, 1]
  int64_t generator_layers = 0;  ///< a new generator's alone; 0: as many as the discriminator's
  double weight = 50;           ///< of the discriminator's loss; the generator's is 1 (the paper's section 2)
  bool keep_generator = false;  ///< leaves the generator in FOLDER/generator, too
  /// Folder of a generator (transformers' ElectraForMaskedLM or BertForMaskedLM) to continue with. Its layers and its size
  /// count. Its embeddings are not read, for they are the discriminator's. Empty: a new one with random weights.
  fs::path generator = {};
};

/// Of the tokens of a sequence 15 % are chosen; the generator sees [MASK] in place of 85 % of them and
/// guesses all (as the authors' code does; no token is replaced at random). What it guesses is drawn from its
/// softmax and takes the tokens' places in what the discriminator reads; no gradient passes through the draw.
/// A token counts as replaced where it then differs from what stood there.
///
/// Both have the tables of embeddings and their normalisation in common; what brings these to the layers'
/// width is each one's own.
///
/// Batch: that of MaskedLm, and `sampling_bits` [M] int64, 53 random bits keyed by seed, draw
/// and position: integers, which no precision of training rounds. Counts:
/// `mlm` = M, `replaced` = T: all tokens, special ones included. The loss is that of the generator and 50
/// times the discriminator's: at the start of training ln V + 50 ln 2.
class Electra : public Objective {
 public:
  /// Copies what it needs of the vocabulary. Throws InputError without [CLS], [SEP] or [MASK], and for
  /// options out of range, and for a generator of another tokenizer. `masking.mask_share` and `random_share` are not read.
  Electra(const text::Tokenizer& tokenizer, const MaskedLmOptions& masking, const ElectraOptions& options);
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  int64_t length(const data::Sample& sample) const override { return masked_lm_.length(sample); }
  std::shared_ptr<const data::Dataset> samples(std::shared_ptr<const data::TokenStore> store) const override {
    return masked_lm_.samples(std::move(store));
  }
  /// The discriminator's.
  model::Head head() const override;
  /// The discriminator of these options, and before it the generator, with its weights or random ones; see
  /// join_electra.
  Model build(model::ModelOptions discriminator) const override;
  /// perplexity and generator_accuracy (of the chosen tokens), discriminator_accuracy (of all), and
  /// replaced_precision and replaced_recall.
  std::unique_ptr<Metrics> metrics() const override;
  LossOver loss_over() const override { return of_class<Electra>(); }
  std::map<std::string, std::string> identity() const override;
  /// The generator, as transformers' ElectraForMaskedLM, in folder/generator.
  void save_more(const Model& model, const format::ModelConfig& config, const text::Tokenizer& tokenizer,
                 const fs::path& folder) const override;

 private:
  format::ModelConfig config_of_generator(const format::ModelConfig& discriminator) const;
  ElectraOptions options_;
  std::optional<model::Pretrained> generator_;  ///< none: a new one
  MaskedLm masked_lm_;                          ///< whose batches the generator reads
};

/// Begins the names of the generator's own weights.
inline constexpr const char* kGenerator = "generator.";

/// The discriminator's configuration with layers of `size` times the width (to the nearest whole number of
/// heads of 64 channels, or as wide as it is where it is narrower), inner layers of four times that, and as
/// many of them unless `layers` is above 0, as the authors' code makes it.
format::ModelConfig generator_config(const format::ModelConfig& discriminator, double size,
                                     int64_t layers = 0);

/// One model of both; the heads of the options are not read. Segments: the generator's, then the
/// discriminator's. The generator's last segment gives `token_ids` and `replaced`, which the discriminator
/// reads. Outputs, where they are kept: `mlm_best` and `mlm_labels` [M], `replaced_logits` and `replaced`
/// [T]. Throws InputError for configurations of another family, or of which the embeddings differ in size.
Model join_electra(model::ModelOptions discriminator, model::ModelOptions generator, double weight = 50);

}  // namespace funicular::objective
